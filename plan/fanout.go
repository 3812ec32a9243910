package plan

import (
	"math"
	"slices"
	"time"
)

// FanOutInput asks how long a trigger takes until all of its N deliveries are
// done. Latencies of single deliveries are given by Samples, or else as
// log-normal by a median and one quantile of the tail.
//
// With BadShare above 0 one of the N goes to a pathological tenant, which with
// that probability takes Bad.
type FanOutInput struct {
	N        int
	Samples  []time.Duration
	Median   time.Duration
	Tail     time.Duration
	TailAt   float64 // which quantile Tail is, above 0.5; 0 means 0.999
	Bad      time.Duration
	BadShare float64
}

// FanOutResult compares a delivery with the fan-out, in milliseconds.
type FanOutResult struct {
	N             int           `json:"n"`
	SingleP50     float64       `json:"single_p50_ms"`
	SingleP99     float64       `json:"single_p99_ms"`
	CompletionP50 float64       `json:"completion_p50_ms"`
	CompletionP99 float64       `json:"completion_p99_ms"`
	SingleOfP50   float64       `json:"single_quantile_of_p50"`      // the completion's median is this quantile of a delivery: 0.5^(1/n)
	SingleOfP99   float64       `json:"single_quantile_of_p99"`      // 0.99^(1/n)
	P999Becomes   float64       `json:"completion_quantile_of_p999"` // a delivery's p99.9 is this quantile of the completion: 0.999^n
	Resolved      bool          `json:"resolved"`                    // false: too few samples for the completion's p99, which is then the largest
	WithBadP50    float64       `json:"with_pathological_p50_ms"`    // one of the n pathological; 0 if none was asked for
	WithBadP99    float64       `json:"with_pathological_p99_ms"`
	Curve         []FanOutPoint `json:"curve"`
}

// FanOutPoint is one quantile, in milliseconds.
type FanOutPoint struct {
	Quantile   float64 `json:"quantile"`
	Single     float64 `json:"single_ms"`
	Completion float64 `json:"completion_ms"`
	WithBad    float64 `json:"with_pathological_ms"` // 0 if none was asked for
}

// curve lists the quantiles of a FanOutResult.
var curve = []float64{
	0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999,
}

// MaxFanOut is the most deliveries of one trigger that FanOut plans for.
const MaxFanOut = 1_000_000

// FanOut computes with independent deliveries: the completion is their maximum,
// so its distribution is F(t)^n.
func FanOut(in FanOutInput) (FanOutResult, error) {
	if in.TailAt == 0 {
		in.TailAt = 0.999
	}
	if err := checkFanOut(in); err != nil {
		return FanOutResult{}, err
	}
	n := float64(in.N)
	quantile, resolved := logNormal(in), true
	if len(in.Samples) > 0 {
		quantile = empirical(in.Samples)
		resolved = math.Pow(0.99, 1/n) <= 1-1/float64(len(in.Samples))
	}
	r := FanOutResult{
		N:             in.N,
		SingleP50:     quantile(0.5),
		SingleP99:     quantile(0.99),
		SingleOfP50:   math.Pow(0.5, 1/n),
		SingleOfP99:   math.Pow(0.99, 1/n),
		P999Becomes:   math.Pow(0.999, n),
		Resolved:      resolved,
		CompletionP50: quantile(math.Pow(0.5, 1/n)),
		CompletionP99: quantile(math.Pow(0.99, 1/n)),
	}
	for _, p := range curve {
		point := FanOutPoint{Quantile: p, Single: quantile(p), Completion: quantile(math.Pow(p, 1/n))}
		if in.BadShare > 0 {
			point.WithBad = withBad(in, quantile, p)
		}
		r.Curve = append(r.Curve, point)
	}
	if in.BadShare > 0 {
		r.WithBadP50 = withBad(in, quantile, 0.5)
		r.WithBadP99 = withBad(in, quantile, 0.99)
	}
	return r, nil
}

func checkFanOut(in FanOutInput) error {
	var c check
	c.number("n", float64(in.N), 1, MaxFanOut, "must be 1 to 1000000 deliveries")
	if len(in.Samples) > 0 {
		for _, s := range in.Samples {
			if s < 0 || s > MaxTime {
				c.duration("samples", s, 0)
				break
			}
		}
	} else {
		c.duration("p50", in.Median, time.Nanosecond)
		c.duration("tail", in.Tail, time.Nanosecond)
		if in.Tail <= in.Median {
			c.fail("tail", in.Tail, "must be above the median")
		}
		c.number("tail_at", in.TailAt, 0.51, 0.999999, "must be 0.51 to 0.999999")
	}
	c.share("bad_share", in.BadShare)
	if in.BadShare > 0 {
		c.duration("bad", in.Bad, time.Nanosecond)
	}
	return c.err()
}

// logNormal returns the quantile function, in ms: median * exp(sigma * z(p)).
func logNormal(in FanOutInput) func(p float64) float64 {
	median := millis(in.Median)
	sigma := math.Log(float64(in.Tail)/float64(in.Median)) / z(in.TailAt)
	return func(p float64) float64 { return median * math.Exp(sigma*z(p)) }
}

// z is the quantile of the standard normal distribution.
func z(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// empirical returns the quantile function of samples, in ms: the least of them
// that a share p of them does not exceed.
func empirical(samples []time.Duration) func(p float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return func(p float64) float64 {
		i := int(math.Ceil(p*float64(len(sorted)))) - 1
		return millis(sorted[min(max(i, 0), len(sorted)-1)])
	}
}

// withBad returns the quantile p of the completion where one of n is pathological.
// With u = F(t) the distribution is u^(n-1) * u(1-q) before the bad latency and
// u^(n-1) * (u(1-q) + q) from there on; both rise with u, so u is found by
// halving.
func withBad(in FanOutInput, quantile func(float64) float64, p float64) float64 {
	q, others := in.BadShare, float64(in.N-1)
	before := invert(p, func(u float64) float64 { return math.Pow(u, others) * u * (1 - q) })
	if t := quantile(before); before < 1 && t < millis(in.Bad) {
		return t
	}
	after := invert(p, func(u float64) float64 { return math.Pow(u, others) * (u*(1-q) + q) })
	return max(millis(in.Bad), quantile(after))
}

// invert returns the least u in [0, 1] with rising(u) >= p, 1 if there is none.
func invert(p float64, rising func(u float64) float64) float64 {
	low, high := 0.0, 1.0
	for range 200 {
		if middle := (low + high) / 2; rising(middle) < p {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}
