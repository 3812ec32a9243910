// Package scenario reads experiments from files and runs them: one population, several policies,
// one row a policy. The shipped ones are files like a user's own.
package scenario

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
	"github.com/fairlane-dev/fairlane/sim"
)

//go:embed files/*.yaml
var shipped embed.FS

// Scenario is a file as read and checked.
type Scenario struct {
	Name, About, Note string
	Kind              string
	Columns           []string
	Pictures          []Picture
	Literature        map[string]map[string]string // figure, policy: what the literature says

	platform   platform
	groups     []Group // the population, before tables and policies
	limiter    limiterPart
	tenants    []Waiters
	completion completionPart
	tables     []overlay
	policies   []Policy
}

// Picture is what a chart of a result shows: Figures as bars by policy, or a Series over time, a
// line each policy.
type Picture struct {
	Figures []string
	Log     bool
	Series  string   // one of SeriesNames
	Group   string   // of the series, in a scenario with groups
	Axis    string   // what the bars show, with its unit
	Span    sim.Span // of the series; zero: all
}

// platform is what all tenants share.
type platform struct {
	Slots           int
	HostLimit       int
	Duration, Drain time.Duration
	Measure         sim.Span
	Series          time.Duration
}

// Group is a number of tenants alike.
type Group struct {
	Name                           string
	Tenants, Subscriptions, Weight int
	Arrivals                       []Arrivals
	Endpoint                       Endpoint
	Rate                           string
	Burst                          int64
	Cap                            int
	Timeout                        time.Duration
	Deny                           string
	Queue                          int
	Deadline                       time.Duration
	Breaker                        bool
	Budget                         string
	Attempts                       uint32
	Quick                          int
	Base                           time.Duration
	Jitter                         string
	Slow                           []time.Duration
	Horizon                        time.Duration
}

// Arrivals is one arrival process of each subscription.
type Arrivals struct {
	Kind                             string
	Rate, Swing                      float64
	Count                            int
	Every, Period, On, Off, From, To time.Duration
	At                               []time.Duration
}

// Endpoint is a receiver.
type Endpoint struct {
	Latency  Latency
	Workers  int
	Shared   bool
	Errors   float64
	Lost     float64
	Throttle Throttle
	Phases   []Phase
}

// Latency is a distribution, in one of its forms.
type Latency struct {
	Fixed, Mean, P99, Median, P999 time.Duration
	Quantiles                      []time.Duration
}

// Throttle is a receiver's own limit.
type Throttle struct {
	Rate  string
	Burst int64
	Quiet bool
}

// Phase is a span of trouble.
type Phase struct {
	Kind            string
	From, To, After time.Duration
}

// Policy is one row.
type Policy struct {
	Name, About                string
	Order                      string
	Slots                      int
	Limit                      PlatformLimit
	Algorithm, Replicas, Clock string
	Parts                      int
	Mode, Completion           string
	ShareBy                    string
	groups                     overlay
}

// PlatformLimit is one limit in front of all lanes.
type PlatformLimit struct {
	Rate     string
	Burst    int64
	Deny     string
	Queue    int
	Deadline time.Duration
}

type limiterPart struct {
	Arrivals []Arrivals
	Limit    int64
	Window   time.Duration
	Burst    int64
	Replicas int
	StepAt   time.Duration
	StepBy   time.Duration
}

// Waiters are the requests of one tenant of a scenario with slots.
type Waiters struct {
	Name     string
	Share    int
	Count    int
	At, Work time.Duration
}

type completionPart struct {
	Triggers, Endpoints, Pathological int
	Latency, PathologicalLatency      Latency
}

// overlay is what a table or a policy changes in the groups: the nodes are read again onto copies.
type overlay struct {
	name, path string
	all        ast.Node // for every group
	groups     ast.Node // by name
	limiter    ast.Node // kind limiter
	completion ast.Node
}

// List returns the shipped scenarios, by name.
func List() ([]*Scenario, error) {
	files, err := fs.Glob(shipped, "files/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, f := range files {
		s, err := Load(strings.TrimSuffix(path.Base(f), ".yaml"))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Load reads a shipped scenario by its name, or a user's file by its path. Errors are Problems, or
// those of reading.
func Load(nameOrFile string) (*Scenario, error) {
	if plainName.MatchString(nameOrFile) {
		data, err := shipped.ReadFile("files/" + nameOrFile + ".yaml")
		if err == nil {
			return Parse(nameOrFile+".yaml", data)
		}
		if _, err := os.Stat(nameOrFile); err != nil {
			return nil, fmt.Errorf("there is no scenario %q; `fairlane sim list` shows those that there are, a file of your own is named by its path", nameOrFile)
		}
	}
	info, err := os.Stat(nameOrFile)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, Problems{{File: nameOrFile, Rule: "must be at most 1 MiB"}}
	}
	data, err := os.ReadFile(nameOrFile)
	if err != nil {
		return nil, err
	}
	return Parse(nameOrFile, data)
}

// Source returns the file of a shipped scenario.
func Source(name string) ([]byte, error) {
	data, err := shipped.ReadFile("files/" + name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no scenario %q", name)
	}
	return data, err
}

// Parse reads and checks a file. The error is Problems: everything that is wrong, each with file,
// line, column, field and rule.
func Parse(file string, data []byte) (*Scenario, error) {
	r := &reader{strictyaml.Reader{File: file}}
	s := &Scenario{Kind: "delivery", Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))}
	s.platform = platform{Slots: 1200, Series: time.Second}
	s.limiter.Replicas = 1
	if root := r.parse(data); root != nil {
		r.mapping(root, "", s.fields())
		s.check(r)
	}
	if err := r.sorted(); err != nil {
		return nil, err
	}
	return s, nil
}

