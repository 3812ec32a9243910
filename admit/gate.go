package admit

import (
	"hash/fnv"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/fairlane-dev/fairlane/limit"
)

// Request is what a decision knows of a request. All of it is established by the
// operator's own code: identity by a verified credential, the route by Gate.Route,
// the address by Proxies.Client.
type Request struct {
	Tenant  string
	User    string // of the tenant; "" if the credential names none
	Tier    string
	Route   string
	Address netip.Addr
	Failed  bool // its credential is missing or broken; then it has no tenant
}

// Verdict is the answer to a request.
type Verdict struct {
	Allowed bool
	Away    bool  // the shared store was away: some policies decided by their Away
	Limits  []Hit // of every enforced policy that concerns the request, in the policies' order
	Binding int   // the strictest of Limits, which the caller is told, if there are any
	Would   []Hit // observed policies that would have denied
	Watched []Hit // every observed policy that concerns the request
}

// Hit is what one policy says.
type Hit struct {
	Policy   string
	Capacity bool // its limit is the whole service's, not a caller's: a denial is 503
	Closed   bool // the shared store is away, and the policy is closed then
	Spec     Spec
	Cost     int64
	Decision limit.Decision
}

// Limit returns the strictest, if any policy concerns the request.
func (v *Verdict) Limit() (*Hit, bool) {
	if v.Binding >= len(v.Limits) {
		return nil, false
	}
	return &v.Limits[v.Binding], true
}

// Plan lists the limits that concern one request, by store. Decide Local and
// Shared all or nothing; then, if both allowed, each of the watched by itself,
// else peek at them.
type Plan struct {
	Local, Shared           []Check
	WatchLocal, WatchShared []Check

	gate *Gate
	keys []string // parts of the keys of Local and WatchLocal
}

// Gate is a checked set of policies. It is immutable: a reload makes another one
// and goes on with the same stores, which know counters by policy and key.
type Gate struct {
	config Config
	tiers  map[string]int
	routes map[string]int // places in limited's costs; DefaultRoute has 0
	limits []limited
	parts  int // of all policies' keys
}

// limited is a policy with what it says by tier and by route, by their places.
type limited struct {
	*Policy
	specs    []*Spec // nil: no limit
	costs    []int64
	concerns []bool
	capacity bool // nothing of the caller is in the key
}

// Config returns what the gate was made of.
func (g *Gate) Config() *Config { return &g.config }

// Tier returns a tier by name.
func (g *Gate) Tier(name string) (*Tier, bool) {
	i, ok := g.tiers[name]
	if !ok {
		return nil, false
	}
	return &g.config.Tiers[i], true
}

// Plan finds the limits that concern the request. A tier that the gate does not
// know has none of the limits that go by tier, so resolve it before. A route that
// it does not know is DefaultRoute.
func (g *Gate) Plan(r *Request) (p Plan) {
	g.PlanInto(&p, r)
	return p
}

// PlanInto is Plan that uses the memory of an earlier plan, whose Local and
// WatchLocal are then no more. What a shared store may still hold on to, Shared
// and WatchShared, always has memory of its own.
func (g *Gate) PlanInto(p *Plan, r *Request) {
	*p = Plan{gate: g, Local: p.Local[:0], WatchLocal: p.WatchLocal[:0], keys: slices.Grow(p.keys[:0], g.parts)}
	route := g.routes[r.Route]
	tier, ok := g.tiers[r.Tier]
	if !ok {
		tier = -1
	}
	for i := range g.limits {
		if l := &g.limits[i]; l.Failed == r.Failed && l.concerns[route] {
			if spec := l.spec(tier); spec != nil {
				p.add(i, spec, l.costs[route], r)
			}
		}
	}
}

// spec returns the limit for a tier, nil if there is none.
func (l *limited) spec(tier int) *Spec {
	switch {
	case l.Tiers == nil:
		return &l.Spec
	case tier < 0:
		return nil
	}
	return l.specs[tier]
}

