package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Process is an arrival process, a pure function: it returns the instant of the n-th arrival, n
// from 0, given that of the one before it (0 for the first), or false when no more come. Chance
// comes from rnd alone. Instants never decrease.
type Process func(n uint64, last time.Duration, rnd *rand.Rand) (at time.Duration, more bool)

// Constant arrives rate times a second within the span, the first at its beginning.
func Constant(rate float64, in Span) Process {
	return func(n uint64, _ time.Duration, _ *rand.Rand) (time.Duration, bool) {
		at := in.From + seconds(float64(n)/rate)
		return at, at < in.To
	}
}

// Poisson arrives rate times a second on average within the span, each independent of all others.
func Poisson(rate float64, in Span) Process {
	return func(n uint64, last time.Duration, rnd *rand.Rand) (time.Duration, bool) {
		at := max(last, in.From) + seconds(rnd.ExpFloat64()/rate)
		return at, at < in.To
	}
}

// Burst is count arrivals at once at the beginning of the span, and again after every period in
// it; a period of 0 means once.
func Burst(count uint64, every time.Duration, in Span) Process {
	return func(n uint64, _ time.Duration, _ *rand.Rand) (time.Duration, bool) {
		round := n / count
		if round > 0 && every == 0 {
			return 0, false
		}
		at := in.From + time.Duration(round)*every
		return at, at < in.To
	}
}

// Sine is a Poisson process whose rate swings between rate*(1-swing) and rate*(1+swing), swing
// from 0 to 1, once a period, from its mean upwards. (By thinning: Lewis and Shedler, 1979.)
func Sine(rate, swing float64, period time.Duration, in Span) Process {
	top := rate * (1 + swing)
	return func(n uint64, last time.Duration, rnd *rand.Rand) (time.Duration, bool) {
		for at := max(last, in.From); at < in.To; {
			at += seconds(rnd.ExpFloat64() / top)
			phase := 2 * math.Pi * float64(at-in.From) / float64(period)
			if rnd.Float64()*top < rate*(1+swing*math.Sin(phase)) {
				return at, at < in.To
			}
		}
		return 0, false
	}
}

// OnOff arrives rate times a second while on, evenly, then rests while off, and so on.
func OnOff(rate float64, on, off time.Duration, in Span) Process {
	return func(n uint64, _ time.Duration, _ *rand.Rand) (time.Duration, bool) {
		active := seconds(float64(n) / rate)
		at := in.From + active/on*(on+off) + active%on
		return at, at < in.To
	}
}

// Trace arrives at recorded instants, which must be sorted.
func Trace(at []time.Duration) Process {
	return func(n uint64, _ time.Duration, _ *rand.Rand) (time.Duration, bool) {
		if n >= uint64(len(at)) {
			return 0, false
		}
		return at[n], true
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// source is a process of one lane as it runs.
type source struct {
	next Process
	rnd  *rand.Rand
	n    uint64
	at   time.Duration
	lane uint32
}

// advance moves to the next arrival and reports whether there is one.
func (s *source) advance() bool {
	at, more := s.next(s.n, s.at, s.rnd)
	s.n++
	s.at = max(at, s.at)
	return more
}
