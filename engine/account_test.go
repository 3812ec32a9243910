package engine

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// Every move without an attempt shows in the account, each term where it happens.
func TestSettleMovesBetweenTheTermsOfTheAccount(t *testing.T) {
	p := open()
	p.Cap = 0
	s := single(t, p)
	for range 10 {
		s.e.Offer(0, Delivery{Lane: 0})
	}
	want := Counters{Offered: 10, Parked: 10}
	for _, row := range []struct {
		m    Moved
		n    uint32
		move func(*Counters)
	}{
		{ToExpired, 3, func(c *Counters) { c.Parked, c.Dead = c.Parked-3, c.Dead+3 }},
		{ToBuried, 1, func(c *Counters) { c.Parked, c.Dead = c.Parked-1, c.Dead+1 }},
		{ToCancelled, 2, func(c *Counters) { c.Parked, c.Cancelled = c.Parked-2, c.Cancelled+2 }},
		{ToRevived, 2, func(c *Counters) { c.Parked, c.Dead = c.Parked+2, c.Dead-2 }},
		{ToReplayed, 1, func(c *Counters) { c.Parked, c.Dead = c.Parked+1, c.Dead-1 }},
		{ToResent, 5, func(c *Counters) { c.Offered, c.Parked = c.Offered+5, c.Parked+5 }},
		{ToPurged, 1, func(c *Counters) { c.Dead, c.Cancelled = c.Dead-1, c.Cancelled+1 }},
	} {
		s.e.Settle(0, 0, row.m, row.n)
		row.move(&want)
		if v, _ := s.e.Lane(0, 0); v.Counters != want || !v.Counters.Balanced() {
			t.Errorf("after move %d: %+v, want %+v", row.m, v.Counters, want)
		}
	}
	if st := s.e.Stats(0); st.Counters != want {
		t.Errorf("platform %+v, want %+v", st.Counters, want)
	}
}

// A driver's bug in the account panics where it is made.
func TestADriversBugPanics(t *testing.T) {
	for name, bug := range map[string]func(*Engine){
		"unknown lane":        func(e *Engine) { e.Offer(0, Delivery{Lane: 7}) },
		"states too much":     func(e *Engine) { e.Waiting(0, 0, Backlog{Count: 1}) },
		"expires too much":    func(e *Engine) { e.Settle(0, 0, ToExpired, 1) },
		"revives too much":    func(e *Engine) { e.Settle(0, 0, ToRevived, 1) },
		"unknown move":        func(e *Engine) { e.Settle(0, 0, 0, 1) },
		"finishes nothing":    func(e *Engine) { e.Finish(0, Ticket{}, Result{Kind: OK}) },
		"no result":           func(e *Engine) { e.Finish(0, e.Offer(0, Delivery{}).Ticket, Result{}) },
		"no change":           func(e *Engine) { _ = e.Apply(0, nil) },
		"no source of chance": func(*Engine) { New(Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			bug(single(t, open()).e)
		})
	}
}

// A restored lane goes on where its checkpoint was: account and tokens, and the
// platform's totals with it.
func TestARestoredLaneGoesOn(t *testing.T) {
	s := single(t, rated(1, time.Second, 10))
	kept := Counters{Offered: 100, Delivered: 80, Parked: 15, Dead: 2, Cancelled: 2, Dropped: 1}
	s.apply(t, RestoreLane{Lane: 0, Counters: kept, Tokens: 3}, RestoreLane{Lane: 0, Counters: kept, Tokens: 3})
	if v, _ := s.e.Lane(0, 0); v.Counters != kept || v.Tokens != 3 || s.e.Stats(0).Counters != kept {
		t.Errorf("%+v, %d tokens, platform %+v", v.Counters, v.Tokens, s.e.Stats(0).Counters)
	}
	s.e.Waiting(0, 0, Backlog{Count: 15})
	for n := range 4 {
		_, ok := s.e.Next(0)
		if ok != (n < 3) {
			t.Errorf("grant %d: %v, three tokens were left", n, ok)
		}
		s.e.Waiting(0, 0, Backlog{Count: uint32(14 - min(n, 2))})
	}
	if err := s.e.Apply(0, RestoreLane{Lane: 0, Counters: kept}); err == nil {
		t.Error("restored after it was used")
	}

	s = single(t, open())
	s.apply(t, RestoreLane{Lane: 0, PausedUntil: time.Minute})
	if v := s.offer(0); v.Reason != ByEndpoint || v.At != time.Minute {
		t.Errorf("the endpoint's pause: %v until %v, want it kept until 1m", v.Reason, v.At)
	}
}

