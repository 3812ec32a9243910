package admit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Part is one fact that a key is made of.
type Part uint8

const (
	ByTenant  Part = iota
	ByUser         // of the tenant: put ByTenant before it
	ByRoute        // the name that the route table gives
	ByAddress      // the client's network, see Network
)

var partNames = [...]string{"tenant", "user", "route", "address"}

// ParsePart reads a part's name.
func ParsePart(name string) (Part, bool) {
	i := slices.Index(partNames[:], name)
	return Part(i), i >= 0
}

// String returns the part's name, as a policy file writes it.
func (p Part) String() string {
	if int(p) >= len(partNames) {
		return "unknown"
	}
	return partNames[p]
}

// Policy is one limit.
type Policy struct {
	Name    string
	Key     []Part           // none: one counter for all
	Spec    Spec             // for everybody, if Tiers is nil
	Tiers   map[string]*Spec // by tier, for every tier; nil: unlimited
	Routes  []string         // the routes that it concerns; none: all
	Costs   map[string]int64 // by route, instead of the route's own cost
	Percent int              // of keys for which it is enforced, 0 to 100; it is observed for the others
	Shared  bool             // counted in the shared store
	Away    Away             // decides while that is away
	Failed  bool             // concerns requests whose credential is missing or broken, and only those
	V4, V6  int              // bits of an address that count; 0: 32 and 64
}

// Tier is what tenants of one tier may use at once. Its rates are in policies.
type Tier struct {
	Name   string
	Share  int // slots; 0: suspended
	Weight int // of its slot time, 1 to 1000
}

// DefaultRoute is the name of what no route names.
const DefaultRoute = "default"

// Route gives requests a name and a cost.
type Route struct {
	Name    string
	Methods []string // none: all
	Path    string   // see Gate.Route
	Cost    int64    // at least 1
}

// Config is what a Gate is made of.
type Config struct {
	Tiers       []Tier
	Routes      []Route // the first that matches names the request
	DefaultCost int64   // of what no route names; 0 is 1
	Policies    []Policy
}

// Fault is one thing wrong in a Config.
type Fault struct {
	Field string // such as policies.burst.tiers.free
	Rule  string
}

func (f Fault) Error() string { return f.Field + ": " + f.Rule }

// Faults are all that is wrong.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return "admit: " + strings.Join(lines, "\n")
}

// NameRule is what names of policies, tiers and routes must be.
const NameRule = "must be named by lower-case letters, digits, _ and -, at most 64"

