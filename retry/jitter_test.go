package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestJitterEndsAndMiddle(t *testing.T) {
	const base = 100 * time.Millisecond
	for _, c := range []struct {
		jitter Jitter
		n      uint32 // retries before
		u      float64
		want   time.Duration
	}{
		{FullJitter, 0, 0, 0},
		{FullJitter, 2, 0.5, 200 * time.Millisecond},
		{EqualJitter, 0, 0, 50 * time.Millisecond},
		{EqualJitter, 2, 0, 200 * time.Millisecond},
		{EqualJitter, 2, 0.5, 300 * time.Millisecond},
		{DecorrelatedJitter, 0, 0, base},
		{DecorrelatedJitter, 0, 0.5, 200 * time.Millisecond},
		{DecorrelatedJitter, 1, 0.5, 350 * time.Millisecond}, // 100 + (600-100)/2
		{NoJitter, 0, 0.5, base},
		{NoJitter, 3, 0.5, 800 * time.Millisecond},
	} {
		s := Schedule{QuickAttempts: 10, QuickBase: base, Jitter: c.jitter}
		if got := s.Delay(c.n+1, false, fixed(c.u)); got != c.want {
			t.Errorf("jitter %d, retry %d, %v: %v, want %v", c.jitter, c.n, c.u, got, c.want)
		}
	}
}

// Whatever the settings, a delay stays in its bounds and never wraps around.
func TestJitterStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{
			QuickAttempts: math.MaxInt,
			QuickBase:     time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")),
			Jitter:        Jitter(rapid.IntRange(0, int(NoJitter)).Draw(t, "jitter")),
		}
		u := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "u")
		n := rapid.Uint32().Draw(t, "n")
		d := s.Delay(n, false, fixed(u))
		if d < 0 || d > MaxDelay {
			t.Fatalf("%v", d)
		}
		if s.Jitter == DecorrelatedJitter && d < min(s.QuickBase, MaxDelay) {
			t.Fatalf("%v is below the base %v", d, s.QuickBase)
		}
	})
}

// The means tell the kinds apart: w/2, 3w/4, 2*base for the first, w.
func TestJitterMeans(t *testing.T) {
	const base, draws = time.Second, 20_000
	rnd := rand.New(rand.NewPCG(3, 4))
	for jitter, want := range map[Jitter]float64{FullJitter: 0.5, EqualJitter: 0.75, DecorrelatedJitter: 2, NoJitter: 1} {
		s, sum := Schedule{QuickBase: base, Jitter: jitter}, 0.0
		for range draws {
			sum += s.Delay(1, false, rnd).Seconds()
		}
		if mean := sum / draws; math.Abs(mean-want) > 0.02*want {
			t.Errorf("jitter %d: mean %v, want %v", jitter, mean, want)
		}
	}
}
