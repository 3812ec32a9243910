package engine

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// backlogged makes a platform on which each tenant has one lane with an endless
// backlog of deliveries that take took(tenant).
func backlogged(t *testing.T, slots int, weights []int, took func(TenantID) time.Duration) *sim {
	s := newSim(t, Config{Slots: slots, HostLimit: -1})
	s.serve = func(id LaneID) (time.Duration, Result) { return took(TenantID(id)), Result{Kind: OK} }
	for i, w := range weights {
		s.apply(t, PutTenant{Tenant: TenantID(i), Weight: w})
		s.add(TenantID(i), LaneID(i), open())
	}
	return s
}

func ones(n int) []int {
	w := make([]int, n)
	for i := range w {
		w[i] = 1
	}
	return w
}

// wantWater checks what tenants used over span seconds against the oracle's
// level, within the longest slot time (over the weight) for each slot in flight.
func wantWater(t *testing.T, used []float64, span, capacity float64, want []float64, weights []int, longest float64, inFlight func(i int) float64) {
	t.Helper()
	w := make([]float64, len(weights))
	for i := range w {
		w[i] = float64(weights[i])
	}
	for i, share := range water(capacity, want, w) {
		margin := longest*(inFlight(i)+1) + 0.02*share*span
		if math.Abs(used[i]-share*span) > margin {
			t.Errorf("tenant %d used %.2f slot seconds, its max-min share is %.2f (margin %.2f)", i, used[i], share*span, margin)
		}
	}
}

// Three tenants of weights 1, 2 and 5, two of them wanting more than there is.
// Limiter case L74.
func TestThreeTenantsGetTheirMaxMinShares(t *testing.T) {
	weights := []int{1, 2, 5}
	s := backlogged(t, 80, weights, func(TenantID) time.Duration { return 50 * time.Millisecond })
	s.fill(0, 30_000)
	s.fill(1, 30_000)
	s.arrive(2, 0, time.Minute, every(4*time.Millisecond)) // 250/s of 50 ms: 12.5 slots
	s.run(2 * time.Second)
	used := s.usedIn(12 * time.Second)
	huge := math.Inf(1)
	wantWater(t, used, 10, 80, []float64{huge, huge, 12.5}, weights, 0.05, func(i int) float64 { return 50 })
	if sum := used[0] + used[1] + used[2]; sum < 0.999*80*10 {
		t.Errorf("%.0f of 800 slot seconds used while two tenants wait: not work-conserving", sum)
	}
}

// More tenants than slots: 0.3 slots each, a share no table of whole slots can give.
func TestFourThousandTenantsShareTwelveHundredSlots(t *testing.T) {
	const tenants, slots = 4000, 1200
	s := newSim(t, Config{Slots: slots, HostLimit: -1})
	s.serve = func(LaneID) (time.Duration, Result) {
		return logNormal(s.rnd, 20*time.Millisecond, 60*time.Millisecond), Result{Kind: OK}
	}
	want := make([]float64, tenants)
	for i := range tenants {
		s.apply(t, PutTenant{Tenant: TenantID(i)})
		s.add(TenantID(i), LaneID(i), open())
		s.fill(LaneID(i), 60)
		want[i] = math.Inf(1)
	}
	s.run(200 * time.Millisecond)
	used := s.usedIn(1700 * time.Millisecond)
	wantWater(t, used, 1.5, slots, want, ones(tenants), 0.15, func(int) float64 { return 1 })
	sum := 0.0
	for _, u := range used {
		sum += u
	}
	if sum < 0.999*slots*1.5 {
		t.Errorf("%.0f of %.0f slot seconds used while all wait", sum, slots*1.5)
	}
}

// Half of the tenants hold a slot for 1 s, half for 20 ms: equal slot time, not
// equal requests.
func TestSlowAndFastEndpointsGetEqualSlotTime(t *testing.T) {
	const tenants, slots = 20, 100
	s := backlogged(t, slots, ones(tenants), func(id TenantID) time.Duration {
		if id%2 == 0 {
			return time.Second
		}
		return 20 * time.Millisecond
	})
	want := make([]float64, tenants)
	for i := range tenants {
		n := 600
		if i%2 == 1 {
			n = 15_000
		}
		s.fill(LaneID(i), n)
		want[i] = math.Inf(1)
	}
	s.run(10 * time.Second)
	used := s.usedIn(40 * time.Second)
	wantWater(t, used, 30, slots, want, ones(tenants), 1, func(int) float64 { return 5 })
}

