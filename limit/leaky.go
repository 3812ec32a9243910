package limit

import (
	"math"
	"math/bits"
	"time"
)

// Leaky is a leaky bucket as a meter: each cost is poured in, the water leaks
// out at the rate, and what would overflow the burst is denied. (ITU-T I.371,
// annex A.) It is the mirror of Bucket, water = burst - tokens, and answers the
// same; it is for whoever thinks in what is used, not in what is left. It gives
// nothing back (Epoch is 0). A leaky bucket as a queue that is drained at a pace
// is another thing.
//
// The zero Leaky is unlimited. A Leaky is not safe for concurrent use. It
// remembers the largest now it has seen and takes an earlier one for that.
type Leaky struct {
	rate  Rate
	water int64 // whole tokens, and
	frac  int64 // more in 1/per of a token
	last  time.Duration
}

// NewLeaky returns an empty one.
func NewLeaky(r Rate) *Leaky { return &Leaky{rate: r} }

// Take pours cost in, or nothing if it would overflow. cost is at least 1; less
// is a bug of the caller and panics.
func (l *Leaky) Take(now time.Duration, cost int64) Decision {
	d := l.Peek(now, cost)
	if d.Allowed && !l.rate.IsUnlimited() {
		l.water += cost
	}
	return d
}

// Peek decides as Take would and pours nothing.
func (l *Leaky) Peek(now time.Duration, cost int64) Decision {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	switch {
	case l.rate.IsUnlimited():
		return Decision{Allowed: true, Remaining: math.MaxInt64}
	case l.rate.IsPaused():
		return Decision{Reason: Paused}
	}
	l.leak(now)
	d := Decision{Remaining: l.left(), ResetIn: l.until(0)}
	room := int64(l.rate.burst) - cost
	switch {
	case room < 0:
		d.Reason = Never
	case l.above(room):
		d.Reason = Later
		d.RetryIn = l.until(room)
	default:
		after := *l
		after.water += cost
		d = Decision{Allowed: true, Remaining: after.left(), ResetIn: after.until(0)}
	}
	return d
}

// Water returns what is in, rounded up to whole tokens; 0 if unlimited.
func (l *Leaky) Water(now time.Duration) int64 {
	l.leak(now)
	if l.frac > 0 {
		return l.water + 1
	}
	return l.water
}

// SetRate changes the contract and keeps the whole tokens that are left, as
// Rate.Change: an equal rate changes nothing.
func (l *Leaky) SetRate(now time.Duration, r Rate) {
	l.leak(now)
	if r == l.rate {
		return
	}
	left := l.left()
	l.rate, l.water, l.frac = r, 0, 0
	if !r.IsUnlimited() {
		l.water = max(0, int64(r.burst)-left)
	}
}

// leak lets out what has leaked until now.
func (l *Leaky) leak(now time.Duration) {
	passed := max(0, time.Duration(instant(now))-l.last)
	l.last += passed
	if l.rate.n == 0 || l.water == 0 && l.frac == 0 {
		return
	}
	hi, lo := bits.Mul64(uint64(passed), uint64(l.rate.n))
	per := uint64(l.rate.per)
	if hi >= per {
		l.water, l.frac = 0, 0
		return
	}
	q, rem := bits.Div64(hi, lo, per)
	if q > uint64(l.water) {
		l.water, l.frac = 0, 0
		return
	}
	l.water -= int64(q)
	if l.frac -= int64(rem); l.frac < 0 {
		l.water, l.frac = l.water-1, l.frac+l.rate.per
	}
	if l.water < 0 {
		l.water, l.frac = 0, 0
	}
}

// above reports whether there is more water than level.
func (l *Leaky) above(level int64) bool {
	return l.water > level || l.water == level && l.frac > 0
}

// left returns the whole tokens that fit.
func (l *Leaky) left() int64 {
	if l.rate.IsUnlimited() {
		return math.MaxInt64
	}
	left := int64(l.rate.burst) - l.water
	if l.frac > 0 {
		left--
	}
	return max(0, left)
}

// until returns the least wait after which the water is down to level, 0 if it
// is: (water - level + frac/per) * per/n, rounded up.
func (l *Leaky) until(level int64) time.Duration {
	if !l.above(level) {
		return 0
	}
	hi, lo := bits.Mul64(uint64(l.water-level), uint64(l.rate.per))
	lo, carry := bits.Add64(lo, uint64(l.frac), 0)
	q, rem := bits.Div64(hi+carry, lo, uint64(l.rate.n))
	return roundUp(int64(q), rem > 0)
}
