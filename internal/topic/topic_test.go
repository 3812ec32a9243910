package topic

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	topicRE   = regexp.MustCompile(`\A[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\z`)
	patternRE = regexp.MustCompile(`\A(([A-Za-z0-9_-]+|\*)\.)*([A-Za-z0-9_-]+|\*|>)\z`)
)

// twinMatch turns the pattern into a regular expression.
func twinMatch(pattern, topic string) bool {
	toks := strings.Split(pattern, ".")
	for i, t := range toks {
		switch t {
		case "*":
			toks[i] = `[^.]+`
		case ">":
			toks[i] = `.+`
		default:
			toks[i] = regexp.QuoteMeta(t)
		}
	}
	return regexp.MustCompile(`\A` + strings.Join(toks, `\.`) + `\z`).MatchString(topic)
}

func TestValid(t *testing.T) {
	long := strings.Repeat("a", MaxLen)
	for _, c := range []struct {
		s              string
		topic, pattern bool
	}{
		{"geofence", true, true},
		{"geofence.enter", true, true},
		{"A-z_9.0", true, true},
		{long, true, true},
		{long + "a", false, false},
		{"", false, false},
		{".", false, false},
		{"a.", false, false},
		{".a", false, false},
		{"a..b", false, false},
		{"a b", false, false},
		{"a/b", false, false},
		{"ü", false, false},
		{"a\x00", false, false},
		{"a\n", false, false},
		{"[", false, false},
		{"@", false, false},
		{"{", false, false},
		{"*", false, true},
		{">", false, true},
		{"a.*.b", false, true},
		{"a.>", false, true},
		{">.a", false, false},
		{"a.>.b", false, false},
		{"a*", false, false},
		{"a.b>", false, false},
		{"**", false, false},
		{"a.*.>", false, true},
	} {
		if got := Valid(c.s); got != c.topic {
			t.Errorf("Valid(%q) = %v", c.s, got)
		}
		if got := ValidPattern(c.s); got != c.pattern {
			t.Errorf("ValidPattern(%q) = %v", c.s, got)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"a", "a", true},
		{"a", "A", false},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a.b", "a.b", true},
		{"*", "a", true},
		{"*", "a.b", false},
		{"a.*", "a", false},
		{"a.*", "a.b", true},
		{"a.*", "a.b.c", false},
		{"*.b", "a.b", true},
		{"a.*.c", "a.b.c", true},
		{">", "a", true},
		{">", "a.b.c", true},
		{"a.>", "a", false},
		{"a.>", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "ab.c", false},
		{"a.*.>", "a.b", false},
		{"a.*.>", "a.b.c.d", true},
	} {
		if got := Match(c.pattern, c.topic); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.topic, got)
		}
	}
}

func TestMatchEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tok := rapid.SampledFrom([]string{"a", "b", "ab", "-"})
		top := strings.Join(rapid.SliceOfN(tok, 1, 5).Draw(t, "topic"), ".")
		ptok := rapid.SampledFrom([]string{"a", "b", "ab", "*", "*"})
		pat := strings.Join(rapid.SliceOfN(ptok, 1, 5).Draw(t, "pattern"), ".")
		if rapid.Bool().Draw(t, "tail") {
			pat += ".>"
		}
		if got, want := Match(pat, top), twinMatch(pat, top); got != want {
			t.Fatalf("Match(%q, %q) = %v, want %v", pat, top, got, want)
		}
	})
}

func FuzzTopic(f *testing.F) {
	f.Add("a.*.>", "a.b.c")
	f.Add("", ".")
	f.Add(">", "a..")
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		if got, want := Valid(topic), len(topic) <= MaxLen && topicRE.MatchString(topic); got != want {
			t.Fatalf("Valid(%q) = %v", topic, got)
		}
		if got, want := ValidPattern(pattern), len(pattern) <= MaxLen && patternRE.MatchString(pattern); got != want {
			t.Fatalf("ValidPattern(%q) = %v", pattern, got)
		}
		got := Match(pattern, topic)
		if Valid(topic) && ValidPattern(pattern) && got != twinMatch(pattern, topic) {
			t.Fatalf("Match(%q, %q) = %v", pattern, topic, got)
		}
		if Valid(topic) && !Match(topic, topic) {
			t.Fatalf("%q does not match itself", topic)
		}
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Match("geofence.*.>", "geofence.enter.a.b") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Match("geofence.*.>", "geofence.enter.a.b")
	}
}
