package strictyaml

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// parse returns the documents of text and what is wrong with it.
func parse(text string) ([]ast.Node, string) {
	r := Reader{File: "f"}
	docs, _ := r.Parse([]byte(text), 100, "100B")
	return docs, r.Sorted().Error()
}

// What is read is all that stands there: a document that says nothing is none, and none is lost.
func TestDocuments(t *testing.T) {
	for text, want := range map[string]struct {
		docs  int
		wrong string
	}{
		"":                           {0, ""},
		"# a comment\n":              {0, ""},
		"null":                       {0, ""},
		"---\n---\n":                 {0, ""},
		"a: 1\n---\n# nothing\n":     {1, ""},
		"# c\n---\n# c\na: 1\n...\n": {1, ""},
		"a: 1\n---\nb: 2\n":          {2, ""},
		"---\n---\na: 1":             {0, "f: must not hold an empty document; two lines of --- need something between them"},
		"a: 1\n---\n# c\n---\nb: 2":  {0, "f: must not hold an empty document; two lines of --- need something between them"},
		"a: \xff":                    {0, "f: must be text in UTF-8"},
		"a: \x00":                    {0, "f: must be text in UTF-8"},
		strings.Repeat("#", 101):     {0, "f: must be at most 100B"},
		"a: 1\nb: [":                 {0, "f:2:4: is not valid YAML: sequence end token ']' not found"},
	} {
		if docs, wrong := parse(text); len(docs) != want.docs || wrong != want.wrong {
			t.Errorf("%.20q: %d documents, %q", text, len(docs), wrong)
		}
	}
}

func TestProblemsStandWhereTheyAre(t *testing.T) {
	r := Reader{File: "f"}
	if !r.Once("b", Place{2, 1}) || !r.Once("b.c", Place{2, 4}) || r.Once("b", Place{3, 1}) {
		t.Error("a key stands once")
	}
	r.At("b.d.e", "R")
	r.At("b.c", "R")
	r.At("b.c", "R")
	r.At("x", "R")
	r.Problem(nil, "", "R")
	const want = "f: x: R\nf: R\nf:2:1: b.d.e: R\nf:2:4: b.c: R\nf:3:1: b: must stand once; it stands in line 2 too"
	if got := r.Sorted().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A value is of one type; what refers to something else, or names its own type, is of none.
func TestValuesAreOfOneType(t *testing.T) {
	for text, want := range map[string]string{
		"abc": "text", "'1'": "text", "|\n  a\n": "text", ">\n  a\n": "text", "yes": "text",
		"1": "whole", "-1": "whole", "0x10": "whole", "9223372036854775807": "whole",
		"9223372036854775808": "", "1.5": "number", ".inf": "", ".nan": "",
		"true": "", "[a]": "list", "{a: 1}": "mapping", "&a 1": "", "&a {b: 1}": "", "!!str 1": "", "!!map {b: 1}": "",
	} {
		docs, wrong := parse("k: " + text)
		if wrong != "" {
			t.Errorf("%q: %s", text, wrong)
			continue
		}
		n := Pairs(docs[0])[0].Value
		got := ""
		if _, is := Text(n); is {
			got += "text"
		}
		if _, is := Whole(n); is {
			got += "whole"
		} else if _, is := Number(n); is {
			got += "number"
		}
		if _, is := List(n, 1, Text); is {
			got += "list"
		}
		if IsMapping(n) {
			got += "mapping"
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	docs, _ := parse("[a, b]")
	if _, is := List(docs[0], 1, Text); is {
		t.Error("a list is longer than it may be")
	}
	if _, is := List(docs[0], 2, Whole); is {
		t.Error("a list holds what is not read")
	}
}

func TestFoundIsShort(t *testing.T) {
	docs, _ := parse("k: " + strings.Repeat("ä", 40))
	got := Found(Pairs(docs[0])[0].Value)
	if want := `, found "` + strings.Repeat(`\u00e4`, 30) + `..."`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDurationsHaveAUnit(t *testing.T) {
	for s, want := range map[string]time.Duration{"15s": 15 * time.Second, "1h30m": 90 * time.Minute, "3d": 72 * time.Hour, "0s": 0, "-5s": -5 * time.Second} {
		if d, err := ParseDuration(s); err != nil || d != want {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "0", "+0", "15", "d", "-1d", "1.5d", "1d1h", "65536d", "1e300s", "s"} {
		if d, err := ParseDuration(s); err == nil || d != 0 {
			t.Errorf("%q: %v", s, d)
		}
	}
	if d, _ := ParseDuration("65535d"); d <= 0 {
		t.Errorf("the longest overflows: %v", d)
	}
}
