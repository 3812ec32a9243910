package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/fairlane-dev/fairlane/internal/envelope"
)

// place is where a field stands in the file.
type place struct{ line, column int }

// reader fills a Config from a file and collects what is wrong with it.
type reader struct {
	file     string
	env      Env
	config   *Config
	fields   map[string]field
	sections map[string]bool
	lines    map[string]place // of every key seen
	problems Problems
}

func (r *reader) parse(data []byte) {
	if len(data) > MaxFile {
		r.problem(place{}, "", fmt.Sprintf("must be at most %s", formatSize(MaxFile)))
		return
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		r.problem(place{}, "", "must be text in UTF-8")
		return
	}
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return
	}
	r.document(f)
}

// syntax reports a parser's error in one line.
func (r *reader) syntax(err error) {
	var at place
	msg := err.Error()
	var ye yaml.Error
	if errors.As(err, &ye) {
		msg = ye.GetMessage()
		if t := ye.GetToken(); t != nil {
			at = placeOf(t)
		}
	}
	line, _, _ := strings.Cut(msg, "\n")
	r.problem(at, "", "is not valid YAML: "+line)
}

func (r *reader) document(f *ast.File) {
	var root ast.Node
	for _, d := range f.Docs {
		if d.Body == nil || d.Body.Type() == ast.NullType {
			continue
		}
		if root != nil {
			r.problem(placeOf(d.Body.GetToken()), "", "must be one document")
			return
		}
		root = d.Body
	}
	if root == nil || root.Type() == ast.CommentGroupType {
		return
	}
	r.tiers(root)
	r.envelopes(root)
	r.index()
	r.mapping(root, "")
}

// tiers makes the tiers that the file names, so that the schema knows them.
func (r *reader) tiers(root ast.Node) {
	for _, top := range pairs(root) {
		if keyOf(top) != "tiers" {
			continue
		}
		for _, t := range pairs(top.Value) {
			if name := keyOf(t); tierName.MatchString(name) && r.config.Tiers[name] == nil {
				r.config.Tiers[name] = defaultTier()
			}
		}
	}
}

// envelopes makes the envelopes that the file names.
func (r *reader) envelopes(root ast.Node) {
	for _, top := range pairs(root) {
		if keyOf(top) != "envelopes" {
			continue
		}
		for _, e := range pairs(top.Value) {
			if name := keyOf(e); envelope.ValidName(name) && !strings.Contains(name, ".") {
				if r.config.Envelopes == nil {
					r.config.Envelopes = map[string]*Envelope{}
				}
				r.config.Envelopes[name] = &Envelope{}
			}
		}
	}
}

// index makes the schema's fields and sections findable by path.
func (r *reader) index() {
	r.fields, r.sections = map[string]field{}, map[string]bool{"": true, "envelopes": true}
	for _, f := range schema(r.config, r.env) {
		r.fields[f.path] = f
		for p := f.path; ; {
			i := strings.LastIndexByte(p, '.')
			if i < 0 {
				break
			}
			p = p[:i]
			r.sections[p] = true
		}
	}
}

// mapping reads the keys of one section.
func (r *reader) mapping(n ast.Node, path string) {
	if n.Type() != ast.MappingType && n.Type() != ast.MappingValueType {
		r.problem(placeOf(n.GetToken()), path, "must be a mapping of keys to values"+found(n))
		return
	}
	for _, kv := range pairs(n) {
		r.entry(kv, path)
	}
}

func (r *reader) entry(kv *ast.MappingValueNode, section string) {
	at, key := placeOf(kv.Key.GetToken()), keyOf(kv)
	path := key
	if section != "" {
		path = section + "." + key
	}
	if _, twice := r.lines[path]; twice {
		r.problem(at, path, fmt.Sprintf("must stand once; it stands in line %d too", r.lines[path].line))
		return
	}
	r.lines[path] = at
	f, leaf := r.fields[path]
	switch {
	case key == "" || strings.Contains(key, "."):
		r.problem(at, section, "has a key that is not a plain word")
	case leaf:
		if !f.read(kv.Value) {
			r.problem(at, path, "must be "+f.rule+f.found(kv.Value))
		}
	case r.sections[path]:
		r.mapping(kv.Value, path)
	case section == "tiers":
		r.problem(at, path, "must be named by lower-case letters, digits, _ and -, at most 64")
	case section == "envelopes":
		r.problem(at, path, "must be named by "+envelope.NameRule)
	default:
		r.problem(at, path, "is unknown; known here: "+strings.Join(r.known(section), ", "))
	}
}

// known lists the keys of a section.
func (r *reader) known(section string) []string {
	prefix := ""
	if section != "" {
		prefix = section + "."
	}
	keys := map[string]bool{}
	if section == "" {
		keys["envelopes"] = true
	}
	for path := range r.fields {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			key, _, _ := strings.Cut(rest, ".")
			keys[key] = true
		}
	}
	return sortedKeys(keys)
}

// found says what stood there instead, unless it may be a secret.
func (f field) found(n ast.Node) string {
	if f.secret {
		return ""
	}
	return found(n)
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

func (r *reader) problem(at place, field, rule string) {
	r.problems = append(r.problems, Problem{r.file, at.line, at.column, field, rule})
}

func (r *reader) sorted() Problems {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// pairs are the entries of a mapping; none for anything else.
func pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// keyOf is a key's text; "" for a key that is not plain text.
func keyOf(kv *ast.MappingValueNode) string {
	switch k := kv.Key.(type) {
	case *ast.StringNode:
		return k.Value
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return k.GetToken().Value
	}
	return ""
}

func stringOf(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode: // | and >
		return s.Value.Value, true
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
	if !is {
		return 0, false
	}
	d, err := ParseDuration(s)
	return d, err == nil
}

// each reports whether n is a list of at most maxList items that all pass.
func each(n ast.Node, pass func(ast.Node) bool) bool {
	s, is := n.(*ast.SequenceNode)
	if !is || len(s.Values) > maxList {
		return false
	}
	for _, v := range s.Values {
		if !pass(v) {
			return false
		}
	}
	return true
}
