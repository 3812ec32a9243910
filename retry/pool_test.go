package retry

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drainPool(p *Pool, now time.Duration) (n int) {
	for p.readyAt(now) == now {
		p.spend(now)
		n++
	}
	return n
}

func TestPoolRows(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	rows := []struct {
		at        time.Duration
		successes int
		spends    int     // until it refuses
		fill      float64 // after them
	}{
		{0, 0, 10, 0},            // the zero Pool is full: ten
		{0, 0, 0, 0},             // and none
		{90 * ms, 0, 0, 0.0879},  // 0.88 have come back
		{110 * ms, 0, 1, 0.0074}, // 1.07
		{600 * ms, 0, 4, 0.0953}, // 4.9 since
		{2 * s, 0, 10, 0},        // never more than a second's worth
		{2 * s, 14_427, 0, 0},    // 1,000/s: 1 % of them is the floor
		{2 * s, 129_843, 90, 0},  // 10,000/s: 100/s
		{3 * s, 0, 90, 0.0037},   // faded by 7 % to 93.3/s, 97 of the 100 drained
		{10 * time.Hour, 0, 10, 0},
	}
	var p Pool
	for i, r := range rows {
		for range r.successes {
			p.succeeded(r.at)
		}
		if got := drainPool(&p, r.at); got != r.spends {
			t.Errorf("row %d at %v: %d passed, want %d", i, r.at, got, r.spends)
		}
		if got := p.Fill(r.at); math.Abs(got-r.fill) > 0.01 {
			t.Errorf("row %d at %v: fill %.4f, want %.4f", i, r.at, got, r.fill)
		}
	}
}

// Naive twin: the meter in steps of a millisecond, the rate from the kept successes.
func TestPoolAgainstSmallSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pool
		var successes []burst
		used, now := 0.0, time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			for range rapid.IntRange(0, 2000).Draw(t, "ms") {
				used = max(0, used-naiveRate(successes, now)*0.001)
				now += time.Millisecond
			}
			if rapid.Bool().Draw(t, "success") {
				n := rapid.IntRange(1, 40_000).Draw(t, "successes")
				successes = append(successes, burst{now, float64(n)})
				for range n {
					p.succeeded(now)
				}
			}
			left := naiveRate(successes, now) - used
			tolerance := 0.011*naiveRate(successes, now) + 0.01 // a grain's worth of drain, and the fading in it
			if ready := p.readyAt(now) == now; ready != (left >= 1) && math.Abs(left-1) > tolerance {
				t.Fatalf("at %v: ready %v with %.3f left", now, ready, left)
			}
			for range rapid.IntRange(0, 20).Draw(t, "spends") {
				if p.readyAt(now) == now {
					p.spend(now)
					used++
				}
			}
		}
	})
}

type burst struct {
	at time.Duration
	n  float64
}

func naiveRate(successes []burst, now time.Duration) float64 {
	sum := 0.0
	for _, b := range successes {
		sum += b.n * math.Exp2(-float64(now-b.at)/float64(halfLife))
	}
	return max(10, sum*math.Ln2/10/100)
}

func TestPoolDoesNotDependOnWhoLooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var often, once Pool
		now := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range rapid.IntRange(0, 10).Draw(t, "looks") {
				now += gap(t, time.Second)
				often.advance(now)
			}
			if rapid.Bool().Draw(t, "success") {
				for range 3000 {
					often.succeeded(now)
					once.succeeded(now)
				}
			}
			if a, b := drainPool(&often, now), drainPool(&once, now); a != b {
				t.Fatalf("at %v: %d passed, %d when looked at seldom", now, a, b)
			}
		}
	})
}

func TestPoolGivesBackOnlyWhatHasNotDrained(t *testing.T) {
	var p Pool
	drainPool(&p, 0)
	p.giveBack(50*time.Millisecond, 0)
	if got := drainPool(&p, 50*time.Millisecond); got != 1 {
		t.Errorf("%d after one was given back at once, want 1", got)
	}
	// Those of the first instant have drained by 2 s; ten others hold the meter now.
	drainPool(&p, 2*time.Second)
	for range 10 {
		p.giveBack(2*time.Second, 0)
	}
	if got := drainPool(&p, 2*time.Second); got != 0 {
		t.Errorf("%d passed on what had drained long before", got)
	}
}