// A tenant that wakes gets its share at once, and no more than it: idle time
// earned nothing.
// Field case 18.
// Limiter case L74.
func TestOneThatWakesGetsItsShareAndNoCreditForIdleTime(t *testing.T) {
	const slots = 60
	s := backlogged(t, slots, ones(3), func(TenantID) time.Duration { return 20 * time.Millisecond })
	s.fill(0, 40_000)
	s.fill(1, 40_000)
	s.offer(2) // it has been served once, long ago
	s.run(10 * time.Second)
	s.fill(2, 10_000)
	s.run(10*time.Second + 20*time.Millisecond) // one service time
	if s.out[2] < 19 || s.out[2] > 21 {
		t.Errorf("one service time after waking it holds %d of 60 slots, its share is 20", s.out[2])
	}
	used := s.usedIn(12 * time.Second)
	for i, u := range used {
		if math.Abs(u-1.98*20) > 0.02*20+0.5 {
			t.Errorf("tenant %d used %.2f slot seconds in 1.98 s, its share is %.2f", i, u, 1.98*20)
		}
	}
}

// Alone, a tenant uses every slot; when another wakes, it falls to its share
// within one service time, and no attempt is cut.
// Field case 18.
// Limiter case L72.
func TestWhatWasLentIsTakenBackWithinOneServiceTime(t *testing.T) {
	s := newSim(t, Config{Slots: 100, HostLimit: -1})
	for i := range 2 {
		s.apply(t, PutTenant{Tenant: TenantID(i)})
	}
	for i := range 10 { // ten healthy lanes without limits
		s.add(0, LaneID(i), open())
		s.fill(LaneID(i), 2000)
	}
	s.add(1, 10, open())
	s.run(time.Second)
	used := s.usedIn(2 * time.Second)
	if used[0] < 99.9 {
		t.Errorf("alone it used %.1f of 100 slot seconds: capacity is stranded", used[0])
	}
	s.fill(10, 10_000)
	s.run(2*time.Second + 20*time.Millisecond)
	if s.out[0] != 50 || s.out[1] != 50 {
		t.Errorf("one service time later they hold %d and %d of 100", s.out[0], s.out[1])
	}
}

// Fairness is by tenant: a thousand subscriptions win nothing over one.
func TestManySubscriptionsDoNotEnlargeATenantsShare(t *testing.T) {
	const slots = 200
	s := newSim(t, Config{Slots: slots, HostLimit: -1})
	p := open()
	p.Cap = slots / 2
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	for i := range 1000 {
		s.add(0, LaneID(i), p)
		s.fill(LaneID(i), 100)
	}
	s.add(1, 1000, p)
	s.fill(1000, 60_000)
	s.run(500 * time.Millisecond)
	used := s.usedIn(5500 * time.Millisecond)
	for i, u := range used {
		part := u / (used[0] + used[1])
		t.Logf("tenant %d has %.3f of the slot time", i, part)
		if part < 0.45 || part > 0.55 {
			t.Errorf("tenant %d has %.3f of the slot time", i, part)
		}
	}
	for i := range 1000 { // and within the tenant all lanes are equal
		if n := s.starts[LaneID(i)]; n < 20 || n > 35 {
			t.Fatalf("lane %d of 1000 started %d, the mean is about 27", i, n)
		}
	}
}

// One tenant has 100,000 waiting; another's single trigger goes before the
// flood has been served two more rounds of the workers.
// Field case 15.
func TestOneTriggerOvertakesAnothersFlood(t *testing.T) {
	for _, quiet := range []int{1, 200} {
		t.Run(fmt.Sprint(quiet), func(t *testing.T) {
			s := backlogged(t, 8, ones(quiet+1), func(TenantID) time.Duration { return 20 * time.Millisecond })
			s.fill(0, 100_000)
			s.run(time.Second)
			before := s.starts[0]
			for i := range quiet {
				s.offer(LaneID(i + 1))
			}
			for s.starts[LaneID(quiet)] == 0 && s.now < 10*time.Second {
				s.run(s.now + 5*time.Millisecond)
			}
			if n := s.starts[0] - before; n > 16+quiet {
				t.Errorf("the flood was served %d more times before the last quiet one", n)
			}
			at := s.starts[0]
			s.run(s.now + time.Second)
			if n := s.starts[0] - at; n < 8*49 {
				t.Errorf("afterwards the flood got %d starts in a second: spare capacity is wasted", n)
			}
		})
	}
}

