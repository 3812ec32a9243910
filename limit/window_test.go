package limit

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// window is what Window and Log have in common.
type window interface {
	Take(now time.Duration, cost int64) Decision
	Peek(now time.Duration, cost int64) Decision
	Refund(now time.Duration, cost int64, epoch uint16)
	Left(now time.Duration) int64
	Set(now time.Duration, n int64, width time.Duration) error
}

func must[W any](w W, err error) W {
	if err != nil {
		panic(err)
	}
	return w
}

// windows are one of each kind, 10 a second.
func windows() map[string]window {
	return map[string]window{
		"fixed":   must(NewFixed(10, time.Second)),
		"sliding": must(NewSliding(10, time.Second, 10)),
		"log":     must(NewLog(10, time.Second)),
	}
}

type taking struct {
	at      time.Duration
	cost    int64
	reason  Reason
	left    int64
	retryIn time.Duration
}

func play(t *testing.T, w window, script []taking) {
	t.Helper()
	for i, s := range script {
		d := w.Take(s.at, s.cost)
		if d.Allowed != (s.reason == Passed) || d.Reason != s.reason || d.Remaining != s.left || d.RetryIn != s.retryIn {
			t.Fatalf("step %d at %v: %+v, want %+v", i, s.at, d, s)
		}
	}
}

// 120 a minute, counted by calendar minutes, is 240 within 0.2 s.
//
// Limiter case L28.
func TestFixedWindowLetsTwiceThroughAroundABoundary(t *testing.T) {
	w := must(NewFixed(120, time.Minute))
	play(t, w, []taking{
		{59_900 * time.Millisecond, 120, Passed, 0, 0},
		{59_900 * time.Millisecond, 1, Later, 0, 100 * time.Millisecond},
		{time.Minute - 1, 1, Later, 0, 1},
		{time.Minute, 1, Passed, 119, 0},
		{60_100 * time.Millisecond, 119, Passed, 0, 0},
		{60_100 * time.Millisecond, 1, Later, 0, 59_900 * time.Millisecond},
	})
}

// The left edge of (now-w, now] is outside.
func TestLogExcludesTheLeftEdge(t *testing.T) {
	play(t, must(NewLog(3, time.Second)), []taking{
		{0, 1, Passed, 2, 0},
		{500 * time.Millisecond, 2, Passed, 0, 0},
		{time.Second - 1, 1, Later, 0, 1},
		{time.Second, 1, Passed, 0, 0},
		{time.Second, 2, Later, 0, 500 * time.Millisecond},
		{1499 * time.Millisecond, 3, Later, 0, 501 * time.Millisecond},
		{1500 * time.Millisecond, 2, Passed, 0, 0},
	})
}

// Slots of 250 ms, five of which count.
func TestSlidingCountsWholeSlots(t *testing.T) {
	play(t, must(NewSliding(4, time.Second, 4)), []taking{
		{100 * time.Millisecond, 3, Passed, 1, 0},
		{300 * time.Millisecond, 1, Passed, 0, 0},
		{1100 * time.Millisecond, 1, Later, 0, 150 * time.Millisecond}, // an exact window has room
		{1250 * time.Millisecond, 3, Passed, 0, 0},
		{1499 * time.Millisecond, 1, Later, 0, time.Millisecond},
		{1500 * time.Millisecond, 1, Passed, 0, 0},
	})
}

