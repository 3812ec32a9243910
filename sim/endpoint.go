package sim

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/limit"
)

// Latency draws how long an answer takes.
type Latency func(rnd *rand.Rand) time.Duration

// Fixed takes always as long.
func Fixed(d time.Duration) Latency { return func(*rand.Rand) time.Duration { return d } }

// z99 and z999 are the standard normal quantiles of 0.99 and 0.999.
const (
	z99  = 2.3263478740408408
	z999 = 3.0902323061678132
)

// LogNormal has the mean and the p99 given; p99/mean must be at least 1 and below exp(z99^2/2),
// 14.9, else no log-normal has them.
func LogNormal(mean, p99 time.Duration) Latency {
	r := math.Log(float64(p99) / float64(mean)) // = z99*sigma - sigma^2/2
	sigma := z99 - math.Sqrt(z99*z99-2*r)
	return logNormal(math.Log(float64(mean))-sigma*sigma/2, sigma)
}

// LogNormalMedian has the median and the p99.9 given, which must be above the median.
func LogNormalMedian(median, p999 time.Duration) Latency {
	return logNormal(math.Log(float64(median)), math.Log(float64(p999)/float64(median))/z999)
}

func logNormal(mu, sigma float64) Latency {
	return func(rnd *rand.Rand) time.Duration {
		return time.Duration(math.Exp(mu + sigma*rnd.NormFloat64()))
	}
}

// Quantile is one point of a measured distribution: the share P of answers takes at most At.
type Quantile struct {
	P  float64
	At time.Duration
}

// Quantiles interpolates between measured points, logarithmically: sorted by P, the first at 0
// and the last at 1, each At above 0.
func Quantiles(q []Quantile) Latency {
	return func(rnd *rand.Rand) time.Duration {
		u := rnd.Float64()
		i, _ := slices.BinarySearchFunc(q, u, func(x Quantile, u float64) int {
			if x.P <= u {
				return -1
			}
			return 1
		})
		if i == 0 || i == len(q) {
			return q[min(i, len(q)-1)].At
		}
		a, b := q[i-1], q[i]
		part := (u - a.P) / (b.P - a.P)
		return time.Duration(float64(a.At) * math.Pow(float64(b.At)/float64(a.At), part))
	}
}

// Samples draws one of the measured, each as likely.
func Samples(measured []time.Duration) Latency {
	return func(rnd *rand.Rand) time.Duration { return measured[rnd.IntN(len(measured))] }
}

// Endpoint is how one subscription's receiver behaves.
type Endpoint struct {
	Latency  Latency // of its answers; nil: at once
	Errors   float64 // share of answers that are 500
	Lost     float64 // share of answers that are lost after the effect: the sender sees a timeout
	Throttle *Throttle
	Phases   []Phase // the first whose span has the instant rules
}

// Throttle answers 429 to what exceeds a rate, with the seconds until it would pass as Retry-After,
// or without one.
type Throttle struct {
	Rate  limit.Rate
	Quiet bool // no Retry-After
}

// Phase is how an endpoint behaves in a span.
type Phase struct {
	Span
	Kind  PhaseKind
	After time.Duration // Fails: how long the answer takes; Slows: added to the latency
}

// PhaseKind is a kind of trouble.
type PhaseKind uint8

const (
	Fails     PhaseKind = iota + 1 // 500, after Phase.After
	Slows                          // answers later by Phase.After
	BlackHole                      // accepts and never answers
	Rejects                        // 422: the message is wrong
	Gone                           // 410
)

// Server is a receiver of limited capacity, which lanes may share: each of its workers serves one
// request at a time, in order of arrival, and goes on serving those that nobody waits for any more.
type Server struct{ Workers int }

// pool is a Server as it runs: when each worker is free.
type pool []time.Duration

func (p pool) Len() int           { return len(p) }
func (p pool) Less(i, j int) bool { return p[i] < p[j] }
func (p pool) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *pool) Push(any)          { panic("sim: a server has its workers from the start") }
func (p *pool) Pop() any          { panic("sim: a server keeps its workers") }

// serve takes the worker that is free first and returns how long the request waits and is served.
func (p pool) serve(now, work time.Duration) time.Duration {
	done := max(now, p[0]) + work
	p[0] = done
	heap.Fix(&p, 0)
	return done - now
}

// answer is what comes back of an attempt.
type answer struct {
	after  time.Duration
	result engine.Result
	effect bool // the receiver did what the message asks
}

// ask draws the answer to an attempt that starts now.
func (l *lane) ask(now time.Duration) answer {
	e := &l.spec.Endpoint
	var slower time.Duration
	for i := range e.Phases {
		if p := &e.Phases[i]; p.Has(now) {
			if p.Kind != Slows {
				return l.trouble(p)
			}
			slower = p.After
			break
		}
	}
	if e.Throttle != nil {
		if d := e.Throttle.Rate.Take(&l.throttle, now, 1); !d.Allowed {
			return answer{result: throttled(d.RetryIn, e.Throttle.Quiet)}
		}
	}
	return l.work(now, slower)
}

func throttled(wait time.Duration, quiet bool) engine.Result {
	r := engine.Result{Kind: engine.Throttled, Refused: true}
	if !quiet {
		r.RetryAfter = (wait + time.Second - 1).Truncate(time.Second) // whole seconds, as the header has
	}
	return r
}

func (l *lane) trouble(p *Phase) answer {
	switch p.Kind {
	case Rejects:
		return answer{after: p.After, result: engine.Result{Kind: engine.RejectedR}}
	case Gone:
		return answer{after: p.After, result: engine.Result{Kind: engine.Gone}}
	case Fails:
		if p.After < l.timeout {
			return answer{after: p.After, result: engine.Result{Kind: engine.Failed}}
		}
	}
	return answer{after: l.timeout, result: engine.Result{Kind: engine.Failed}}
}

// work lets the request be served, which the sender's timeout does not undo.
func (l *lane) work(now, slower time.Duration) answer {
	e := &l.spec.Endpoint
	took := slower
	if e.Latency != nil {
		took += e.Latency(l.rnd)
	}
	if l.server != nil {
		took = l.server.serve(now, took)
	}
	if took >= l.timeout || e.Lost > 0 && l.rnd.Float64() < e.Lost {
		return answer{after: l.timeout, result: engine.Result{Kind: engine.Failed}, effect: true}
	}
	if e.Errors > 0 && l.rnd.Float64() < e.Errors {
		return answer{after: took, result: engine.Result{Kind: engine.Failed}}
	}
	return answer{after: took, result: engine.Result{Kind: engine.OK}, effect: true}
}
