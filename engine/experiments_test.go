package engine

import (
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
)

// blackHole runs 100/s into an endpoint that never answers, beside others that
// hold 150 of 1,200 slots, and returns the share of slots that it held on average
// between two instants, when its breaker opened, and the most probes at once.
func blackHole(t *testing.T, p Profile, order Order, from, to time.Duration) (held float64, opened time.Duration, probes int) {
	s := newSim(t, Config{Slots: 1200, HostLimit: -1, Order: order})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	p.MaxAttempts, p.Timeout = 1, 10*time.Second
	s.add(0, 0, p)
	s.add(1, 1, open())
	out := 0
	s.serve = func(id LaneID) (time.Duration, Result) {
		if id == 1 {
			return time.Second, Result{Kind: OK}
		}
		return 10 * time.Second, Result{Kind: Failed}
	}
	begin := s.started
	s.started = func(k Ticket, x entry) {
		if k.Flags&FlagProbe != 0 {
			out++
			probes = max(probes, out)
		}
		begin(k, x)
	}
	s.ended = func(k Ticket, _ Result, _ Verdict) {
		if k.Flags&FlagProbe != 0 {
			out--
		}
		if v, _ := s.e.Lane(s.now, 0); opened == 0 && v.Breaker != breaker.Closed {
			opened = s.now
		}
	}
	s.arrive(0, 0, to, every(10*time.Millisecond))
	s.arrive(1, 0, to, every(time.Second/150))
	s.run(from)
	used := s.usedIn(to)
	s.wantBalanced(t, 2)
	return used[0] / (to - from).Seconds() / 1200, opened, probes
}

// The black hole's figures: 0.83 of all slots without protection, 0.0133 with a
// cap of 16, and with the breaker at most 0.001 over ten minutes.
// Field case 27.
// Limiter case L81.
func TestBlackHoleHoldsWhatTheTableSays(t *testing.T) {
	held, _, _ := blackHole(t, open(), Arrival, 20*time.Second, time.Minute)
	if held < 0.82 || held > 0.84 {
		t.Errorf("shared: it holds %.4f, want 0.82 to 0.84", held)
	}
	p := open()
	p.Cap = 16
	held, _, _ = blackHole(t, p, Fair, 20*time.Second, time.Minute)
	if held < 0.0132 || held > 0.0134 {
		t.Errorf("cap 16: it holds %.4f, want 0.0133", held)
	}
	held, opened, probes := blackHole(t, Profile{Cap: 16}, Fair, 0, 10*time.Minute)
	t.Logf("cap 16 and breaker: holds %.5f, open after %v, at most %d probe", held, opened, probes)
	if held > 0.001 {
		t.Errorf("cap 16 and breaker: it holds %.5f over ten minutes, want at most 0.001", held)
	}
	if opened == 0 || opened > 11*time.Second {
		t.Errorf("the breaker opened after %v, want within 11 s", opened)
	}
	if probes != 1 {
		t.Errorf("%d probes at once, want one", probes)
	}
}

