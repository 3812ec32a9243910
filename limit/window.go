package limit

import (
	"fmt"
	"time"
)

// MaxParts is the most sub-windows of a sliding Window.
const MaxParts = 1000

// Window admits at most n in a window of time. It counts by slots of time that
// are aligned to the origin of now, so whoever wants minutes of the wall clock
// chooses an origin on one.
//
//   - A fixed window has one slot, as wide as itself: at most n in each slot, and
//     so up to 2n within an instant around a boundary.
//   - A sliding window of k parts has k+1 slots of width/k, rounded up, all of
//     which count. They cover (now-width, now] and at most one slot more. So it
//     never admits what an exact window (Log) would deny, and denies only what an
//     exact window that is wider by one slot would deny, of the same history.
//
// The zero Window is paused. A Window is not safe for concurrent use. It
// remembers the largest now it has seen and takes an earlier one for that.
type Window struct {
	n    int64
	slot time.Duration // its width
	ring []int64       // what slot i took is in ring[i % len]; the newest is at, all older are here
	at   int64
	used int64 // sum of ring
	last time.Duration
}

// NewFixed returns an empty fixed window: n per width, n = 0 is paused. Errors
// are *Invalid and name the field and its rule.
func NewFixed(n int64, width time.Duration) (*Window, error) {
	if err := checkWindow(n, width, MaxTokens); err != nil {
		return nil, err
	}
	return &Window{n: n, slot: width, ring: make([]int64, 1)}, nil
}

// NewSliding returns an empty sliding window: n per width, counted in parts (1
// to MaxParts) sub-windows; n = 0 is paused. Errors are *Invalid.
func NewSliding(n int64, width time.Duration, parts int) (*Window, error) {
	if parts < 1 || parts > MaxParts {
		return nil, &Invalid{Field: "parts", Value: fmt.Sprint(parts), Rule: "must be 1 to 1000 sub-windows"}
	}
	if err := checkWindow(n, width, MaxTokens); err != nil {
		return nil, err
	}
	return &Window{n: n, slot: part(width, parts), ring: make([]int64, parts+1)}, nil
}

func part(width time.Duration, parts int) time.Duration {
	return (width + time.Duration(parts) - 1) / time.Duration(parts)
}

func checkWindow(n int64, width time.Duration, most int64) error {
	switch {
	case n < 0 || n > most:
		return &Invalid{Field: "limit", Value: fmt.Sprint(n), Rule: fmt.Sprintf("must be 1 to %d per window, or 0 for paused", most)}
	case width < MinPeriod || width > MaxPeriod:
		return &Invalid{Field: "window", Value: fmt.Sprint(width), Rule: "must be 1ms to 366 days"}
	}
	return nil
}

// Take takes cost or none. A denial changes nothing. cost is at least 1; less is
// a bug of the caller and panics.
func (w *Window) Take(now time.Duration, cost int64) Decision {
	d := w.Peek(now, cost)
	if d.Allowed {
		w.ring[w.at%int64(len(w.ring))] += cost
		w.used += cost
	}
	return d
}

// Peek decides as Take would and takes nothing.
func (w *Window) Peek(now time.Duration, cost int64) Decision {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	if w.n == 0 {
		return Decision{Reason: Paused}
	}
	w.to(now)
	d := Decision{Remaining: w.left(), ResetIn: w.resetIn()}
	switch {
	case cost > w.n:
		d.Reason = Never
	case w.used > w.n-cost:
		d.Reason = Later
		d.RetryIn = w.retryIn(cost)
	default:
		d = Decision{Allowed: true, Epoch: uint16(w.at), Remaining: d.Remaining - cost, ResetIn: w.end(w.at)}
	}
	return d
}

// Refund gives the cost of one take back while its slot counts; epoch is that of
// the take's Decision. Call it at most once per take, before 64,000 more slots
// have begun.
func (w *Window) Refund(now time.Duration, cost int64, epoch uint16) {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	if w.n == 0 {
		return
	}
	w.to(now)
	age := int64(uint16(w.at) - epoch)
	if age >= int64(len(w.ring)) || age > w.at {
		return
	}
	slot := &w.ring[(w.at-age)%int64(len(w.ring))]
	cost = min(cost, *slot)
	*slot -= cost
	w.used -= cost
}

// Left returns what can be taken now.
func (w *Window) Left(now time.Duration) int64 {
	if w.n == 0 {
		return 0
	}
	w.to(now)
	return w.left()
}

// Set changes limit and width. What was taken stays taken, so a change never
// refills: if the width changes, it all counts as taken now. Errors are
// *Invalid; then nothing is changed.
func (w *Window) Set(now time.Duration, n int64, width time.Duration) error {
	if err := checkWindow(n, width, MaxTokens); err != nil {
		return err
	}
	if len(w.ring) == 0 {
		panic("limit: Set of a Window that NewFixed or NewSliding did not make")
	}
	w.to(now)
	w.n = n
	slot := part(width, max(1, len(w.ring)-1))
	if slot == w.slot {
		return nil
	}
	w.slot = slot
	w.at = int64(w.last / slot)
	clear(w.ring)
	w.ring[w.at%int64(len(w.ring))] = w.used
	return nil
}

// to brings w to now: what has left the window is forgotten.
func (w *Window) to(now time.Duration) {
	w.last = max(w.last, time.Duration(instant(now)))
	at := int64(w.last / w.slot)
	size := int64(len(w.ring))
	for i := max(w.at+1, at-size+1); i <= at; i++ {
		w.used -= w.ring[i%size]
		w.ring[i%size] = 0
	}
	w.at = at
}

func (w *Window) left() int64 { return max(0, w.n-w.used) }

// end returns how long slot i counts from now on.
func (w *Window) end(i int64) time.Duration {
	return time.Duration(i+int64(len(w.ring)))*w.slot - w.last
}

// oldest is the first slot that counts.
func (w *Window) oldest() int64 { return max(0, w.at-int64(len(w.ring))+1) }

// retryIn returns when enough has left for cost, which is at most n.
func (w *Window) retryIn(cost int64) time.Duration {
	i := w.oldest()
	for used := w.used; ; i++ {
		if used -= w.ring[i%int64(len(w.ring))]; used <= w.n-cost {
			return w.end(i)
		}
	}
}

// resetIn returns when nothing will count, if nothing more is taken.
func (w *Window) resetIn() time.Duration {
	if w.used == 0 {
		return 0
	}
	i := w.at
	for w.ring[i%int64(len(w.ring))] == 0 {
		i--
	}
	return w.end(i)
}
