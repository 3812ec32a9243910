package policyfile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// Problem is one thing wrong, or suspicious, in a file: File, Line from 1 (0 if unknown), Field as a
// dotted path ("" is the file as a whole), and Rule, which says what must hold and what was found.
// Column is set for what is no YAML.
type Problem = strictyaml.Problem

// Problems are all that is wrong, by line.
type Problems = strictyaml.Problems

// reader collects what is wrong while a file is read.
type reader struct {
	strictyaml.Reader
	env Env
}

// warning is a rule that the field breaks, in the line of what stands nearest to it.
func (r *reader) warning(field, rule string) Problem {
	return Problem{File: r.File, Line: r.Near(field).Line, Field: field, Rule: rule}
}

// maxFile is the greatest size of a file, in bytes.
const maxFile = 8 << 20

// root reads YAML into the file's top section.
func (r *reader) root(data []byte) *section {
	docs, ok := r.Parse(data, maxFile, "8 MiB")
	switch {
	case !ok:
		return nil
	case len(docs) == 0:
		r.At("", "must not be empty")
		return nil
	case len(docs) > 1:
		r.At("", "must be one document")
		return nil
	}
	return r.section(docs[0], "")
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
	if !strictyaml.IsMapping(n) {
		r.At(path, "must be a mapping of keys to values"+strictyaml.Found(n))
	}
	for _, kv := range strictyaml.Pairs(n) {
		s.add(kv)
	}
	return s
}

func (s *section) add(kv *ast.MappingValueNode) {
	key, at := kv.Key.GetToken().Value, strictyaml.Place{Line: strictyaml.PlaceOf(kv.Key).Line}
	field := s.field(key)
	if _, stands := s.r.Places[field]; !stands && strings.Contains(key, ".") && s.path != "tenants" {
		s.r.At(s.path, "has a key that is not a plain word: "+strconv.QuoteToASCII(key))
		return
	}
	if s.r.Once(field, at) {
		s.names = append(s.names, key)
		s.nodes[key] = kv.Value
	}
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
			s.r.At(s.field(key), "is unknown; known here: "+strings.Join(s.asked, ", "))
		}
	}
}
