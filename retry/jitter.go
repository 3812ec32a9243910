package retry

import "time"

// Jitter spreads the delays of the quick scale. The zero value is the shipped
// one; the others are there to be compared with it. w is QuickBase * 2^n, n from
// 0. (M. Brooker, Exponential Backoff and Jitter, AWS, 2015.)
type Jitter uint8

const (
	FullJitter         Jitter = iota // uniform(0, w)
	EqualJitter                      // w/2 + uniform(0, w/2)
	DecorrelatedJitter               // uniform(QuickBase, 3 * the delay before), which is QuickBase before the first
	NoJitter                         // w
)

// maxWalk bounds the draws of one decorrelated delay.
const maxWalk = 64

// delay returns the delay before the retry after n others, within [0, MaxDelay].
//
// A Schedule remembers no delay. So a decorrelated one draws those before it
// anew: each delay has the distribution that it should have, but those of one
// delivery do not depend on each other.
func (j Jitter) delay(base time.Duration, n int64, rnd Rand) time.Duration {
	w := doubled(base, n, MaxDelay)
	switch j {
	case EqualJitter:
		return scale(w, 0.5+rnd.Float64()/2)
	case DecorrelatedJitter:
		return decorrelated(base, n, rnd)
	case NoJitter:
		return w
	}
	return scale(w, rnd.Float64())
}

func decorrelated(base time.Duration, n int64, rnd Rand) time.Duration {
	base = min(base, MaxDelay)
	d := base
	for range min(n, maxWalk-1) + 1 {
		d = base + scale(min(3*d, MaxDelay)-base, rnd.Float64())
	}
	return d
}
