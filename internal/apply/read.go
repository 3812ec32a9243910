package apply

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/fairlane-dev/fairlane/internal/config"
)

// reader reads one file into a set, and collects what is wrong with it.
type reader struct {
	file     string
	env      config.Env
	set      *Set
	problems config.Problems

	object *object // that is being read
}

func (r *reader) problem(at place, field, rule string) {
	r.problems = append(r.problems, config.Problem{File: r.file, Line: at.line, Column: at.column, Field: field, Rule: rule})
}

func (r *reader) read() {
	data, err := os.ReadFile(r.file)
	switch {
	case err != nil:
		r.problem(place{}, "", "cannot be read: "+reason(err))
		return
	case len(data) > MaxFile:
		r.problem(place{}, "", fmt.Sprintf("must be at most %d MiB", MaxFile>>20))
		return
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		r.problem(place{}, "", "must be text in UTF-8")
		return
	}
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return
	}
	for _, d := range f.Docs {
		switch {
		case d.Body == nil && len(bytes.TrimLeft(data, "-\r\n ")) > 0: // the parser loses what stands behind it
			r.problem(place{}, "", "must not hold an empty document; two lines of --- need something between them")
		case d.Body != nil && d.Body.Type() != ast.NullType && d.Body.Type() != ast.CommentGroupType:
			r.document(d.Body)
		}
	}
}

// reason leaves out the path, which is said already.
func reason(err error) string {
	if path := new(os.PathError); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

func (r *reader) syntax(err error) {
	var at place
	msg := err.Error()
	var ye yaml.Error
	if errors.As(err, &ye) {
		msg = ye.GetMessage()
		at = placeOf(ye.GetToken())
	}
	line, _, _ := strings.Cut(msg, "\n")
	r.problem(at, "", "is not valid YAML: "+line)
}

// document is a mapping of kinds to lists of objects.
func (r *reader) document(n ast.Node) {
	entries, ok := mapping(n)
	if !ok {
		r.problem(placeOf(n.GetToken()), "", "must be a mapping with tenants, subscriptions, or both")
		return
	}
	var seen []string
	for _, kv := range entries {
		kind, at := keyOf(kv), placeOf(kv.Key.GetToken())
		switch {
		case slices.Contains(seen, kind):
			r.problem(at, kind, "must stand once in a document")
		case kind == Tenants || kind == Subscriptions:
			r.list(kind, kv.Value)
		case kind == "tiers":
			r.problem(at, kind, "are read from the service's configuration, and changed there")
		default:
			r.problem(at, kind, "is unknown; known here: tenants, subscriptions")
		}
		seen = append(seen, kind)
	}
}

func (r *reader) list(kind string, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.problem(placeOf(n.GetToken()), kind, "must be a list")
		return
	}
	for _, item := range seq.Values {
		at := placeOf(item.GetToken())
		if entries, ok := mapping(item); ok && len(entries) > 0 {
			at = placeOf(entries[0].Key.GetToken())
		} else {
			r.problem(at, kind, "must be a list of mappings of keys to values")
			continue
		}
		r.object = &object{file: r.file, at: at, lines: map[string]place{}}
		r.object.fields, _ = r.value(item, "").(map[string]any)
		r.set.objects[kind] = append(r.set.objects[kind], *r.object)
	}
}

// value is a node as encoding/json writes it; path names it in the object.
func (r *reader) value(n ast.Node, path string) any {
	if entries, ok := mapping(n); ok {
		return r.mapping(entries, path)
	}
	at := placeOf(n.GetToken())
	switch n := n.(type) {
	case *ast.SequenceNode:
		list := []any{}
		for i, item := range n.Values {
			inner := fmt.Sprintf("%s[%d]", path, i)
			r.object.lines[inner] = placeOf(item.GetToken())
			list = append(list, r.value(item, inner))
		}
		return list
	case *ast.StringNode:
		return r.text(n.Value, at, path)
	case *ast.LiteralNode: // | and >
		return r.text(n.Value.Value, at, path)
	case *ast.IntegerNode:
		return n.Value
	case *ast.FloatNode:
		return n.Value
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode:
		r.problem(at, path, "must not be empty; leave the key out for the default")
	default:
		r.problem(at, path, "must be a plain value: anchors, aliases and tags are not read")
	}
	return nil
}

func (r *reader) mapping(entries []*ast.MappingValueNode, path string) map[string]any {
	m := map[string]any{}
	for _, kv := range entries {
		key, at := keyOf(kv), placeOf(kv.Key.GetToken())
		inner := key
		if path != "" {
			inner = path + "." + key
		}
		if first, twice := r.object.lines[inner]; twice {
			r.problem(at, inner, fmt.Sprintf("must stand once; it stands in line %d too", first.line))
			continue
		}
		if key == "" {
			r.problem(at, path, "has a key that is not plain text")
			continue
		}
		r.object.lines[inner] = at
		m[key] = r.value(kv.Value, inner)
	}
	return m
}

var (
	envName    = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
	reference  = regexp.MustCompile(`\A\$\{(?:([A-Za-z_][A-Za-z0-9_]*)|file:([^}]+))\}\z`)
	secretPath = regexp.MustCompile(`\A((signature_beside\.)?secrets\[\d+\]|client_certificate\.key)\z`)
	hiddenPath = regexp.MustCompile(`\A(headers\..*|client_certificate\.certificate)\z`)
)

// text is a string, or what it refers to. Where a secret belongs nothing but a reference may stand: files are
// kept, copied and shown. Where the service shows again what it was given a reference is plain text: a name may
// come from a stranger.
func (r *reader) text(s string, at place, path string) string {
	m, secret := reference.FindStringSubmatch(s), secretPath.MatchString(path)
	switch {
	case !secret && !hiddenPath.MatchString(path):
		return s
	case m == nil && secret:
		r.problem(at, path, "must be ${NAME}, set in the environment, or ${file:PATH}, the whole value: secrets do not stand in these files")
	case m == nil:
		return s
	case m[1] != "":
		v, ok := r.env(m[1])
		if !ok || v == "" {
			r.problem(at, path, "is ${"+m[1]+"}, which is not set")
		}
		return v
	default:
		return r.secretFile(m[2], at, path)
	}
	return ""
}

// secretFile is the text of a file, named from where the YAML file is, without the line break at its end.
func (r *reader) secretFile(name string, at place, path string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(r.file), name)
	}
	data, err := os.ReadFile(name)
	switch {
	case err != nil:
		r.problem(at, path, "names the file "+name+", which cannot be read: "+reason(err))
	case len(data) > MaxFile || !utf8.Valid(data):
		r.problem(at, path, "names the file "+name+", which is not text in UTF-8")
	}
	return strings.TrimRight(string(data), "\r\n")
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}

// mapping returns the entries of a mapping, and reports whether n is one.
func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// keyOf is a key's text; "" for a key that is not plain text.
func keyOf(kv *ast.MappingValueNode) string {
	switch k := kv.Key.(type) {
	case *ast.StringNode:
		return k.Value
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return k.GetToken().Value // such as the statuses of outcomes
	}
	return ""
}
