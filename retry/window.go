package retry

import (
	"math"
	"time"
)

const (
	halfLife = 10 * time.Second
	grains   = 1024 // parts of a half-life in which time is counted
	dust     = 1e-9 // a count below it is zero
)

// Window holds the decaying counts of one lane: an event counts 1 and fades to
// a half with each half-life. It is 28 bytes, aligned to 4; the zero Window is
// empty. The retry budget reads Successes, Answers and Retries, the breaker's
// rate rule Successes and Failures (see Calls), the lane's offered rate Rate.
// The counts are those at the last Decay.
//
// Time is counted in whole grains of 1/1024 half-life (9.77 ms of 10 s), from
// the origin; what is left of a grain stays for the next step. So a million tiny
// steps fade exactly what one long step fades (multiplying a float32 by 1-1e-9
// would fade nothing), and all that happens within a grain counts in full.
//
// Error: an event is placed at the start of its grain and read at the start of
// the reader's, which is off by at most 2^(1/1024) - 1 = 0.07 % each way;
// rounding to float32 adds at most 0.02 % (two roundings of 2^-24 in a grain
// that fades 0.07 %). A count stands still at 2^24: 1.1 million events a second.
type Window struct {
	low, high uint32 // clock, in halves: an int64 would cost four bytes of padding

	Successes float32 // 2xx
	Answers   float32 // answers that are no 2xx, yet prove the endpoint alive: for the budget only
	Retries   float32 // spent and not given back
	Failures  float32
	Rate      float32 // deliveries offered
}

// Decay brings w to now. halfLife <= 0 means 10s; it must be the Budget's. The
// methods of Budget call it first.
func (w *Window) Decay(now, halfLife time.Duration) {
	h := orHalfLife(halfLife)
	passed := whole(w.clock(), now, h)
	if passed == 0 {
		return
	}
	w.setClock(w.clock() + passed)
	f := fade(passed, h)
	w.Successes = faded(w.Successes, f)
	w.Answers = faded(w.Answers, f)
	w.Retries = faded(w.Retries, f)
	w.Failures = faded(w.Failures, f)
	w.Rate = faded(w.Rate, f)
}

// Offer counts a delivery that was offered to the lane.
func (w *Window) Offer(now, halfLife time.Duration) {
	w.Decay(now, halfLife)
	w.Rate++
}

// Offered returns the offered rate in events per second: of a steady stream its
// rate, with a first-order lag of 1.44 half-lives. It changes nothing.
func (w *Window) Offered(now, halfLife time.Duration) float64 {
	h := orHalfLife(halfLife)
	return float64(w.Rate) * fade(whole(w.clock(), now, h), h) * math.Ln2 / h.Seconds()
}

// Calls returns what the breaker's rate rule counts: successes and failures,
// without the answers that count neither way.
func (w *Window) Calls() float64 { return float64(w.Successes) + float64(w.Failures) }

func (w *Window) clock() time.Duration {
	return time.Duration(uint64(w.high)<<32 | uint64(w.low))
}

func (w *Window) setClock(t time.Duration) {
	w.low, w.high = uint32(t), uint32(uint64(t)>>32)
}

func orHalfLife(h time.Duration) time.Duration {
	if h <= 0 {
		return halfLife
	}
	return h
}

func grain(h time.Duration) time.Duration { return time.Duration(max(uint64(h)/grains, 1)) }

// whole returns the time from clock to now in whole grains of h; 0 when now is
// not later.
func whole(clock, now, h time.Duration) time.Duration {
	if now <= clock {
		return 0
	}
	d, g := now-clock, grain(h)
	if d < g { // as a rule: a lane's calls come close together
		return 0
	}
	return d - time.Duration(uint64(d)%uint64(g))
}

// fade returns what is left of 1 after d: of whole grains that fill h from a
// table, which holds the same value.
func fade(d, h time.Duration) float64 {
	g := grain(h)
	n := uint64(d) / uint64(g)
	if time.Duration(n)*g != d || g*grains != h {
		return math.Exp2(-float64(d) / float64(h))
	}
	return fades[n%grains] * halves(n/grains)
}

// fades holds what is left after n grains, for every n of the first half-life.
var fades = func() (f [grains]float64) {
	for n := range f {
		f[n] = math.Exp2(-float64(n) / grains)
	}
	return f
}()

// halves returns 2^-n, or 0 where that is no normal float.
func halves(n uint64) float64 {
	const bias, mantissa = 1023, 52
	return math.Float64frombits((bias - min(n, bias)) << mantissa)
}

func faded(count float32, f float64) float32 {
	left := float64(count) * f
	if left < dust {
		return 0
	}
	return float32(left)
}
