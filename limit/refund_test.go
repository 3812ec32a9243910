package limit

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRefundGivesTheTokensBackExactly(t *testing.T) {
	for _, rate := range []string{"10/s", "3/s", "10/13s", "27000/s", "1/d"} {
		r := mustParse(t, rate, 9)
		for cost := int64(1); cost <= 9; cost++ {
			var l Level
			r.SetLeft(&l, hour, 9)
			if cost < 9 {
				r.Take(&l, hour, 9-cost) // another's, which stays
			}
			before := l
			d := r.Take(&l, hour, cost)
			r.Refund(&l, hour+1, cost, d.Epoch)
			if cost < 9 && l != before {
				t.Errorf("%s: take and refund of %d: %+v became %+v", rate, cost, before, l)
			}
			if left := r.Left(&l, hour); left != cost {
				t.Errorf("%s: %d left after the refund, want %d", rate, left, cost)
			}
		}
	}
}

// Taken, not sent, given back, by several at once: all of it, in any order.
//
// Limiter case L24.
func TestRefundOfAllInFlightLeavesWhatWasThere(t *testing.T) {
	r := mustParse(t, "10/s", 20)
	var l Level
	r.Take(&l, 0, 12) // empties it to 8
	first := r.Take(&l, 200*ms, 3)
	second := r.Take(&l, 300*ms, 4)
	r.Refund(&l, 350*ms, 3, first.Epoch)
	third := r.Take(&l, 400*ms, 5)
	r.Refund(&l, 450*ms, 5, third.Epoch)
	r.Refund(&l, 500*ms, 4, second.Epoch)
	if left := r.Left(&l, 500*ms); left != 13 {
		t.Errorf("%d left, want 8 + 5 accrued", left)
	}
}

// Limiter case L24.
func TestRefundNeverFillsAboveTheBurstNorTwice(t *testing.T) {
	r := mustParse(t, "1/s", 5)
	var l Level
	d := r.Take(&l, 0, 2)
	for range 4 {
		r.Refund(&l, 0, 2, d.Epoch)
	}
	if got := grab(&r, &l, 0, 20); got != 5 {
		t.Errorf("after one take and four refunds of it %d pass, want the burst 5", got)
	}
	r.SetLeft(&l, time.Minute, 3)
	d = r.Take(&l, time.Minute, 1)
	for range 4 {
		r.Refund(&l, time.Minute, 1000, d.Epoch)
	}
	if got := grab(&r, &l, time.Minute, 20); got != 3 {
		t.Errorf("after refunds of more than was taken %d pass, want the 3 that were left", got)
	}
}

// Field case 12.
// Limiter case L24.
func TestRefundAfterTheBucketWouldHaveOverflowedIsRefused(t *testing.T) {
	r := mustParse(t, "1/s", 5)

	var l Level // take 1, refill, take B, refund 1: B + 1 at once
	d := r.Take(&l, 0, 1)
	grab(&r, &l, time.Second, 5)
	r.Refund(&l, time.Second, 1, d.Epoch)
	if r.Take(&l, time.Second, 1).Allowed {
		t.Error("a refund from before the refill let B + 1 through at once")
	}

	l = Level{} // the same just before the refill: the tat is never past
	var tickets []uint16
	for range 4 {
		tickets = append(tickets, r.Take(&l, 0, 1).Epoch)
	}
	sent := grab(&r, &l, 4*time.Second-1, 5)
	for _, epoch := range tickets {
		r.Refund(&l, 4*time.Second-1, 1, epoch)
	}
	sent += grab(&r, &l, 4*time.Second-1, 5)
	if sent > 5 {
		t.Errorf("%d sent at one instant, burst 5", sent)
	}
}

func TestRefundOfAnotherEpochDoesNothing(t *testing.T) {
	r := mustParse(t, "1/s", 5)
	var l Level
	d := r.Take(&l, 0, 1)
	r.SetLeft(&l, 0, 0)
	r.Refund(&l, 0, 1, d.Epoch)
	if left := r.Left(&l, 0); left != 0 {
		t.Errorf("%d left: a ticket from before SetLeft was refunded", left)
	}
	r.SetLeft(&l, 0, 2)
	r.Take(&l, 0, 2)
	r.Refund(&l, 0, 1, d.Epoch)
	if left := r.Left(&l, 0); left != 0 {
		t.Errorf("%d left: a ticket from before SetLeft took what a later one holds", left)
	}
	next := mustParse(t, "2/s", 5)
	r.SetLeft(&l, 0, 5)
	d = r.Take(&l, 0, 5)
	next.Change(&l, 0, &r)
	next.Refund(&l, 0, 5, d.Epoch)
	if left := next.Left(&l, 0); left != 0 {
		t.Errorf("%d left: a ticket of the old contract was refunded", left)
	}
}

