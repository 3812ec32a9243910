package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twin is the bucket of the textbook, in exact rationals: it counts tokens, has
// no arrival time and shares nothing with the code under test.
type twin struct {
	rate   *big.Rat // tokens per ns
	burst  int64
	tokens *big.Rat
	last   time.Duration
}

func newTwin(n int64, per time.Duration, b int64) *twin {
	return &twin{rate: big.NewRat(n, int64(per)), burst: b, tokens: big.NewRat(b, 1)}
}

func (w *twin) to(now time.Duration) {
	gained := new(big.Rat).Mul(w.rate, big.NewRat(int64(now-w.last), 1))
	w.last = now
	w.set(gained.Add(gained, w.tokens))
}

func (w *twin) set(tokens *big.Rat) {
	if full := big.NewRat(w.burst, 1); tokens.Cmp(full) > 0 {
		tokens = full
	}
	w.tokens = tokens
}

// until returns the least whole ns after which there are n tokens.
func (w *twin) until(n *big.Rat) time.Duration {
	lack := new(big.Rat).Sub(n, w.tokens)
	if lack.Sign() <= 0 {
		return 0
	}
	lack.Quo(lack, w.rate)
	up := new(big.Int).Add(lack.Num(), lack.Denom())
	up.Sub(up, big.NewInt(1)).Div(up, lack.Denom())
	return time.Duration(up.Int64())
}

func (w *twin) whole() int64 { return new(big.Int).Div(w.tokens.Num(), w.tokens.Denom()).Int64() }

func (w *twin) take(now time.Duration, cost int64, keep bool) Decision {
	w.to(now)
	before := w.tokens
	var d Decision
	switch c := big.NewRat(cost, 1); {
	case cost > w.burst:
		d.Reason = Never
	case w.tokens.Cmp(c) < 0:
		d.Reason, d.RetryIn = Later, w.until(c)
	default:
		d.Allowed = true
		w.tokens = new(big.Rat).Sub(w.tokens, c)
	}
	d.Remaining = w.whole()
	d.ResetIn = w.until(big.NewRat(w.burst, 1))
	if !keep {
		w.tokens = before
	}
	return d
}

