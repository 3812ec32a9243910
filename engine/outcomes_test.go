package engine

import (
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/retry"
)

// quickRetry is a schedule without chance: every retry after a second.
func quickRetry() retry.Schedule {
	return retry.Schedule{QuickAttempts: 1, Slow: []time.Duration{time.Second}, SlowJitter: -1}
}

// Each outcome has one verdict: what becomes of the delivery, why, until when,
// and whether it was an attempt.
func TestEachOutcomeHasItsVerdict(t *testing.T) {
	at := 10*time.Second + 50*time.Millisecond
	rows := []struct {
		name string
		r    Result
		want Verdict
	}{
		{"2xx", Result{Kind: OK}, Verdict{Kind: Done, Attempt: 1}},
		{"rejected", Result{Kind: RejectedR}, Verdict{Kind: Bury, Reason: Rejected, Attempt: 1}},
		{"5xx", Result{Kind: Failed}, Verdict{Kind: Park, Reason: ByRetry, Due: true, At: at + time.Second, Attempt: 1}},
		{"3xx", Result{Kind: Later}, Verdict{Kind: Park, Reason: ByRetry, Due: true, At: at + time.Second, Attempt: 1}},
		{"404", Result{Kind: Later, Answered: true, Denied: true}, Verdict{Kind: Park, Reason: ByRetry, Due: true, At: at + time.Second, Attempt: 1}},
		{"410", Result{Kind: Gone}, Verdict{Kind: Park, Reason: ByGone, Attempt: 1}},
		{"cut at shutdown", Result{Kind: Unknown}, Verdict{Kind: Park, Reason: ByShutdown, Attempt: 1}},
		{"not sent", Result{Kind: NotSent}, Verdict{Kind: Park, Reason: ByLocal, Due: true, At: at + time.Second}},
		{"429 for 30 s", Result{Kind: Throttled, RetryAfter: 30 * time.Second}, Verdict{Kind: Park, Reason: ByEndpoint, Due: true, At: at + 30*time.Second}},
		{"429 for 48 h", Result{Kind: Throttled, RetryAfter: 48 * time.Hour}, Verdict{Kind: Park, Reason: ByEndpoint, Due: true, At: at + 24*time.Hour}},
		{"429", Result{Kind: Throttled}, Verdict{Kind: Park, Reason: ByEndpoint, Due: true, At: at + time.Second}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p := open()
			p.Schedule = quickRetry()
			s := newSim(t, Config{HostLimit: -1, Rand: noChance{}})
			s.apply(t, PutTenant{Tenant: 0})
			s.add(0, 0, p)
			s.to(10 * time.Second)
			k := s.offer(0).Ticket
			s.to(at)
			if got := s.finish(k, row.r); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
			s.wantBalanced(t, 1)
		})
	}
}

// noChance is a random source without chance.
type noChance struct{}

func (noChance) Float64() float64 { return 0 }

// A 429 without Retry-After pauses from 1 s, doubling to 5 min; a success begins
// anew.
func TestThrottlesWithoutAWishPauseLongerAndLonger(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1, Rand: noChance{}})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, open())
	pause := func(r Result) time.Duration {
		k := s.offer(0).Ticket
		v := s.finish(k, r)
		wait := v.At - s.now
		s.e.Settle(s.now, 0, ToCancelled, uint32(len(*s.backlog(0))))
		*s.backlog(0) = nil
		s.state(0)
		s.to(max(v.At, s.now))
		return wait
	}
	want := time.Second
	for range 12 {
		if got := pause(Result{Kind: Throttled}); got != want {
			t.Fatalf("pause %v, want %v", got, want)
		}
		want = min(2*want, 5*time.Minute)
	}
	s.finish(s.offer(0).Ticket, Result{Kind: OK})
	if got := pause(Result{Kind: Throttled}); got != time.Second {
		t.Errorf("after a success: pause %v, want 1s", got)
	}
}

// Exactly as many attempts as configured, the first included, then one dead
// letter.
// Field case 41.
func TestAttemptsAreExactlyAsManyAsConfigured(t *testing.T) {
	for _, n := range []uint32{1, 3, 5} {
		p := open()
		p.MaxAttempts = n
		s := single(t, p)
		s.serve = func(LaneID) (time.Duration, Result) { return time.Millisecond, Result{Kind: Failed} }
		var last Verdict
		s.ended = func(_ Ticket, _ Result, v Verdict) { last = v }
		s.offer(0)
		s.run(80 * time.Hour)
		if s.starts[0] != int(n) || last.Kind != Bury || last.Reason != Exhausted || last.Attempt != n {
			t.Errorf("limit %d: %d attempts, last verdict %+v", n, s.starts[0], last)
		}
		if v, _ := s.e.Lane(s.now, 0); v.Counters.Dead != 1 {
			t.Errorf("limit %d: %d dead", n, v.Counters.Dead)
		}
	}
}

