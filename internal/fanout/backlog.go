package fanout

import (
	"cmp"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// ref is one waiting delivery, 16 bytes: its position, and a word that holds, from the
// top, 42 bits of anchored wall milliseconds (its due time, else when it was parked), 12
// bits of attempts made, 6 bits of reason and 2 flags.
type ref struct {
	pos  journal.Position
	word uint64
}

const (
	flagRecorded = 1 << iota // OUTCOMES knows it: its next attempt is claimed first
	flagDue                  // the stamp is a due time of its own
	attemptMax   = 1<<12 - 1
)

func newRef(pos journal.Position, ms int64, attempt uint32, reason engine.Reason, flags uint64) ref {
	return ref{pos, uint64(max(ms, 0))<<20 | uint64(min(attempt, attemptMax))<<8 | uint64(reason)<<2 | flags}
}

func (r ref) stamp() int64           { return int64(r.word >> 20) }
func (r ref) attempt() uint32        { return uint32(r.word >> 8 & attemptMax) }
func (r ref) reason() engine.Reason  { return engine.Reason(r.word >> 2 & 0x3f) }
func (r ref) recorded() bool         { return r.word&flagRecorded != 0 }
func (r ref) due() bool              { return r.word&flagDue != 0 }
func (r ref) restamped(ms int64) ref { return ref{r.pos, uint64(ms)<<20 | r.word&(1<<20-1)&^flagDue} }

// backlog is what waits on one lane. ready is first in, first out; later is a heap by
// due time. The head is the one of the two whose time is smaller.
type backlog struct {
	ready ring
	later []ref
}

func (b *backlog) len() int { return b.ready.n + len(b.later) }

// push adds a delivery and returns its number in the ready queue (0 when it went to later).
func (b *backlog) push(r ref) uint64 {
	if r.due() {
		b.later = append(b.later, r)
		up(b.later, len(b.later)-1)
		return 0
	}
	return b.ready.pushBack(r)
}

// head returns the next to go. ok is false when nothing waits.
func (b *backlog) head() (r ref, ok bool) {
	switch {
	case b.ready.n == 0 && len(b.later) == 0:
		return ref{}, false
	case b.headIsLater():
		return b.later[0], true
	}
	return b.ready.at(0), true
}

func (b *backlog) headIsLater() bool {
	return len(b.later) > 0 && (b.ready.n == 0 || b.later[0].stamp() < b.ready.at(0).stamp())
}

func (b *backlog) pop() ref {
	if b.headIsLater() {
		r := b.later[0]
		last := len(b.later) - 1
		b.later[0] = b.later[last]
		b.later = b.later[:last]
		down(b.later, 0)
		return r
	}
	return b.ready.popFront()
}

// dueNow makes every retry due at ms, all in log order: the lane's breaker has closed.
func (b *backlog) dueNow(ms int64) {
	if len(b.later) == 0 {
		return
	}
	all := make([]ref, 0, b.len())
	for i := range b.ready.n {
		all = append(all, b.ready.at(i))
	}
	for _, r := range b.later {
		all = append(all, r.restamped(ms))
	}
	slices.SortFunc(all, func(x, y ref) int { return cmp.Compare(x.pos, y.pos) })
	b.later = nil
	b.ready.reset(all)
}

// each visits everything that waits, in no promised order.
func (b *backlog) each(visit func(ref)) {
	for i := range b.ready.n {
		visit(b.ready.at(i))
	}
	for _, r := range b.later {
		visit(r)
	}
}

// takeIf removes and returns what the test picks, keeping the order of the rest.
func (b *backlog) takeIf(pick func(ref) bool) (taken []ref) {
	var keep []ref
	for i := range b.ready.n {
		if r := b.ready.at(i); pick(r) {
			taken = append(taken, r)
		} else {
			keep = append(keep, r)
		}
	}
	later := b.later[:0]
	for _, r := range b.later {
		if pick(r) {
			taken = append(taken, r)
		} else {
			later = append(later, r)
		}
	}
	if len(taken) > 0 {
		b.ready.reset(keep)
		b.later = later
		for i := len(later)/2 - 1; i >= 0; i-- {
			down(later, i)
		}
	}
	return taken
}

func earlier(x, y ref) bool {
	return x.stamp() < y.stamp() || x.stamp() == y.stamp() && x.pos < y.pos
}

func up(h []ref, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !earlier(h[i], h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func down(h []ref, i int) {
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if r := least + 1; r < len(h) && earlier(h[r], h[least]) {
			least = r
		}
		if !earlier(h[least], h[i]) {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// ring is a growing queue. Each element has a number: first is the number of the front.
// The numbers start at 1, far enough from 0 for pushFront.
type ring struct {
	buf   []ref
	start int
	n     int
	first uint64
}

func (q *ring) at(i int) ref { return q.buf[(q.start+i)&(len(q.buf)-1)] }

func (q *ring) pushBack(r ref) uint64 {
	q.grow()
	q.buf[(q.start+q.n)&(len(q.buf)-1)] = r
	q.n++
	return q.first + uint64(q.n) - 1
}

func (q *ring) pushFront(r ref) {
	q.grow()
	q.start = (q.start - 1) & (len(q.buf) - 1)
	q.buf[q.start] = r
	q.n++
	q.first--
}

func (q *ring) popFront() ref {
	r := q.buf[q.start]
	q.start = (q.start + 1) & (len(q.buf) - 1)
	q.n--
	q.first++
	if q.n == 0 && len(q.buf) > 64 {
		q.buf, q.start = nil, 0
	}
	return r
}

// numbered returns the element with the number, if it still waits.
func (q *ring) numbered(number uint64) (*ref, bool) {
	if number < q.first || number >= q.first+uint64(q.n) {
		return nil, false
	}
	return &q.buf[(q.start+int(number-q.first))&(len(q.buf)-1)], true
}

func (q *ring) grow() {
	if q.first == 0 {
		q.first = 1 << 32
	}
	if q.n < len(q.buf) {
		return
	}
	next := make([]ref, max(4, 2*len(q.buf)))
	for i := range q.n {
		next[i] = q.at(i)
	}
	q.buf, q.start = next, 0
}

// reset replaces the content; the numbers given out before name nothing any more.
func (q *ring) reset(refs []ref) {
	first := q.first + uint64(q.n) + 1
	*q = ring{first: first}
	for _, r := range refs {
		q.pushBack(r)
	}
}