// A view says why the head does not go, and until when.
func TestAViewSaysWhyALaneWaits(t *testing.T) {
	sec := time.Second
	rows := []struct {
		name   string
		make   func() *sim
		reason Reason
		until  time.Duration
	}{
		{"nothing waits", func() *sim { return single(t, open()) }, None, 0},
		{"paused", func() *sim {
			s := single(t, open())
			s.apply(t, PauseLane{Lane: 0, Paused: true})
			s.offer(0)
			return s
		}, ByPause, 0},
		{"410", func() *sim {
			s := single(t, open())
			s.finish(s.offer(0).Ticket, Result{Kind: Gone})
			return s
		}, ByGone, 0},
		{"its contract", func() *sim {
			s := single(t, rated(1, 5*sec, 1))
			s.offer(0)
			s.offer(0)
			return s
		}, ByRate, 5 * sec},
		{"not due", func() *sim {
			s := single(t, open())
			s.finish(s.offer(0).Ticket, Result{Kind: NotSent})
			return s
		}, ByRetry, sec},
		{"no slot", func() *sim {
			s := newSim(t, Config{Slots: 1, HostLimit: -1})
			s.apply(t, PutTenant{})
			s.add(0, 0, open())
			s.offer(0)
			s.offer(0)
			return s
		}, BySlots, 0},
		{"its host", func() *sim {
			s := newSim(t, Config{HostLimit: 1})
			s.apply(t, PutTenant{})
			s.add(0, 0, open())
			s.offer(0)
			s.offer(0)
			return s
		}, ByHost, 0},
		{"its cap", func() *sim {
			p := open()
			p.Cap = 1
			s := single(t, p)
			s.offer(0)
			s.offer(0)
			return s
		}, ByCap, 0},
	}
	for _, row := range rows {
		s := row.make()
		v, ok := s.e.Lane(s.now, 0)
		if !ok || v.Blocked != row.reason || v.Until != row.until {
			t.Errorf("%s: %v until %v, want %v until %v", row.name, v.Blocked, v.Until, row.reason, row.until)
		}
	}
	if _, ok := rows[0].make().e.Lane(0, 99); ok {
		t.Error("a lane that was never added has a view")
	}
	if ByRate.String() != "rate" || Deleted.String() != "deleted" || Reason(200).String() != "unknown" {
		t.Error("names of reasons")
	}
}

// A denial gives the first reason, and as instant the latest of all, so that
// nothing is woken only to be denied again.
func TestADenialGivesTheFirstReasonAndTheLatestInstant(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1, Rand: noChance{}})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, rated(1, time.Minute, 1))
	s.finish(s.offer(0).Ticket, Result{Kind: Throttled, RetryAfter: 5 * time.Second})
	s.events = nil
	s.e.Settle(0, 0, ToCancelled, 1)
	*s.backlog(0) = nil
	s.state(0)
	if v := s.offer(0); v.Reason != ByEndpoint || v.At != time.Minute {
		t.Errorf("%v until %v, want the endpoint's pause, until the token of 1m", v.Reason, v.At)
	}
	if at, ok := s.e.NextWake(); !ok || at > time.Minute {
		t.Errorf("wakes at %v", at)
	}
	before := s.e.Stats(0).Denials
	s.run(59 * time.Second)
	if after := s.e.Stats(s.now).Denials; after != before {
		t.Error("something was woken only to be denied")
	}
	s.run(time.Minute)
	if s.starts[0] != 2 {
		t.Error("not woken at the instant given")
	}
}

// With nothing to do the driver sleeps: no wake-up remains a minute after the
// last activity.
func TestAnIdleEngineAsksForNoWakeUp(t *testing.T) {
	s := single(t, open())
	if at, ok := s.e.NextWake(); ok {
		t.Errorf("a new engine wants to wake at %v", at)
	}
	s.offer(0)
	s.run(2 * time.Minute)
	if at, ok := s.e.NextWake(); ok {
		t.Errorf("an idle engine wants to wake at %v", at)
	}
	s.fill(0, 1)
	if at, ok := s.e.NextWake(); !ok || at != s.now {
		t.Errorf("something could go at %v, and it wakes %v at %v", s.now, ok, at)
	}
}