func (p *Plan) add(policy int, spec *Spec, cost int64, r *Request) {
	l := &p.gate.limits[policy]
	var key []string
	if l.Shared {
		key = appendKey(nil, l.Policy, r)
	} else {
		from := len(p.keys)
		p.keys = appendKey(p.keys, l.Policy, r)
		key = p.keys[from:len(p.keys):len(p.keys)]
	}
	checks := &p.Local
	switch enforced := l.enforces(key); {
	case l.Shared && enforced:
		checks = &p.Shared
	case l.Shared:
		checks = &p.WatchShared
	case !enforced:
		checks = &p.WatchLocal
	}
	if *checks == nil { // at once, for most
		*checks = make([]Check, 0, len(p.gate.limits))
	}
	*checks = append(*checks, Check{Policy: l.Name, Key: key, Spec: *spec, Cost: cost, Away: l.Away, policy: policy})
}

func appendKey(key []string, p *Policy, r *Request) []string {
	for _, part := range p.Key {
		switch part {
		case ByTenant:
			key = append(key, r.Tenant)
		case ByUser:
			key = append(key, r.User)
		case ByRoute:
			key = append(key, r.Route)
		case ByAddress:
			key = append(key, Network(r.Address, p.V4, p.V6))
		}
	}
	return key
}

// enforces reports whether the policy is enforced for a key: by its percentage,
// and always the same for one key. A higher percentage enforces for all of a
// lower one's keys.
func (p *Policy) enforces(key []string) bool {
	if p.Percent <= 0 || p.Percent >= 100 {
		return p.Percent > 0
	}
	h := fnv.New64a()
	h.Write(AppendPart(nil, p.Name))
	for _, part := range key {
		h.Write(AppendPart(nil, part))
	}
	hi, _ := bits.Mul64(h.Sum64()*0x9e3779b97f4a7c15, 100) // its high bits are well mixed
	return int(hi) < p.Percent
}

// Outcome is what the stores said to a Plan; an empty part's Answer is ignored.
type Outcome struct {
	Local, Shared           Answer
	WatchLocal, WatchShared []limit.Decision // of each check by itself
}

// Verdict puts the stores' answers together.
func (p *Plan) Verdict(o *Outcome) (v Verdict) {
	p.VerdictInto(&v, o)
	return v
}

// VerdictInto is Verdict that uses the memory of an earlier verdict.
func (p *Plan) VerdictInto(v *Verdict, o *Outcome) {
	*v = Verdict{
		Allowed: (len(p.Local) == 0 || o.Local.Allowed) && (len(p.Shared) == 0 || o.Shared.Allowed),
		Away:    len(p.Shared) > 0 && o.Shared.Away,
		Limits:  slices.Grow(v.Limits[:0], len(p.Local)+len(p.Shared)),
		Watched: v.Watched[:0],
		Would:   v.Would[:0],
	}
	v.Limits = p.hits(v.Limits, p.Local, o.Local.Checks, false)
	v.Limits = p.hits(v.Limits, p.Shared, o.Shared.Checks, o.Shared.Away)
	v.Watched = p.hits(v.Watched, p.WatchLocal, o.WatchLocal, false)
	v.Watched = p.hits(v.Watched, p.WatchShared, o.WatchShared, false)
	for i := range v.Watched {
		if !v.Watched[i].Decision.Allowed {
			v.Would = append(v.Would, v.Watched[i])
		}
	}
	for i := range v.Limits {
		if limit.IsStricter(&v.Limits[i].Decision, &v.Limits[v.Binding].Decision) {
			v.Binding = i
		}
	}
}

// hits pairs checks with their decisions; a store that was not asked has none.
func (p *Plan) hits(hits []Hit, checks []Check, said []limit.Decision, away bool) []Hit {
	for i := range min(len(checks), len(said)) {
		c := &checks[i]
		l := &p.gate.limits[c.policy]
		hits = append(hits, Hit{
			Policy: c.Policy, Capacity: l.capacity, Closed: away && l.Away == AwayClosed,
			Spec: c.Spec, Cost: c.Cost, Decision: said[i],
		})
	}
	return hits
}

// capacity reports whether nothing of the caller is in the key.
func (p *Policy) capacity() bool {
	return !slices.ContainsFunc(p.Key, func(part Part) bool { return part != ByRoute })
}

// RouteCost returns what a route costs where no policy says otherwise.
func (g *Gate) RouteCost(route string) int64 {
	for i := range g.config.Routes {
		if g.config.Routes[i].Name == route {
			return g.config.Routes[i].Cost
		}
	}
	return g.config.DefaultCost
}
