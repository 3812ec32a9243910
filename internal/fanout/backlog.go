package fanout

import (
	"cmp"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// ref is one waiting or dead delivery, or a run of them in HELD, 16 bytes: its position, in whose unused bits
// stands the queue of an ordered lane, and a word that holds, from the top, 42 bits of anchored wall
// milliseconds (its due time, else when it was parked or died), 11 bits of attempts made, 6 bits of reason and
// 3 flags. A run has its length in place of the attempts, which are 0: positions pos, pos+1, ...
type ref struct {
	place uint64
	word  uint64
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

	queueShift = 56 // of a position, which is below 2^56 but for the bit that says that it is in HELD
	queueMask  = orderQueues - 1
)

// newRef makes a reference of queue 0.
func newRef(pos journal.Position, ms int64, attempt uint32, reason engine.Reason, flags uint64) ref {
	return ref{uint64(pos), uint64(max(ms, 0))<<stampShift | uint64(min(attempt, attemptMax))<<attemptShift | uint64(reason)<<reasonShift | flags}
}

func (r ref) pos() journal.Position { return journal.Position(r.place &^ (queueMask << queueShift)) }
func (r ref) queue() uint8          { return uint8(r.place >> queueShift & queueMask) }
func (r ref) stamp() int64          { return int64(r.word >> stampShift) }
func (r ref) field() uint32         { return uint32(r.word >> attemptShift & attemptMax) }
func (r ref) reason() engine.Reason { return engine.Reason(r.word >> reasonShift & 0x3f) }
func (r ref) recorded() bool        { return r.word&flagRecorded != 0 }
func (r ref) due() bool             { return r.word&flagDue != 0 }
func (r ref) run() bool             { return r.word&flagRun != 0 }

// in is the same in another queue, and at the same with another position.
func (r ref) in(queue uint8) ref        { return ref{uint64(r.pos()) | uint64(queue)<<queueShift, r.word} }
func (r ref) at(p journal.Position) ref { return ref{uint64(p), r.word}.in(r.queue()) }

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
	return ref{r.place, uint64(ms)<<stampShift | r.word&belowStamp&^flagDue}
}

// first is the first delivery of a run, and rest what is left of the run without it.
func (r ref) first() ref {
	if !r.run() {
		return r
	}
	return newRef(r.pos(), r.stamp(), 0, r.reason(), flagRecorded).in(r.queue())
}

func (r ref) rest() ref {
	n, flags := uint32(r.count()-1), uint64(flagRecorded|flagRun)
	if n == 1 {
		n, flags = 0, flagRecorded
	}
	return newRef(r.pos()+1, r.stamp(), n, r.reason(), flags).in(r.queue())
}

// age orders references by acceptance: what is in HELD is older than what is not.
func (r ref) age() journal.Position {
	if r.pos().Held() {
		return r.pos().Unheld()
	}
	return r.pos() + 1<<62
}

// backlog is what waits on one lane. Without an order it is one queue and later, a heap by due time; the head
// is the front of the queue, or the first of later if its time is smaller. An ordered lane has its own queues in
// place of the two (order.go).
type backlog struct {
	queue
	later   []ref
	ordered []queue
	chosen  *queue // of ordered: the head that was stated is its front
}

// len is the number of deliveries, entries that of references.
func (b *backlog) len() int {
	n := len(b.later)
	b.eachQueue(func(q *queue) { n += q.len() })
	return n
}

func (b *backlog) entries() int {
	n := len(b.later)
	b.eachQueue(func(q *queue) { n += q.entries() })
	return n
}

// claims is how many have left the front of their queue.
func (b *backlog) claims() (n int) {
	b.eachQueue(func(q *queue) { n += len(q.claimed) })
	return n
}

func (b *backlog) eachQueue(visit func(*queue)) {
	if b.ordered == nil {
		visit(&b.queue)
	}
	for i := range b.ordered {
		visit(&b.ordered[i])
	}
}

// of is the queue that a reference belongs to, by its number.
func (b *backlog) of(queue uint8) *queue {
	if b.ordered == nil {
		return &b.queue
	}
	return &b.ordered[queue]
}

// push adds a delivery and returns its number in the ready queue (0 when it went to later).
func (b *backlog) push(r ref) uint64 {
	if r.due() && b.ordered == nil {
		b.later = append(b.later, r)
		up(b.later, len(b.later)-1)
		return 0
	}
	return b.of(r.queue()).ready.pushBack(r)
}

// putBack adds what an attempt left: a retry by its due time, what our own decision stopped in front. On an
// ordered lane both are in front.
func (b *backlog) putBack(r ref) {
	if r.due() && b.ordered == nil {
		b.push(r)
		return
	}
	b.of(r.queue()).putBack(r)
}

// head returns the next to go. ok is false when nothing may.
func (b *backlog) head() (r ref, ok bool) {
	if b.ordered != nil {
		return b.choose(false)
	}
	if b.headIsLater() {
		return b.later[0], true
	}
	return b.front()
}

// may is how many could go, each at its time, whatever becomes of the others.
func (b *backlog) may() (n int) {
	if b.ordered == nil {
		return b.len()
	}
	for i := range b.ordered {
		if b.ordered[i].may() {
			n++
		}
	}
	return n
}

func (b *backlog) headIsLater() bool {
	front, waits := b.front()
	return len(b.later) > 0 && (!waits || b.later[0].stamp() < front.stamp())
}

// pop takes the head out. mark is its claim's, 0 if it has none.
func (b *backlog) pop() (r ref, mark journal.Mark) {
	switch {
	case b.ordered != nil:
		b.chosen.busy = true
		return b.chosen.pop()
	case b.headIsLater():
		return b.popLater(), 0
	}
	return b.queue.pop()
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
	for i := range b.ordered {
		b.ordered[i].dueNow(ms)
	}
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

// claimedBelow reports whether something below the position is claimed, or in front of what is.
func (b *backlog) claimedBelow(below journal.Position) (found bool) {
	b.eachQueue(func(q *queue) {
		found = found || len(q.claimed) > 0 && q.claimed[0].pos() < below
	})
	return found
}

// each visits everything that waits, in no promised order.
func (b *backlog) each(visit func(ref)) {
	b.eachQueue(func(q *queue) { q.each(visit) })
	for _, r := range b.later {
		visit(r)
	}
}

// takeIf removes and returns what the test picks, keeping the order of the rest. Nothing may be claimed.
func (b *backlog) takeIf(pick func(ref) bool) (taken []ref) {
	b.eachQueue(func(q *queue) { taken = append(taken, q.takeIf(pick)...) })
	later := b.later[:0]
	for _, r := range b.later {
		if pick(r) {
			taken = append(taken, r)
		} else {
			later = append(later, r)
		}
	}
	if len(later) < len(b.later) {
		b.later = later
		heapify(later)
	}
	return taken
}

func earlier(x, y ref) bool {
	return x.stamp() < y.stamp() || x.stamp() == y.stamp() && x.pos() < y.pos()
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
