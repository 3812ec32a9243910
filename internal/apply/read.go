package apply

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// reader reads one file into a set, and collects what is wrong with it.
type reader struct {
	strictyaml.Reader
	env config.Env
	set *Set
}

func (r *reader) read() {
	data, err := os.ReadFile(r.File)
	if err != nil {
		r.Problem(nil, "", "cannot be read: "+reason(err))
		return
	}
	docs, _ := r.Parse(data, MaxFile, fmt.Sprintf("%d MiB", MaxFile>>20))
	for _, d := range docs {
		r.document(d)
	}
}

// reason leaves out the path, which is said already.
func reason(err error) string {
	if path := new(os.PathError); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// document is a mapping of kinds to lists of objects.
func (r *reader) document(n ast.Node) {
	if !strictyaml.IsMapping(n) {
		r.Problem(n, "", "must be a mapping with tiers, tenants or subscriptions")
		return
	}
	var seen []string
	for _, kv := range strictyaml.Pairs(n) {
		kind := strictyaml.Key(kv)
		switch {
		case slices.Contains(seen, kind):
			r.Problem(kv.Key, kind, "must stand once in a document")
		case kind == Tiers || kind == Tenants || kind == Subscriptions:
			r.list(kind, kv.Value)
		default:
			r.Problem(kv.Key, kind, "is unknown; known here: tiers, tenants, subscriptions")
		}
		seen = append(seen, kind)
	}
}

func (r *reader) list(kind string, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.Problem(n, kind, "must be a list")
		return
	}
	for _, item := range seq.Values {
		entries := strictyaml.Pairs(item)
		if len(entries) == 0 {
			r.Problem(item, kind, "must be a list of mappings of keys to values")
			continue
		}
		r.Places = map[string]strictyaml.Place{} // paths are the object's
		fields, _ := r.value(item, "").(map[string]any)
		r.set.objects[kind] = append(r.set.objects[kind], object{fields, r.File, strictyaml.PlaceOf(entries[0].Key), r.Places})
	}
}

// value is a node as encoding/json writes it; path names it in the object.
func (r *reader) value(n ast.Node, path string) any {
	if strictyaml.IsMapping(n) {
		return r.mapping(n, path)
	}
	if s, is := strictyaml.Text(n); is {
		return r.text(s, n, path)
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		list := []any{}
		for i, item := range n.Values {
			inner := fmt.Sprintf("%s[%d]", path, i)
			r.Stand(inner, strictyaml.PlaceOf(item))
			list = append(list, r.value(item, inner))
		}
		return list
	case *ast.IntegerNode:
		return n.Value
	case *ast.FloatNode:
		return n.Value
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode:
		r.Problem(n, path, "must not be empty; leave the key out for the default")
	default:
		r.Problem(n, path, "must be a plain value: anchors, aliases and tags are not read")
	}
	return nil
}

func (r *reader) mapping(n ast.Node, path string) map[string]any {
	m := map[string]any{}
	for _, kv := range strictyaml.Pairs(n) {
		key := strictyaml.Key(kv)
		inner := key
		if path != "" {
			inner = path + "." + key
		}
		switch {
		case key == "":
			r.Problem(kv.Key, path, "has a key that is not plain text")
		case r.Once(inner, strictyaml.PlaceOf(kv.Key)):
			m[key] = r.value(kv.Value, inner)
		}
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
func (r *reader) text(s string, n ast.Node, path string) string {
	m, secret := reference.FindStringSubmatch(s), secretPath.MatchString(path)
	switch {
	case !secret && !hiddenPath.MatchString(path):
		return s
	case m == nil && secret:
		r.Problem(n, path, "must be ${NAME}, set in the environment, or ${file:PATH}, the whole value: secrets do not stand in these files")
	case m == nil:
		return s
	case m[1] != "":
		v, ok := r.env(m[1])
		if !ok || v == "" {
			r.Problem(n, path, "is ${"+m[1]+"}, which is not set")
		}
		return v
	default:
		return r.secretFile(m[2], n, path)
	}
	return ""
}

// secretFile is the text of a file, named from where the YAML file is, without the line break at its end.
func (r *reader) secretFile(name string, n ast.Node, path string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(r.File), name)
	}
	data, err := os.ReadFile(name)
	switch {
	case err != nil:
		r.Problem(n, path, "names the file "+name+", which cannot be read: "+reason(err))
	case len(data) > MaxFile || !utf8.Valid(data):
		r.Problem(n, path, "names the file "+name+", which is not text in UTF-8")
	}
	return strings.TrimRight(string(data), "\r\n")
}
