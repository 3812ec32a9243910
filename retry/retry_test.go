package retry

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fixed is a source that always gives the same number.
type fixed float64

func (f fixed) Float64() float64 { return float64(f) }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// almost1 is the largest number a source gives.
var almost1 = fixed(math.Nextafter(1, 0))

func TestScheduleRows(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	shipped := Schedule{}
	short := Schedule{QuickAttempts: 2, QuickBase: 10 * s, Slow: []time.Duration{m, h}, SlowJitter: 0.5}
	none := Schedule{QuickAttempts: 1, SlowJitter: -1}
	rows := []struct {
		name     string
		schedule *Schedule
		attempts uint32
		slowOnly bool
		least    time.Duration // source gives 0
		mean     time.Duration // source gives 0.5
	}{
		{"first retry: n is 0", &shipped, 1, false, 0, 125 * time.Millisecond},
		{"second", &shipped, 2, false, 0, 250 * time.Millisecond},
		{"third, the last quick one", &shipped, 3, false, 0, 500 * time.Millisecond},
		{"four attempts made: slow", &shipped, 4, false, 48 * s, m},
		{"then 5m", &shipped, 5, false, 4 * m, 5 * m},
		{"30m", &shipped, 6, false, 24 * m, 30 * m},
		{"2h", &shipped, 7, false, 96 * m, 2 * h},
		{"5h", &shipped, 8, false, 4 * h, 5 * h},
		{"10h", &shipped, 9, false, 8 * h, 10 * h},
		{"14h", &shipped, 10, false, 672 * m, 14 * h},
		{"20h", &shipped, 11, false, 16 * h, 20 * h},
		{"the last repeats", &shipped, 12, false, 16 * h, 20 * h},
		{"and repeats", &shipped, math.MaxUint32, false, 16 * h, 20 * h},
		{"slow only starts with the first interval", &shipped, 1, true, 48 * s, m},
		{"slow only, second failure", &shipped, 2, true, 4 * m, 5 * m},
		{"slow only, the last repeats", &shipped, 9, true, 16 * h, 20 * h},
		{"no attempt counts as one", &shipped, 0, false, 0, 125 * time.Millisecond},
		{"own scales, quick", &short, 1, false, 0, 5 * s},
		{"own scales, slow", &short, 2, false, 30 * s, m},
		{"own scales, last", &short, 9, false, 30 * m, h},
		{"no quick scale, no jitter", &none, 1, false, m, m},
	}
	for _, r := range rows {
		if got := r.schedule.Delay(r.attempts, r.slowOnly, fixed(0)); got != r.least {
			t.Errorf("%s: least %v, want %v", r.name, got, r.least)
		}
		if got := r.schedule.Delay(r.attempts, r.slowOnly, fixed(0.5)); got != r.mean {
			t.Errorf("%s: mean %v, want %v", r.name, got, r.mean)
		}
		most := 2*r.mean - r.least
		if got := r.schedule.Delay(r.attempts, r.slowOnly, almost1); got > most || got < most-time.Microsecond {
			t.Errorf("%s: most %v, want %v", r.name, got, most)
		}
	}
}

// Field case 41.
func TestQuickAttemptsCountTheFirst(t *testing.T) {
	for _, quick := range []int{1, 2, 4, 5} {
		s := Schedule{QuickAttempts: quick}
		attempts := 1
		for s.Delay(uint32(attempts), false, almost1) < 48*time.Second {
			attempts++
		}
		if attempts != quick {
			t.Errorf("QuickAttempts %d: %d attempts before the slow scale", quick, attempts)
		}
	}
}

// Field case 35.
func TestDelayNeverOverflows(t *testing.T) {
	edges := []uint32{0, 1, 2, 30, 36, 37, 62, 63, 64, 65, 199, 200, 1<<31 - 1, 1 << 31, math.MaxUint32 - 1, math.MaxUint32}
	bases := []time.Duration{1, 100 * time.Millisecond, time.Hour, math.MaxInt64}
	for _, base := range bases {
		s := Schedule{QuickAttempts: math.MaxInt, QuickBase: base, Slow: []time.Duration{math.MaxInt64}}
		for _, n := range edges {
			want := min(float64(base)*math.Pow(2, float64(max(n, 1))-1), float64(MaxDelay)) / 2
			if got := s.Delay(n, false, fixed(0.5)); math.Abs(float64(got)-want) > 1+want*1e-12 {
				t.Errorf("base %v, %d attempts: half of the window is %v, want %v", base, n, got, time.Duration(want))
			}
			if got := s.Delay(n, true, almost1); got != MaxDelay {
				t.Errorf("slow interval beyond the bound, %d attempts: %v", n, got)
			}
		}
	}
}

// Field case 35.
func TestDelayIsWithinItsBoundsForEveryCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{
			QuickAttempts: rapid.Int().Draw(t, "quick attempts"),
			QuickBase:     time.Duration(rapid.Int64().Draw(t, "base")),
			SlowJitter:    rapid.Float64Range(-2, 2).Draw(t, "jitter"),
			Slow:          rapid.SliceOfN(rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }), 0, 3).Draw(t, "slow"),
		}
		attempts := rapid.Uint32().Draw(t, "attempts")
		u := fixed(rapid.Float64Range(0, float64(almost1)).Draw(t, "u"))
		if d := s.Delay(attempts, rapid.Bool().Draw(t, "slow only"), u); d < 0 || d > MaxDelay {
			t.Fatalf("delay %v", d)
		}
	})
}

