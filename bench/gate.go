package main

import (
	"context"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/fairlane-dev/fairlane/admit"
)

// gate times a decision of a gate in process: a tenant's bucket, the bucket of all and the route's
// window, all or nothing, with the answer that callers are told. Beside it what a decision on one
// limit takes elsewhere.
func (b *bench) gate() ([]figure, error) {
	n := pick(b, 500_000, 50_000)
	three, fresh, err := gateDecisions()
	if err != nil {
		return nil, err
	}
	store, err := memorystore.New(&memorystore.Config{Tokens: 1_000_000_000, Interval: time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close(context.Background()) }() // it only stops its sweeping
	single := func(n int) {
		for range n {
			if _, _, _, _, err := store.Take(context.Background(), "acme"); err != nil {
				panic(err) // the store is in memory
			}
		}
	}
	limiter := rate.NewLimiter(1_000_000_000, 1_000_000_000)
	now := epoch
	allow := func(n int) {
		for range n {
			now = now.Add(time.Microsecond)
			limiter.AllowN(now, 1)
		}
	}
	s, err := b.interleave(perOp(n, three), perOp(n, single), perOp(n, allow))
	if err != nil {
		return nil, err
	}
	return []figure{
		many("gate: tenant bucket, global bucket, route window", s[0], "ns", nil),
		many("go-limiter memory store, one limit", s[1], "ns", nil),
		many("AllowN(t, 1), one limit", s[2], "ns", nil),
		many("gate of three limits, over go-limiter of one", s[0].over(s[1]), "x", nil),
		one("gate allocates, per decision", allocs(n, three), "", nil),
		one("gate allocates without the memory of the last decision", allocs(n, fresh), "", nil),
		one("go-limiter allocates", allocs(n, single), "", nil),
		one("AllowN allocates", allocs(n, allow), "", nil),
	}, nil
}

// gateDecisions returns loops of n decisions, a microsecond apart, that all pass: in the memory of the
// one before, as httpadmit does, and each in memory of its own.
func gateDecisions() (three, fresh func(n int), err error) {
	most := admit.Spec{Limit: 1_000_000_000, Window: time.Second, Burst: 1_000_000_000}
	g, _, err := admit.NewGate(admit.Config{
		Tiers: []admit.Tier{{Name: "free", Share: 1}},
		Policies: []admit.Policy{
			{Name: "tenant", Key: []admit.Part{admit.ByTenant}, Tiers: map[string]*admit.Spec{"free": &most}, Percent: 100},
			{Name: "all", Spec: most, Percent: 100},
			{Name: "route", Key: []admit.Part{admit.ByTenant, admit.ByRoute}, Percent: 100,
				Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: 1_000_000_000, Window: time.Second}},
		},
	})
	if err != nil {
		return nil, nil, err
	}
	local, r, now := admit.NewLocal(1000), admit.Request{Tenant: "acme", Tier: "free", Route: admit.DefaultRoute}, time.Duration(0)
	var plan admit.Plan
	var out admit.Outcome
	var v admit.Verdict
	decide := func() {
		now += time.Microsecond
		g.PlanInto(&plan, &r)
		local.TakeInto(&out.Local, now, plan.Local)
		plan.VerdictInto(&v, &out)
		if !v.Allowed {
			panic("a decision did not pass")
		}
	}
	three = func(n int) {
		for range n {
			decide()
		}
	}
	fresh = func(n int) {
		for range n {
			plan, out, v = admit.Plan{}, admit.Outcome{}, admit.Verdict{}
			decide()
		}
	}
	return three, fresh, nil
}
