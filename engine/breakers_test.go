package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
)

// guarded is a profile with a breaker and nothing else.
func guarded() Profile {
	return Profile{Cap: -1, NoBudget: true, Schedule: quickRetry()}
}

// opened makes a platform whose lane 0 has just had its breaker opened, with one
// delivery waiting, and returns it at the instant of the first probe.
func opened(t *testing.T) *sim {
	s := single(t, guarded())
	for range 5 {
		k := s.offer(0).Ticket
		s.finish(k, Result{Kind: Failed})
	}
	s.events = nil
	*s.backlog(0) = (*s.backlog(0))[:1]
	s.e.Settle(s.now, 0, ToCancelled, 4)
	s.state(0)
	v, _ := s.e.Lane(s.now, 0)
	if v.Breaker != breaker.Open {
		t.Fatal("five failures in a row did not open the breaker")
	}
	s.to(v.Probe)
	return s
}

// probe takes the grant that must be the probe.
func (s *sim) probe() Ticket {
	s.t.Helper()
	g, ok := s.next()
	if !ok || g.Ticket.Flags&FlagProbe == 0 {
		s.t.Fatalf("at %v: no probe: %v %+v", s.now, ok, g.Ticket)
	}
	s.events = nil
	return g.Ticket
}

// A hundred a second wait for an endpoint that hangs: half-open admits one, the
// rest is deferred without an attempt; what started before the breaker opened
// neither closes it nor frees the probe's place.
// Field case 27.
// Limiter case L81.
func TestHalfOpenAdmitsOneProbeAndNoCrowd(t *testing.T) {
	p := guarded()
	p.Cap, p.Timeout = 50, 30*time.Second
	p.Breaker.Open = 10 * time.Second
	s := single(t, p)
	s.serve = func(LaneID) (time.Duration, Result) { return 30 * time.Second, Result{Kind: Failed} }
	out, most := 0, 0
	var probes []time.Duration
	begin := s.started
	s.started = func(k Ticket, x entry) {
		if s.now > 31*time.Second {
			if k.Flags&FlagProbe == 0 {
				t.Fatalf("an attempt that is no probe started at %v", s.now)
			}
			probes = append(probes, s.now)
			out++
			most = max(most, out)
		}
		begin(k, x)
	}
	s.ended = func(k Ticket, _ Result, v Verdict) {
		if k.Flags&FlagProbe == 0 {
			return
		}
		out--
		if v.Reason != ByBreaker || v.Due || v.Attempt != k.Attempt+1 || v.At <= s.now {
			t.Errorf("a failed probe: %+v", v)
		}
	}
	s.arrive(0, 0, 15*time.Minute, every(10*time.Millisecond))
	s.run(15 * time.Minute)
	if most != 1 {
		t.Errorf("%d probes at once", most)
	}
	for i := range probes[2:] {
		if a, b := probes[i+1]-probes[i], probes[i+2]-probes[i+1]; b < a && b < 9*time.Minute {
			t.Errorf("probe %d came after %v, the one before after %v: intervals must grow", i+2, b, a)
		}
	}
	if n := len(probes); n < 5 || n > 12 {
		t.Errorf("%d probes in 15 minutes", n)
	}
}

// A late result of an earlier generation neither closes the breaker nor frees
// the probe's place.
// Field case 27.
func TestALateResultNeitherClosesNorFreesTheProbe(t *testing.T) {
	for _, late := range []ResultKind{OK, Failed, RejectedR} {
		s := single(t, guarded())
		old := s.offer(0).Ticket
		for range 5 {
			s.finish(s.offer(0).Ticket, Result{Kind: Failed})
		}
		v, _ := s.e.Lane(s.now, 0)
		s.to(v.Probe)
		s.probe()
		s.finish(old, Result{Kind: late})
		if v, _ := s.e.Lane(s.now, 0); v.Breaker != breaker.HalfOpen {
			t.Errorf("late result %v: breaker %v", late, v.Breaker)
		}
		if _, ok := s.next(); ok {
			t.Errorf("late result %v: a second probe", late)
		}
	}
}

