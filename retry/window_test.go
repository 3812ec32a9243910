package retry

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// windowError is the documented error of a count: a grain early, a grain late, and rounding.
const windowError = 0.0007 + 0.0002

// within reports whether got is want to the documented error.
func within(got, want float64) bool { return math.Abs(got-want) <= want*windowError+1e-8 }

func TestWindowIsSmall(t *testing.T) {
	if size, align := unsafe.Sizeof(Window{}), unsafe.Alignof(Window{}); size != 28 || align != 4 {
		t.Errorf("%d bytes, aligned to %d; want 28, aligned to 4: every lane holds one", size, align)
	}
}

func TestDecayHalvesWithTheHalfLife(t *testing.T) {
	rows := []struct {
		after time.Duration
		want  float32
	}{
		{0, 1024},
		{10 * time.Second, 512},
		{20 * time.Second, 256},
		{100 * time.Second, 1},
		{366 * 24 * time.Hour, 0},
		{math.MaxInt64, 0},
	}
	for _, r := range rows {
		w := Window{Successes: 1024, Answers: 1024, Retries: 1024, Failures: 1024, Rate: 1024}
		w.Decay(r.after, 0)
		for _, got := range []float32{w.Successes, w.Answers, w.Retries, w.Failures, w.Rate} {
			if got != r.want {
				t.Errorf("after %v: %v, want %v", r.after, w, r.want)
			}
		}
	}
}

func TestTinyStepsFadeLikeOneLongStep(t *testing.T) {
	for _, step := range []time.Duration{7 * time.Microsecond, 333 * time.Microsecond, 9765624, 9765625, 9765626, 20 * time.Millisecond} {
		steps, leap := Window{Successes: 1e6}, Window{Successes: 1e6}
		now := time.Duration(0)
		for now < 5*time.Second {
			now += step
			steps.Decay(now, 0)
		}
		leap.Decay(now, 0)
		if got, want := float64(steps.Successes), float64(leap.Successes); math.Abs(got-want) > want*1e-4 {
			t.Errorf("steps of %v: %v, one step: %v", step, got, want)
		}
		if steps.clock() != leap.clock() {
			t.Errorf("steps of %v: clock %v, one step: %v", step, steps.clock(), leap.clock())
		}
	}
}

func TestDecayIgnoresAnEarlierInstant(t *testing.T) {
	w := Window{Successes: 8}
	w.Decay(time.Minute, 0)
	before := w
	w.Decay(time.Second, 0)
	w.Decay(math.MinInt64, 0)
	if w != before {
		t.Errorf("went from %v to %v", before, w)
	}
}

func TestDecayWithAHalfLifeBelowAGrain(t *testing.T) {
	w := Window{Successes: 8}
	w.Decay(3, 1) // three half-lives of a nanosecond
	if w.Successes != 1 {
		t.Errorf("%v left of 8", w.Successes)
	}
}

func TestDustBecomesZero(t *testing.T) {
	w := Window{Retries: 1}
	for now := time.Duration(0); now < 10*time.Minute; now += 10 * time.Millisecond {
		w.Decay(now, 0)
	}
	if w.Retries != 0 {
		t.Errorf("%g left of a retry of ten minutes ago", w.Retries)
	}
}

// Field case 29.
func TestCallsLeaveOutAnswersThatCountNeitherWay(t *testing.T) {
	var b Budget
	var w Window
	for range 30 {
		b.Answered(&w, nil, time.Second, Refused, 0)
	}
	b.Succeeded(&w, nil, time.Second, Refused, 0)
	b.Failed(&w, time.Second)
	if w.Calls() != 2 {
		t.Errorf("%v calls, want a success and a failure", w.Calls())
	}
}

// A steady stream is counted at its rate, whatever its spacing.
func TestOfferedIsTheRateOfASteadyStream(t *testing.T) {
	for _, perSecond := range []int{1, 7, 100, 977, 40_000} {
		var w Window
		gap := time.Second / time.Duration(perSecond)
		now := time.Duration(0)
		for now < 150*time.Second {
			now += gap
			w.Offer(now, 0)
		}
		if got, ripple := w.Offered(now, 0), 1/float64(perSecond)*0.05; math.Abs(got/float64(perSecond)-1) > 0.001+ripple {
			t.Errorf("%d/s: offered %.3f", perSecond, got)
		}
		if got, want := w.Offered(now+10*time.Second, 0), w.Offered(now, 0)/2; !within(got, want) {
			t.Errorf("%d/s: a half-life later %.3f, want %.3f", perSecond, got, want)
		}
	}
}

// Naive twin: every event is kept, with its instant, and its weight computed anew.
func TestWindowAgainstKeptEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "half-life"))
		var w Window
		var events []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(1, 300).Draw(t, "events") {
			now += gap(t, h)
			w.Offer(now, h)
			events = append(events, now)
		}
		now += gap(t, h)
		want := 0.0
		for _, at := range events {
			want += math.Exp2(-float64(now-at) / float64(h))
		}
		w.Decay(now, h)
		if !within(float64(w.Rate), want) {
			t.Fatalf("%v events count, want %v", w.Rate, want)
		}
	})
}

// gap draws a time between two events: often none, tiny, or far beyond h.
func gap(t *rapid.T, h time.Duration) time.Duration {
	switch rapid.IntRange(0, 9).Draw(t, "kind of gap") {
	case 0, 1, 2:
		return 0
	case 3, 4:
		return time.Duration(rapid.Int64Range(1, int64(h)/100+1).Draw(t, "tiny gap"))
	case 5, 6, 7, 8:
		return time.Duration(rapid.Int64Range(1, int64(h)).Draw(t, "gap"))
	default:
		return time.Duration(rapid.Int64Range(1, 40*int64(h)).Draw(t, "long gap"))
	}
}

// What fades by the table fades exactly as by the formula, and what the table does
// not hold (half-lives that grains do not fill, parts of a grain) by the formula.
func TestFadeIsTheFormula(t *testing.T) {
	for _, h := range []time.Duration{1, 1000, 1024, time.Microsecond * 1024, time.Second, 5 * time.Second, 10 * time.Second, time.Hour} {
		for n := range 4 * grains {
			for _, d := range []time.Duration{time.Duration(n) * grain(h), time.Duration(n)*grain(h) + 1} {
				if got, want := fade(d, h), math.Exp2(-float64(d)/float64(h)); got != want {
					t.Fatalf("fade(%d, %d) = %v, want %v", d, h, got, want)
				}
			}
		}
	}
	if got := fade(5000*10*time.Second, 10*time.Second); got != 0 {
		t.Errorf("after 5,000 half-lives %v are left, want 0", got)
	}
}
