package config

import (
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// reader fills a Config from a file and collects what is wrong with it.
type reader struct {
	strictyaml.Reader
	env      Env
	config   *Config
	fields   map[string]field
	sections map[string]bool
}

func (r *reader) at(path, rule string) { r.At(path, rule) }

func (r *reader) parse(data []byte) {
	docs, _ := r.Parse(data, MaxFile, FormatSize(MaxFile))
	switch len(docs) {
	case 0: // nothing, or no YAML
	case 1:
		r.named(docs[0])
		r.index()
		r.mapping(docs[0], "")
	default:
		r.Problem(docs[1], "", "must be one document")
	}
}

// named makes the tiers and envelopes that the file names, so that the schema knows them.
func (r *reader) named(root ast.Node) {
	for _, top := range strictyaml.Pairs(root) {
		for _, kv := range strictyaml.Pairs(top.Value) {
			switch strictyaml.Key(top) {
			case "tiers":
				r.tier(strictyaml.Key(kv))
			case "envelopes":
				r.envelope(strictyaml.Key(kv))
			}
		}
	}
}

func (r *reader) tier(name string) {
	if tierName.MatchString(name) && r.config.Tiers[name] == nil {
		r.config.Tiers[name] = defaultTier()
	}
}

func (r *reader) envelope(name string) {
	if !envelope.ValidName(name) || strings.Contains(name, ".") {
		return
	}
	if r.config.Envelopes == nil {
		r.config.Envelopes = map[string]*Envelope{}
	}
	r.config.Envelopes[name] = &Envelope{}
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
	if !strictyaml.IsMapping(n) {
		r.Problem(n, path, "must be a mapping of keys to values"+strictyaml.Found(n))
		return
	}
	for _, kv := range strictyaml.Pairs(n) {
		r.entry(kv, path)
	}
}

func (r *reader) entry(kv *ast.MappingValueNode, section string) {
	key := strictyaml.Key(kv)
	path := key
	if section != "" {
		path = section + "." + key
	}
	if !r.Once(path, strictyaml.PlaceOf(kv.Key)) {
		return
	}
	f, leaf := r.fields[path]
	switch {
	case key == "" || strings.Contains(key, "."):
		r.Problem(kv.Key, section, "has a key that is not a plain word")
	case leaf:
		if !f.read(kv.Value) {
			r.Problem(kv.Key, path, "must be "+f.rule+f.found(kv.Value))
		}
	case r.sections[path]:
		r.mapping(kv.Value, path)
	case section == "tiers":
		r.Problem(kv.Key, path, "must be named by lower-case letters, digits, _ and -, at most 64")
	case section == "envelopes":
		r.Problem(kv.Key, path, "must be named by "+envelope.NameRule)
	default:
		r.Problem(kv.Key, path, "is unknown; known here: "+strings.Join(r.known(section), ", "))
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
	return strictyaml.Found(n)
}

// The values of the schema.
var stringOf, intOf, floatOf = strictyaml.Text, strictyaml.Whole, strictyaml.Number

func durationOf(n ast.Node) (time.Duration, bool) {
	s, is := stringOf(n)
	d, err := ParseDuration(s)
	return d, is && err == nil
}

// each reports whether n is a list of at most maxList items that all pass.
func each(n ast.Node, pass func(ast.Node) bool) bool {
	_, ok := strictyaml.List(n, maxList, func(n ast.Node) (any, bool) { return nil, pass(n) })
	return ok
}