// However a probe ends, the lane can probe again within the probe's timeout.
// Field case 28.
// Limiter case L82.
// Limiter case L84.
func TestAProbesPlaceIsNeverLost(t *testing.T) {
	finish := func(r Result) func(*sim, Ticket) {
		return func(s *sim, k Ticket) { s.finish(k, r) }
	}
	ends := map[string]func(*sim, Ticket){
		"429":      finish(Result{Kind: Throttled, RetryAfter: 2 * time.Second}),
		"3xx":      finish(Result{Kind: Later}),
		"400":      finish(Result{Kind: RejectedR}),
		"404":      finish(Result{Kind: Later, Answered: true, Denied: true}),
		"500":      finish(Result{Kind: Failed}),
		"not sent": finish(Result{Kind: NotSent}),
		"shutdown": finish(Result{Kind: Unknown}),
		"410, enabled again": func(s *sim, k Ticket) {
			s.finish(k, Result{Kind: Gone})
			s.apply(s.t, PauseLane{Lane: 0})
		},
		"edited":         func(s *sim, _ Ticket) { s.apply(s.t, PutLane{LaneSpec: LaneSpec{Lane: 0, Profile: guarded()}}) },
		"never reported": func(*sim, Ticket) {},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := opened(t)
			at := s.now
			end(s, s.probe())
			if len(*s.backlog(0)) == 0 {
				s.fill(0, 1)
			}
			s.to(s.now + 2*time.Minute)
			if name == "never reported" || name == "edited" {
				s.to(at + 16*time.Second)
			}
			s.probe()
			if n := s.e.probes; n < 1 || n > 2 {
				t.Errorf("%d probes counted", n)
			}
		})
	}
	t.Run("another URL", func(t *testing.T) {
		s := opened(t)
		k := s.probe()
		s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 0, Profile: guarded()}, NewURL: true})
		s.finish(k, Result{Kind: Failed})
		if g, ok := s.next(); !ok || g.Ticket.Flags&FlagProbe != 0 {
			t.Errorf("a new URL starts closed: granted %v %+v", ok, g.Ticket)
		}
		if v, _ := s.e.Lane(s.now, 0); v.Breaker != breaker.Closed {
			t.Error("the old URL's probe opened the new one's breaker")
		}
	})
	t.Run("removed", func(t *testing.T) {
		s := opened(t)
		k := s.probe()
		s.apply(t, RemoveLane{Lane: 0})
		s.finish(k, Result{Kind: Unknown})
		if s.e.probes != 0 || s.e.tenants.at(0).probesOut != 0 {
			t.Error("a removed lane's probe still counts")
		}
	})
}

// 4xx is neither health nor illness. A: every third refused, never opens. B: 400
// and timeout in turn, opens. C: a probe answered 400 closes nothing, and another
// message probes. D: 401 to everything opens it for long, with that reason.
// Field case 29.
func TestFourHundredsAreNeitherHealthNorIllness(t *testing.T) {
	s := single(t, guarded())
	for i := range 300 {
		r := Result{Kind: OK}
		if i%3 == 0 {
			r.Kind = RejectedR
		}
		v := s.offer(0)
		if v.Kind != Send {
			t.Fatalf("A: opened after %d", i)
		}
		s.finish(v.Ticket, r)
		s.events = nil
	}
	if v, _ := s.e.Lane(0, 0); v.Counters.Dead != 100 {
		t.Errorf("A: %d dead letters of 100", v.Counters.Dead)
	}

	s = single(t, guarded())
	for i := range 10 {
		v := s.offer(0)
		if v.Kind != Send {
			t.Fatalf("B: opened after %d", i)
		}
		r := Result{Kind: RejectedR}
		if i%2 == 1 {
			r.Kind = Failed
		}
		s.finish(v.Ticket, r)
	}
	if v, _ := s.e.Lane(0, 0); v.Breaker != breaker.Open {
		t.Error("B: 400s hid five timeouts in a row")
	}

	s = opened(t)
	s.fill(0, 1)
	k := s.probe()
	s.finish(k, Result{Kind: RejectedR})
	if v, _ := s.e.Lane(s.now, 0); v.Breaker == breaker.Closed {
		t.Error("C: a 400 closed the breaker")
	}
	s.probe()

	s = single(t, guarded())
	for i := range 20 {
		v := s.offer(0)
		if v.Kind != Send {
			t.Fatalf("D: opened after %d", i)
		}
		s.finish(v.Ticket, Result{Kind: Later, Answered: true, Denied: true})
	}
	v, _ := s.e.Lane(0, 0)
	if v.Breaker != breaker.Open || !v.ByDenial || v.Probe < 8*time.Minute {
		t.Errorf("D: %v, by denial %v, next probe at %v", v.Breaker, v.ByDenial, v.Probe)
	}
	if v.Disabled || v.Counters.Parked != 20 {
		t.Errorf("D: %+v", v)
	}
}

