package limit

import (
	"math"
	"math/bits"
	"time"
)

// Level is the mutable state of one bucket, 16 bytes; it is not safe for
// concurrent use. The zero Level is a full bucket. It belongs to one Rate: go to
// another one by Rate.Change.
//
// An epoch is a span of takes whose tokens can still be given back. It ends when
// a take comes after the bucket would have been full had all of them been given
// back: from then on those tokens would have overflowed, and to give them back
// would send more than the contract allows.
type Level struct {
	tat   int64  // ns; when the bucket is full again. Paused: tokens used
	frac  uint32 // in 1/n ns, below n
	epoch uint16
	open  uint16 // tokens taken in this epoch and not given back; openMax: too many to count
}

const (
	maxNow  = 1 << 61
	openMax = math.MaxUint16
)

// instant brings now into [0, maxNow], so that no sum below overflows.
func instant(now time.Duration) int64 {
	if uint64(now) > maxNow {
		return min(max(int64(now), 0), maxNow)
	}
	return int64(now)
}

// Epoch is what a ticket remembers for Refund: that of the take it belongs to.
func (l *Level) Epoch() uint16 { return l.epoch }

// Take takes cost tokens or none. A denial changes nothing. cost is at least 1;
// less is a bug of the caller and panics.
func (r *Rate) Take(l *Level, now time.Duration, cost int64) (d Decision) {
	r.take(&d, l, instant(now), cost)
	return d
}

// take writes its answer to d, the zero Decision: passing a Decision up through
// several returns costs as much as deciding.
func (r *Rate) take(d *Decision, l *Level, at, cost int64) {
	if r.n == 0 || uint64(cost-1) >= uint64(r.burst) {
		r.special(d, l, at, cost)
		return
	}
	tat, frac := r.after(l, at, cost)
	gap := tat - at
	if gap > r.fill || gap == r.fill && frac > r.fillR {
		d.Reason = Later
		d.RetryIn = roundUp(gap-r.fill, frac > r.fillR)
		r.state(d, l.tat-at, l.frac)
		return
	}
	if r.ended(l, at) {
		l.epoch++
		l.open = 0
	}
	l.tat, l.frac = tat, frac
	l.open = uint16(min(int64(l.open)+cost, openMax))
	d.Allowed = true
	d.Epoch = l.epoch
	r.state(d, gap, frac)
}

// Peek decides as Take would and changes nothing.
func (r *Rate) Peek(l *Level, now time.Duration, cost int64) Decision {
	copied := *l
	return r.Take(&copied, now, cost)
}

// after returns where taking cost at the instant moves the tat.
func (r *Rate) after(l *Level, at, cost int64) (tat int64, frac uint32) {
	q, rem := r.one, r.oneR
	if cost != 1 {
		q, rem = r.span(cost)
	}
	if l.tat < at {
		return at + q, rem
	}
	tat, frac = l.tat+q, l.frac+rem
	if frac >= r.n {
		tat, frac = tat+1, frac-r.n
	}
	return tat, frac
}

// span returns cost*per/n as whole ns and a remainder in 1/n ns. cost is at most
// the burst, so the quotient is at most MaxFill.
func (r *Rate) span(cost int64) (int64, uint32) {
	hi, lo := bits.Mul64(uint64(cost), uint64(r.per))
	q, rem := bits.Div64(hi, lo, uint64(r.n))
	return int64(q), uint32(rem)
}

// ended reports whether a take at the instant begins a new epoch: whether the
// bucket would have been full before it without the open tokens.
func (r *Rate) ended(l *Level, at int64) bool {
	if l.tat < at || l.open == openMax {
		return true
	}
	if l.tat-int64(l.open)*(r.one+1) >= at {
		return false // without a division: a token takes less than one+1 ns
	}
	q, rem := r.span(int64(l.open))
	return l.tat-q < at || l.tat-q == at && l.frac < rem
}

