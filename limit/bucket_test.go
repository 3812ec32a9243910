package limit

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Limiter case L1.
func TestDecreasingInstantsMintNothing(t *testing.T) {
	b := NewBucket(mustParse(t, "10/s", 2))
	rows := []row{
		{time.Second, 1, true}, {0, 1, true}, {500 * ms, 1, false}, {time.Second, 1, false},
		{1100*ms - 1, 1, false}, {0, 1, false}, {1100 * ms, 1, true}, {0, 1, false}, {1100 * ms, 1, false},
		{-hour, 1, false}, {math.MinInt64, 1, false}, {1200 * ms, 1, true}, {1100 * ms, 1, false},
	}
	for i, x := range rows {
		if d := b.Take(x.t, x.n); d.Allowed != x.ok {
			t.Errorf("row %d: Take(%v, %d) = %+v, want %v", i, x.t, x.n, d, x.ok)
		}
	}
}

// stepped is a wall clock that somebody sets, over a monotonic one that nobody
// can.
type stepped struct{ mono, wall time.Duration }

func (c *stepped) pass(d time.Duration) { c.mono += d; c.wall += d }
func (c *stepped) set(d time.Duration)  { c.wall += d }

// A driver hands in monotonic instants, so a wall clock that is set changes
// nothing; the same bucket on the wall clock is held against it.
//
// Field case 8.
// Limiter case L2.
// Limiter case L3.
// Limiter case L5.
func TestSteppingTheWallClockAdmitsAndStallsNothing(t *testing.T) {
	r := mustParse(t, "10/s", 10)
	mono, wall := NewBucket(r), NewBucket(r)
	c := stepped{mono: day, wall: 20_000 * day}
	phases := []struct {
		set, pass        time.Duration
		ask              int
		byMono, byWallIs int
	}{
		{0, 0, 100, 10, 10},               // drain
		{-hour, time.Second, 10, 10, 0},   // set back: on the wall clock a lock-out
		{hour, 0, 100, 0, 10},             // set forward: on the wall clock a burst extra
		{366 * day, 0, 100, 0, 10},        // a year
		{-366 * day, 500 * ms, 100, 5, 0}, // and back
		{0, 30 * time.Second, 100, 10, 0}, // resumed after a suspension
	}
	for i, p := range phases {
		c.set(p.set)
		c.pass(p.pass)
		if got := ask(mono, c.mono, p.ask); got != p.byMono {
			t.Errorf("phase %d: %d admitted on the monotonic clock, want %d", i, got, p.byMono)
		}
		if got := ask(wall, c.wall, p.ask); got != p.byWallIs {
			t.Errorf("phase %d: %d admitted on the wall clock, want %d", i, got, p.byWallIs)
		}
	}
}

func ask(b *Bucket, now time.Duration, n int) (passed int) {
	for range n {
		if b.Take(now, 1).Allowed {
			passed++
		}
	}
	return passed
}

// Instants may jump by a year either way, at any time: no interval holds more
// than the contract, remaining stays within [0, B], a denial changes nothing and
// no promised wait exceeds one fill.
func TestAnyStepOfTheInstantKeepsTheContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, g, _ := smallLedger(t)
		b := NewBucket(*r)
		var now, seen time.Duration
		for range 80 {
			now += hop(t, r)
			if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				now += rapid.SampledFrom([]time.Duration{-366 * day, -hour, -1, hour, 366 * day}).Draw(t, "by")
			}
			seen = max(seen, now)
			before := b.level
			c := rapid.Int64Range(1, g.b).Draw(t, "cost")
			d := b.Take(now, c)
			switch {
			case d.Allowed:
				g.takes = append(g.takes, taken{at: seen, cost: c})
				if w := g.worst(); w > 0 {
					t.Fatalf("at %v an interval holds %d/%d tokens too many", now, w, g.per)
				}
			case b.level != before:
				t.Fatalf("at %v a denial changed the level", now)
			case d.RetryIn <= 0 || d.RetryIn > time.Duration(r.fill+1):
				t.Fatalf("at %v: RetryIn %v, want within one fill, %v", now, d.RetryIn, time.Duration(r.fill))
			case !b.Peek(seen+d.RetryIn, c).Allowed:
				t.Fatalf("at %v: denied after the promised %v", now, d.RetryIn)
			default:
				seen += d.RetryIn // Peek has seen it
			}
			if d.Remaining < 0 || d.Remaining > g.b {
				t.Fatalf("at %v: %d remaining of %d", now, d.Remaining, g.b)
			}
		}
	})
}

// Many callers, each with an instant that it read some time ago: together they
// get exactly what one would.
func TestConcurrentCallersShareOneContract(t *testing.T) {
	r := mustParse(t, "1000/s", 50)
	b := NewBucket(r)
	var clock, passed, given atomic.Int64
	var wg sync.WaitGroup
	const callers, each = 8, 5000
	for i := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range each {
				now := time.Duration(clock.Add(10_000))
				stale := now - time.Duration(rnd.IntN(1_000_000))
				d := b.Take(stale, 1)
				if !d.Allowed {
					continue
				}
				if rnd.IntN(4) == 0 {
					b.Refund(now, 1, d.Epoch)
					given.Add(1)
					continue
				}
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	end := time.Duration(clock.Load())
	most := 50 + int64(end/ms)
	if got := passed.Load(); got > most {
		t.Errorf("%d sent in %v, want at most %d", got, end, most)
	}
	if got := passed.Load() + given.Load(); got < most-2 {
		t.Errorf("%d taken in %v, want at least %d", got, end, most-2)
	}
}

// Field case 11.
func TestWorkersThatShareABucketShareItsLimit(t *testing.T) {
	b := NewBucket(mustParse(t, "3/m", 3))
	b.Take(0, 3)
	var passed atomic.Int64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if b.Take(10*time.Minute+time.Duration(i*20+w)*ms, 1).Allowed {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := passed.Load(); got != 3 {
		t.Errorf("4 workers got %d through in a second, want 3", got)
	}
}

func TestBucketChangesItsContractInPlace(t *testing.T) {
	b := NewBucket(mustParse(t, "1/m", 5))
	b.Take(0, 3)
	b.SetRate(time.Second, mustParse(t, "100/s", 1000))
	if left := b.Left(time.Second); left != 2 {
		t.Errorf("%d left after the change, want 2", left)
	}
	b.SetLeft(time.Second, 0)
	if d := b.Peek(time.Second, 1); d.RetryIn != 10*ms {
		t.Errorf("from empty: %+v, want RetryIn 10ms", d)
	}
	if left := b.Left(0); left != 0 {
		t.Errorf("%d left at an earlier instant", left)
	}
	var any Bucket
	if !any.Take(0, 1_000_000).Allowed {
		t.Error("the zero Bucket denies")
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	b := NewBucket(mustParse(t, "3/s", 5))
	var now time.Duration
	if n := testing.AllocsPerRun(1000, func() {
		now += 100 * ms
		b.Refund(now, 1, b.Take(now, 2).Epoch)
		b.Peek(now, 6)
	}); n != 0 {
		t.Errorf("%v allocations a take", n)
	}
}