// Without a limit of attempts the horizon ends it: dead, expired, within 72 h.
// Field case 38.
func TestTheHorizonBoundsEverything(t *testing.T) {
	s := single(t, open())
	s.serve = func(LaneID) (time.Duration, Result) { return time.Millisecond, Result{Kind: Failed} }
	var last Verdict
	var at time.Duration
	s.ended = func(_ Ticket, _ Result, v Verdict) { last, at = v, s.now }
	s.offer(0)
	s.run(100 * time.Hour)
	if last.Kind != Bury || last.Reason != Expired || at > 72*time.Hour || at < 48*time.Hour {
		t.Errorf("%v %v at %v", last.Kind, last.Reason, at)
	}
}

// Waiting by our own decision is no attempt: nobody dies of a limit, an open
// breaker, a pause that the endpoint asked for, a full cap or a missing file.
// Field case 36.
func TestOurOwnDenialsUseUpNoAttempt(t *testing.T) {
	p := rated(1, time.Minute, 1)
	p.MaxAttempts = 3
	s := single(t, p)
	throttled := false
	s.serve = func(LaneID) (time.Duration, Result) {
		if !throttled {
			throttled = true
			return 10 * time.Millisecond, Result{Kind: Throttled, RetryAfter: time.Minute}
		}
		return 10 * time.Millisecond, Result{Kind: OK}
	}
	for range 100 {
		s.offer(0)
	}
	s.run(30 * time.Second)
	if s.starts[0] != 1 {
		t.Fatalf("%d were sent into the endpoint's pause", s.starts[0])
	}
	s.run(3 * time.Hour)
	if v, _ := s.e.Lane(s.now, 0); v.Counters.Delivered != 100 || v.Counters.Dead != 0 {
		t.Errorf("%+v, want all 100 delivered", v.Counters)
	}

	s = single(t, Profile{Cap: 1, MaxAttempts: 3})
	for range 10 {
		k := s.offer(0).Ticket
		s.events = nil
		v := s.finish(k, Result{Kind: NotSent})
		if v.Attempt != 0 {
			t.Fatalf("not sent counts as attempt: %+v", v)
		}
		s.e.Settle(s.now, 0, ToCancelled, 1)
		*s.backlog(0) = nil
		s.state(0)
	}
}

// One event for five subscriptions: each has its own attempts, budget and dead
// letters, and the healthy ones get exactly one request.
// Field case 26.
func TestOneDeadSubscriberRepeatsNothingForTheOthers(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	p := open()
	p.MaxAttempts = 4
	for i := range 5 {
		s.add(0, LaneID(i), p)
	}
	s.serve = func(id LaneID) (time.Duration, Result) {
		switch id {
		case 0, 3:
			return 20 * time.Millisecond, Result{Kind: OK}
		case 2:
			return 15 * time.Second, Result{Kind: Failed}
		case 4:
			return time.Millisecond, Result{Kind: Failed, Refused: true}
		}
		return 20 * time.Millisecond, Result{Kind: Failed}
	}
	for i := range 5 {
		s.offer(LaneID(i))
	}
	s.run(time.Hour)
	for i, want := range []int{1, 4, 4, 1, 4} {
		v, _ := s.e.Lane(s.now, LaneID(i))
		if s.starts[LaneID(i)] != want || v.Counters.Delivered+v.Counters.Dead != 1 {
			t.Errorf("lane %d: %d attempts, %+v", i, s.starts[LaneID(i)], v.Counters)
		}
	}
}

// Retries are sent though traffic is low; at high traffic they stay within the
// budget, and one lane's empty budget is not another's.
// Field case 38.
func TestTheBudgetHoldsAtLowAndAtHighTraffic(t *testing.T) {
	s := single(t, Profile{Cap: -1, Breaker: breaker.Config{Off: true}})
	fail := true
	s.serve = func(LaneID) (time.Duration, Result) {
		r := Result{Kind: OK}
		if fail {
			r.Kind = Failed
		}
		fail = false
		return time.Millisecond, r
	}
	s.offer(0)
	s.run(time.Hour)
	if s.done[0] != 1 {
		t.Errorf("one message an hour: its retry was refused")
	}

	s = newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, Profile{Cap: -1, Breaker: breaker.Config{Off: true}})
	s.add(0, 1, Profile{Cap: -1, Breaker: breaker.Config{Off: true}})
	once := true
	s.serve = func(id LaneID) (time.Duration, Result) {
		if id == 1 && !once {
			return time.Millisecond, Result{Kind: OK}
		}
		once = once && id != 1
		return time.Millisecond, Result{Kind: Failed}
	}
	s.arrive(0, 0, time.Minute, every(time.Millisecond))
	s.at(30*time.Second, func() { s.offer(1) })
	s.run(time.Minute)
	first, retries := len(s.waits[0]), s.starts[0]-len(s.waits[0])
	if first != 60_000 || retries > 12 {
		t.Errorf("%d first attempts and %d retries in a minute", first, retries)
	}
	if s.done[1] != 1 {
		t.Error("the other lane's single retry was refused")
	}
	if v, _ := s.e.Lane(s.now, 0); v.Counters.Parked < 50_000 || v.Counters.Dead+v.Counters.Dropped != 0 {
		t.Errorf("%+v: what the budget refuses must be parked", v.Counters)
	}
}

