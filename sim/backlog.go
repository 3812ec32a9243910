package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// ref is one waiting delivery, 16 bytes: when it was born, and a word that holds, from the top, 42
// bits of milliseconds (its due time, else when it was parked), 11 bits of attempts made, 6 bits
// of reason and flags. The service keeps the same word beside a position, so heads here compare as
// they do there.
type ref struct {
	born time.Duration
	word uint64
}

const (
	flagDue    = 1 << iota // the stamp is a due time of its own
	flagEffect             // the receiver did it already: its answer was lost

	attemptMax   = 1<<11 - 1
	attemptShift = 9
	reasonShift  = 3
	stampShift   = 20
	belowStamp   = 1<<stampShift - 1
)

func newRef(born time.Duration, ms int64, attempt uint32, reason engine.Reason, flags uint64) ref {
	return ref{born, uint64(max(ms, 0))<<stampShift | uint64(min(attempt, attemptMax))<<attemptShift | uint64(reason)<<reasonShift | flags}
}

func (r ref) stamp() int64    { return int64(r.word >> stampShift) }
func (r ref) attempt() uint32 { return uint32(r.word >> attemptShift & attemptMax) }
func (r ref) due() bool       { return r.word&flagDue != 0 }
func (r ref) effect() uint64  { return r.word & flagEffect }

// restamped is the same without a due time of its own.
func (r ref) restamped(ms int64) ref {
	return ref{r.born, uint64(ms)<<stampShift | r.word&belowStamp&^flagDue}
}

// ms is the millisecond of an instant, rounded down; msUp rounds up.
func ms(at time.Duration) int64        { return int64(at / time.Millisecond) }
func msUp(at time.Duration) int64      { return int64((at + time.Millisecond - 1) / time.Millisecond) }
func fromMs(stamp int64) time.Duration { return time.Duration(stamp) * time.Millisecond }

// backlog is what waits on one lane: ready is first in, first out; later is a heap by due time. The
// head is the front, or the first of later if its time is smaller.
type backlog struct {
	ready ring[ref]
	later []ref
}

func (b *backlog) len() int { return b.ready.n + len(b.later) }

func (b *backlog) push(r ref) {
	if !r.due() {
		b.ready.pushBack(r)
		return
	}
	b.later = append(b.later, r)
	for i := len(b.later) - 1; i > 0; {
		parent := (i - 1) / 2
		if !earlier(b.later[i], b.later[parent]) {
			return
		}
		b.later[i], b.later[parent] = b.later[parent], b.later[i]
		i = parent
	}
}

// head returns the next to go. ok is false when nothing waits.
func (b *backlog) head() (r ref, ok bool) {
	switch {
	case b.headIsLater():
		return b.later[0], true
	case b.ready.n > 0:
		return b.ready.at(0), true
	}
	return ref{}, false
}

func (b *backlog) headIsLater() bool {
	return len(b.later) > 0 && (b.ready.n == 0 || b.later[0].stamp() < b.ready.at(0).stamp())
}

// pop takes the head out.
func (b *backlog) pop() ref {
	if !b.headIsLater() {
		return b.ready.popFront()
	}
	r, last := b.later[0], len(b.later)-1
	b.later[0] = b.later[last]
	b.later = b.later[:last]
	for i := 0; ; {
		least := 2*i + 1
		if least >= last {
			return r
		}
		if least+1 < last && earlier(b.later[least+1], b.later[least]) {
			least++
		}
		if !earlier(b.later[least], b.later[i]) {
			return r
		}
		b.later[least], b.later[i] = b.later[i], b.later[least]
		i = least
	}
}

// dueNow makes every retry due at a millisecond, all in order of acceptance: the breaker closed.
func (b *backlog) dueNow(stamp int64) {
	if len(b.later) == 0 {
		return
	}
	all := make([]ref, 0, b.len())
	for i := range b.ready.n {
		all = append(all, b.ready.at(i))
	}
	for _, r := range b.later {
		all = append(all, r.restamped(stamp))
	}
	slices.SortStableFunc(all, func(x, y ref) int { return cmp.Compare(x.born, y.born) })
	*b = backlog{}
	for _, r := range all {
		b.ready.pushBack(r)
	}
}

// takeOlder removes what was born before an instant and returns how many that were, keeping the
// order of the rest.
func (b *backlog) takeOlder(than time.Duration) (n int) {
	var keep backlog
	for i := range b.ready.n {
		if r := b.ready.at(i); r.born >= than {
			keep.push(r)
		}
	}
	for _, r := range b.later {
		if r.born >= than {
			keep.push(r)
		}
	}
	n = b.len() - keep.len()
	if n > 0 {
		*b = keep
	}
	return n
}

func earlier(x, y ref) bool {
	return x.stamp() < y.stamp() || x.stamp() == y.stamp() && x.born < y.born
}

// ring is a growing queue.
type ring[T any] struct {
	buf      []T
	start, n int
}

func (q *ring[T]) at(i int) T { return q.buf[(q.start+i)&(len(q.buf)-1)] }

func (q *ring[T]) pushBack(x T) {
	q.grow()
	q.buf[(q.start+q.n)&(len(q.buf)-1)] = x
	q.n++
}

func (q *ring[T]) pushFront(x T) {
	q.grow()
	q.start = (q.start - 1) & (len(q.buf) - 1)
	q.buf[q.start] = x
	q.n++
}

func (q *ring[T]) popFront() T {
	x := q.buf[q.start]
	q.start = (q.start + 1) & (len(q.buf) - 1)
	q.n--
	if q.n == 0 && len(q.buf) > 64 {
		*q = ring[T]{}
	}
	return x
}

func (q *ring[T]) grow() {
	if q.n < len(q.buf) {
		return
	}
	next := make([]T, max(4, 2*len(q.buf)))
	for i := range q.n {
		next[i] = q.at(i)
	}
	q.buf, q.start = next, 0
}