// What a person has paused wakes for no instant: only the person helps.
func TestAPausedLaneWakesForNoInstant(t *testing.T) {
	s := single(t, open())
	s.finish(s.offer(0).Ticket, Result{Kind: Throttled, RetryAfter: time.Hour})
	s.events = nil
	s.apply(t, PauseLane{Lane: 0, Paused: true})
	s.run(2 * time.Minute)
	if at, ok := s.e.NextWake(); ok {
		t.Errorf("wakes at %v", at)
	}
	s.apply(t, PauseLane{Lane: 0})
	if at, ok := s.e.NextWake(); !ok || at < time.Hour {
		t.Errorf("resumed: wakes %v at %v, want when the endpoint's own pause ends", ok, at)
	}
}

// A fresh delivery takes no slot that a waiting one could use, also when that one
// fell due at this very instant and nobody has ticked.
func TestAFreshDeliveryDoesNotPassOneThatJustFellDue(t *testing.T) {
	s := newSim(t, Config{Slots: 1, HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	s.add(0, 0, rated(1, time.Second, 1))
	s.add(1, 1, open())
	s.finish(s.offer(0).Ticket, Result{Kind: OK})
	s.events = nil
	s.offer(0)
	s.now = time.Second
	if v := s.offer(1); v.Kind != Park || v.Reason != BySlots {
		t.Errorf("%v %v", v.Kind, v.Reason)
	}
}

// Who is entitled to a share is served by what it started in the window, however
// little it holds at the instant of the round; or by what it holds, if that is
// more: a slow delivery starts once and holds for long.
func TestAShareIsServedByWhatStartedOrIsHeld(t *testing.T) {
	s := single(t, open())
	tn := s.e.tenants.at(0)
	for _, row := range []struct {
		started float32
		held    int32
		want    float32
	}{{50, 0, 1}, {0, 50, 1}, {25, 10, 0.5}, {80, 0, 1}} {
		tn.round = round{started: row.started}
		tn.inFlight = row.held
		s.e.entitle(tn, 100, 50, 1)
		tn.round.through[1], tn.round.lent = 10, true
		if got, ok := tn.round.ratio(); !ok || got != row.want {
			t.Errorf("%+v: served %v of its entitlement", row, got)
		}
	}
}

// Equal calls give equal answers, whatever is in the maps.
func TestEqualCallsGiveEqualAnswers(t *testing.T) {
	run := func() (trace []Verdict) {
		s := newSim(t, Config{Slots: 40, Rand: rand.New(rand.NewPCG(9, 9)), HostLimit: 8})
		for i := range 5 {
			s.apply(t, PutTenant{Tenant: TenantID(i), Weight: i + 1})
		}
		for i := range 40 {
			s.onHost(TenantID(i%5), LaneID(i), HostID(i%7), Profile{Cap: 4, Rate: mustRate(int64(20+i%3), time.Second, 5)})
			s.arrive(LaneID(i), time.Duration(i)*time.Millisecond, 20*time.Second, every(20*time.Millisecond))
		}
		s.serve = func(LaneID) (time.Duration, Result) {
			r := Result{Kind: OK}
			switch n := s.rnd.IntN(20); {
			case n < 4:
				r = Result{Kind: Failed, Refused: n == 0}
			case n == 4:
				r = Result{Kind: Throttled, RetryAfter: time.Second, Refused: true}
			}
			return logNormal(s.rnd, 30*time.Millisecond, 100*time.Millisecond), r
		}
		s.ended = func(_ Ticket, _ Result, v Verdict) { trace = append(trace, v) }
		s.run(20 * time.Second)
		s.wantBalanced(t, 40)
		return trace
	}
	a, b := run(), run()
	if len(a) < 1000 || !slices.Equal(a, b) {
		t.Errorf("two runs of %d and %d verdicts differ", len(a), len(b))
	}
}

// Served over entitled: all is well while there is room for all; who is short
// of its share shows, in both figures; dead endpoints and tenants beyond their
// contract alarm nobody.
func TestServedOverEntitled(t *testing.T) {
	make := func(order Order) *sim {
		s := newSim(t, Config{Slots: 100, HostLimit: -1, Order: order})
		for i := range 20 {
			s.apply(t, PutTenant{Tenant: TenantID(i)})
			s.add(TenantID(i), LaneID(i), open())
			s.arrive(LaneID(i), time.Duration(i)*3*time.Millisecond, time.Minute, every(50*time.Millisecond))
		}
		return s
	}
	s := make(Fair)
	s.run(30 * time.Second)
	if st := s.e.Stats(s.now); st.Jain < 0.999 || st.ShortChanged != 0 || st.Entitled != 20 {
		t.Errorf("room for all: %+v", st)
	}

	flood := func(s *sim) {
		s.apply(t, PutTenant{Tenant: 20})
		s.add(20, 20, open())
		s.arrive(20, 10*time.Second, time.Minute, func() time.Duration { return 100 * time.Microsecond })
		s.run(20 * time.Second)
	}
	s = make(Fair)
	flood(s)
	if st := s.e.Stats(s.now); st.Jain < 0.999 || st.ShortChanged != 0 || st.Entitled != 21 {
		t.Errorf("a flood beside them, by virtual time: Jain %v, %d short of %d", st.Jain, st.ShortChanged, st.Entitled)
	}
	s.e.Tenants(func(v TenantView) {
		if v.Tenant == 20 && (v.Share < 80 || v.Demand < 100) {
			t.Errorf("the flood's demand %.1f and share %.1f", v.Demand, v.Share)
		}
		if v.Tenant < 20 && (v.Short || v.Served < 0.97 || math.Abs(v.Demand-0.4) > 0.2) {
			t.Errorf("tenant %d: %+v", v.Tenant, v)
		}
	})

	s = make(Arrival)
	flood(s)
	if st := s.e.Stats(s.now); st.ShortChanged < 20 || st.Jain > 0.9 {
		t.Errorf("a flood beside them, by arrival: Jain %v, %d short of %d", st.Jain, st.ShortChanged, st.Entitled)
	}

	s = make(Fair)
	s.apply(t, PutTenant{Tenant: 20}, PutTenant{Tenant: 21})
	s.add(20, 20, rated(10, time.Second, 10))
	s.arrive(20, 0, time.Minute, every(5*time.Millisecond))
	s.add(21, 21, Profile{Cap: 16})
	s.arrive(21, 0, time.Minute, every(5*time.Millisecond))
	s.serve = func(id LaneID) (time.Duration, Result) {
		if id == 21 {
			return 10 * time.Second, Result{Kind: Failed}
		}
		return 20 * time.Millisecond, Result{Kind: OK}
	}
	for range 50 {
		s.run(s.now + time.Second)
		if st := s.e.Stats(s.now); st.ShortChanged != 0 {
			s.e.Tenants(func(v TenantView) {
				if v.Short {
					t.Logf("%+v %+v", v, s.e.tenants.at(uint32(v.Tenant)).round)
				}
			})
			t.Fatalf("at %v: %d short-changed by a contract and a dead endpoint: %+v", s.now, st.ShortChanged, st)
		}
	}
}

// One lane is 192 bytes, of which a delivery that waits for nothing touches 128, with
// 16 of its account apart, and with its place in a heap at most 220 of the engine's
// memory; a steady state allocates nothing.
func TestALanesMemory(t *testing.T) {
	if size := unsafe.Sizeof(lane{}); size != 192 {
		t.Errorf("a lane is %d bytes, want 192", size)
	}
	if at := unsafe.Offsetof(lane{}.breaker); at != 128-8 {
		t.Errorf("the breaker is at %d, want 120: of it the first 8 bytes are in the second cache line", at)
	}
	if tenant, host := unsafe.Sizeof(tenant{}), unsafe.Sizeof(host{}); tenant%64 != 0 || host != 64 {
		t.Errorf("a tenant is %d bytes and a host %d, want whole cache lines", tenant, host)
	}
	const lanes, tenants = 50_000, 4000
	e := benchEngine(t, 0, tenants)
	before := heapInUse()
	addLanes(t, e, lanes, tenants)
	for i := range lanes {
		v := e.Offer(time.Second, Delivery{Lane: LaneID(i)})
		e.Finish(time.Second, v.Ticket, Result{Kind: OK})
	}
	for i := range lanes { // each waits for an instant
		e.Settle(time.Second, LaneID(i), ToResent, 1)
		e.Waiting(time.Second, LaneID(i), Backlog{Count: 1, HeadDue: time.Hour + time.Duration(i)})
	}
	each := float64(heapInUse()-before) / lanes
	t.Logf("%.1f bytes a lane (its host's %d apart), each waiting in a heap", each-float64(unsafe.Sizeof(host{})), unsafe.Sizeof(host{}))
	if each-float64(unsafe.Sizeof(host{})) > 220 {
		t.Errorf("%.1f bytes a lane", each)
	}
	runtime.KeepAlive(e)
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	e := benchEngine(t, 1000, 100)
	now := time.Second
	i := 0
	round := func() {
		for range 100 {
			i++
			now += 20 * time.Microsecond
			v := e.Offer(now, Delivery{Lane: LaneID(i * 7 % 1000)})
			e.Finish(now, v.Ticket, Result{Kind: OK})
		}
		now += time.Second
		e.Tick(now)
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations in 100 deliveries and a measuring round", n)
	}
}
