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
	Local, Shared            []Check
	WatchLocal, WatchShared  []Check
	local, shared            []int // indexes of policies, for each check
	watchedLocal, watchedFar []int
	gate                     *Gate
}

// Gate is a checked set of policies. It is immutable: a reload makes another one
// and goes on with the same stores, which know counters by policy and key.
type Gate struct {
	config Config
	tiers  map[string]int
	costs  []map[string]int64 // by policy, by route
	only   []map[string]bool  // by policy: the routes that it concerns; nil: all
	parts  int                // of all policies' keys
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
// know has none of the limits that go by tier, so resolve it before.
func (g *Gate) Plan(r *Request) Plan {
	p := Plan{gate: g}
	keys := make([]string, 0, g.parts)
	for i := range g.config.Policies {
		policy := &g.config.Policies[i]
		if policy.Failed != r.Failed || g.only[i] != nil && !g.only[i][r.Route] {
			continue
		}
		spec, limited := g.spec(policy, r.Tier)
		if !limited {
			continue
		}
		from := len(keys)
		keys = appendKey(keys, policy, r)
		c := Check{Policy: policy.Name, Key: keys[from:len(keys):len(keys)], Spec: spec, Cost: g.cost(i, r.Route), Away: policy.Away}
		p.add(i, c, policy.Shared, policy.enforces(c.Key))
	}
	return p
}

func (p *Plan) add(policy int, c Check, shared, enforced bool) {
	checks, index := &p.Local, &p.local
	switch {
	case shared && enforced:
		checks, index = &p.Shared, &p.shared
	case shared:
		checks, index = &p.WatchShared, &p.watchedFar
	case !enforced:
		checks, index = &p.WatchLocal, &p.watchedLocal
	}
	if *checks == nil { // at once, for most
		room := len(p.gate.config.Policies)
		*checks, *index = make([]Check, 0, room), make([]int, 0, room)
	}
	*checks, *index = append(*checks, c), append(*index, policy)
}

// spec returns the limit for a tier, or false if the policy does not limit it.
func (g *Gate) spec(p *Policy, tier string) (Spec, bool) {
	if p.Tiers == nil {
		return p.Spec, true
	}
	s, ok := p.Tiers[tier]
	if !ok || s == nil {
		return Spec{}, false
	}
	return *s, true
}

func (g *Gate) cost(policy int, route string) int64 {
	if c, ok := g.costs[policy][route]; ok {
		return c
	}
	return g.costs[policy][DefaultRoute]
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
func (p *Plan) Verdict(o *Outcome) Verdict {
	var v Verdict
	if n := len(p.Local) + len(p.Shared); n > 0 {
		v.Limits = make([]Hit, 0, n)
	}
	v.Allowed = (len(p.Local) == 0 || o.Local.Allowed) && (len(p.Shared) == 0 || o.Shared.Allowed)
	v.Away = len(p.Shared) > 0 && o.Shared.Away
	v.Limits = p.hits(v.Limits, p.local, p.Local, o.Local.Checks, false)
	v.Limits = p.hits(v.Limits, p.shared, p.Shared, o.Shared.Checks, o.Shared.Away)
	v.Watched = p.hits(v.Watched, p.watchedLocal, p.WatchLocal, o.WatchLocal, false)
	v.Watched = p.hits(v.Watched, p.watchedFar, p.WatchShared, o.WatchShared, false)
	for _, h := range v.Watched {
		if !h.Decision.Allowed {
			v.Would = append(v.Would, h)
		}
	}
	for i := range v.Limits {
		d := v.Limits[i].Decision
		if limit.Stricter(v.Limits[v.Binding].Decision, d) != v.Limits[v.Binding].Decision {
			v.Binding = i
		}
	}
	return v
}

// hits pairs checks with their decisions; a store that was not asked has none.
func (p *Plan) hits(hits []Hit, policies []int, checks []Check, said []limit.Decision, away bool) []Hit {
	for i := range min(len(checks), len(said)) {
		policy := &p.gate.config.Policies[policies[i]]
		hits = append(hits, Hit{
			Policy: checks[i].Policy, Capacity: policy.capacity(), Closed: away && policy.Away == AwayClosed,
			Spec: checks[i].Spec, Cost: checks[i].Cost, Decision: said[i],
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
