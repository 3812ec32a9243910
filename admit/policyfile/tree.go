package policyfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Problem is one thing wrong, or suspicious, in a file.
type Problem struct {
	File  string
	Line  int    // from 1; 0 if unknown
	Field string // dotted path; "" is the file as a whole
	Rule  string // what must hold, and what was found
}

func (p Problem) Error() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Rule
}

// Problems are all that is wrong, by line.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// reader collects what is wrong while a file is read.
type reader struct {
	file     string
	env      Env
	lines    map[string]int // of every field, by path
	problems Problems
}

// at reports a rule that the field breaks, in the line of what stands nearest to it.
func (r *reader) at(field, rule string) { r.problems = append(r.problems, r.problem(field, rule)) }

func (r *reader) problem(field, rule string) Problem {
	for near := field; near != ""; {
		if line, ok := r.lines[near]; ok {
			return Problem{r.file, line, field, rule}
		}
		near = near[:max(strings.LastIndexByte(near, '.'), 0)]
	}
	return Problem{r.file, 0, field, rule}
}

func (r *reader) sorted() Problems {
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return r.problems
}

// maxFile is the greatest size of a file, in bytes.
const maxFile = 8 << 20

// root reads YAML into the file's top section.
func (r *reader) root(data []byte) *section {
	switch {
	case len(data) > maxFile:
		r.at("", "must be at most 8 MiB")
		return nil
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		r.at("", "must be text in UTF-8")
		return nil
	}
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil || d.Body.Type() == ast.NullType || d.Body.Type() == ast.CommentGroupType {
			continue
		}
		if body != nil {
			r.at("", "must be one document")
			return nil
		}
		body = d.Body
	}
	if body == nil {
		r.at("", "must not be empty")
		return nil
	}
	return r.section(body, "")
}

func (r *reader) syntax(err error) {
	msg, line := err.Error(), 0
	var ye yaml.Error
	if errors.As(err, &ye) {
		msg = ye.GetMessage()
		if t := ye.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
	}
	msg, _, _ = strings.Cut(msg, "\n")
	r.problems = append(r.problems, Problem{r.file, line, "", "is not valid YAML: " + msg})
}

// section is a mapping whose keys are taken out one by one; what is left is
// unknown.
type section struct {
	r     *reader
	path  string
	names []string // in the file's order
	nodes map[string]ast.Node
	asked []string
}

func (r *reader) section(n ast.Node, path string) *section {
	s := &section{r: r, path: path, nodes: map[string]ast.Node{}}
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		r.at(path, "must be a mapping of keys to values"+found(n))
		return s
	}
	for _, kv := range pairs {
		s.add(kv)
	}
	return s
}

func (s *section) add(kv *ast.MappingValueNode) {
	key, line := kv.Key.GetToken().Value, kv.Key.GetToken().Position.Line
	field := s.field(key)
	if was, twice := s.r.lines[field]; twice {
		s.r.problems = append(s.r.problems, Problem{s.r.file, line, field, fmt.Sprintf("must stand once; it stands in line %d too", was)})
		return
	}
	if strings.Contains(key, ".") && s.path != "tenants" {
		s.r.at(s.path, "has a key that is not a plain word: "+strconv.QuoteToASCII(key))
		return
	}
	s.r.lines[field] = line
	s.names = append(s.names, key)
	s.nodes[key] = kv.Value
}

func (s *section) field(key string) string { return strings.TrimPrefix(s.path+"."+key, ".") }

// node returns what stands under a key, or false.
func (s *section) node(key string) (ast.Node, bool) {
	s.asked = append(s.asked, key)
	n, ok := s.nodes[key]
	return n, ok
}

// sub returns the section under a key; an empty one if there is none.
func (s *section) sub(key string) (*section, bool) {
	n, ok := s.node(key)
	if !ok {
		return &section{r: s.r, path: s.field(key), nodes: map[string]ast.Node{}}, false
	}
	return s.r.section(n, s.field(key)), true
}

// end reports the keys that nobody asked for.
func (s *section) end() {
	for _, key := range s.names {
		if !slices.Contains(s.asked, key) {
			s.r.at(s.field(key), "is unknown; known here: "+strings.Join(s.asked, ", "))
		}
	}
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
