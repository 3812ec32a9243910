package scenario

import (
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
	"github.com/fairlane-dev/fairlane/sim"
)

// Setup returns the run of one policy of a delivery scenario, with the table of that name ("" without
// tables), for a driver of one's own.
func (s *Scenario) Setup(table, policy string, seed uint64) (*sim.Setup, error) {
	for _, x := range s.rows(&reader{}) {
		if s.Kind == "delivery" && x.table == table && x.policy.Name == policy {
			return s.setup(&x, seed), nil
		}
	}
	return nil, fmt.Errorf("%s has no deliveries of policy %q with table %q", s.Name, policy, table)
}

// setup makes the run of one row. The rates of a checked scenario compile.
func (s *Scenario) setup(x *row, seed uint64) *sim.Setup {
	p := &s.platform
	out := &sim.Setup{
		Seed:   seed,
		Engine: engine.Config{Slots: p.Slots, HostLimit: -1},
		Groups: len(x.groups), Until: p.Duration, Drain: p.Drain, Measure: p.Measure, Bin: p.Series,
	}
	if p.HostLimit > 0 {
		out.Engine.HostLimit = p.HostLimit
	}
	if x.policy.Slots > 0 {
		out.Engine.Slots = x.policy.Slots
	}
	if x.policy.Order == "arrival" {
		out.Engine.Order = engine.Arrival
	}
	if l := &x.policy.Limit; l.Rate != "" {
		out.Gate = &sim.Gate{Rate: mustRate(l.Rate, l.Burst), Hold: l.Deny == "hold", Bound: l.Queue, Deadline: l.Deadline}
	}
	for i := range x.groups {
		x.groups[i].add(out, i, p.Duration, x.policy.ShareBy == "subscription")
	}
	return out
}

// add appends the tenants of a group and their lanes; apart makes each lane a tenant of its own.
func (g *Group) add(out *sim.Setup, index int, duration time.Duration, apart bool) {
	lane := sim.Lane{Profile: g.profile(), Endpoint: g.Endpoint.model()}
	if g.Budget == "pool" {
		lane.Pooled = true
	}
	for _, a := range g.Arrivals {
		lane.Arrivals = append(lane.Arrivals, a.process(duration))
	}
	if g.Deny == "queue" || g.Deny == "hold" {
		lane.Gate = &sim.Gate{Rate: mustRate(g.Rate, g.Burst), Hold: g.Deny == "hold", Bound: g.Queue, Deadline: g.Deadline}
	}
	if g.Endpoint.Workers > 0 {
		lane.Server = &sim.Server{Workers: g.Endpoint.Workers}
	}
	for range g.Tenants {
		for k := range g.Subscriptions {
			if k == 0 || apart {
				out.Tenants = append(out.Tenants, sim.Tenant{Group: index, Weight: g.Weight})
			}
			l := lane
			l.Tenant, l.Host = engine.TenantID(len(out.Tenants)-1), engine.HostID(len(out.Lanes))
			if lane.Server != nil && !g.Endpoint.Shared {
				l.Server = &sim.Server{Workers: g.Endpoint.Workers}
			}
			out.Lanes = append(out.Lanes, l)
		}
	}
}

func (g *Group) profile() engine.Profile {
	p := engine.Profile{
		Rate: mustRate(g.Rate, g.Burst), Cap: g.Cap, Timeout: g.Timeout, Horizon: g.Horizon,
		Breaker:  breaker.Config{Off: !g.Breaker, ProbeExpiry: g.Timeout},
		Schedule: retry.Schedule{QuickAttempts: g.Quick, QuickBase: g.Base, Jitter: jitters[g.Jitter], Slow: g.Slow},
		NoBudget: g.Budget != "own", MaxAttempts: g.Attempts, Drop: g.Deny == "drop",
	}
	if p.Cap == 0 {
		p.Cap = -1
	}
	if g.Deny == "queue" || g.Deny == "hold" {
		p.Rate = limit.Unlimited() // the gate's
	}
	return p
}

var jitters = map[string]retry.Jitter{
	"full": retry.FullJitter, "equal": retry.EqualJitter, "decorrelated": retry.DecorrelatedJitter, "none": retry.NoJitter,
}

func mustRate(text string, burst int64) limit.Rate {
	r, err := limit.ParseContract(text, burst)
	if err != nil {
		panic("scenario: unchecked rate: " + err.Error())
	}
	return r
}

func (a *Arrivals) process(duration time.Duration) sim.Process {
	in := sim.Span{From: a.From, To: a.To}
	if in.To == 0 {
		in.To = duration
	}
	switch a.Kind {
	case "poisson":
		return sim.Poisson(a.Rate, in)
	case "sine":
		return sim.Sine(a.Rate, a.Swing, a.Period, in)
	case "on-off":
		return sim.OnOff(a.Rate, a.On, a.Off, in)
	case "burst":
		return sim.Burst(uint64(a.Count), a.Every, in)
	case "trace":
		return sim.Trace(a.At)
	}
	return sim.Constant(a.Rate, in)
}

var phaseKinds = map[string]sim.PhaseKind{
	"fail": sim.Fails, "slow": sim.Slows, "black-hole": sim.BlackHole, "reject": sim.Rejects, "gone": sim.Gone,
}

func (e *Endpoint) model() sim.Endpoint {
	out := sim.Endpoint{Latency: e.Latency.model(), Errors: e.Errors, Lost: e.Lost}
	if e.Throttle.Rate != "" {
		out.Throttle = &sim.Throttle{Rate: mustRate(e.Throttle.Rate, e.Throttle.Burst), Quiet: e.Throttle.Quiet}
	}
	for _, p := range e.Phases {
		out.Phases = append(out.Phases, sim.Phase{Span: sim.Span{From: p.From, To: p.To}, Kind: phaseKinds[p.Kind], After: p.After})
	}
	return out
}

func (l *Latency) model() sim.Latency {
	switch {
	case l.Mean > 0:
		return sim.LogNormal(l.Mean, l.P99)
	case l.Median > 0:
		return sim.LogNormalMedian(l.Median, l.P999)
	case len(l.Quantiles) > 0:
		var q []sim.Quantile
		for i, at := range l.Quantiles {
			q = append(q, sim.Quantile{P: float64(i) / float64(len(l.Quantiles)-1), At: at})
		}
		return sim.Quantiles(q)
	}
	return sim.Fixed(l.Fixed)
}