// Whatever way an attempt ends, its slot comes back once: the lane reaches its
// cap again and never exceeds it.
// Field case 21.
// Limiter case L71.
// Limiter case L78.
func TestASlotComesBackOnceWhateverTheEnd(t *testing.T) {
	ends := []Result{
		{Kind: Failed, Refused: true}, {Kind: Failed}, {Kind: NotSent}, {Kind: Unknown}, {Kind: RejectedR}, {Kind: Later},
		{Kind: Later, Answered: true}, {Kind: Throttled}, {Kind: OK},
	}
	p := open()
	p.Cap, p.Schedule = 3, quickRetry()
	s := single(t, p)
	i := 0
	s.serve = func(LaneID) (time.Duration, Result) {
		i++
		if i <= len(ends) {
			return 10 * time.Millisecond, ends[i-1]
		}
		return 10 * time.Millisecond, Result{Kind: OK}
	}
	most := 0
	begin := s.started
	s.started = func(k Ticket, x entry) {
		v, _ := s.e.Lane(s.now, 0)
		most = max(most, int(v.Counters.InFlight))
		begin(k, x)
	}
	for range 110 {
		s.offer(0)
	}
	s.run(time.Minute)
	v, _ := s.e.Lane(s.now, 0)
	if most != 3 || v.Counters.InFlight != 0 || s.e.Stats(s.now).InFlight != 0 {
		t.Errorf("at most %d in flight, %d at rest", most, v.Counters.InFlight)
	}
	if v.Counters.Delivered != 109 || v.Counters.Dead != 1 {
		t.Errorf("%+v", v.Counters)
	}
	defer func() {
		if recover() == nil {
			t.Error("a ticket was finished twice")
		}
	}()
	k := s.offer(0).Ticket
	s.e.Finish(s.now, k, Result{Kind: OK})
	s.e.Finish(s.now, k, Result{Kind: OK})
}

// A lane that is removed in flight: its ticket is stale, frees its slot, and
// counts as cancelled unless it was delivered. Its account stays in the totals.
// Field case 21.
func TestARemovedLanesTicketsOnlyFreeTheirSlots(t *testing.T) {
	s := newSim(t, Config{Slots: 3, HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, open())
	s.add(0, 1, open())
	var k []Ticket
	for range 3 {
		k = append(k, s.offer(0).Ticket)
	}
	s.offer(0)
	s.offer(1)
	if !s.e.Live(k[0]) {
		t.Error("not live before its lane is removed")
	}
	s.apply(t, RemoveLane{Lane: 0})
	*s.backlog(0) = nil
	if s.e.Live(k[0]) {
		t.Error("live after its lane was removed")
	}
	if _, ok := s.next(); ok {
		t.Error("a grant though no slot is free")
	}
	for i, want := range []Verdict{{Kind: Done}, {Kind: Drop, Reason: Deleted}, {Kind: Drop, Reason: Deleted}} {
		if got := s.e.Finish(s.now, k[i], Result{Kind: []ResultKind{OK, Failed, NotSent}[i]}); got != want {
			t.Errorf("ticket %d: %+v, want %+v", i, got, want)
		}
	}
	if g, ok := s.next(); !ok || g.Lane != 1 {
		t.Error("the freed slot went to nobody")
	}
	if v := s.offer(0); v.Kind != Drop || v.Reason != Deleted {
		t.Errorf("an offer to it: %v %v", v.Kind, v.Reason)
	}
	s.wantBalanced(t, 2)
	v, _ := s.e.Lane(s.now, 0)
	if want := (Counters{Offered: 5, Delivered: 1, Cancelled: 4}); v.Counters != want || !v.Removed {
		t.Errorf("%+v, want %+v", v.Counters, want)
	}
	if err := s.e.Apply(s.now, PutLane{LaneSpec: LaneSpec{Lane: 0}}); err == nil {
		t.Error("a removed id was given out again")
	}
	if err := s.e.Apply(s.now, RemoveLane{Lane: 0}); err == nil {
		t.Error("a lane was removed twice")
	}
}
