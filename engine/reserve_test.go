package engine

import (
	"math"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/retry"
)

// failing is a profile whose every retry is a second later and needs the
// platform's reserve: its endpoint never answers well.
func failing() Profile {
	return Profile{
		Cap: -1, Breaker: breaker.Config{Off: true}, Schedule: quickRetry(),
		Budget: retry.Budget{Reserve: 1000},
	}
}

// The platform's reserve is ten retries a second, and goes by tenant: three
// hundred dead lanes of one do not keep another's from it.
func TestThePlatformsReserveGoesByTenant(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	for i := range 300 {
		s.add(0, LaneID(i), failing())
	}
	s.add(1, 300, failing())
	s.serve = func(LaneID) (time.Duration, Result) { return 50 * time.Millisecond, Result{Kind: Failed} }
	for i := range 300 {
		s.offer(LaneID(i))
	}
	for range 300 {
		s.offer(300)
	}
	s.run(10 * time.Second)
	retries := func() (of [2]int) {
		for id, n := range s.starts {
			of[s.tenantOf[id]] += n
		}
		return of
	}
	before := retries()
	s.run(70 * time.Second)
	after := retries()
	a, b := after[0]-before[0], after[1]-before[1]
	if sum := a + b; sum < 590 || sum > 610 {
		t.Errorf("%d retries in a minute, the reserve is 600", sum)
	}
	if math.Abs(float64(a-b)) > 0.05*float64(a+b) {
		t.Errorf("the tenants got %d and %d of the reserve", a, b)
	}
	s.wantBalanced(t, 301)
}

// A retry without budget keeps its place and holds no fresh one back; the lane's
// next success wakes it at once.
func TestARetryWithoutBudgetWaitsForTheNextSuccess(t *testing.T) {
	p := Profile{Cap: -1, Breaker: breaker.Config{Off: true}, Schedule: quickRetry()}
	s := single(t, p)
	ok := false
	s.serve = func(LaneID) (time.Duration, Result) {
		if ok {
			return time.Millisecond, Result{Kind: OK}
		}
		return time.Millisecond, Result{Kind: Failed}
	}
	for range 8 {
		s.offer(0)
	}
	s.run(5 * time.Second)
	v, _ := s.e.Lane(s.now, 0)
	if v.Blocked != ByBudget || v.Until <= s.now || s.starts[0] > 10 {
		t.Fatalf("blocked by %v until %v after %d starts", v.Blocked, v.Until, s.starts[0])
	}
	ok = true
	if v := s.offer(0); v.Kind != Send {
		t.Fatalf("a fresh one behind it: %v %v", v.Kind, v.Reason)
	}
	for range 12 { // one success pays for a tenth of a retry
		s.offer(0)
	}
	s.run(s.now + 100*time.Millisecond)
	if s.done[0] != 21 {
		t.Errorf("%d of 21 delivered once the endpoint answered", s.done[0])
	}
}

// A delivery that was attempted before a restart spends budget when it is
// offered again; its denial gives the latest instant of all.
func TestAnOfferedRetrySpendsBudget(t *testing.T) {
	p := rated(1, time.Minute, 5)
	p.NoBudget, p.Budget = false, retry.Budget{HalfLife: time.Hour}
	s := single(t, p)
	for i, want := range []Kind{Send, Send, Park} {
		v := s.e.Offer(s.now, Delivery{Lane: 0, Attempt: 1})
		if v.Kind != want || want == Park && (v.Reason != ByBudget || v.At < 30*time.Minute) {
			t.Errorf("retry %d: %v %v until %v", i, v.Kind, v.Reason, v.At)
		}
		s.now += 4 * time.Second
	}
	for range 3 {
		s.e.Offer(s.now, Delivery{Lane: 0})
	}
	v := s.e.Offer(s.now, Delivery{Lane: 0, Attempt: 1})
	if v.Reason != ByRate || v.At < 30*time.Minute {
		t.Errorf("without token and budget: %v until %v, want the rate's reason and the budget's instant", v.Reason, v.At)
	}
}

// A reserved retry that succeeds gives its place in the reserve to the next at
// once.
func TestASuccessGivesItsReserveToTheNext(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	for i := range 20 {
		s.add(0, LaneID(i), failing())
		s.finish(s.offer(LaneID(i)).Ticket, Result{Kind: Failed})
	}
	s.events = nil
	s.to(2 * time.Second)
	out := s.drain()
	if len(out) != 10 {
		t.Fatalf("%d retries at once, the reserve holds 10", len(out))
	}
	if at, ok := s.e.NextWake(); !ok || at <= s.now || at > s.now+110*time.Millisecond {
		t.Errorf("wakes %v at %v, the reserve has one more after 0.1 s", ok, at)
	}
	s.finish(out[0], Result{Kind: OK})
	if n := len(s.drain()); n != 1 {
		t.Errorf("%d retries went after one had succeeded, want 1", n)
	}
}
