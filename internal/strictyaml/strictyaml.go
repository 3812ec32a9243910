// Package strictyaml is what the readers of our YAML files share: the file as a tree, the problems
// with their places, and plain values. What keys there are, and which values they take, is each
// reader's own.
//
// Strict means: a key stands once and is known, a value has the type that its key asks for, and one
// reading reports all that is wrong. Anchors, aliases and tags are values of no type.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Problem is one thing wrong in a file.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 if unknown
	Field        string // dotted path; "" is the file as a whole
	Rule         string // what must hold, and what was found
}

// Error is one line: file:line:column: field: rule, without what is not known.
func (p Problem) Error() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d", p.Line)
	}
	if p.Column > 0 {
		s += fmt.Sprintf(":%d", p.Column)
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Rule
}

// Problems are all that is wrong, a line each.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Place is where something stands in a file, from 1; 0 if unknown.
type Place struct{ Line, Column int }

// PlaceOf is where a node begins; unknown for nil.
func PlaceOf(n ast.Node) Place {
	if n == nil {
		return Place{}
	}
	return placeOf(n.GetToken())
}

func placeOf(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{t.Position.Line, t.Position.Column}
}

// Reader collects what is wrong with one file. Its zero value, with File, is ready.
type Reader struct {
	File     string
	Problems Problems
	Places   map[string]Place // of the keys that stand, by dotted path; made by Stand
}

// Problem notes that what stands at n breaks a rule; nil is the file as a whole.
func (r *Reader) Problem(n ast.Node, field, rule string) { r.add(PlaceOf(n), field, rule) }

// At notes that the field or section at path breaks a rule, in the line of what stands nearest to it.
func (r *Reader) At(path, rule string) { r.add(r.Near(path), path, rule) }

func (r *Reader) add(at Place, field, rule string) {
	r.Problems = append(r.Problems, Problem{r.File, at.Line, at.Column, field, rule})
}

// Near is the place of what stands nearest to path: itself, or the section that it is in.
func (r *Reader) Near(path string) Place {
	for near := path; near != ""; near = near[:max(strings.LastIndexByte(near, '.'), 0)] {
		if at, stands := r.Places[near]; stands {
			return at
		}
	}
	return Place{}
}

// Stand notes where the key of a path stands.
func (r *Reader) Stand(path string, at Place) {
	if r.Places == nil {
		r.Places = map[string]Place{}
	}
	r.Places[path] = at
}

// Once is Stand for a key that may stand once; it reports whether it does.
func (r *Reader) Once(path string, at Place) bool {
	if was, twice := r.Places[path]; twice {
		r.add(at, path, fmt.Sprintf("must stand once; it stands in line %d too", was.Line))
		return false
	}
	r.Stand(path, at)
	return true
}

// Sorted are the problems in the file's order, each once.
func (r *Reader) Sorted() Problems {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	seen := map[Problem]bool{}
	r.Problems = slices.DeleteFunc(r.Problems, func(p Problem) bool {
		twice := seen[p]
		seen[p] = true
		return twice
	})
	return r.Problems
}

// Parse reads data of at most so many bytes, which size says in words. It returns the documents that
// hold anything, and reports whether data is YAML at all; if not, the reader has the problem.
func (r *Reader) Parse(data []byte, most int, size string) ([]ast.Node, bool) {
	switch {
	case len(data) > most:
		r.Problem(nil, "", "must be at most "+size)
		return nil, false
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		r.Problem(nil, "", "must be text in UTF-8")
		return nil, false
	}
	tokens := lexer.Tokenize(string(data))
	if loses(tokens) {
		r.Problem(nil, "", "must not hold an empty document; two lines of --- need something between them")
		return nil, false
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil, false
	}
	var docs []ast.Node
	for _, d := range f.Docs {
		if d.Body != nil && d.Body.Type() != ast.NullType {
			docs = append(docs, d.Body)
		}
	}
	return docs, true
}

// loses reports whether something stands behind two --- with nothing between them: the parser stops there.
func loses(tokens token.Tokens) bool {
	header, empty := false, false
	for _, t := range tokens {
		switch {
		case t.Type == token.CommentType:
		case t.Type == token.DocumentHeaderType:
			header, empty = true, empty || header
		case empty:
			return true
		default:
			header = false
		}
	}
	return false
}

// syntax notes a parser's error in one line.
func (r *Reader) syntax(err error) {
	var at Place
	msg := err.Error()
	var ye yaml.Error
	if errors.As(err, &ye) {
		msg, at = ye.GetMessage(), placeOf(ye.GetToken())
	}
	line, _, _ := strings.Cut(msg, "\n")
	r.add(at, "", "is not valid YAML: "+line)
}
