package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// Problem is one thing that is wrong with a file: File, Line and Column (0: the whole file), Field as
// a dotted path, and Rule, which completes "must ...".
type Problem = strictyaml.Problem

// Problems is everything that is wrong with a file, in its order.
type Problems = strictyaml.Problems

// field is one key of a mapping: what it means, what is accepted, and how it is read. One with
// parts is a mapping of those; one with each reads its value by itself.
type field struct {
	name, about string
	rule        string // completes "must be"
	read        func(ast.Node) bool
	parts       func() []field
	each        func(r *reader, n ast.Node, path string) // reads a list or named parts
	sample      func() []field                           // the parts of one of them, for the documents
	under       string                                   // of sample's: ".NAME" or "[]"
}

// reader collects what is wrong with a file.
type reader struct{ strictyaml.Reader }

const (
	maxFile = 1 << 20
	maxList = 1000
)

// parse returns the root mapping, or nil.
func (r *reader) parse(data []byte) ast.Node {
	docs, ok := r.Parse(data, maxFile, "1 MiB")
	if ok && len(docs) != 1 {
		r.Problem(nil, "", "must be one document")
	}
	if len(docs) != 1 {
		return nil
	}
	return docs[0]
}

// mapping reads the fields of a mapping. What is not among them is an error.
func (r *reader) mapping(n ast.Node, path string, fields []field) {
	if !strictyaml.IsMapping(n) {
		r.Problem(n, path, "must be a mapping of keys to values"+strictyaml.Found(n))
		return
	}
	seen := map[string]int{}
	for _, kv := range strictyaml.Pairs(n) {
		key := strictyaml.Key(kv)
		at := join(path, key)
		if line, twice := seen[key]; twice {
			r.Problem(kv.Key, at, fmt.Sprintf("must stand once; it stands in line %d too", line))
			continue
		}
		seen[key] = strictyaml.PlaceOf(kv.Key).Line
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			r.Problem(kv.Key, at, "is unknown; known here: "+strings.Join(names(fields), ", "))
			continue
		}
		r.Stand(at, strictyaml.PlaceOf(kv.Key))
		r.value(&fields[i], kv, at)
	}
}

func (r *reader) value(f *field, kv *ast.MappingValueNode, at string) {
	switch {
	case f.each != nil:
		f.each(r, kv.Value, at)
	case f.parts != nil:
		r.mapping(kv.Value, at, f.parts())
	case !f.read(kv.Value):
		r.Problem(kv.Key, at, "must be "+f.rule+strictyaml.Found(kv.Value))
	}
}

func names(fields []field) (list []string) {
	for _, f := range fields {
		list = append(list, f.name)
	}
	return list
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// sorted is nil if nothing is wrong.
func (r *reader) sorted() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return r.Sorted()
}

// The leaves. Each returns a field that reads into v.

func leaf[T any](name, about, rule string, v *T, read func(ast.Node) (T, bool)) field {
	return field{name: name, about: about, rule: rule, read: func(n ast.Node) bool {
		x, is := read(n)
		if is {
			*v = x
		}
		return is
	}}
}

func word(name, about string, v *string, of ...string) field {
	return leaf(name, about, "one of "+strings.Join(of, ", "), v, func(n ast.Node) (string, bool) {
		s, is := stringOf(n)
		return s, is && slices.Contains(of, s)
	})
}

func text(name, about string, v *string) field {
	return leaf(name, about, "a text of 1 to 1,000 characters", v, func(n ast.Node) (string, bool) {
		s, is := stringOf(n)
		return s, is && s != "" && len(s) <= 1000
	})
}

func whole[T int | int64 | uint32](name, about string, from, to int64, v *T) field {
	return leaf(name, about, fmt.Sprintf("a whole number from %d to %d", from, to), v, func(n ast.Node) (T, bool) {
		i, is := strictyaml.Whole(n)
		return T(i), is && i >= from && i <= to
	})
}

func number(name, about string, from, to float64, v *float64) field {
	return leaf(name, about, fmt.Sprintf("a number from %v to %v", from, to), v, func(n ast.Node) (float64, bool) {
		x, is := strictyaml.Number(n)
		return x, is && x >= from && x <= to
	})
}

func truth(name, about string, v *bool) field {
	return leaf(name, about, "true or false", v, func(n ast.Node) (bool, bool) {
		b, is := n.(*ast.BoolNode)
		return is && b.Value, is
	})
}

func duration(name, about string, from, to time.Duration, v *time.Duration) field {
	rule := fmt.Sprintf("a duration with a unit (20ms, 15s, 2h) from %s to %s", from, to)
	return leaf(name, about, rule, v, within(from, to))
}

func durations(name, about string, from, to time.Duration, v *[]time.Duration) field {
	rule := fmt.Sprintf("a list of 1 to %d durations with a unit, each from %s to %s", maxList, from, to)
	return leaf(name, about, rule, v, func(n ast.Node) ([]time.Duration, bool) {
		list, is := strictyaml.List(n, maxList, within(from, to))
		return list, is && len(list) > 0
	})
}

// words is a list of names.
func words(name, about string, v *[]string) field {
	return leaf(name, about, "a list of 1 to 20 names of figures", v, func(n ast.Node) ([]string, bool) {
		list, is := strictyaml.List(n, 20, func(n ast.Node) (string, bool) {
			w, is := stringOf(n)
			return w, is && plainName.MatchString(w)
		})
		return list, is && len(list) > 0
	})
}

// section is a mapping of its own.
func section(name, about string, parts func() []field) field {
	return field{name: name, about: about, parts: parts, sample: parts}
}

var plainName = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,63}\z`)

// stringOf reads a text; a block of lines ends with its last word.
func stringOf(n ast.Node) (string, bool) {
	s, is := strictyaml.Text(n)
	if n.Type() == ast.LiteralType {
		s = strings.TrimSpace(s)
	}
	return s, is
}

// within reads a duration in a range. An hour is the greatest unit here.
func within(from, to time.Duration) func(ast.Node) (time.Duration, bool) {
	return func(n ast.Node) (time.Duration, bool) {
		s, is := stringOf(n)
		d, err := strictyaml.ParseDuration(s)
		return d, is && err == nil && !strings.HasSuffix(s, "d") && d >= from && d <= to
	}
}
