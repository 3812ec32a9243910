package admit

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A decision in the memory of another is the same as in its own, whatever that was.
func TestADecisionInUsedMemoryIsTheSame(t *testing.T) {
	free := bucket(1, time.Second, 3)
	g := newGate(t, Config{Tiers: tiers(), Routes: []Route{{Name: "report", Path: "/r", Cost: 2}}, Policies: []Policy{
		{Name: "tenant", Key: []Part{ByTenant}, Tiers: map[string]*Spec{"free": &free, "pro": nil}, Percent: 100},
		{Name: "part", Key: []Part{ByTenant, ByRoute}, Spec: bucket(1, time.Second, 4), Percent: 50},
		{Name: "report", Key: []Part{ByTenant}, Spec: bucket(1, time.Second, 4), Routes: []string{"report"}, Percent: 100},
		{Name: "watched", Spec: bucket(1, time.Second, 5)},
		{Name: "guesses", Key: []Part{ByAddress}, Spec: free, Percent: 100, Failed: true},
	}})
	rapid.Check(t, func(t *rapid.T) {
		own, used := NewLocal(10), NewLocal(10)
		var plan Plan
		var o Outcome
		var v Verdict
		var now time.Duration
		for range 30 {
			now += time.Duration(rapid.IntRange(0, 2).Draw(t, "s")) * time.Second
			r := Request{
				Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"),
				Tier:   rapid.SampledFrom([]string{"free", "pro", "none"}).Draw(t, "tier"),
				Route:  rapid.SampledFrom([]string{"report", DefaultRoute, "unknown"}).Draw(t, "route"),
				Failed: rapid.IntRange(0, 4).Draw(t, "failed") == 0,
			}
			want := decide(g, own, now, r)
			g.PlanInto(&plan, &r)
			used.TakeInto(&o.Local, now, plan.Local)
			o.WatchLocal = o.WatchLocal[:0]
			for i := range plan.WatchLocal {
				ask := used.Peek
				if o.Local.Allowed {
					ask = used.Take
				}
				o.WatchLocal = append(o.WatchLocal, ask(now, plan.WatchLocal[i:i+1]).Checks...)
			}
			plan.VerdictInto(&v, &o)
			if fmt.Sprint(v) != fmt.Sprint(want) {
				t.Fatalf("%+v: %+v, want %+v", r, v, want)
			}
		}
	})
}

// What a shared store may hold on to after its answer is not used for the next decision.
func TestSharedChecksHaveMemoryOfTheirOwn(t *testing.T) {
	g := newGate(t, Config{Policies: []Policy{{Name: "day", Key: []Part{ByTenant}, Spec: bucket(1, time.Second, 3), Percent: 100, Shared: true}}})
	var plan Plan
	g.PlanInto(&plan, &Request{Tenant: "a"})
	held := plan.Shared
	g.PlanInto(&plan, &Request{Tenant: "b"})
	if held[0].Key[0] != "a" || plan.Shared[0].Key[0] != "b" {
		t.Errorf("held for a: %v, for b: %v", held[0].Key, plan.Shared[0].Key)
	}
}

func TestADecisionInUsedMemoryAllocatesNothing(t *testing.T) {
	decide := threePolicies(t)
	if n := testing.AllocsPerRun(100, decide); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGateThreePolicies(b *testing.B) {
	decide := threePolicies(b)
	b.ReportAllocs()
	for b.Loop() {
		decide()
	}
}

// threePolicies returns a decision that passes, in the memory of the one before.
func threePolicies(t testing.TB) func() {
	free := bucket(1_000_000_000, time.Second, 1_000_000_000)
	g, _, err := NewGate(Config{Tiers: tiers()[:1], Policies: []Policy{
		{Name: "tenant", Key: []Part{ByTenant}, Tiers: map[string]*Spec{"free": &free}, Percent: 100},
		{Name: "all", Spec: free, Percent: 100},
		{Name: "route", Key: []Part{ByTenant, ByRoute}, Spec: Spec{Algorithm: FixedWindow, Limit: 1_000_000_000, Window: time.Second}, Percent: 100},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, r := NewLocal(1000), Request{Tenant: "acme", Tier: "free", Route: "default"}
	var plan Plan
	var o Outcome
	var v Verdict
	var now time.Duration
	return func() {
		now += 100
		g.PlanInto(&plan, &r)
		l.TakeInto(&o.Local, now, plan.Local)
		if plan.VerdictInto(&v, &o); !v.Allowed {
			t.Fatal("denied")
		}
	}
}
