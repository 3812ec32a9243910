// Package retry decides when a failed delivery is tried again, and whether
// there is budget for it.
//
//   - Schedule says when the next attempt is due: a quick scale with full
//     jitter, then slow intervals.
//   - Pause says how long a lane rests when its endpoint asked for it.
//   - Budget bounds the retries of one lane by its successes (Window), and what
//     goes beyond by the platform's reserve (Pool).
//
// Nothing here reads a clock or draws from a global source. now is the
// monotonic time since an origin that the caller chose once; an instant before
// the largest one seen is taken as that one. Nothing here is safe for
// concurrent use, except Schedule and Budget, which are never written to.
package retry

import (
	"math/bits"
	"time"
)

// Rand is the random source handed in: uniform in [0, 1).
// *math/rand/v2.Rand satisfies it.
type Rand interface{ Float64() float64 }

// MaxDelay bounds every delay of a Schedule, whatever its settings: 366 days.
// An instant plus MaxDelay does not overflow.
const MaxDelay = 366 * 24 * time.Hour

const (
	quickAttempts = 4
	quickBase     = 250 * time.Millisecond
	slowJitter    = 0.2
)

var slow = [...]time.Duration{
	time.Minute, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour,
}

// Schedule says when the n-th retry is due. The zero value is the shipped one.
type Schedule struct {
	QuickAttempts int             // attempts on the quick scale, the first included; 0 means 4, 1 means no quick retry
	QuickBase     time.Duration   // full jitter: uniform(0, QuickBase * 2^n), n from 0; 0 means 250ms
	Jitter        Jitter          // of the quick scale; 0 means full
	Slow          []time.Duration // empty means 1m 5m 30m 2h 5h 10h 14h 20h; the last repeats
	SlowJitter    float64         // plus or minus this share, at most 1; 0 means 0.2, negative means none
}

// Delay returns how long after a failed attempt the next one is due, within
// [0, MaxDelay]. attempts counts the attempts made so far, the first included
// (0 is taken as 1).
//
// The first QuickAttempts - 1 retries are due after uniform(0, QuickBase*2^n),
// n from 0 ("full jitter", unless Jitter says otherwise); those after them after Slow[0], Slow[1], ... With
// slowOnly the quick scale is skipped: the first failure waits Slow[0], the
// second Slow[1]. Every value of attempts is valid; the exponent is clamped
// before it shifts, so no count makes a delay wrap around.
func (s *Schedule) Delay(attempts uint32, slowOnly bool, rnd Rand) time.Duration {
	retries := int64(max(attempts, 1)) - 1 // before this one
	if slowOnly {
		return s.slow(retries, rnd)
	}
	quick := s.quickRetries()
	if retries < quick {
		return s.quick(retries, rnd)
	}
	return s.slow(retries-quick, rnd)
}

func (s *Schedule) quickRetries() int64 {
	if s.QuickAttempts == 0 {
		return quickAttempts - 1
	}
	return int64(max(s.QuickAttempts, 1)) - 1
}

func (s *Schedule) quick(n int64, rnd Rand) time.Duration {
	base := s.QuickBase
	if base <= 0 {
		base = quickBase
	}
	return s.Jitter.delay(base, n, rnd)
}

func (s *Schedule) slow(i int64, rnd Rand) time.Duration {
	list := s.Slow
	if len(list) == 0 {
		list = slow[:]
	}
	d := list[min(i, int64(len(list)-1))]
	return scale(d, 1+s.jitter()*(2*rnd.Float64()-1))
}

func (s *Schedule) jitter() float64 {
	if s.SlowJitter == 0 {
		return slowJitter
	}
	return min(max(s.SlowJitter, 0), 1)
}

// doubled returns d * 2^n, or limit if that is less. d > 0, n >= 0.
func doubled(d time.Duration, n int64, limit time.Duration) time.Duration {
	room := int64(bits.LeadingZeros64(uint64(d))) - 1 // doublings before the sign bit
	if n > room {
		return limit
	}
	return min(d<<n, limit)
}

// scale returns d * f within [0, MaxDelay].
func scale(d time.Duration, f float64) time.Duration {
	return time.Duration(min(max(float64(d)*f, 0), float64(MaxDelay)))
}
