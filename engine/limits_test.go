package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// single makes a platform of one tenant with one lane.
func single(t testing.TB, p Profile) *sim {
	s := newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, p)
	return s
}

// rated is a profile with a contract and nothing else.
func rated(n int64, per time.Duration, burst int64) Profile {
	p := open()
	p.Rate = mustRate(n, per, burst)
	return p
}

// startTimes records the instants of a lane's starts.
func (s *sim) startTimes(id LaneID) *[]time.Duration {
	var at []time.Duration
	begin := s.started
	s.started = func(k Ticket, x entry) {
		if k.Lane == id {
			at = append(at, s.now)
		}
		begin(k, x)
	}
	return &at
}

// wantWithin checks B + rT over every interval between two starts.
func wantWithin(t *testing.T, at []time.Duration, r limit.Rate) {
	t.Helper()
	for i := range at {
		for j := i; j < len(at); j++ {
			if most := float64(r.Burst()) + r.PerSecond()*(at[j]-at[i]).Seconds(); float64(j-i+1) > most+1e-6 {
				t.Fatalf("%d starts in %v, at most %.2f", j-i+1, at[j]-at[i], most)
			}
		}
	}
}

// An instant earlier than one already seen mints no token and stalls nothing.
// Field case 8.
func TestAnEarlierInstantMintsNothing(t *testing.T) {
	s := single(t, rated(10, time.Second, 10))
	s.now = time.Hour
	for i := range 11 {
		if v := s.e.Offer(s.now, Delivery{Lane: 0}); (v.Kind == Send) != (i < 10) {
			t.Fatalf("offer %d: %v", i, v.Kind)
		}
	}
	if v := s.e.Offer(0, Delivery{Lane: 0}); v.Kind != Park || v.At != time.Hour+100*time.Millisecond {
		t.Errorf("an hour back: %v until %v", v.Kind, v.At)
	}
	passed := 0
	for range 20 {
		if s.e.Offer(time.Hour+time.Second, Delivery{Lane: 0}).Kind == Send {
			passed++
		}
	}
	if passed != 10 {
		t.Errorf("a second later %d pass, want 10", passed)
	}
}

// What costs more than the burst is buried at once, with its own reason; it
// takes no token and blocks nobody.
// Field case 9.
func TestWhatCostsMoreThanTheBurstIsBuried(t *testing.T) {
	s := single(t, rated(1, time.Second, 5))
	if v := s.offerCost(0, 6); v.Kind != Bury || v.Reason != TooCostly {
		t.Errorf("cost 6 of burst 5: %v %v", v.Kind, v.Reason)
	}
	if v := s.offerCost(0, 5); v.Kind != Send || v.Remaining != 0 {
		t.Errorf("cost 5 of burst 5: %v, %d left", v.Kind, v.Remaining)
	}
	s.wantBalanced(t, 1)
}

// What waited when the burst was lowered below its cost takes the whole burst,
// and does not stand in its lane's way for ever.
// Field case 9.
// Field case 14.
func TestALoweredBurstLeavesNothingStuck(t *testing.T) {
	s := single(t, rated(1, time.Second, 5))
	s.offerCost(0, 5)
	s.offerCost(0, 4)
	s.offerCost(0, 1)
	s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 0, Profile: rated(1, time.Second, 2)}})
	at := s.startTimes(0)
	s.run(10 * time.Second)
	if want := []time.Duration{2 * time.Second, 3 * time.Second}; !slices.Equal(*at, want) {
		t.Errorf("starts at %v, want %v", *at, want)
	}
}

// Rate 0 and cap 0 mean none: all is deferred, nothing lost, and a raise wakes
// what waits at once. Absent is no limit; what is out of range is refused.
// Field case 10.
// Limiter case L76.
func TestZeroMeansNoneAndNeverUnlimited(t *testing.T) {
	capped := open()
	capped.Cap = 0
	for name, zero := range map[string]Profile{"rate": rated(0, time.Second, 5), "cap": capped} {
		t.Run(name, func(t *testing.T) {
			s := single(t, zero)
			for range 20 {
				if v := s.offer(0); v.Kind != Park || v.At != 0 {
					t.Fatalf("offer: %v %v until %v", v.Kind, v.Reason, v.At)
				}
			}
			s.run(time.Hour)
			if s.starts[0] != 0 {
				t.Fatalf("%d started", s.starts[0])
			}
			s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 0, Profile: rated(5, time.Second, 5)}})
			s.run(time.Hour)
			if s.starts[0] != 5 {
				t.Errorf("%d started at once after the raise, want the burst of 5", s.starts[0])
			}
			s.run(time.Hour + 4*time.Second)
			if s.done[0] != 20 {
				t.Errorf("%d of 20 delivered", s.done[0])
			}
		})
	}
}

