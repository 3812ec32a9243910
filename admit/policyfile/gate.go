package policyfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/limit"
)

// gate reads routes and policies and makes the gate.
func (f *File) gate(r *reader, top *section, tiers []tier) {
	c := admit.Config{DefaultCost: 1}
	top.whole("default_cost", 1, limit.MaxTokens, &c.DefaultCost)
	for _, t := range tiers {
		c.Tiers = append(c.Tiers, t.Tier)
	}
	c.Routes = readRoutes(top)
	s, _ := top.sub("policies")
	for _, name := range s.names {
		in, _ := s.sub(name)
		p := readPolicy(r, in, tiers)
		p.Name = name
		c.Policies = append(c.Policies, p)
		if p.Shared && f.Redis.URL == "" {
			r.At(in.field("store"), "needs the section redis")
		}
		f.resolvable(r, in, &p)
	}
	s.end()
	if len(r.Problems) > 0 {
		return // what the gate would find in half of a file misleads
	}
	g, warnings, err := admit.NewGate(c)
	if faults, ok := err.(admit.Faults); ok { //nolint:errorlint // NewGate returns no other
		for _, p := range faults {
			r.At(p.Field, p.Rule)
		}
	}
	for _, w := range warnings {
		f.Warnings = append(f.Warnings, r.warning(w.Field, w.Rule))
	}
	f.Gate = g
}

// resolvable refuses a key of which no request can have a part.
func (f *File) resolvable(r *reader, s *section, p *admit.Policy) {
	id := &f.Identity
	credentials := id.KeyFile != "" || id.JWTKeys != "" || id.JWKS != ""
	for _, part := range p.Key {
		if (part == admit.ByTenant || part == admit.ByUser) && !credentials {
			r.At(s.field("key"), "names "+part.String()+", which cannot be resolved: identity has neither keys nor jwt")
		}
	}
	if p.Failed && !credentials {
		r.At(s.field("credential"), "cannot be broken: identity has neither keys nor jwt")
	}
}

func readRoutes(top *section) (routes []admit.Route) {
	s, _ := top.sub("routes")
	for _, name := range s.names {
		in, _ := s.sub(name)
		route := admit.Route{Name: name}
		in.texts("methods", "a list of methods in capitals", &route.Methods, func(m string) bool { return m != "" && m == strings.ToUpper(m) })
		if !in.text("path", "a path such as /reports/*/rows or /files/**", &route.Path, notEmpty) {
			in.r.At(in.path, "lacks path")
		}
		in.whole("cost", 1, limit.MaxTokens, &route.Cost)
		in.end()
		routes = append(routes, route)
	}
	s.end()
	return routes
}

func readPolicy(r *reader, s *section, tiers []tier) (p admit.Policy) {
	var parts []string
	if s.texts("key", "a list of tenant, user, route, address; [] for one counter of all", &parts, isPart) {
		for _, name := range parts {
			part, _ := admit.ParsePart(name) // was read by isPart
			p.Key = append(p.Key, part)
		}
	} else if _, stands := s.nodes["key"]; !stands {
		r.At(s.path, "lacks key")
	}
	p.Percent = 100
	get(s, "mode", "enforce, observe, or a percentage such as 25%", &p.Percent, percentOf)
	s.texts("routes", "a list of names of routes", &p.Routes, admit.IsName)
	p.Costs = readCosts(s)
	s.small("ipv4", 8, 32, &p.V4)
	s.small("ipv6", 16, 128, &p.V6)
	get(s, "store", "local or redis", &p.Shared, func(n ast.Node) (bool, bool) {
		text, _ := textOf(n)
		return text == "redis", text == "redis" || text == "local"
	})
	get(s, "away", "closed, local or open", &p.Away, awayOf)
	get(s, "credential", "valid or broken", &p.Failed, func(n ast.Node) (bool, bool) {
		text, _ := textOf(n)
		return text == "broken", text == "broken" || text == "valid"
	})
	readLimits(r, s, &p, tiers)
	s.end()
	return p
}

func isPart(s string) bool { _, ok := admit.ParsePart(s); return ok }

func percentOf(n ast.Node) (int, bool) {
	text, _ := textOf(n)
	switch text {
	case "enforce":
		return 100, true
	case "observe":
		return 0, true
	}
	digits, ok := strings.CutSuffix(text, "%")
	v, err := strconv.Atoi(digits)
	return v, ok && err == nil && v >= 1 && v <= 99
}

