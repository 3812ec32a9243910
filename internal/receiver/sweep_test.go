package receiver

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

func TestMaxInFlightIsTheMostThatOverlap(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int
		spans []Span
		want  int
	}{
		{"nothing", 0, nil, 0},
		{"one after the other", 0, []Span{{0, 10 * ms}, {10 * ms, 20 * ms}}, 1},
		{"nested", 0, []Span{{0, 30 * ms}, {10 * ms, 20 * ms}}, 2},
		{"chain: three, never more than two", 0, []Span{{0, 10 * ms}, {8 * ms, 20 * ms}, {18 * ms, 30 * ms}}, 2},
		{"still open", 0, []Span{{0, open}, {time.Hour, open}}, 2},
		{"at the cap, however short", 2, []Span{{0, 2 * ms}, {1 * ms, 3 * ms}}, 2},
		{"above the cap in transit only", 1, []Span{{0, 10 * ms}, {6 * ms, 20 * ms}}, 1},
		{"above the cap for longer", 1, []Span{{0, 10 * ms}, {4 * ms, 20 * ms}}, 2},
		{"above the cap at the edge of transit", 1, []Span{{0, 10 * ms}, {5 * ms, 20 * ms}}, 1},
	} {
		if got := MaxInFlight(c.spans, c.limit); got != c.want {
			t.Errorf("%s: %d in flight, want %d", c.name, got, c.want)
		}
	}
}

// naiveOverlap counts, at the start of each span, those that it shares more than
// least with: the latest start of any set that overlaps is the start of one of them.
func naiveOverlap(spans []Span, least time.Duration) int {
	most := 0
	for _, latest := range spans {
		n := 0
		for _, s := range spans {
			if s.Start <= latest.Start && s.End-latest.Start > least && latest.End-latest.Start > least {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestMaxOverlapEqualsCountingAtEveryStart(t *testing.T) {
	span := rapid.Custom(func(t *rapid.T) Span {
		start := time.Duration(rapid.IntRange(0, 40).Draw(t, "start"))
		return Span{start, start + time.Duration(rapid.IntRange(0, 20).Draw(t, "length"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		spans := rapid.SliceOfN(span, 0, 30).Draw(t, "spans")
		least := time.Duration(rapid.IntRange(0, 8).Draw(t, "least"))
		if got, want := maxOverlap(spans, least), naiveOverlap(spans, least); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestOverContractFindsTheWorstInterval(t *testing.T) {
	perSecond := Contract{Tokens: 10, Per: time.Second, Burst: 5, Cap: 2}
	at := func(stamps ...int) (a []time.Duration) {
		for _, s := range stamps {
			a = append(a, time.Duration(s)*ms)
		}
		return a
	}
	for _, c := range []struct {
		name     string
		contract Contract
		arrivals []time.Duration
		want     float64
	}{
		{"no rate", Contract{Cap: 2}, at(0, 0, 0, 0), 0},
		{"no arrivals", perSecond, nil, -7},
		{"one arrival", perSecond, at(500), -6},
		{"burst and bunching, exactly", perSecond, at(0, 0, 0, 0, 0, 0, 0), 0},
		{"one more", perSecond, at(0, 0, 0, 0, 0, 0, 0, 0), 1},
		{"paced at the rate", perSecond, at(0, 100, 200, 300, 400), -6},
		{"the worst is in the middle", perSecond, at(0, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 2000), 2},
		{"a fraction of a token", perSecond, at(0, 0, 0, 0, 0, 0, 0, 50), 0.5},
		{"arrivals out of order", perSecond, at(50, 0, 0, 0, 0, 0, 0, 0), 0.5},
		{"slower than one a second", Contract{Tokens: 1, Per: 10 * time.Second, Burst: 1}, at(0, 9000), 0.1},
	} {
		if got := OverContract(c.arrivals, c.contract); got != c.want {
			t.Errorf("%s: %v over, want %v", c.name, got, c.want)
		}
	}
}

// naiveOver tries every interval between two arrivals in exact rationals.
func naiveOver(arrivals []time.Duration, c Contract) *big.Rat {
	rate := big.NewRat(c.Tokens, int64(c.Per))
	var worst *big.Rat
	for _, from := range arrivals {
		for _, to := range arrivals {
			n := 0
			for _, a := range arrivals {
				if a >= from && a <= to {
					n++
				}
			}
			if to < from {
				continue
			}
			over := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(int64(to-from)))
			over.Sub(big.NewRat(int64(n)-c.Burst-int64(c.Cap), 1), over)
			if worst == nil || over.Cmp(worst) > 0 {
				worst = over
			}
		}
	}
	return worst
}

func TestOverContractEqualsTryingEveryInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamps := rapid.SliceOfN(rapid.IntRange(0, 3_000_000_000), 1, 14).Draw(t, "arrivals")
		arrivals := make([]time.Duration, len(stamps))
		for i, s := range stamps {
			arrivals[i] = time.Duration(s)
			if i > 0 && s%3 == 0 {
				arrivals[i] = arrivals[i-1] // bunched
			}
		}
		c := Contract{
			Tokens: rapid.Int64Range(1, 1000).Draw(t, "tokens"),
			Per:    time.Duration(rapid.Int64Range(1e6, 10e9).Draw(t, "per")),
			Burst:  rapid.Int64Range(1, 10).Draw(t, "burst"),
			Cap:    rapid.IntRange(0, 4).Draw(t, "cap"),
		}
		got := OverContract(arrivals, c)
		if want, _ := naiveOver(arrivals, c).Float64(); got-want > 1e-9 || want-got > 1e-9 {
			t.Fatalf("%v over, want %v", got, want)
		}
	})
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, c := range []struct {
		values []int
		q      float64
		want   int
	}{
		{[]int{7}, 0.5, 7}, {[]int{7}, 0.99, 7},
		{[]int{1, 2, 3, 4}, 0.5, 2}, {[]int{1, 2, 3}, 0.5, 2}, {[]int{1, 2, 3}, 1, 3},
		{hundred, 0.99, 99}, {hundred, 0.5, 50}, {hundred, 0.001, 1},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("Quantile(%d values, %v) = %d, want %d", len(c.values), c.q, got, c.want)
		}
	}
}

func BenchmarkOverContract(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		arrivals := make([]time.Duration, n)
		for i := range arrivals {
			arrivals[i] = time.Duration(i) * ms
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				OverContract(arrivals, Contract{Tokens: 1000, Per: time.Second, Burst: 100, Cap: 16})
			}
		})
	}
}
