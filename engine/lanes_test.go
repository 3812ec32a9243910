package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A pause keeps what is in flight, sends nothing more, and ends with a ramp.
func TestAPauseHoldsAndResumingRamps(t *testing.T) {
	for name, pause := range map[string]func(bool) Change{
		"lane":   func(on bool) Change { return PauseLane{Lane: 0, Paused: on} },
		"tenant": func(on bool) Change { return PutTenant{Tenant: 0, Suspended: on} },
		"edit":   func(on bool) Change { return PutLane{LaneSpec: LaneSpec{Lane: 0, Paused: on, Profile: open()}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := single(t, open())
			k := s.offer(0).Ticket
			s.apply(t, pause(true))
			if s.e.Live(k) {
				t.Error("a paused lane's ticket may still send its first byte")
			}
			for range 100 {
				if v := s.offer(0); v.Reason != ByPause || v.At != 0 {
					t.Fatalf("offer: %v %v", v.Kind, v.Reason)
				}
			}
			s.run(time.Minute)
			if s.starts[0] != 1 {
				t.Fatalf("%d started under the pause", s.starts[0]-1)
			}
			s.apply(t, pause(false))
			for _, want := range []int{1, 2, 4, 8, 16} {
				s.run(s.now)
				if v, _ := s.e.Lane(s.now, 0); int(v.Counters.InFlight) != want || v.Ramp != want {
					t.Errorf("%d in flight on the ramp's step %d, want %d", v.Counters.InFlight, v.Ramp, want)
				}
				s.run(s.now + 20*time.Millisecond)
			}
			s.run(s.now + time.Minute)
			if s.done[0] != 101 {
				t.Errorf("%d of 101 delivered", s.done[0])
			}
		})
	}
}

// A failure under the ramp keeps the window; only as many successes in a row as
// it is wide double it.
func TestTheRampDoublesOnlyAfterSuccessesInARow(t *testing.T) {
	p := open()
	p.Cap = 8
	s := single(t, p)
	s.apply(t, PauseLane{Lane: 0, Paused: true}, PauseLane{Lane: 0})
	once := func(k ResultKind) int {
		s.finish(s.offer(0).Ticket, Result{Kind: k})
		*s.backlog(0) = nil
		s.e.Settle(s.now, 0, ToCancelled, uint32(s.e.lane(0).parked))
		s.state(0)
		s.to(s.now + time.Minute)
		v, _ := s.e.Lane(s.now, 0)
		return v.Ramp
	}
	got := []int{once(OK), once(OK), once(Failed), once(OK), once(OK), once(OK), once(OK), once(OK), once(OK)}
	if want := []int{2, 2, 2, 2, 4, 4, 4, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("windows %v, want %v (8 is the cap: the ramp is over)", got, want)
	}
}

// By default order is not promised: while a retry backs off, later ones pass. What the driver says is behind
// another parks, whatever is free, and goes by Next when it is stated.
// Field case 23.
func TestWhatIsBehindAnotherParks(t *testing.T) {
	for _, behind := range []bool{false, true} {
		s := single(t, open())
		first := s.e.Offer(0, Delivery{Lane: 0}).Ticket
		v := s.e.Offer(0, Delivery{Lane: 0, Behind: behind})
		if got := v.Kind == Park && v.Reason == ByOrder && v.At == 0; got != behind {
			t.Errorf("behind %v: %v %v until %v", behind, v.Kind, v.Reason, v.At)
		}
		if !behind {
			continue
		}
		if _, ok := s.e.Next(0); ok {
			t.Error("what nobody stated was granted")
		}
		s.e.Finish(0, first, Result{Kind: OK})
		s.e.Waiting(0, 0, Backlog{Count: 1})
		if _, ok := s.e.Next(0); !ok {
			t.Error("its turn has come, and it was not granted")
		}
	}
}