func drawRate(t *rapid.T) Rate {
	n, per, b := drawContract(t)
	r, err := NewRate(n, per, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drawContract draws from the whole range, over all magnitudes, and from the
// contracts that people write.
func drawContract(t *rapid.T) (n int64, per time.Duration, b int64) {
	if rapid.Bool().Draw(t, "usual") {
		n = rapid.SampledFrom([]int64{1, 3, 7, 10, 100, 27_000, 999_983}).Draw(t, "n")
		per = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 13 * time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "per")
		b = rapid.SampledFrom([]int64{1, 2, 5, 40, 18_000}).Draw(t, "b")
		return n, per, b
	}
	n = magnitude(t, "n", 1, MaxTokens)
	per = time.Duration(magnitude(t, "per", int64(MinPeriod), int64(MaxPeriod)))
	most := new(big.Int).Mul(big.NewInt(int64(MaxFill)), big.NewInt(n))
	most.Div(most, big.NewInt(int64(per)))
	limit := int64(MaxTokens)
	if most.IsInt64() {
		limit = min(limit, most.Int64())
	}
	return n, per, magnitude(t, "b", 1, limit)
}

// magnitude draws a number whose size in bits is uniform.
func magnitude(t *rapid.T, name string, low, high int64) int64 {
	top := rapid.Float64Range(math.Log(float64(low)), math.Log(float64(high))).Draw(t, name+"Log")
	return min(max(rapid.Int64Range(1, max(1, int64(math.Exp(top)))).Draw(t, name), low), high)
}

// step draws how far to go on: nothing, a hair, the promised wait or a hair
// before it, some of the time to full, or a year.
func step(t *rapid.T, r *Rate, last Decision) time.Duration {
	fill := max(1, r.fill/max(1, int64(r.burst))*4)
	switch rapid.IntRange(0, 6).Draw(t, "step") {
	case 0, 1:
		return 0
	case 2:
		return time.Duration(rapid.Int64Range(1, 3).Draw(t, "hair"))
	case 3:
		return last.RetryIn
	case 4:
		return max(0, last.RetryIn-1)
	case 5:
		return time.Duration(rapid.Int64Range(0, fill).Draw(t, "some"))
	default:
		return rapid.SampledFrom([]time.Duration{last.ResetIn, max(0, last.ResetIn-1), 366 * 24 * time.Hour}).Draw(t, "far")
	}
}

// cost draws from 1 to a little above the burst.
func cost(t *rapid.T, burst int64) int64 {
	switch rapid.IntRange(0, 5).Draw(t, "size") {
	case 0:
		return rapid.Int64Range(1, burst+2).Draw(t, "cost")
	case 1:
		return max(1, burst/2)
	case 2:
		return burst
	default:
		return 1
	}
}

// Every field of every decision equals exact arithmetic, over all ranges, with
// restores and changes of the contract between.
//
// Limiter case L12.
// Limiter case L15.
func TestLevelEqualsExactArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, per, b := drawContract(t)
		r, err := NewRate(n, per, b)
		if err != nil {
			t.Fatal(err)
		}
		w, l := newTwin(n, per, b), Level{}
		var now time.Duration
		var last Decision
		for range 300 {
			now = min(now+step(t, &r, last), 1<<60)
			switch rapid.IntRange(0, 30).Draw(t, "op") {
			case 0:
				left := rapid.Int64Range(-1, b+1).Draw(t, "left")
				r.SetLeft(&l, now, left)
				w.to(now)
				w.tokens = big.NewRat(min(max(left, 0), b), 1)
			case 1:
				n, per, b = drawContract(t)
				old := r
				if r, err = NewRate(n, per, b); err != nil {
					t.Fatal(err)
				}
				r.Change(&l, now, &old)
				w.to(now)
				if r != old {
					w.rate, w.burst = big.NewRat(n, int64(per)), b
					w.set(big.NewRat(w.whole(), 1))
				}
			default:
				last = takeBoth(t, &r, &l, w, now)
			}
		}
	})
}

func takeBoth(t *rapid.T, r *Rate, l *Level, w *twin, now time.Duration) Decision {
	c := cost(t, r.Burst())
	before := *l
	peek := r.Peek(l, now, c)
	if *l != before {
		t.Fatalf("at %v: Peek changed the level from %+v to %+v", now, before, *l)
	}
	got := r.Take(l, now, c)
	if got != peek {
		t.Fatalf("at %v: Take(%d) = %+v, Peek said %+v", now, c, got, peek)
	}
	if !got.Allowed && *l != before {
		t.Fatalf("at %v: a denial changed the level from %+v to %+v", now, before, *l)
	}
	want := w.take(now, c, true)
	want.Epoch = got.Epoch
	if got != want {
		t.Fatalf("at %v, %s burst %d: Take(%d) = %+v, want %+v", now, r.String(), r.Burst(), c, got, want)
	}
	if left := r.Left(l, now); left != got.Remaining {
		t.Fatalf("at %v: Left %d, Remaining %d", now, left, got.Remaining)
	}
	checkPromise(t, r, l, now, c, got)
	return got
}

// checkPromise holds a denial to its word: the same cost passes after RetryIn
// and not 1 ns earlier.
func checkPromise(t *rapid.T, r *Rate, l *Level, now time.Duration, c int64, d Decision) {
	if (d.RetryIn > 0) != (d.Reason == Later) {
		t.Fatalf("RetryIn %v with reason %v", d.RetryIn, d.Reason)
	}
	if d.Reason != Later || now+d.RetryIn > maxNow {
		return
	}
	if !r.Peek(l, now+d.RetryIn, c).Allowed {
		t.Fatalf("at %v: cost %d is denied after the promised %v", now, c, d.RetryIn)
	}
	if r.Peek(l, now+d.RetryIn-1, c).Allowed {
		t.Fatalf("at %v: cost %d passes before the promised %v", now, c, d.RetryIn)
	}
}