// state states a bucket that is full after (gap, frac).
func (r *Rate) state(d *Decision, gap int64, frac uint32) {
	d.Remaining = r.whole(gap, frac)
	d.ResetIn = roundUp(gap, frac > 0)
}

// special answers what needs no arithmetic on instants.
func (r *Rate) special(d *Decision, l *Level, at, cost int64) {
	switch {
	case cost < 1:
		panic("limit: cost must be at least 1")
	case r.IsUnlimited():
		d.Allowed = true
		d.Epoch = l.epoch
		d.Remaining = math.MaxInt64
	case r.IsPaused():
		d.Reason = Paused
	default:
		d.Reason = Never
		gap, frac := l.gap(at)
		r.state(d, gap, frac)
	}
}

// gap returns how long until the bucket is full: 0, 0 if it is.
func (l *Level) gap(at int64) (int64, uint32) {
	if l.tat < at {
		return 0, 0
	}
	return l.tat - at, l.frac
}

// whole returns the tokens of a bucket that is full after (gap, frac), floored.
func (r *Rate) whole(gap int64, frac uint32) int64 {
	hi, lo := bits.Mul64(uint64(gap), uint64(r.n))
	lo, carry := bits.Add64(lo, uint64(frac), 0)
	hi += carry
	per := uint64(r.per)
	if hi >= per {
		return 0
	}
	var used, rem uint64
	if hi == 0 {
		used, rem = lo/per, lo%per
	} else {
		used, rem = bits.Div64(hi, lo, per)
	}
	if rem > 0 {
		used++
	}
	if used >= uint64(r.burst) {
		return 0
	}
	return int64(uint64(r.burst) - used)
}

func roundUp(ns int64, more bool) time.Duration {
	if more {
		ns++
	}
	return time.Duration(ns)
}

// Refund gives the tokens of one take back, if epoch is still the level's: the
// one that the take's Decision names. In another epoch it does nothing (see
// Level). Call it at most once per take, with that take's cost. It never fills
// above the burst.
func (r *Rate) Refund(l *Level, now time.Duration, cost int64, epoch uint16) {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	if r.n == 0 || epoch != l.epoch || l.tat < instant(now) {
		return
	}
	if l.open != openMax {
		cost = min(cost, int64(l.open))
		l.open -= uint16(cost)
	}
	q, rem := r.span(min(cost, int64(r.burst)))
	if l.frac < rem {
		l.tat, l.frac = l.tat-1, l.frac+r.n
	}
	l.tat, l.frac = l.tat-q, l.frac-rem
}

// Left returns the whole tokens: math.MaxInt64 if unlimited. If paused, it is
// what the next rate would find.
func (r *Rate) Left(l *Level, now time.Duration) int64 {
	switch {
	case r.IsUnlimited():
		return math.MaxInt64
	case r.IsPaused():
		return max(0, int64(r.burst)-l.tat)
	}
	return r.whole(l.gap(instant(now)))
}

// SetLeft sets the whole tokens, clamped to [0, B], and begins a new epoch: a
// level restored from a checkpoint.
func (r *Rate) SetLeft(l *Level, now time.Duration, n int64) {
	*l = Level{epoch: l.epoch + 1}
	if r.IsUnlimited() {
		return
	}
	used := int64(r.burst) - min(max(n, 0), int64(r.burst))
	switch {
	case r.IsPaused():
		l.tat = used
	case used > 0:
		q, rem := r.span(used)
		l.tat, l.frac = instant(now)+q, rem
	}
}

// Change moves a level from the old rate to r and keeps whole tokens: left' =
// min(left, B'). It never refills; an equal rate changes nothing. A pause keeps
// what was left, without credit for its duration. Unlimited has no end of
// tokens, so what follows it starts full.
func (r *Rate) Change(l *Level, now time.Duration, old *Rate) {
	if *r != *old {
		r.SetLeft(l, now, old.Left(l, now))
	}
}
