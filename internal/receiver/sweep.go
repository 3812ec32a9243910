package receiver

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Transit is how long two requests may overlap at the receiver without having
// overlapped at the sender: the sender frees a slot when it has the answer, or has
// given up, and its next request can arrive before the receiver has noticed.
const Transit = 5 * time.Millisecond

// Span is the time one request was in flight at the receiver: from its arrival to
// just before the last byte of the answer was handed over, or until the client left.
type Span struct{ Start, End time.Duration }

// open is the End of a span that has not ended.
const open = time.Duration(math.MaxInt64)

// Contract is what a sender promised: in any interval of length T at most
// Burst + Tokens/Per * T attempts start, and at most Cap are in flight. Per 0 is no
// rate, Cap 0 no cap. Tokens times the length of the run in nanoseconds, and the
// number of arrivals times Per, must fit in 63 bits.
type Contract struct {
	Tokens int64
	Per    time.Duration
	Burst  int64
	Cap    int
}

// MaxInFlight returns the most requests in flight at once. Above the cap only those
// count that were in flight together for longer than Transit; with cap 0 all count.
func MaxInFlight(spans []Span, limit int) int {
	most := maxOverlap(spans, 0)
	if limit <= 0 || most <= limit {
		return most
	}
	return max(limit, maxOverlap(spans, Transit))
}

// maxOverlap returns the most spans that share one stretch of time longer than
// least. k spans do exactly when their latest start plus least is before their
// earliest end: when the spans (Start, End - least) share a point. So: sweep over
// starts and shortened ends in order, ends first at one instant. O(n log n).
func maxOverlap(spans []Span, least time.Duration) int {
	starts := make([]time.Duration, 0, len(spans))
	ends := make([]time.Duration, 0, len(spans))
	for _, s := range spans {
		if s.End-s.Start > least {
			starts = append(starts, s.Start)
			ends = append(ends, s.End-least)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	most, ended := 0, 0
	for i, start := range starts {
		for ends[ended] <= start {
			ended++
		}
		most = max(most, i+1-ended)
	}
	return most
}

// OverContract returns the most by which the arrivals of any interval exceeded
// Burst + rate * T + Cap: the bound that holds at the endpoint, where transit can
// bunch at most Cap more than the sender started. At most 0 means that the contract
// was kept; 0 is also the answer when there is no rate. Its sign is exact.
//
// The worst interval begins and ends with an arrival. With arrivals a(0..n-1) in
// order, the one from i to j exceeds by
//
//	(j - i + 1) - rate*(a(j) - a(i)) - Burst - Cap
//
// which is a term in j plus a term in i: one pass that remembers the best i so far.
// All terms are integers, scaled by Per. O(n log n) for the sorting.
func OverContract(arrivals []time.Duration, c Contract) float64 {
	if c.Per <= 0 {
		return 0
	}
	allowed := c.Burst + int64(c.Cap)
	if len(arrivals) == 0 {
		return -float64(allowed)
	}
	sorted := slices.Sorted(slices.Values(arrivals))
	g := gcd(c.Tokens, int64(c.Per))
	n, p := c.Tokens/g, int64(c.Per)/g
	best, worst := int64(math.MinInt64), int64(math.MinInt64)
	for j, a := range sorted {
		earned := n * int64(a-sorted[0])
		best = max(best, earned-int64(j)*p)
		worst = max(worst, int64(j+1)*p-earned+best)
	}
	return float64(worst-allowed*p) / float64(p)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Quantile returns the q-quantile by nearest rank: the least value that at least a
// share q of the values does not exceed. sorted must be ascending and not empty;
// q is in (0, 1].
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