// Errors name the field and the rule, and change nothing.
// Field case 10.
// Limiter case L78.
func TestAWrongChangeNamesItsFieldAndRule(t *testing.T) {
	s := single(t, open())
	bad := open()
	bad.Cap = -2
	late := open()
	late.Horizon = -1
	rows := []struct {
		change Change
		want   string
	}{
		{PutTenant{Tenant: 0, Weight: 1001}, "tenant.weight: must be 1 to 1000"},
		{PutTenant{Tenant: 0, Weight: -1}, "tenant.weight: must be 1 to 1000"},
		{PutTenant{Tenant: maxID}, "tenant: must be a dense id"},
		{RemoveTenant{Tenant: 9}, "tenant: must be one that PutTenant added"},
		{RemoveTenant{Tenant: 0}, "tenant: must have no lanes left, has 1"},
		{PutLane{LaneSpec: LaneSpec{Lane: 1, Tenant: 9}}, "lane.tenant: must be one that PutTenant added"},
		{PutLane{LaneSpec: LaneSpec{Lane: maxID}}, "lane: must be a dense id"},
		{PutLane{LaneSpec: LaneSpec{Lane: 1, Host: maxID}}, "lane.host: must be a dense id"},
		{PutLane{LaneSpec: LaneSpec{Lane: 1, Profile: bad}}, "lane.profile.cap: must be -1 for none, 0 for paused, or more, is -2"},
		{PutLane{LaneSpec: LaneSpec{Lane: 1, Profile: late}}, "lane.profile.horizon: must be 0 for 72h"},
		{PauseLane{Lane: 7}, "lane: must be one that PutLane added"},
		{RemoveLane{Lane: 7}, "lane: must be one that PutLane added"},
		{RestoreLane{Lane: 0, Counters: Counters{Offered: 1}}, "counters: must balance"},
		{RestoreLane{Lane: 0, Counters: Counters{Offered: 1, InFlight: 1}}, "counters.inflight: must be 0"},
		{RestoreLane{Lane: 0, Tokens: -1}, "tokens: must be 0 or more"},
		{SetSlots{}, "slots: must be 1 or more, is 0"},
	}
	before, _ := s.e.Lane(0, 0)
	for _, row := range rows {
		err := s.e.Apply(0, row.change)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%T: error %v, want %q in it", row.change, err, row.want)
		}
	}
	if after, _ := s.e.Lane(0, 0); after != before {
		t.Errorf("the lane changed: %+v, was %+v", after, before)
	}
}

// Three a minute is three a minute, after however long an idle time, and also
// across a restart.
// Field case 11.
func TestAnIdleBucketLetsNoPileThrough(t *testing.T) {
	for _, burst := range []int64{1, 3} {
		p := rated(3, time.Minute, burst)
		s := single(t, p)
		at := s.startTimes(0)
		s.run(10 * time.Minute)
		for range 50 {
			s.offer(0)
			s.run(s.now + 20*time.Millisecond)
		}
		s.run(20 * time.Minute)
		wantWithin(t, *at, p.Rate)
		if n := len(*at); n != int(burst)+30-1 && n != int(burst)+30 {
			t.Errorf("burst %d: %d started in ten minutes", burst, n)
		}
		if burst == 1 && (*at)[5]-(*at)[4] != 20*time.Second {
			t.Errorf("spacing %v, want 20s", (*at)[5]-(*at)[4])
		}
	}
	s := single(t, rated(3, time.Minute, 3))
	s.apply(t, RestoreLane{Lane: 0, Tokens: 0})
	if v := s.offer(0); v.Kind != Park || v.At != 20*time.Second {
		t.Errorf("after a restart with no tokens left: %v until %v, want parked until 20s", v.Kind, v.At)
	}
}

// A denial takes no token, whatever denies. While the breaker is open the bucket
// stays full; afterwards the lane reaches its rate.
// Field case 12.
func TestADenialTakesNoToken(t *testing.T) {
	p := Profile{Cap: -1, NoBudget: true, Rate: mustRate(10, time.Second, 10)}
	s := single(t, p)
	down := true
	s.serve = func(LaneID) (time.Duration, Result) {
		if down {
			return time.Millisecond, Result{Kind: Failed}
		}
		return time.Millisecond, Result{Kind: OK}
	}
	for range 5 {
		s.offer(0)
	}
	s.run(20 * time.Second)
	for range 1000 {
		if v := s.offer(0); v.Reason != ByBreaker {
			t.Fatalf("offer: %v %v", v.Kind, v.Reason)
		}
	}
	if v, _ := s.e.Lane(s.now, 0); v.Tokens != 10 {
		t.Errorf("%d tokens left of 10 while the breaker is open", v.Tokens)
	}
	down = false
	s.run(time.Minute)
	from := s.starts[0]
	s.run(90 * time.Second)
	if n := s.starts[0] - from; n != 300 {
		t.Errorf("%d started in 30 s, want 300", n)
	}
}