// A third of a ns decides whether what is open would have overflowed.
func TestEpochEndsExactlyWhenTheOpenTakesWouldHaveFilledTheBucket(t *testing.T) {
	r := mustParse(t, "3/s", 4)
	for _, tt := range []struct {
		at   time.Duration
		ends bool
	}{{333_333_333, false}, {333_333_334, true}} {
		var l Level
		r.Take(&l, 0, 1)
		open := r.Take(&l, 1, 2) // full at 333,333,333 1/3 ns, once given back
		if d := r.Take(&l, tt.at, 1); (d.Epoch != open.Epoch) != tt.ends {
			t.Errorf("a take at %d ns ends the epoch: %v, want %v", tt.at, d.Epoch != open.Epoch, tt.ends)
		}
	}
}

// More tokens than an epoch counts: given back all the same, until the next take.
func TestRefundOfAVeryLargeCost(t *testing.T) {
	r := mustParse(t, "1000000/s", 1_000_000)
	var l Level
	d := r.Take(&l, 0, 900_000)
	r.Refund(&l, 1, 900_000, d.Epoch)
	if left := r.Left(&l, 1); left != 1_000_000 {
		t.Errorf("%d left, want all", left)
	}
	d = r.Take(&l, time.Second, 900_000)
	r.Take(&l, time.Second, 1)
	r.Refund(&l, time.Second, 900_000, d.Epoch)
	if left := r.Left(&l, time.Second); left != 99_999 {
		t.Errorf("%d left, want 99,999: the next take ended the epoch", left)
	}

	long := mustRate(t, 1, 1<<44, 1<<17) // a fill of 2^61 ns
	l = Level{}
	d = long.Take(&l, 0, 1<<17)
	for range 8 { // seven too many: a bug of the caller, which must not wrap the level
		long.Refund(&l, 0, 1<<17, d.Epoch)
	}
	if left := long.Left(&l, 0); left != 1<<17 {
		t.Errorf("%d left after eight refunds of one take, want the burst", left)
	}
}

// A denial leaves no debt, and late refunds under contention starve nobody: ten
// thousand denials a second beside a lane that gives half of its takes back, and
// still what is sent is the contract's rate.
//
// Limiter case L25.
// Limiter case L26.
func TestDenialsAndRefundsLeaveTheRateWhole(t *testing.T) {
	r := mustParse(t, "10/s", 5)
	var l Level
	sent := 0
	for i := range 100_000 {
		now := time.Duration(i) * 100 * time.Microsecond
		d := r.Take(&l, now, 1)
		if !d.Allowed {
			continue
		}
		if i%2 == 0 {
			r.Refund(&l, now+50*time.Microsecond, 1, d.Epoch)
			continue
		}
		sent++
	}
	if sent != 5+99 {
		t.Errorf("%d sent in 10 s, want 5 + 99", sent)
	}
}

// taken is one take that may be given back.
type taken struct {
	at    time.Duration
	cost  int64
	epoch uint16
	open  bool // the exact model says that it can still be given back
	back  bool
}

// ledger is what happened to one bucket, kept in full.
type ledger struct {
	n, per, b int64
	takes     []taken
}

// worst returns the largest excess over B + rT of any interval that ends with
// the last take, in 1/per of a token; what was given back does not count.
func (g *ledger) worst() int64 {
	worst, sum := int64(-1), int64(0)
	last := len(g.takes) - 1
	for i := last; i >= 0; i-- {
		x := g.takes[i]
		length := int64(g.takes[last].at - x.at)
		if length > 1<<58 {
			break // more accrues than the test can ask for
		}
		if !x.back {
			sum += x.cost
			worst = max(worst, (sum-g.b)*g.per-length*g.n)
		}
	}
	return worst
}

