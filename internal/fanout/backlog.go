package fanout

import (
	"cmp"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// ref is one waiting or dead delivery, or a run of them in HELD, 16 bytes: its position, and a
// word that holds, from the top, 42 bits of anchored wall milliseconds (its due time, else when
// it was parked or died), 11 bits of attempts made, 6 bits of reason and 3 flags. A run has its
// length in place of the attempts, which are 0: positions pos, pos+1, ...
type ref struct {
	pos  journal.Position
	word uint64
}

const (
	flagRecorded = 1 << iota // OUTCOMES knows it: its next attempt is claimed first
	flagDue                  // the stamp is a due time of its own
	flagRun                  // several
	attemptMax   = 1<<11 - 1

	attemptShift = 9
	reasonShift  = 3
	stampShift   = 20
	belowStamp   = 1<<stampShift - 1
)

func newRef(pos journal.Position, ms int64, attempt uint32, reason engine.Reason, flags uint64) ref {
	return ref{pos, uint64(max(ms, 0))<<stampShift | uint64(min(attempt, attemptMax))<<attemptShift | uint64(reason)<<reasonShift | flags}
}

func (r ref) stamp() int64          { return int64(r.word >> stampShift) }
func (r ref) field() uint32         { return uint32(r.word >> attemptShift & attemptMax) }
func (r ref) reason() engine.Reason { return engine.Reason(r.word >> reasonShift & 0x3f) }
func (r ref) recorded() bool        { return r.word&flagRecorded != 0 }
func (r ref) due() bool             { return r.word&flagDue != 0 }
func (r ref) run() bool             { return r.word&flagRun != 0 }

func (r ref) attempt() uint32 {
	if r.run() {
		return 0
	}
	return r.field()
}

// count is how many deliveries the reference stands for.
func (r ref) count() int {
	if r.run() {
		return int(r.field())
	}
	return 1
}

// restamped is the same without a due time of its own.
func (r ref) restamped(ms int64) ref {
	return ref{r.pos, uint64(ms)<<stampShift | r.word&belowStamp&^flagDue}
}

// first is the first delivery of a run, and rest what is left of the run without it.
func (r ref) first() ref {
	if !r.run() {
		return r
	}
	return newRef(r.pos, r.stamp(), 0, r.reason(), flagRecorded)
}

func (r ref) rest() ref {
	flags := uint64(flagRecorded | flagRun)
	if r.count() == 2 {
		return newRef(r.pos+1, r.stamp(), 0, r.reason(), flagRecorded)
	}
	return newRef(r.pos+1, r.stamp(), uint32(r.count()-1), r.reason(), flags)
}

// backlog is what waits on one lane. ready is first in, first out, and may hold runs; claimed
// is what has left its front because its attempt is announced already; later is a heap by
// due time. The head is the front, or the first of later if its time is smaller.
type backlog struct {
	claimed []claim
	ready   ring
	later   []ref
}

// claim is a delivery whose next attempt may start once mark is durable.
type claim struct {
	ref
	mark journal.Mark
}

// len is the number of deliveries, entries that of references.
func (b *backlog) len() int     { return len(b.claimed) + b.ready.n + b.ready.more + len(b.later) }
func (b *backlog) entries() int { return len(b.claimed) + b.ready.n + len(b.later) }

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
	front, waits := b.front()
	if b.headIsLater() {
		return b.later[0], true
	}
	return front, waits
}

// front is the first of those without a due time.
func (b *backlog) front() (ref, bool) {
	switch {
	case len(b.claimed) > 0:
		return b.claimed[0].ref, true
	case b.ready.n > 0:
		return b.ready.at(0).first(), true
	}
	return ref{}, false
}

func (b *backlog) headIsLater() bool {
	front, waits := b.front()
	return len(b.later) > 0 && (!waits || b.later[0].stamp() < front.stamp())
}

// pop takes the head out. mark is its claim's, 0 if it has none.
func (b *backlog) pop() (r ref, mark journal.Mark) {
	if b.headIsLater() {
		return b.popLater(), 0
	}
	if len(b.claimed) > 0 {
		c := b.claimed[0]
		if b.claimed = b.claimed[1:]; len(b.claimed) == 0 {
			b.claimed = nil
		}
		return c.ref, c.mark
	}
	return b.ready.popFront(), 0
}

func (b *backlog) popLater() ref {
	r := b.later[0]
	last := len(b.later) - 1
	b.later[0] = b.later[last]
	b.later = b.later[:last]
	down(b.later, 0)
	return r
}

// dueNow makes every retry due at ms, all in log order: the lane's breaker has closed. Nothing may be
// claimed.
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
	slices.SortFunc(all, func(x, y ref) int { return cmp.Compare(x.age(), y.age()) })
	b.later = nil
	b.ready.reset(all)
}

// age orders references by acceptance: what is in HELD is older than what is not.
func (r ref) age() journal.Position {
	if r.pos.Held() {
		return r.pos.Unheld()
	}
	return r.pos + 1<<62
}

// each visits everything that waits, in no promised order.
func (b *backlog) each(visit func(ref)) {
	for _, c := range b.claimed {
		visit(c.ref)
	}
	for i := range b.ready.n {
		visit(b.ready.at(i))
	}
	for _, r := range b.later {
		visit(r)
	}
}

// takeIf removes and returns what the test picks, keeping the order of the rest. Nothing may be claimed.
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
		heapify(later)
	}
	return taken
}

func earlier(x, y ref) bool {
	return x.stamp() < y.stamp() || x.stamp() == y.stamp() && x.pos < y.pos
}

func heapify(h []ref) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		down(h, i)
	}
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
	more  int // deliveries in runs beyond one a reference
	first uint64
}

func (q *ring) at(i int) ref { return q.buf[(q.start+i)&(len(q.buf)-1)] }

func (q *ring) pushBack(r ref) uint64 {
	q.grow()
	q.buf[(q.start+q.n)&(len(q.buf)-1)] = r
	q.n++
	q.more += r.count() - 1
	return q.first + uint64(q.n) - 1
}

func (q *ring) pushFront(r ref) {
	q.grow()
	q.start = (q.start - 1) & (len(q.buf) - 1)
	q.buf[q.start] = r
	q.n++
	q.first--
}

// popFront takes out the first delivery: a run is left shorter.
func (q *ring) popFront() ref {
	r := q.buf[q.start]
	if r.run() {
		q.buf[q.start] = r.rest()
		q.more--
		return r.first()
	}
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

// replace puts r in the place of the m elements from the i-th on. Those behind keep their numbers.
func (q *ring) replace(i, m int, r ref) {
	for j := i; j < i+m; j++ {
		q.more -= q.at(j).count() - 1
	}
	q.more += r.count() - 1
	mask := len(q.buf) - 1
	for j := i - 1; j >= 0; j-- {
		q.buf[(q.start+j+m-1)&mask] = q.at(j)
	}
	q.start = (q.start + m - 1) & mask
	q.n -= m - 1
	q.first += uint64(m - 1)
	q.buf[(q.start+i)&mask] = r
}

// reset replaces the content; the numbers given out before name nothing any more.
func (q *ring) reset(refs []ref) {
	first := q.first + uint64(q.n) + 1
	*q = ring{first: first}
	for _, r := range refs {
		q.pushBack(r)
	}
}