// storm runs 200/s into an endpoint that fails from 60 s to 120 s, beside
// neighbours of ten times that, and returns attempts per request over the outage
// and over its worst ten seconds.
func storm(t *testing.T, noBudget bool) (ratio, peak float64) {
	s := newSim(t, Config{Slots: 1200, HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	p := open()
	p.NoBudget = noBudget
	s.add(0, 0, p)
	s.add(1, 1, open())
	const from, to = 60 * time.Second, 120 * time.Second
	s.serve = func(id LaneID) (time.Duration, Result) {
		if id == 0 && s.now >= from && s.now < to {
			return 50 * time.Millisecond, Result{Kind: Failed}
		}
		return 20 * time.Millisecond, Result{Kind: OK}
	}
	attempts := make([]int, 120)
	begin := s.started
	s.started = func(k Ticket, x entry) {
		if k.Lane == 0 && s.now < to {
			attempts[s.now/time.Second]++
		}
		begin(k, x)
	}
	s.arrive(0, 0, to, every(5*time.Millisecond))
	s.arrive(1, 0, to, every(500*time.Microsecond))
	s.run(to)
	sum := 0
	for i := 60; i < 120; i++ {
		sum += attempts[i]
		if i >= 69 {
			ten := 0
			for _, n := range attempts[i-9 : i+1] {
				ten += n
			}
			peak = max(peak, float64(ten)/2000)
		}
	}
	s.wantBalanced(t, 2)
	return float64(sum) / (200 * 60), peak
}

// A failing endpoint costs four times its requests without a budget, and at most
// 1.1 times with one.
// Field case 38.
func TestRetryStormIsBoundedByTheBudget(t *testing.T) {
	ratio, peak := storm(t, true)
	t.Logf("without: %.3f attempts per request, %.3f over the worst 10 s", ratio, peak)
	if ratio < 3.9 || peak < 4.0 {
		t.Errorf("without a budget: %.3f attempts per request, peak %.3f, want at least 3.9 and 4.0", ratio, peak)
	}
	ratio, peak = storm(t, false)
	t.Logf("with: %.3f attempts per request, %.3f over the worst 10 s", ratio, peak)
	if ratio > 1.1 || peak > 1.25 {
		t.Errorf("with the budget: %.3f attempts per request, peak %.3f, want at most 1.1 and 1.25", ratio, peak)
	}
}

// noisyNeighbour: 10 slots, 500 deliveries of 20 ms at once, ten quiet ones at
// 50 ms. It returns the quiet ones' completion times, sorted by lane, and the
// batch's end.
func noisyNeighbour(t *testing.T, order Order, noisyCap int) (quiet []time.Duration, batch time.Duration) {
	s := newSim(t, Config{Slots: 10, HostLimit: -1, Order: order})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	p := open()
	p.Cap = noisyCap
	s.add(0, 0, p)
	s.add(1, 1, open())
	left := 500
	s.ended = func(k Ticket, _ Result, _ Verdict) {
		if k.Lane == 1 {
			quiet = append(quiet, s.now-k.Born)
			return
		}
		if left--; left == 0 {
			batch = s.now
		}
	}
	s.offer(0)
	s.offer(1) // both have answered before
	const from = time.Second
	s.run(from)
	quiet, left = nil, 500
	for range 500 {
		s.offer(0)
	}
	s.at(from+50*time.Millisecond, func() {
		for range 10 {
			s.offer(1)
		}
	})
	s.run(6 * time.Second)
	return quiet, batch - from
}

// Ten quiet deliveries behind five hundred: the three ways to share ten slots.
func TestNoisyNeighbourByTheThreeWaysToShare(t *testing.T) {
	median := func(x []time.Duration) time.Duration { return (x[4] + x[5]) / 2 }
	worst := func(x []time.Duration) time.Duration { return x[9] }
	within := func(name string, got, low, high time.Duration) {
		t.Helper()
		if got < low || got > high {
			t.Errorf("%s: %v, want %v to %v", name, got, low, high)
		}
	}
	ms := time.Millisecond
	q, batch := noisyNeighbour(t, Arrival, -1)
	within("shared: median", median(q), 960*ms, 1030*ms)
	t.Log("shared", median(q), worst(q), batch)
	q, batch = noisyNeighbour(t, Fair, 6)
	t.Log("hard cap", median(q), worst(q), batch)
	within("hard cap: median", median(q), 20*ms, 31*ms)
	within("hard cap: worst", worst(q), 0, 51*ms)
	within("hard cap: batch", batch, 1660*ms, 1720*ms)
	q, batch = noisyNeighbour(t, Fair, -1)
	t.Log("work-conserving", median(q), worst(q), batch)
	within("work-conserving: median", median(q), 0, 57*ms)
	within("work-conserving: worst", worst(q), 0, 79*ms)
	within("work-conserving: batch", batch, 0, 1080*ms)
}