// Whatever is given back, and when, no interval sees more than B + rT.
func TestRefundsNeverLetMoreThanTheContractThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, g, l := smallLedger(t)
		var now time.Duration
		for range 60 {
			now += hop(t, r)
			if rapid.IntRange(0, 2).Draw(t, "op") == 0 && len(g.takes) > 0 {
				giveBack(t, r, g, l, now)
				continue
			}
			c := rapid.Int64Range(1, g.b).Draw(t, "cost")
			if d := r.Take(l, now, c); d.Allowed {
				g.takes = append(g.takes, taken{at: now, cost: c, epoch: d.Epoch})
				if w := g.worst(); w > 0 {
					t.Fatalf("at %v an interval holds %d/%d tokens too many: %+v", now, w, g.per, g.takes)
				}
			}
		}
	})
}

func smallLedger(t *rapid.T) (*Rate, *ledger, *Level) {
	g := &ledger{
		n:   rapid.Int64Range(1, 7).Draw(t, "n"),
		per: int64(rapid.SampledFrom([]time.Duration{ms, time.Second, 13 * ms}).Draw(t, "per")),
		b:   rapid.Int64Range(1, 8).Draw(t, "b"),
	}
	r, err := NewRate(g.n, time.Duration(g.per), g.b)
	if err != nil {
		t.Fatal(err)
	}
	return &r, g, new(Level)
}

// hop draws a part of a token's time, mostly.
func hop(t *rapid.T, r *Rate) time.Duration {
	return time.Duration(rapid.Int64Range(0, 4).Draw(t, "quarters") * r.one / rapid.SampledFrom([]int64{1, 4, 5}).Draw(t, "of"))
}

func giveBack(t *rapid.T, r *Rate, g *ledger, l *Level, now time.Duration) {
	x := &g.takes[rapid.IntRange(0, len(g.takes)-1).Draw(t, "which")]
	if x.back {
		return
	}
	before := *l
	r.Refund(l, now, x.cost, x.epoch)
	x.back = *l != before
}

// What can be given back is: exactly, and for as long as Level promises.
func TestRefundsGiveBackAllThatTheEpochHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, g, l := smallLedger(t)
		w := newTwin(g.n, time.Duration(g.per), g.b)
		w.tokens = big.NewRat(g.b, 1)
		base := new(big.Rat) // when the bucket were full with all open takes given back
		var now time.Duration
		for range 60 {
			now += hop(t, r)
			w.to(now)
			if rapid.IntRange(0, 2).Draw(t, "op") == 0 && len(g.takes) > 0 {
				refundBoth(t, r, g, l, w, now)
			} else if c := rapid.Int64Range(1, g.b).Draw(t, "cost"); w.tokens.Cmp(big.NewRat(c, 1)) >= 0 {
				base = g.open(base, w, now)
				w.tokens = new(big.Rat).Sub(w.tokens, big.NewRat(c, 1))
				d := r.Take(l, now, c)
				if !d.Allowed {
					t.Fatalf("at %v cost %d is denied: %+v; the exact model holds it", now, c, d)
				}
				g.takes = append(g.takes, taken{at: now, cost: c, epoch: d.Epoch, open: true})
			}
			if left := r.Left(l, now); left != w.whole() {
				t.Fatalf("at %v: %d left, want %d", now, left, w.whole())
			}
		}
	})
}

// open closes what a take at now makes impossible to give back and returns the
// base in force: the instant at which the bucket were full without the open takes.
func (g *ledger) open(base *big.Rat, w *twin, now time.Duration) *big.Rat {
	if base.Cmp(big.NewRat(int64(now), 1)) >= 0 {
		return base
	}
	for i := range g.takes {
		g.takes[i].open = false
	}
	lack := new(big.Rat).Sub(big.NewRat(w.burst, 1), w.tokens)
	return lack.Quo(lack, w.rate).Add(lack, big.NewRat(int64(now), 1))
}

func refundBoth(t *rapid.T, r *Rate, g *ledger, l *Level, w *twin, now time.Duration) {
	x := &g.takes[rapid.IntRange(0, len(g.takes)-1).Draw(t, "which")]
	if x.back || !x.open {
		return
	}
	x.back, x.open = true, false
	w.set(new(big.Rat).Add(w.tokens, big.NewRat(x.cost, 1)))
	r.Refund(l, now, x.cost, x.epoch)
}