// Down for three minutes at 10/s: the breaker opens, closes by itself, disables
// nothing, and all is delivered at the lane's pace. A slow sender that fails
// once a week is not switched off either.
// Field case 30.
func TestAnOutageHealsWithoutAPerson(t *testing.T) {
	p := Profile{Cap: 16, Rate: mustRate(50, time.Second, 50)}
	s := single(t, p)
	s.serve = func(LaneID) (time.Duration, Result) {
		if s.now < 3*time.Minute {
			return 100 * time.Millisecond, Result{Kind: Failed}
		}
		return 20 * time.Millisecond, Result{Kind: OK}
	}
	flushed := 0
	s.ended = func(_ Ticket, _ Result, v Verdict) {
		if v.Flush {
			flushed++
		}
	}
	at := s.startTimes(0)
	s.arrive(0, 0, 10*time.Minute, every(100*time.Millisecond))
	s.run(3 * time.Minute)
	if n := s.starts[0]; n > 40 {
		t.Errorf("%d attempts into an endpoint that is down", n)
	}
	s.run(10 * time.Minute)
	v, _ := s.e.Lane(s.now, 0)
	if v.Counters.Delivered < 5990 || v.Counters.Dead != 0 || v.Disabled || v.Breaker != breaker.Closed || flushed != 1 {
		t.Errorf("%+v, breaker %v, flushed %d times", v.Counters, v.Breaker, flushed)
	}
	wantWithin(t, (*at)[:min(len(*at), 3000)], p.Rate)

	s = single(t, Profile{Cap: 16})
	s.serve = func(LaneID) (time.Duration, Result) { return time.Second, Result{Kind: Failed} }
	s.arrive(0, 0, 5*7*24*time.Hour, every(7*24*time.Hour))
	s.run(6 * 7 * 24 * time.Hour)
	if v, _ := s.e.Lane(s.now, 0); v.Disabled || v.Paused {
		t.Errorf("switched off: %+v", v)
	}
}

// When the breaker closes, what waits goes in its order, under a ramp.
func TestAClosingBreakerFreesItsBacklogUnderARamp(t *testing.T) {
	s := opened(t)
	s.fill(0, 30)
	k := s.probe()
	if v := s.finish(k, Result{Kind: OK}); v.Kind != Done || !v.Flush {
		t.Fatalf("a probe that succeeds: %+v", v)
	}
	s.drain()
	var steps []int
	for range 5 {
		v, _ := s.e.Lane(s.now, 0)
		steps = append(steps, int(v.Counters.InFlight))
		s.run(s.now + 20*time.Millisecond)
	}
	if !slices.Equal(steps, []int{1, 2, 4, 8, 15}) && !slices.Equal(steps, []int{1, 2, 4, 8, 16}) {
		t.Errorf("in flight %v, want 1 2 4 8 ...", steps)
	}
}

// Cancellations, missing files and shutdowns do not open a breaker, and few
// calls say nothing.
// Limiter case L83.
// Limiter case L84.
func TestWhatIsNoFailureOpensNothing(t *testing.T) {
	s := single(t, guarded())
	for i := range 100 {
		v := s.e.Offer(s.now, Delivery{Lane: 0})
		if v.Kind != Send {
			t.Fatalf("opened after %d", i)
		}
		s.e.Finish(s.now, v.Ticket, Result{Kind: []ResultKind{NotSent, Unknown}[i%2]})
	}
	s = single(t, guarded())
	for i := range 19 { // four failures of five, but fewer than 20 calls and never five in a row
		v := s.e.Offer(s.now, Delivery{Lane: 0})
		if v.Kind != Send {
			t.Fatalf("opened after %d calls", i)
		}
		r := Result{Kind: Failed}
		if i%5 == 4 {
			r.Kind = OK
		}
		s.e.Finish(s.now, v.Ticket, r)
	}
}