// Limiter case L20.
// Limiter case L21.
func TestWindowsTellNeverFromLater(t *testing.T) {
	for name, w := range windows() {
		d := w.Take(0, 11)
		if d.Allowed || d.Reason != Never || d.RetryIn != 0 || d.Remaining != 10 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// What is denied is not counted: who keeps asking gets in as soon as who waits.
//
// Limiter case L31.
func TestWindowsDoNotCountDenials(t *testing.T) {
	for name, w := range windows() {
		w.Take(0, 10)
		d := w.Take(1, 1)
		for at := time.Duration(1); at < time.Second; at += time.Millisecond {
			if w.Take(at, 1).Allowed {
				t.Fatalf("%s: allowed at %v", name, at)
			}
		}
		if !w.Take(1+d.RetryIn, 10).Allowed {
			t.Errorf("%s: denied at the promised instant", name)
		}
	}
}

// What has left the window is forgotten before it is counted.
//
// Limiter case L29.
func TestWindowsForgetBeforeTheyCount(t *testing.T) {
	for name, w := range windows() {
		w.Take(0, 10)
		if d := w.Take(time.Hour, 10); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestWindowsOfLimitZeroArePaused(t *testing.T) {
	for name, w := range windows() {
		if err := w.Set(0, 0, time.Second); err != nil {
			t.Fatal(err)
		}
		d := w.Take(time.Hour, 1)
		w.Refund(time.Hour, 1, d.Epoch)
		if d.Allowed || d.Reason != Paused || d.RetryIn != 0 || w.Left(time.Hour) != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
	var w Window
	var l Log
	if w.Take(1, 1).Reason != Paused || l.Take(1, 1).Reason != Paused || w.Left(1) != 0 || l.Left(1) != 0 {
		t.Error("a zero window is not paused")
	}
}

// Limiter case L64.
// Limiter case L65.
func TestWindowsNeverRefillByAChange(t *testing.T) {
	for name, w := range windows() {
		w.Take(0, 8)
		for _, c := range []struct {
			n     int64
			width time.Duration
			left  int64
		}{{5, time.Second, 0}, {10, time.Second, 2}, {10, time.Minute, 2}, {100, time.Minute, 92}, {0, time.Minute, 0}, {9, time.Minute, 1}} {
			if err := w.Set(0, c.n, c.width); err != nil {
				t.Fatal(err)
			}
			if left := w.Left(0); left != c.left {
				t.Errorf("%s: %d per %v: %d left, want %d", name, c.n, c.width, left, c.left)
			}
		}
	}
}

func TestWindowRefusals(t *testing.T) {
	fixed := func(n int64, w time.Duration) error { _, err := NewFixed(n, w); return err }
	sliding := func(parts int) error { _, err := NewSliding(1, time.Second, parts); return err }
	exact := func(n int64) error { _, err := NewLog(n, time.Second); return err }
	for _, c := range []struct {
		err   error
		field string
	}{
		{fixed(-1, time.Second), "limit"}, {fixed(MaxTokens+1, time.Second), "limit"},
		{fixed(1, 0), "window"}, {fixed(1, -time.Second), "window"}, {fixed(1, MaxPeriod+1), "window"},
		{sliding(0), "parts"}, {sliding(MaxParts + 1), "parts"},
		{exact(MaxLog + 1), "limit"},
		{must(NewLog(1, time.Second)).Set(0, 1, 0), "window"},
		{must(NewFixed(1, time.Second)).Set(0, -1, time.Second), "limit"},
	} {
		var invalid *Invalid
		if !errors.As(c.err, &invalid) || invalid.Field != c.field {
			t.Errorf("%v, want an error of %s", c.err, c.field)
		}
	}
}

// pass is one take of a history.
type pass struct {
	at    time.Duration
	cost  int64
	epoch uint16
}

// naive counts a history by hand.
type naive []pass

// within sums what was taken in (after, until].
func (h naive) within(after, until time.Duration) (sum int64) {
	for _, e := range h {
		if e.at > after && e.at <= until {
			sum += e.cost
		}
	}
	return sum
}

// rules say of each kind of window whether a decision is wrong, by its history.
// The sliding one is held from both sides: it denies whatever an exact window
// denies, and admits whatever an exact window admits that is a slot wider.
var rules = map[string]func(d Decision, h naive, now, width, slot time.Duration, room int64) bool{
	"fixed": func(d Decision, h naive, now, width, _ time.Duration, room int64) bool {
		return d.Allowed != (h.within(now-now%width-1, now) <= room)
	},
	"log": func(d Decision, h naive, now, width, _ time.Duration, room int64) bool {
		return d.Allowed != (h.within(now-width, now) <= room)
	},
	"sliding": func(d Decision, h naive, now, width, slot time.Duration, room int64) bool {
		return d.Allowed && h.within(now-width, now) > room || !d.Allowed && h.within(now-width-slot, now) <= room
	},
}

// A window's answer follows from its history; what is promised holds, and a
// nanosecond earlier does not.
//
// Limiter case L1.
// Limiter case L28.
// Limiter case L30.
// Limiter case L55.
func TestWindowsAgainstNaiveCounts(t *testing.T) {
	const n = 7
	for kind, wrong := range rules {
		rapid.Check(t, func(t *rapid.T) {
			width := time.Duration(rapid.Int64Range(int64(MinPeriod), int64(MinPeriod)+50).Draw(t, "width"))
			parts := rapid.IntRange(1, 12).Draw(t, "parts")
			w := map[string]window{"fixed": must(NewFixed(n, width)), "sliding": must(NewSliding(n, width, parts)), "log": must(NewLog(n, width))}[kind]
			var history naive
			var now time.Duration
			for range rapid.IntRange(1, 40).Draw(t, "steps") {
				now += time.Duration(rapid.Int64Range(0, int64(width)/2).Draw(t, "wait"))
				if len(history) > 0 && rapid.IntRange(0, 5).Draw(t, "refund") == 0 {
					i := rapid.IntRange(0, len(history)-1).Draw(t, "which")
					w.Refund(now, history[i].cost, history[i].epoch)
					history = slices.Delete(history, i, i+1)
				}
				cost := rapid.Int64Range(1, n).Draw(t, "cost")
				peek := w.Peek(now, cost)
				early := now - time.Duration(rapid.Int64Range(0, int64(width)).Draw(t, "early"))
				d := w.Take(early, cost) // the largest now counts
				if d != peek || wrong(d, history, now, width, part(width, parts), n-cost) {
					t.Fatalf("%v in %d at %v, cost %d: %+v, peek %+v, after %v", width, parts, now, cost, d, peek, history)
				}
				if d.Allowed {
					history = append(history, pass{now, cost, d.Epoch})
				}
				now = keepsPromise(t, w, d, now, cost, n)
			}
		})
	}
}

// keepsPromise goes to the promised instant, if there is one, and returns it.
func keepsPromise(t *rapid.T, w window, d Decision, now time.Duration, cost, n int64) time.Duration {
	if d.Remaining < 0 || d.Remaining > n || d.RetryIn < 0 || (d.RetryIn > 0) != (d.Reason == Later) {
		t.Fatalf("%+v", d)
	}
	if d.Reason == Later {
		if w.Peek(now+d.RetryIn-1, cost).Allowed {
			t.Fatalf("allowed before the promised instant: %+v", d)
		}
		if now += d.RetryIn; !w.Peek(now, cost).Allowed {
			t.Fatalf("denied at the promised instant: %+v", d)
		}
	}
	return now
}

// ResetIn is the least wait until nothing counts.
func TestWindowsResetWhenPromised(t *testing.T) {
	for name, w := range windows() {
		w.Take(0, 1)
		w.Take(130*time.Millisecond, 3)
		d := w.Take(370*time.Millisecond, 2)
		end := 370*time.Millisecond + d.ResetIn
		if w.Left(end-1) == 10 || w.Left(end) != 10 || w.Peek(end, 11).ResetIn != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Memory does not grow by takes that are given back.
func TestLogForgetsWhatIsGivenBack(t *testing.T) {
	l := must(NewLog(3, time.Hour))
	last := l.Take(0, 1)
	for now := time.Duration(1); now < 10_000; now++ {
		d := l.Take(now, 1)
		l.Refund(now, 1, last.Epoch)
		last = d
	}
	if len(l.entries) != 1 || l.Left(10_000) != 2 {
		t.Errorf("%d entries, %d left", len(l.entries), l.Left(10_000))
	}
}
