// Package apply reads the files of `fairlane apply`: tiers, tenants and subscriptions in YAML. It knows the form of the
// files and what may stand for a secret; the rules of the objects are the service's, and what the service says
// of a field is given its place in the files (Set.Problem).
package apply

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// MaxFile is the greatest size of a file in bytes.
const MaxFile = 16 << 20

// Kinds of objects: the top-level keys of a file, and the fields of the request.
const (
	Tiers         = "tiers"
	Tenants       = "tenants"
	Subscriptions = "subscriptions"
)

// Set is what the files say, by kind, in the order in which it stands there.
type Set struct{ objects map[string][]object }

// object is one tier, tenant or subscription.
type object struct {
	fields map[string]any // secrets in clear
	file   string
	at     strictyaml.Place
	lines  map[string]strictyaml.Place // of each field, by its path in the object
}

// Len counts the objects of a kind.
func (s *Set) Len(kind string) int { return len(s.objects[kind]) }

// JSON is a kind as the API reads it. There are secrets in it.
func (s *Set) JSON(kind string) (json.RawMessage, error) {
	list := make([]map[string]any, s.Len(kind))
	for i, o := range s.objects[kind] {
		list[i] = o.fields
	}
	return json.Marshal(list)
}

// Unsigned are the subscriptions, as tenant/name, that do not say with what they are signed: a new one gets a secret.
func (s *Set) Unsigned() map[string]bool {
	unsigned := map[string]bool{}
	for _, o := range s.objects[Subscriptions] {
		if _, signed := o.fields["secrets"]; !signed {
			unsigned[fmt.Sprint(o.fields["tenant"], "/", o.fields["name"])] = true
		}
	}
	return unsigned
}

var indexed = regexp.MustCompile(`\A(tiers|tenants|subscriptions)\[(\d+)\]\.?(.*)\z`)

// Problem gives what the service says of a field, such as "tenants[3].tier", its place in the files.
func (s *Set) Problem(field, rule string) strictyaml.Problem {
	m := indexed.FindStringSubmatch(field)
	if m == nil {
		return strictyaml.Problem{Field: field, Rule: rule}
	}
	i, err := strconv.Atoi(m[2])
	if err != nil || i >= s.Len(m[1]) {
		return strictyaml.Problem{Field: field, Rule: rule}
	}
	o := &s.objects[m[1]][i]
	at := o.place(m[3])
	name := strings.TrimSuffix(m[1], "s") + " " + o.name()
	if m[3] != "" {
		name += ": " + m[3]
	}
	return strictyaml.Problem{File: o.file, Line: at.Line, Column: at.Column, Field: name, Rule: rule}
}

// place finds a field, or the nearest that it stands in.
func (o *object) place(field string) strictyaml.Place {
	for field != "" {
		if at, ok := o.lines[field]; ok {
			return at
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return o.at
}

// name is what a person calls the object by.
func (o *object) name() string {
	id, _ := o.fields["id"].(string)
	if id == "" {
		id, _ = o.fields["name"].(string) // a tier's
	}
	if tenant, _ := o.fields["tenant"].(string); tenant != "" {
		name, _ := o.fields["name"].(string)
		id = tenant + "/" + name
	}
	return strconv.Quote(id)
}

// Read reads files, and the .yaml and .yml files of directories and of what is in them, in the order of their
// names. env resolves ${NAME}. Errors are config.Problems: all that is wrong, with file and line.
func Read(paths []string, env config.Env) (*Set, error) {
	s := &Set{objects: map[string][]object{}}
	var problems strictyaml.Problems
	files, err := find(paths)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		r := reader{Reader: strictyaml.Reader{File: file}, env: env, set: s}
		r.read()
		problems = append(problems, r.Problems...)
	}
	problems = append(problems, s.twice()...)
	if len(problems) > 0 {
		return nil, problems
	}
	return s, nil
}

func find(paths []string) (files []string, err error) {
	for _, path := range paths {
		st, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !st.IsDir() {
			files = append(files, path)
			continue
		}
		found, err := yamlFiles(path)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: holds no .yaml or .yml file", path)
		}
		files = append(files, found...)
	}
	return files, nil
}

// yamlFiles finds those below a directory, in the order of their names; what begins with a dot is left alone.
func yamlFiles(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

// twice finds objects that stand in the files more than once.
func (s *Set) twice() (problems strictyaml.Problems) {
	for _, kind := range []string{Tiers, Tenants, Subscriptions} {
		seen := map[string]*object{}
		for i := range s.objects[kind] {
			o := &s.objects[kind][i]
			first, is := seen[o.name()]
			if !is {
				seen[o.name()] = o
				continue
			}
			problems = append(problems, strictyaml.Problem{File: o.file, Line: o.at.Line, Column: o.at.Column,
				Field: strings.TrimSuffix(kind, "s") + " " + o.name(),
				Rule:  fmt.Sprintf("must stand once; it stands in %s:%d too", first.file, first.at.Line)})
		}
	}
	return problems
}