// Probes of many dead lanes together hold at most a twentieth of the slots and a
// tenth of the tenant's nominal; who may probe since the longest goes first; and
// each lane gets its turn.
func TestProbesTogetherAreBoundedAndAllGetTheirTurn(t *testing.T) {
	const slots, tenants, lanes = 100, 3, 20
	s := newSim(t, Config{Slots: slots, HostLimit: -1})
	for i := range tenants {
		s.apply(t, PutTenant{Tenant: TenantID(i)})
	}
	p := guarded()
	p.Timeout = 2 * time.Second
	for i := range tenants * lanes {
		s.add(TenantID(i%tenants), LaneID(i), p)
	}
	s.serve = func(LaneID) (time.Duration, Result) { return 2 * time.Second, Result{Kind: Failed} }
	probed, since := map[LaneID]bool{}, map[LaneID]time.Duration{}
	s.ended = func(k Ticket, _ Result, _ Verdict) {
		v, _ := s.e.Lane(s.now, k.Lane)
		since[k.Lane] = v.Probe
	}
	begin := s.started
	s.started = func(k Ticket, x entry) {
		begin(k, x)
		if k.Flags&FlagProbe == 0 {
			return
		}
		probed[k.Lane] = true
		if n := s.e.probes; n > slots/20 {
			t.Fatalf("%d probes at once of %d slots", n, slots)
		}
		if tn := s.e.tenants.at(uint32(s.tenantOf[k.Lane])); tn.probesOut > 3 {
			t.Fatalf("%d probes of one tenant, its nominal is 33", tn.probesOut)
		}
		for i := range tenants * lanes {
			o := s.e.lane(LaneID(i))
			room := s.e.tenants.at(uint32(o.tenant)).probesOut < 3
			if o.at == inProbe && room && since[LaneID(i)] < since[k.Lane] {
				t.Fatalf("lane %d probes before lane %d, which may since longer", k.Lane, i)
			}
		}
	}
	for i := range tenants * lanes {
		s.fill(LaneID(i), 8)
	}
	s.run(3 * time.Minute)
	if len(probed) != tenants*lanes {
		t.Errorf("%d of %d lanes have probed in 3 minutes", len(probed), tenants*lanes)
	}
}

// The failures of an outage do not open the breaker again once it has closed.
func TestAClosedBreakerForgetsTheOutage(t *testing.T) {
	p := guarded()
	p.Breaker = breaker.Config{Consecutive: 1000, Open: time.Millisecond}
	s := single(t, p)
	var out []Ticket
	for range 30 {
		out = append(out, s.e.Offer(0, Delivery{Lane: 0}).Ticket)
	}
	for _, k := range out {
		s.e.Finish(0, k, Result{Kind: Failed})
	}
	s.now = time.Second
	s.e.Finish(s.now, s.e.Offer(s.now, Delivery{Lane: 0}).Ticket, Result{Kind: OK})
	s.e.Finish(s.now, s.e.Offer(s.now, Delivery{Lane: 0}).Ticket, Result{Kind: Failed})
	if v, _ := s.e.Lane(s.now, 0); v.Breaker != breaker.Closed {
		t.Errorf("one failure after it closed: %v", v.Breaker)
	}
}

// A probe needs and spends no budget.
func TestAProbeSpendsNoBudget(t *testing.T) {
	p := guarded()
	p.NoBudget = false
	s := single(t, p)
	for range 5 {
		s.finish(s.offer(0).Ticket, Result{Kind: Failed})
	}
	v, _ := s.e.Lane(s.now, 0)
	s.to(v.Probe)
	before := s.e.lane(0).window.Retries
	k := s.probe()
	if k.Attempt != 1 || k.Flags.spent() != 0 || s.e.lane(0).window.Retries > before {
		t.Errorf("%+v spent budget", k)
	}
}