// With one at a time and a slow endpoint, a hundred waiting ones cost no token
// but their own; and nothing sent gives back exactly what was taken.
// Field case 12.
// Limiter case L79.
func TestWhatWasNotSentGivesItsTokenBack(t *testing.T) {
	p := rated(10, time.Second, 10)
	p.Cap = 1
	s := single(t, p)
	s.fill(0, 100)
	k := s.drain()[0]
	if v, _ := s.e.Lane(0, 0); v.Tokens != 9 || v.Counters.InFlight != 1 {
		t.Fatalf("%d tokens, %d in flight", v.Tokens, v.Counters.InFlight)
	}
	for range 100 {
		s.drain()
	}
	if v, _ := s.e.Lane(0, 0); v.Tokens != 9 {
		t.Fatalf("denials took tokens: %d left of 9", v.Tokens)
	}
	s.events = nil
	if v := s.finish(k, Result{Kind: NotSent}); v.Reason != ByLocal || v.Attempt != 0 || !v.Due || v.At != time.Second {
		t.Errorf("not sent: %+v", v)
	}
	if v, _ := s.e.Lane(0, 0); v.Tokens != 10 || v.Counters.InFlight != 0 {
		t.Errorf("%d tokens and %d in flight after it was given back", v.Tokens, v.Counters.InFlight)
	}
	s.wantBalanced(t, 1)
}

// One per hour, one per day: asked again at exactly the instant that the denial
// gave, it passes. Nobody is denied twice for one token.
// Field case 13.
func TestThePromisedInstantIsKept(t *testing.T) {
	for _, per := range []time.Duration{time.Hour, 24 * time.Hour, 7 * time.Second / 3} {
		s := single(t, rated(1, per, 1))
		s.e.Offer(0, Delivery{Lane: 0})
		for i := range 1000 {
			v := s.e.Offer(s.now, Delivery{Lane: 0})
			if v.Kind != Park || v.At <= s.now {
				t.Fatalf("%v, %d: %v until %v at %v", per, i, v.Kind, v.At, s.now)
			}
			s.e.Settle(s.now, 0, ToCancelled, 1)
			s.now = v.At
			if v := s.e.Offer(s.now, Delivery{Lane: 0}); v.Kind != Send {
				t.Fatalf("%v, %d: denied at the instant promised", per, i)
			}
		}
		if s.now != 1000*per {
			t.Errorf("1000 tokens after %v, want %v", s.now, 1000*per)
		}
	}
}

// A raise frees what waits at the new pace, not at the old marks; a cut lets at
// most the new burst go.
// Field case 14.
func TestAChangedLimitHoldsForWhatWaits(t *testing.T) {
	s := single(t, rated(1, time.Minute, 1))
	for range 600 {
		s.offer(0)
	}
	s.run(time.Second)
	s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 0, Profile: rated(100, time.Second, 1)}})
	s.run(4 * time.Second)
	if n := s.starts[0]; n < 295 || n > 305 {
		t.Errorf("%d started 3 s after the raise to 100/s", n)
	}
	s.run(10 * time.Second)
	if s.done[0] != 600 {
		t.Errorf("%d of 600 delivered", s.done[0])
	}

	s = single(t, rated(1000, time.Second, 1000))
	s.apply(t, PauseLane{Lane: 0, Paused: true})
	for range 50 {
		s.offer(0)
	}
	s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 0, Profile: rated(1, time.Second, 1)}})
	s.run(500 * time.Millisecond)
	if s.starts[0] != 1 {
		t.Errorf("%d left at once after the cut to burst 1", s.starts[0])
	}
	s.wantBalanced(t, 1)
}

// A cost is tokens, never slots: a dear delivery takes one slot. Within a lane
// it keeps its place (first in, first out); other lanes do not wait for it.
// Limiter case L75.
// Limiter case L77.
func TestADearHeadKeepsItsPlaceInItsOwnLaneOnly(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	p := rated(1, time.Second, 5)
	s.add(0, 0, p)
	s.add(0, 1, p)
	s.offerCost(0, 5)
	if n := s.e.Stats(0).InFlight; n != 1 {
		t.Errorf("a delivery of cost 5 takes %d slots", n)
	}
	s.offerCost(0, 4)
	s.offerCost(0, 1)
	if v := s.offer(1); v.Kind != Send {
		t.Errorf("another lane waits for the dear one: %v", v.Reason)
	}
	at := s.startTimes(0)
	s.run(10 * time.Second)
	if want := []time.Duration{4 * time.Second, 5 * time.Second}; !slices.Equal(*at, want) {
		t.Errorf("starts at %v, want the dear one at 4s and the cheap one behind it at 5s", *at)
	}
}

