package limit

import (
	"slices"
	"time"
)

// MaxLog is the most that a Log admits in its window.
const MaxLog = 1_000_000

// Log is the exact sliding window: at most n in every (now-width, now], the left
// edge excluded. It remembers each take in 16 bytes until it has left, so it
// takes memory in proportion to n; NewSliding does not.
//
// The zero Log is paused. A Log is not safe for concurrent use. It remembers the
// largest now it has seen and takes an earlier one for that.
type Log struct {
	n       int64
	width   time.Duration
	entries []entry // by time; none costs 0
	next    uint16  // epoch of the next
	used    int64   // sum of their costs
	last    time.Duration
}

type entry struct {
	at    time.Duration
	cost  uint32
	epoch uint16
}

// NewLog returns an empty window: n (at most MaxLog) per width, n = 0 is paused.
// Errors are *Invalid and name the field and its rule.
func NewLog(n int64, width time.Duration) (*Log, error) {
	if err := checkWindow(n, width, MaxLog); err != nil {
		return nil, err
	}
	return &Log{n: n, width: width}, nil
}

// Take takes cost or none. A denial changes nothing. cost is at least 1; less is
// a bug of the caller and panics.
func (l *Log) Take(now time.Duration, cost int64) Decision {
	d := l.Peek(now, cost)
	if d.Allowed {
		l.entries = append(l.entries, entry{at: l.last, cost: uint32(cost), epoch: l.next})
		l.next++
		l.used += cost
	}
	return d
}

// Peek decides as Take would and takes nothing.
func (l *Log) Peek(now time.Duration, cost int64) Decision {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	if l.n == 0 {
		return Decision{Reason: Paused}
	}
	l.to(now)
	d := Decision{Remaining: max(0, l.n-l.used), ResetIn: l.resetIn()}
	switch {
	case cost > l.n:
		d.Reason = Never
	case l.used > l.n-cost:
		d.Reason = Later
		d.RetryIn = l.retryIn(cost)
	default:
		d = Decision{Allowed: true, Epoch: l.next, Remaining: d.Remaining - cost, ResetIn: l.width}
	}
	return d
}

// Refund gives the cost of one take back while it counts; epoch is that of the
// take's Decision. Call it at most once per take, before 65,535 more have
// passed. It looks from the newest take back.
func (l *Log) Refund(now time.Duration, cost int64, epoch uint16) {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	l.to(now)
	for i := len(l.entries) - 1; i >= 0; i-- {
		if e := &l.entries[i]; e.epoch == epoch {
			cost = min(cost, int64(e.cost))
			e.cost -= uint32(cost)
			l.used -= cost
			if e.cost == 0 {
				l.entries = slices.Delete(l.entries, i, i+1)
			}
			return
		}
	}
}

// Left returns what can be taken now.
func (l *Log) Left(now time.Duration) int64 {
	l.to(now)
	return max(0, l.n-l.used)
}

// Set changes limit and width. What was taken stays taken, so a change never
// refills. A wider window does not know what had left the narrower one. Errors
// are *Invalid; then nothing is changed.
func (l *Log) Set(now time.Duration, n int64, width time.Duration) error {
	if err := checkWindow(n, width, MaxLog); err != nil {
		return err
	}
	l.to(now)
	l.n, l.width = n, width
	return nil
}

// to brings l to now: what has left the window is forgotten.
func (l *Log) to(now time.Duration) {
	l.last = max(l.last, time.Duration(instant(now)))
	gone := 0
	for gone < len(l.entries) && l.entries[gone].at <= l.last-l.width {
		l.used -= int64(l.entries[gone].cost)
		gone++
	}
	l.entries = l.entries[gone:] // append copies only what is left
	if len(l.entries) == 0 {
		l.entries = nil
	}
}

// retryIn returns when enough has left for cost, which is at most n.
func (l *Log) retryIn(cost int64) time.Duration {
	used := l.used
	for _, e := range l.entries {
		if used -= int64(e.cost); used <= l.n-cost {
			return l.end(e)
		}
	}
	panic("limit: unreachable: an empty window fits a cost of at most n")
}

func (l *Log) end(e entry) time.Duration { return e.at + l.width - l.last }

// resetIn returns when nothing will count, if nothing more is taken.
func (l *Log) resetIn() time.Duration {
	if len(l.entries) == 0 {
		return 0
	}
	return l.end(l.entries[len(l.entries)-1])
}