// Fifty endpoints of one tenant never answer. Shares count slot time, so the
// others' latency does not move.
// Field case 16.
// Limiter case L79.
func TestSlowEndpointsDoNotEatTheOthersSlots(t *testing.T) {
	run := func(dead bool) (worst time.Duration) {
		s := newSim(t, Config{Slots: 200, HostLimit: -1})
		p := Profile{Cap: 16, Timeout: 30 * time.Second}
		for i := range 26 {
			s.apply(t, PutTenant{Tenant: TenantID(i)})
		}
		for i := range 50 {
			s.add(0, LaneID(i), p)
		}
		s.serve = func(id LaneID) (time.Duration, Result) {
			if id < 50 {
				return 30 * time.Second, Result{Kind: Failed}
			}
			return 20 * time.Millisecond, Result{Kind: OK}
		}
		for i := range 25 {
			s.add(TenantID(i+1), LaneID(50+i), p)
			s.arrive(LaneID(50+i), time.Duration(i)*time.Millisecond, time.Minute, every(20*time.Millisecond))
		}
		for i := range 50 {
			if dead {
				s.arrive(LaneID(i), time.Duration(i)*time.Millisecond, time.Minute, every(50*time.Millisecond))
			}
		}
		s.run(time.Minute)
		for i := range 25 {
			worst = max(worst, p99(s.waits[LaneID(50+i)]))
		}
		return worst
	}
	without, with := run(false), run(true)
	if with > without+5*time.Millisecond {
		t.Errorf("p99 of the healthy: %v without, %v with the dead", without, with)
	}
}

// A hundred lanes that never answered want everything: they get the tenant's
// nominal share and borrow nothing, though every other slot is idle.
func TestANewBlackHoleBorrowsNothing(t *testing.T) {
	const slots = 1200
	s := newSim(t, Config{Slots: slots, HostLimit: -1})
	s.serve = func(id LaneID) (time.Duration, Result) {
		if id < 100 {
			return 10 * time.Second, Result{Kind: Failed}
		}
		return 20 * time.Millisecond, Result{Kind: OK}
	}
	for i := range 100 {
		s.apply(t, PutTenant{Tenant: TenantID(i)})
	}
	for i := range 99 {
		s.add(TenantID(i+1), LaneID(100+i), open())
		s.offer(LaneID(100 + i))
	}
	s.run(time.Second)
	for i := range 100 {
		s.add(0, LaneID(i), open())
		s.fill(LaneID(i), 100)
	}
	s.run(2 * time.Second)
	if s.out[0] != slots/100 {
		t.Errorf("a black hole holds %d slots before its first timeout, its nominal is %d", s.out[0], slots/100)
	}
}

// A tenant that runs on lent slots keeps starting its new and its slow lanes, up
// to its nominal: else they would starve for as long as its quick ones are busy.
func TestABusyTenantsNewLanesStillStart(t *testing.T) {
	s := newSim(t, Config{Slots: 100, HostLimit: -1})
	for i := range 50 { // nominal: 2
		s.apply(t, PutTenant{Tenant: TenantID(i)})
		s.add(TenantID(i), LaneID(i), open())
		s.offer(LaneID(i))
	}
	s.run(time.Second)
	s.fill(0, 100_000)
	s.run(2 * time.Second)
	if s.out[0] < 90 {
		t.Fatalf("it holds %d slots, want lent ones", s.out[0])
	}
	s.add(0, 50, open())
	s.fill(50, 10)
	s.run(3 * time.Second)
	if s.done[50] != 10 {
		t.Errorf("its new lane delivered %d of 10", s.done[50])
	}
}