func awayOf(n ast.Node) (admit.Away, bool) {
	text, _ := textOf(n)
	for a := admit.AwayClosed; a <= admit.AwayOpen; a++ {
		if a.String() == text {
			return a, true
		}
	}
	return 0, false
}

func readCosts(s *section) map[string]int64 {
	in, stands := s.sub("costs")
	if !stands {
		return nil
	}
	costs := map[string]int64{}
	for _, route := range in.names {
		var c int64
		if in.whole(route, 1, limit.MaxTokens, &c) {
			costs[route] = c
		}
	}
	in.end()
	return costs
}

// readLimits reads what a policy lets through: `limits: tier`, one limit for all,
// or a limit for each tier under `tiers`.
func readLimits(r *reader, s *section, p *admit.Policy, tiers []tier) {
	var from string
	byTier := s.text("limits", "tier", &from, func(t string) bool { return t == "tier" })
	base := windowOf(s)
	own, some := readLimit(s, base)
	in, each := s.sub("tiers")
	switch n := count(byTier, some, each); {
	case n != 1:
		r.At(s.path, "must have one of: limits: tier; rate (and burst); limit (and window); tiers")
	case byTier:
		fromTiers(r, s, p, tiers)
	case each:
		readTierLimits(in, p, base)
	case own == nil:
		r.At(s.path, "must limit something: leave an unlimited policy out")
	default:
		p.Spec = *own
	}
}

func count(flags ...bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

func fromTiers(r *reader, s *section, p *admit.Policy, tiers []tier) {
	p.Tiers = map[string]*admit.Spec{}
	for _, t := range tiers {
		if !t.has {
			r.At(s.field("limits"), "takes the rate of tier "+t.Name+", which has none")
			continue
		}
		p.Tiers[t.Name] = t.rate
	}
}

func readTierLimits(in *section, p *admit.Policy, base admit.Spec) {
	p.Tiers = map[string]*admit.Spec{}
	for _, name := range in.names {
		n, _ := in.node(name)
		if text, _ := textOf(n); text == "unlimited" {
			p.Tiers[name] = nil
			continue
		}
		one, _ := in.sub(name)
		spec, ok := readLimit(one, base)
		if !ok {
			in.r.At(in.field(name), "must have rate or limit, or be the word unlimited")
		}
		p.Tiers[name] = spec
		one.end()
	}
	in.end()
}

// windowOf reads a policy's window and algorithm, which its limits share.
func windowOf(s *section) (base admit.Spec) {
	base.Algorithm = admit.SlidingWindow
	get(s, "algorithm", "bucket, fixed or sliding", &base.Algorithm, func(n ast.Node) (admit.Algorithm, bool) {
		text, _ := textOf(n)
		for a := admit.TokenBucket; a <= admit.SlidingWindow; a++ {
			if a.String() == text {
				return a, true
			}
		}
		return 0, false
	})
	s.duration("window", limit.MinPeriod, limit.MaxPeriod, &base.Window)
	return base
}

// readLimit reads one limit: a rate, or so many in the policy's window.
func readLimit(s *section, base admit.Spec) (*admit.Spec, bool) {
	rate, isRate := readRate(s)
	spec := base
	isWindow := s.whole("limit", 0, limit.MaxTokens, &spec.Limit)
	switch {
	case isRate && isWindow:
		s.r.At(s.path, "must have rate or limit, not both")
	case isRate:
		return rate, true
	case !isWindow:
		return nil, false
	case base.Window == 0 && !s.r.broken("window"):
		s.r.At(s.field("limit"), "needs window, a duration with a unit")
	case base.Algorithm == admit.TokenBucket:
		spec.Burst = spec.Limit
	}
	return &spec, true
}

// broken reports whether a field of that name was refused already.
func (r *reader) broken(name string) bool {
	for _, p := range r.Problems {
		if strings.HasSuffix(p.Field, "."+name) {
			return true
		}
	}
	return false
}

// LimitOf says a limit in words, for print-outs.
func LimitOf(s *admit.Spec) string {
	switch {
	case s == nil:
		return "unlimited"
	case s.Limit == 0:
		return "paused"
	case s.Algorithm == admit.TokenBucket:
		r, _ := s.Rate() // is valid: the gate was made of it
		return fmt.Sprintf("%s, burst %d", r.String(), s.Burst)
	}
	return fmt.Sprintf("%d per %s (%s)", s.Limit, short(s.Window), s.Algorithm)
}

func short(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	return d.String()
}