// newGroup has the service's own defaults, so that a file says only what differs.
func newGroup(name string) Group {
	return Group{
		Name: name, Tenants: 1, Subscriptions: 1, Weight: 1, Rate: "unlimited", Cap: 16,
		Timeout: 15 * time.Second, Deny: "defer", Breaker: true, Budget: "own", Quick: 4,
		Base: 250 * time.Millisecond, Jitter: "full", Horizon: 72 * time.Hour,
	}
}

func newWaiters(name string) Waiters {
	return Waiters{Name: name, Share: 1, Count: 1, Work: 20 * time.Millisecond}
}

func newPolicy(name string) Policy {
	return Policy{Name: name, Order: "fair", Algorithm: "bucket", Parts: 10, Replicas: "shared", Clock: "monotonic", Mode: "work-conserving",
		Completion: "all", ShareBy: "tenant", groups: overlay{name: name, path: join("policies", name)}}
}

func newTable(name string) overlay { return overlay{name: name, path: join("tables", name)} }

// collection is a mapping of up to most names of the file's choice; fresh is one of which the file says nothing more.
func collection[T any, P interface {
	*T
	fields() []field
}](name, about string, most int, to *[]T, fresh func(name string) T) field {
	f := field{name: name, about: about, sample: P(new(T)).fields, under: ".NAME"}
	f.each = func(r *reader, n ast.Node, at string) {
		named(r, n, at, most, func(key string, kv *ast.MappingValueNode, at string) {
			x := fresh(key)
			r.mapping(kv.Value, at, P(&x).fields())
			*to = append(*to, x)
		})
	}
	return f
}

func (o *overlay) fields() []field {
	return []field{
		later("all", "what changes in every group: fields of a group", &o.all),
		later("groups", "what changes in the named groups", &o.groups),
		later("limiter", "what changes in the limiter's part", &o.limiter),
		later("completion", "what changes in the fan-out", &o.completion),
	}
}

// later keeps a node to be read onto copies.
func later(name, about string, to *ast.Node) field {
	return field{name: name, about: about, each: func(_ *reader, n ast.Node, _ string) { *to = n }}
}

func (s *Scenario) literatureField() field {
	f := field{name: "literature", about: "what others found, by figure and policy; printed beside ours"}
	f.each = func(r *reader, n ast.Node, at string) {
		s.Literature = map[string]map[string]string{}
		named(r, n, at, 20, func(figure string, kv *ast.MappingValueNode, at string) {
			s.Literature[figure] = map[string]string{}
			named(r, kv.Value, at, 20, func(policy string, kv *ast.MappingValueNode, at string) {
				said := kv.Value.GetToken().Value
				if said == "" || len(said) > 40 || strictyaml.IsMapping(kv.Value) {
					r.Problem(kv.Key, at, "must be a number or a text of up to 40 characters"+strictyaml.Found(kv.Value))
				}
				s.Literature[figure][policy] = said
			})
		})
	}
	return f
}

// PolicyNames returns the names of the rows, in order.
func (s *Scenario) PolicyNames() (names []string) {
	for _, p := range s.policies {
		names = append(names, p.Name)
	}
	return names
}

// row is a policy with its population.
type row struct {
	table  string
	policy *Policy
	groups []Group

	limiter    limiterPart
	completion completionPart
}

// rows are all tables with all policies, as changed by both.
func (s *Scenario) rows(r *reader) (all []row) {
	tables := s.tables
	if len(tables) == 0 {
		tables = []overlay{{}}
	}
	for _, t := range tables {
		for i := range s.policies {
			p := &s.policies[i]
			x := row{table: t.name, policy: p, limiter: s.limiter, completion: s.completion}
			x.groups = append(x.groups, s.groups...)
			x.overlaid(r, &t)
			x.overlaid(r, &p.groups)
			all = append(all, x)
		}
	}
	return all
}

func (x *row) overlaid(r *reader, o *overlay) {
	if o.all != nil {
		for i := range x.groups {
			r.mapping(o.all, o.path+".all", x.groups[i].fields())
		}
	}
	if o.limiter != nil {
		r.mapping(o.limiter, o.path+".limiter", x.limiter.fields())
	}
	if o.completion != nil {
		r.mapping(o.completion, o.path+".completion", x.completion.fields())
	}
	if o.groups == nil {
		return
	}
	var known []string
	for _, g := range x.groups {
		known = append(known, g.Name)
	}
	named(r, o.groups, o.path+".groups", 20, func(key string, kv *ast.MappingValueNode, at string) {
		for i := range x.groups {
			if x.groups[i].Name == key {
				r.mapping(kv.Value, at, x.groups[i].fields())
				return
			}
		}
		r.Problem(kv.Key, at, "must be one of the groups: "+strings.Join(known, ", "))
	})
}

// Field describes one key of a scenario file.
type Field struct{ Path, Rule, About string }

// Fields describes every key of a scenario file, in the order of the documents. NAME stands for a
// name of the user's choice, [] for an item of a list.
func Fields() []Field { return describe("", new(Scenario).fields()) }

func describe(path string, fields []field) (all []Field) {
	for _, f := range fields {
		at := join(path, f.name)
		rule := f.rule
		switch {
		case f.under == "[]":
			rule = fmt.Sprintf("a list of 1 to %d mappings", maxList)
		case rule == "":
			rule = "a mapping"
		}
		all = append(all, Field{at, rule, f.about})
		if f.sample != nil {
			all = append(all, describe(at+f.under, f.sample())...)
		}
	}
	return all
}