// One slot in a hundred is closed to those above nominal: who is quiet finds one.
// Limiter case L72.
func TestAQuietTenantFindsASlot(t *testing.T) {
	s := backlogged(t, 200, ones(2), func(TenantID) time.Duration { return 500 * time.Millisecond })
	s.offer(0)
	s.offer(1)
	s.run(time.Second)
	s.fill(0, 10_000)
	s.run(1100 * time.Millisecond)
	if s.out[0] != 198 {
		t.Errorf("the busy one holds %d of 200, two are closed to it", s.out[0])
	}
	if v := s.offer(1); v.Kind != Send {
		t.Errorf("the quiet one's offer: %v %v, want it sent at once", v.Kind, v.Reason)
	}
}

// Shares do not depend on where lanes and tenants lie in memory.
// Field case 20.
func TestSharesDoNotDependOnIDs(t *testing.T) {
	layouts := map[string]func(tenant, i int) LaneID{
		"by tenant": func(tenant, i int) LaneID { return LaneID(tenant*10 + i) },
		"in turn":   func(tenant, i int) LaneID { return LaneID(i*8 + tenant) },
		"scattered": func(tenant, i int) LaneID { return LaneID((i*8 + tenant) * 613) },
	}
	for name, id := range layouts {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, Config{Slots: 64, HostLimit: -1})
			for tenant := range 8 {
				s.apply(t, PutTenant{Tenant: TenantID(tenant)})
				for i := range 10 {
					s.add(TenantID(tenant), id(tenant, i), open())
					s.fill(id(tenant, i), 200)
				}
			}
			s.run(time.Second)
			for i, u := range s.usedIn(3 * time.Second) {
				if math.Abs(u-16) > 0.4 {
					t.Errorf("tenant %d used %.2f slot seconds, its share is 16", i, u)
				}
			}
		})
	}
}

// When others have been idle for a minute, the shares of the rest grow, and what
// waits for its share goes without another event.
func TestSharesGrowWhenOthersFallIdle(t *testing.T) {
	s := newSim(t, Config{Slots: 100, HostLimit: -1})
	s.serve = func(LaneID) (time.Duration, Result) { return 20 * time.Millisecond, Result{Kind: OK} }
	for i := range 50 {
		s.apply(t, PutTenant{Tenant: TenantID(i)})
		s.add(TenantID(i), LaneID(i), open())
		if i > 0 {
			s.offer(LaneID(i))
		}
	}
	s.run(time.Second)
	s.serve = func(LaneID) (time.Duration, Result) { return time.Hour, Result{Kind: Failed} }
	s.fill(0, 200)
	s.run(59 * time.Second)
	if s.out[0] != 2 {
		t.Fatalf("a new lane holds %d slots, its tenant's nominal is 2 of 100", s.out[0])
	}
	s.run(63 * time.Second)
	if s.out[0] != 100 {
		t.Errorf("alone since a minute it holds %d of 100 slots", s.out[0])
	}
}

// Slots are lent to what returns soon: lanes that answered within the last
// minute, with a mean slot time of at most a second.
func TestOnlyQuickLanesBorrow(t *testing.T) {
	for _, row := range []struct {
		name   string
		took   time.Duration
		silent time.Duration
		want   int
	}{
		{"quick", 20 * time.Millisecond, 0, 99},
		{"a second", time.Second, 0, 99},
		{"slow", 1100 * time.Millisecond, 0, 10},
		{"silent for a minute", 20 * time.Millisecond, time.Minute, 10},
	} {
		s := newSim(t, Config{Slots: 100, HostLimit: -1})
		s.serve = func(LaneID) (time.Duration, Result) { return row.took, Result{Kind: OK} }
		for i := range 10 { // nominal: 10
			s.apply(t, PutTenant{Tenant: TenantID(i)})
			s.add(TenantID(i), LaneID(i), open())
		}
		s.offer(0)
		s.run(2*time.Second + row.silent)
		for i := range 9 {
			s.offer(LaneID(i + 1))
		}
		s.run(s.now + 2*time.Second)
		s.serve = func(LaneID) (time.Duration, Result) { return time.Hour, Result{Kind: Failed} }
		s.fill(0, 200)
		s.drain()
		if s.out[0] != row.want {
			t.Errorf("%s: it holds %d of 100 slots, want %d", row.name, s.out[0], row.want)
		}
	}
}