// Drop is for what the lane's own limits refuse of fresh deliveries; all else
// waits as ever.
func TestDropIsForTheLanesOwnLimitsAlone(t *testing.T) {
	p := rated(1, time.Second, 1)
	p.Drop = true
	s := newSim(t, Config{Slots: 1, HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, p)
	other := open()
	other.Drop = true
	s.add(0, 1, other)
	s.offer(0)
	if v := s.offer(0); v.Kind != Drop || v.Reason != ByRate {
		t.Errorf("beyond the contract: %v %v", v.Kind, v.Reason)
	}
	if v := s.offer(1); v.Kind != Park || v.Reason != BySlots {
		t.Errorf("for want of a slot: %v %v", v.Kind, v.Reason)
	}
	if st := s.e.Stats(0); st.Counters.Dropped != 1 || st.Denials[ByRate] != 1 || st.Denials[BySlots] != 1 {
		t.Errorf("%+v", st)
	}
	s.wantBalanced(t, 2)
}

// An older head and the fresh share the tokens: first in, first out for ten
// seconds, then four fresh ones to one of the backlog.
func TestOldBacklogAndFreshShareTheTokens(t *testing.T) {
	s := single(t, rated(1, time.Second, 10))
	for range 10 {
		s.offer(0)
	}
	s.events = nil
	s.offer(0) // these wait, and their driver is slow: nobody asks for grants
	s.offer(0)
	s.now = 9 * time.Second
	if v := s.e.Offer(s.now, Delivery{Lane: 0}); v.Reason != ByOrder {
		t.Errorf("behind a head due for 9 s: %v %v", v.Kind, v.Reason)
	}
	s.now = 10 * time.Second
	var kinds []Kind
	for range 6 {
		kinds = append(kinds, s.e.Offer(s.now, Delivery{Lane: 0}).Kind)
	}
	if want := []Kind{Send, Send, Send, Send, Park, Park}; !slices.Equal(kinds, want) {
		t.Errorf("beside a head due for 10 s: %v, want four sent and the rest parked", kinds)
	}
	if _, ok := s.next(); !ok {
		t.Error("the backlog's turn: nothing granted")
	}
	if v := s.e.Offer(s.now, Delivery{Lane: 0}); v.Kind != Send {
		t.Errorf("after the backlog's turn: %v %v", v.Kind, v.Reason)
	}
}

// A head that is not due yet holds nobody back.
func TestAHeadNotYetDueHoldsNobodyBack(t *testing.T) {
	s := single(t, open())
	k := s.offer(0).Ticket
	s.events = nil
	s.finish(k, Result{Kind: NotSent}) // due in a second
	if v := s.offer(0); v.Kind != Send {
		t.Errorf("%v %v", v.Kind, v.Reason)
	}
}

// There is no lease that could run out before a request does: while one is out, however long, a lane of cap 1
// starts no other, and a probe's place is kept until its timeout, which is the request's.
// Field case 22.
func TestNothingIsStartedTwiceHoweverLongARequestTakes(t *testing.T) {
	for _, probe := range []bool{false, true} {
		p := Profile{Cap: 1, NoBudget: true, Timeout: time.Minute}
		s := newDriver(Config{HostLimit: -1})
		s.apply(t, PutTenant{Tenant: 0})
		s.lane(t, 0, 0, p)
		out := s.offer(0).Ticket
		if probe {
			for range 5 {
				s.finish(out, Result{Kind: Failed})
				s.to(s.now + 10*time.Minute)
				g, ok := s.next()
				if !ok {
					t.Fatal("the retry was not granted")
				}
				out = g.Ticket
			}
			if out.Flags&FlagProbe == 0 {
				t.Fatal("the last one is no probe")
			}
		}
		s.offer(0)
		for end := s.now + 59*time.Second; s.now < end; s.to(s.now + time.Second) {
			if g, ok := s.next(); ok {
				t.Fatalf("probe %v: %+v started while the first was out", probe, g)
			}
		}
		s.finish(out, Result{Kind: OK})
		if _, ok := s.next(); !ok {
			t.Errorf("probe %v: the next did not go after the first", probe)
		}
	}
}