// Caps hold beside a paused neighbour, each lane keeps its order, and a repeated
// run gives the same.
// Field case 17.
func TestCapsHoldAndRunsRepeat(t *testing.T) {
	run := func() (trace []Ticket) {
		s := newSim(t, Config{Slots: 100, HostLimit: -1, Rand: rand.New(rand.NewPCG(5, 5))})
		s.apply(t, PutTenant{Tenant: 0})
		p := open()
		p.Cap = 2
		for i := range 4 {
			s.add(0, LaneID(i), p)
		}
		s.apply(t, PauseLane{Lane: 3, Paused: true})
		s.serve = func(LaneID) (time.Duration, Result) {
			return logNormal(s.rnd, 20*time.Millisecond, 60*time.Millisecond), Result{Kind: OK}
		}
		order := map[LaneID]uint64{}
		begin := s.started
		s.started = func(k Ticket, x entry) {
			trace = append(trace, k)
			if v, _ := s.e.Lane(s.now, k.Lane); v.Counters.InFlight > 2 {
				t.Fatalf("lane %d: %d in flight, cap 2", k.Lane, v.Counters.InFlight)
			}
			if x.seq < order[k.Lane] {
				t.Fatalf("lane %d: out of order", k.Lane)
			}
			order[k.Lane] = x.seq
			begin(k, x)
		}
		for i := range 1000 {
			s.offer(LaneID(i % 4))
		}
		s.run(time.Minute)
		if s.done[0] != 250 || s.done[3] != 0 {
			t.Errorf("delivered %v", s.done)
		}
		return trace
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Error("two runs of the same differ")
	}
}

// One at a time, 30 waiting, and one more in each service time: nobody is
// overtaken.
// Field case 19.
func TestTheOldestWaiterGoesNext(t *testing.T) {
	p := open()
	p.Cap = 1
	s := single(t, p)
	s.serve = func(LaneID) (time.Duration, Result) { return 100 * time.Millisecond, Result{Kind: OK} }
	last := uint64(0)
	begin := s.started
	s.started = func(k Ticket, x entry) {
		if x.seq < last {
			t.Fatalf("waiter %d went after waiter %d", x.seq, last)
		}
		last = x.seq
		begin(k, x)
	}
	for range 30 {
		s.offer(0)
	}
	s.arrive(0, 50*time.Millisecond, 20*time.Second, every(100*time.Millisecond))
	s.run(20 * time.Second)
	for i, w := range s.waits[0] {
		if w > 3100*time.Millisecond {
			t.Fatalf("waiter %d waited %v, 31 service times at most", i, w)
		}
	}
}

// Neighbours that wait for other things change nobody's pace, and the driver
// sleeps until the earliest instant.
// Field case 25.
func TestADeferredNeighbourChangesNobodysPace(t *testing.T) {
	s := newSim(t, Config{HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	s.add(0, 0, rated(30, time.Minute, 1))
	s.add(0, 1, open())
	s.add(0, 2, open())
	for range 40 {
		s.offer(0)
	}
	k := s.e.Offer(0, Delivery{Lane: 1}).Ticket
	s.e.Finish(0, k, Result{Kind: Unknown})
	s.e.Settle(0, 1, ToResent, 10_000)
	s.e.Waiting(0, 1, Backlog{Count: 10_001, HeadDue: 30 * time.Second})
	s.events = nil
	at := s.startTimes(0)
	s.arrive(2, 0, 29*time.Second, every(70*time.Millisecond))
	s.drain()
	s.run(29 * time.Second)
	for i := range *at {
		if i > 0 && (*at)[i]-(*at)[i-1] != 2*time.Second {
			t.Errorf("starts %v and %v: want 2 s between", (*at)[i-1], (*at)[i])
		}
	}
	if len(*at) != 14 {
		t.Errorf("%d started in 29 s at 30 a minute", len(*at))
	}
	for _, w := range s.waits[2] {
		if w != 0 {
			t.Fatalf("the unlimited neighbour waited %v", w)
		}
	}
	s.run(29500 * time.Millisecond)
	if next, ok := s.e.NextWake(); !ok || next > 30*time.Second {
		t.Errorf("sleeps until %v, the next has its token at 30s", next)
	}
}