var name = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,63}\z`)

// IsName reports whether s may name a policy, tier or route.
func IsName(s string) bool { return name.MatchString(s) }

// NewGate checks a configuration, whole, and makes a gate of it. Its error is a
// Faults; what is suspicious but accepted is returned as warnings.
func NewGate(c Config) (g *Gate, warnings Faults, err error) {
	if c.DefaultCost == 0 {
		c.DefaultCost = 1
	}
	k := checker{config: &c, tiers: map[string]int{}, routes: map[string]int64{DefaultRoute: c.DefaultCost}}
	k.checkTiers()
	k.checkRoutes()
	for i := range c.Policies {
		k.checkPolicy(&c.Policies[i], i)
	}
	if len(c.Policies) > MaxChecks {
		k.fault("policies", fmt.Sprintf("must be at most %d", MaxChecks))
	}
	if len(k.faults) > 0 {
		return nil, nil, k.faults
	}
	return k.gate(), k.warnings, nil
}

// gate makes the gate, when nothing is wrong.
func (k *checker) gate() *Gate {
	g := &Gate{config: *k.config, tiers: k.tiers, routes: map[string]int{DefaultRoute: 0}}
	for i, r := range k.config.Routes {
		g.routes[r.Name] = i + 1
	}
	for i := range g.config.Policies {
		p := &g.config.Policies[i]
		l := limited{Policy: p, capacity: p.capacity(), costs: make([]int64, len(g.routes)), concerns: make([]bool, len(g.routes))}
		for _, t := range g.config.Tiers {
			l.specs = append(l.specs, p.Tiers[t.Name])
		}
		for name, cost := range k.costs(p) {
			l.costs[g.routes[name]] = cost
			l.concerns[g.routes[name]] = len(p.Routes) == 0 || slices.Contains(p.Routes, name)
		}
		g.limits = append(g.limits, l)
		g.parts += len(p.Key)
	}
	return g
}

// checker collects what is wrong in a Config, and fills in defaults.
type checker struct {
	config           *Config
	tiers            map[string]int
	routes           map[string]int64 // name to cost
	faults, warnings Faults
}

func (k *checker) fault(field, rule string) { k.faults = append(k.faults, Fault{field, rule}) }

func (k *checker) checkTiers() {
	for i := range k.config.Tiers {
		t := &k.config.Tiers[i]
		at := "tiers." + t.Name
		if _, twice := k.tiers[t.Name]; twice || !IsName(t.Name) {
			k.fault(at, NameRule+", once")
		}
		k.tiers[t.Name] = i
		if t.Share < 0 {
			k.fault(at+".share", "must be a number of slots, or 0 for suspended")
		}
		if t.Weight == 0 {
			t.Weight = 1
		}
		if t.Weight < 1 || t.Weight > 1000 {
			k.fault(at+".weight", "must be 1 to 1000")
		}
	}
}

func (k *checker) checkRoutes() {
	if k.config.DefaultCost < 1 {
		k.fault("default_cost", "must be at least 1")
	}
	for i := range k.config.Routes {
		r := &k.config.Routes[i]
		at := "routes." + r.Name
		if _, twice := k.routes[r.Name]; !IsName(r.Name) || twice && r.Name != DefaultRoute {
			k.fault(at, NameRule+", once")
		}
		if r.Name == DefaultRoute {
			k.fault(at, "is the name of what no route names; set default_cost")
		}
		if r.Cost == 0 {
			r.Cost = k.config.DefaultCost
		}
		if r.Cost < 1 {
			k.fault(at+".cost", "must be at least 1")
		}
		if !validPattern(r.Path) {
			k.fault(at+".path", `must begin with / and hold whole segments, * for one, ** for all that follow at the end`)
		}
		k.routes[r.Name] = r.Cost
	}
}

func (k *checker) checkPolicy(p *Policy, index int) {
	at := "policies." + p.Name
	for _, other := range k.config.Policies[:index] {
		if other.Name == p.Name {
			k.fault(at, "must stand once")
		}
	}
	if !IsName(p.Name) {
		k.fault(at, NameRule)
	}
	k.checkKey(at+".key", p)
	if p.Percent < 0 || p.Percent > 100 {
		k.fault(at+".mode", "must be enforce, observe or a percentage from 1 to 99")
	}
	if p.Percent > 0 && p.Percent < 100 && len(p.Key) == 0 {
		k.fault(at+".mode", "must be enforce or observe: without a key there is one counter, and no part of it")
	}
	k.checkSpecs(at, p)
	for _, r := range p.Routes {
		if _, known := k.routes[r]; !known {
			k.fault(at+".routes", "names "+r+", which is no route")
		}
	}
}

func (k *checker) checkKey(at string, p *Policy) {
	for i, part := range p.Key {
		switch {
		case slices.Contains(p.Key[:i], part):
			k.fault(at, "must name "+part.String()+" once")
		case part == ByUser && !slices.Contains(p.Key, ByTenant):
			k.fault(at, "must name tenant beside user: a user's name is its tenant's own")
		case p.Failed && (part == ByTenant || part == ByUser):
			k.fault(at, "must not name "+part.String()+": a request without a valid credential has none")
		}
	}
	if p.V4 == 0 {
		p.V4 = 32
	}
	if p.V6 == 0 {
		p.V6 = 64
	}
	if p.V4 < 8 || p.V4 > 32 {
		k.fault(at, "must keep 8 to 32 bits of an IPv4 address")
	}
	if p.V6 < 16 || p.V6 > 128 {
		k.fault(at, "must keep 16 to 128 bits of an IPv6 address")
	}
}

// checkSpecs checks the limits, and each cost against them.
func (k *checker) checkSpecs(at string, p *Policy) {
	if p.Tiers == nil {
		k.checkSpec(at, p.Spec)
		k.checkCosts(at, p, []*Spec{&p.Spec})
		return
	}
	if p.Failed {
		k.fault(at+".tiers", "must be absent: a request without a valid credential has no tier")
	}
	var all []*Spec
	for _, t := range k.config.Tiers {
		s, ok := p.Tiers[t.Name]
		if !ok {
			k.fault(at+".tiers", "lacks a limit for tier "+t.Name+`; write "unlimited" if it has none`)
			continue
		}
		all = append(all, s)
		if s != nil {
			k.checkSpec(at+".tiers."+t.Name, *s)
		}
	}
	for t := range p.Tiers {
		if _, known := k.tiers[t]; !known {
			k.fault(at+".tiers."+t, "is no tier of this file")
		}
	}
	k.checkCosts(at, p, all)
}

func (k *checker) checkSpec(at string, s Spec) {
	if err := s.Validate(); err != nil {
		k.fault(at, err.Error())
	}
}

// checkCosts refuses a cost that no limit lets through, and warns of one that
// some do not.
func (k *checker) checkCosts(at string, p *Policy, specs []*Spec) {
	costs := k.costs(p)
	names := make([]string, 0, len(costs))
	for r := range costs {
		names = append(names, r)
	}
	slices.Sort(names)
	for _, r := range names {
		if len(p.Routes) > 0 && !slices.Contains(p.Routes, r) {
			continue
		}
		if _, known := k.routes[r]; !known {
			k.fault(at+".costs."+r, "is no route of this file")
			continue
		}
		if costs[r] < 1 {
			k.fault(at+".costs."+r, "must be at least 1")
		}
		k.checkCost(at, r, costs[r], specs)
	}
}

func (k *checker) checkCost(at, route string, cost int64, specs []*Spec) {
	fits, limited := 0, 0
	for _, s := range specs {
		if s == nil {
			fits++
		} else if s.Limit > 0 {
			limited++
			if s.Most() >= cost {
				fits++
			}
		}
	}
	what := fmt.Sprintf("never lets route %s through: it costs %d", route, cost)
	switch {
	case limited > 0 && fits == 0:
		k.fault(at, what+", more than every burst")
	case fits < limited:
		k.warnings = append(k.warnings, Fault{at, "for some tiers " + what + ", more than the burst"})
	}
}

// costs are the costs of every route under a policy.
func (k *checker) costs(p *Policy) map[string]int64 {
	costs := map[string]int64{}
	for r, c := range k.routes {
		costs[r] = c
	}
	for r, c := range p.Costs {
		costs[r] = c
	}
	return costs
}