// Field case 35.
func TestLongRunMeanStaysAtHalfTheWindow(t *testing.T) {
	s := Schedule{QuickAttempts: 200, QuickBase: 100 * time.Millisecond}
	rnd := seeded(35)
	for _, attempts := range []uint32{1, 10, 36, 64, 100, 199} {
		window := min(float64(100*time.Millisecond)*math.Pow(2, float64(attempts)-1), float64(MaxDelay))
		sum, zeros := 0.0, 0
		for range 10_000 {
			d := s.Delay(attempts, false, rnd)
			sum += float64(d)
			if d == 0 {
				zeros++
			}
		}
		if mean := sum / 10_000 / window; mean < 0.48 || mean > 0.52 || zeros > 1 {
			t.Errorf("%d attempts: mean %.3f of the window, %d zeros", attempts, mean, zeros)
		}
	}
}

// ks returns the Kolmogorov-Smirnov distance of x (in any order) from uniform(lo, hi).
func ks(x []float64, lo, hi float64) float64 {
	slices.Sort(x)
	n, d := float64(len(x)), 0.0
	for i, v := range x {
		f := (v - lo) / (hi - lo)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return d
}

// Field case 37.
func TestRetriesOfOneInstantAreSpreadUniformly(t *testing.T) {
	const n = 10_000
	limit := 1.628 / math.Sqrt(n) // the 1 % point of the KS distance
	s := Schedule{}
	rows := []struct {
		name     string
		attempts uint32
		lo, hi   float64 // seconds
	}{
		{"first quick", 1, 0, 0.25},
		{"second quick", 2, 0, 0.5},
		{"third quick", 3, 0, 1},
		{"1m", 4, 48, 72},
		{"5m", 5, 240, 360},
		{"20h", 11, 16 * 3600, 24 * 3600},
	}
	for i, r := range rows {
		rnd := seeded(uint64(i))
		x := make([]float64, n)
		bins := make(map[int]int)
		for j := range x {
			x[j] = s.Delay(r.attempts, false, rnd).Seconds()
			bins[int(x[j]-r.lo)]++
		}
		if d := ks(x, r.lo, r.hi); d > limit {
			t.Errorf("%s: KS distance %.4f, above %.4f", r.name, d, limit)
		}
		// Bins of a second, wider where a second holds a retry or so.
		seconds := max(r.hi-r.lo, 1)
		if mean := n / seconds; mean >= 10 {
			for bin, count := range bins {
				if float64(count) > 3*mean {
					t.Errorf("%s: %d retries in second %d, mean %.0f", r.name, count, bin, mean)
				}
			}
		}
	}
}

// Field case 37.
func TestTheSourceDecidesTheDelays(t *testing.T) {
	s := Schedule{}
	draw := func(seed uint64) (d [8]time.Duration) {
		rnd := seeded(seed)
		for i := range d {
			d[i] = s.Delay(4, false, rnd)
		}
		return d
	}
	if first, again := draw(1), draw(1); first != again {
		t.Error("the same source gave other delays")
	}
	if draw(1) == draw(2) {
		t.Error("another source gave the same delays: jitter from elsewhere")
	}
}

func TestPauseRows(t *testing.T) {
	const s, m, day = time.Second, time.Minute, 24 * time.Hour
	rows := []struct {
		name    string
		asked   time.Duration
		strikes uint32
		floor   time.Duration
	}{
		{"asked for", 10 * s, 0, 10 * s},
		{"asked for, whatever the strikes", s, 9, s},
		{"clamped to a day", 3 * day, 0, day},
		{"never wraps around", math.MaxInt64, 0, day},
		{"did not say", 0, 0, s},
		{"a date in the past", -m, 0, s},
		{"less than a second is no wish", s - 1, 2, 4 * s},
		{"doubles", 0, 1, 2 * s},
		{"doubles again", 0, 2, 4 * s},
		{"last doubling", 0, 8, 256 * s},
		{"up to 5m", 0, 9, 5 * m},
		{"and stays", 0, math.MaxUint32, 5 * m},
	}
	for _, r := range rows {
		if got := Pause(r.asked, r.strikes, fixed(0)); got != r.floor {
			t.Errorf("%s: %v, want %v", r.name, got, r.floor)
		}
		most := r.floor + r.floor/10
		if got := Pause(r.asked, r.strikes, almost1); got > most || got < most-2*time.Microsecond {
			t.Errorf("%s: at most %v, want %v", r.name, got, most)
		}
	}
}

// Field case 33.
func TestPauseIsNeverShorterThanAsked(t *testing.T) {
	const n = 500
	rnd := seeded(33)
	x := make([]float64, n)
	for i := range x {
		d := Pause(10*time.Second, 0, rnd)
		if d < 10*time.Second {
			t.Fatalf("came back after %v, asked for 10s", d)
		}
		x[i] = d.Seconds()
	}
	if d := ks(x, 10, 11); d > 1.628/math.Sqrt(n) {
		t.Errorf("bunched: KS distance %.3f", d)
	}
}
