package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Problem is one thing that is wrong with a file: where, which field, and the rule it breaks.
type Problem struct {
	File         string
	Line, Column int // 0: the whole file
	Field        string
	Rule         string // completes "must ..."
}

// Error is one line: file:line:column: field: rule.
func (p Problem) Error() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Rule
}

// Problems is everything that is wrong with a file, in its order.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, x := range p {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

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
type reader struct {
	file     string
	problems Problems
	places   map[string]ast.Node // of every key read
}

const (
	maxFile = 1 << 20
	maxList = 1000
)

// parse returns the root mapping, or nil.
func (r *reader) parse(data []byte) ast.Node {
	switch {
	case len(data) > maxFile:
		r.problem(nil, "", "must be at most 1 MiB")
		return nil
	case !utf8.Valid(data) || slices.Contains(data, 0):
		r.problem(nil, "", "must be text in UTF-8")
		return nil
	}
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		r.problem(nil, "", "must be one document")
		return nil
	}
	return f.Docs[0].Body
}

func (r *reader) syntax(err error) {
	line, _, _ := strings.Cut(err.Error(), "\n")
	p := Problem{File: r.file}
	var ye yaml.Error
	if errors.As(err, &ye) {
		line, _, _ = strings.Cut(ye.GetMessage(), "\n")
		if t := ye.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	p.Rule = "is not valid YAML: " + line
	r.problems = append(r.problems, p)
}

// mapping reads the fields of a mapping. What is not among them is an error.
func (r *reader) mapping(n ast.Node, path string, fields []field) {
	if !isMapping(n) {
		r.problem(n, path, "must be a mapping of keys to values"+found(n))
		return
	}
	seen := map[string]int{}
	for _, kv := range pairs(n) {
		key := keyOf(kv)
		at := join(path, key)
		if line, twice := seen[key]; twice {
			r.problem(kv.Key, at, fmt.Sprintf("must stand once; it stands in line %d too", line))
			continue
		}
		seen[key] = lineOf(kv.Key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			r.problem(kv.Key, at, "is unknown; known here: "+strings.Join(names(fields), ", "))
			continue
		}
		r.places[at] = kv.Key
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
		r.problem(kv.Key, at, "must be "+f.rule+found(kv.Value))
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

// problem notes that what stands at n breaks a rule, once.
func (r *reader) problem(n ast.Node, field, rule string) {
	p := Problem{File: r.file, Field: field, Rule: rule}
	if n != nil {
		if t := n.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	if !slices.Contains(r.problems, p) {
		r.problems = append(r.problems, p)
	}
}

// at reports a rule broken at a path, in the line of what stands nearest to it.
func (r *reader) at(path, rule string) {
	for near := path; near != ""; near = near[:max(strings.LastIndexByte(near, '.'), 0)] {
		if n := r.places[near]; n != nil {
			r.problem(n, path, rule)
			return
		}
	}
	r.problem(nil, path, rule)
}

func (r *reader) sorted() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

func isMapping(n ast.Node) bool {
	return n.Type() == ast.MappingType || n.Type() == ast.MappingValueType
}

func pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func keyOf(kv *ast.MappingValueNode) string {
	switch k := kv.Key.(type) {
	case *ast.StringNode:
		return k.Value
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return k.GetToken().Value
	}
	return ""
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func found(n ast.Node) string {
	switch n.Type() {
	case ast.NullType:
		return ", found nothing (leave the key out for the default)"
	case ast.MappingType, ast.MappingValueType:
		return ", found a mapping"
	case ast.SequenceType:
		return ", found a list"
	case ast.AnchorType, ast.AliasType, ast.TagType:
		return ", found an anchor, alias or tag, which are not read"
	}
	s := n.GetToken().Value
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return ", found " + strconv.QuoteToASCII(s)
}

// The leaves. Each returns a field that reads into v.

func word(name, about string, v *string, of ...string) field {
	return field{name: name, about: about, rule: "one of " + strings.Join(of, ", "), read: func(n ast.Node) bool {
		s, is := stringOf(n)
		if !is || !slices.Contains(of, s) {
			return false
		}
		*v = s
		return true
	}}
}

func text(name, about string, v *string) field {
	return field{name: name, about: about, rule: "a text of 1 to 1,000 characters", read: func(n ast.Node) bool {
		s, is := stringOf(n)
		if !is || s == "" || len(s) > 1000 {
			return false
		}
		*v = s
		return true
	}}
}

func whole[T int | int64 | uint32](name, about string, from, to int64, v *T) field {
	return field{name: name, about: about, rule: fmt.Sprintf("a whole number from %d to %d", from, to), read: func(n ast.Node) bool {
		i, is := intOf(n)
		if !is || i < from || i > to {
			return false
		}
		*v = T(i)
		return true
	}}
}

func number(name, about string, from, to float64, v *float64) field {
	return field{name: name, about: about, rule: fmt.Sprintf("a number from %v to %v", from, to), read: func(n ast.Node) bool {
		x, is := floatOf(n)
		if !is || !(x >= from && x <= to) {
			return false
		}
		*v = x
		return true
	}}
}

func truth(name, about string, v *bool) field {
	return field{name: name, about: about, rule: "true or false", read: func(n ast.Node) bool {
		b, is := n.(*ast.BoolNode)
		if is {
			*v = b.Value
		}
		return is
	}}
}

func duration(name, about string, from, to time.Duration, v *time.Duration) field {
	rule := fmt.Sprintf("a duration with a unit (20ms, 15s, 2h) from %s to %s", from, to)
	return field{name: name, about: about, rule: rule, read: func(n ast.Node) bool {
		d, is := durationOf(n)
		if !is || d < from || d > to {
			return false
		}
		*v = d
		return true
	}}
}

func durations(name, about string, from, to time.Duration, v *[]time.Duration) field {
	rule := fmt.Sprintf("a list of 1 to %d durations with a unit, each from %s to %s", maxList, from, to)
	return field{name: name, about: about, rule: rule, read: func(n ast.Node) bool {
		s, is := n.(*ast.SequenceNode)
		if !is || len(s.Values) == 0 || len(s.Values) > maxList {
			return false
		}
		var list []time.Duration
		for _, x := range s.Values {
			d, is := durationOf(x)
			if !is || d < from || d > to {
				return false
			}
			list = append(list, d)
		}
		*v = list
		return true
	}}
}

// words is a list of names.
func words(name, about string, v *[]string) field {
	return field{name: name, about: about, rule: "a list of 1 to 20 names of figures", read: func(n ast.Node) bool {
		s, is := n.(*ast.SequenceNode)
		if !is || len(s.Values) == 0 || len(s.Values) > 20 {
			return false
		}
		var list []string
		for _, x := range s.Values {
			w, is := stringOf(x)
			if !is || !plainName.MatchString(w) {
				return false
			}
			list = append(list, w)
		}
		*v = list
		return true
	}}
}

// section is a mapping of its own.
func section(name, about string, parts func() []field) field {
	return field{name: name, about: about, parts: parts, sample: parts}
}

var plainName = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,63}\z`)

func stringOf(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return strings.TrimSpace(s.Value.Value), true
	}
	return "", false
}

func intOf(n ast.Node) (int64, bool) {
	i, is := n.(*ast.IntegerNode)
	if !is {
		return 0, false
	}
	switch v := i.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

func floatOf(n ast.Node) (float64, bool) {
	if f, is := n.(*ast.FloatNode); is {
		return f.Value, true
	}
	i, is := intOf(n)
	return float64(i), is
}

func durationOf(n ast.Node) (time.Duration, bool) {
	s, is := stringOf(n)
	if !is || !strings.ContainsAny(s, "smh") { // ParseDuration takes 0 without a unit
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}
