package fanout

import (
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// queue is first in, first out. ready may hold runs; claimed is what has left its front because its attempt is
// announced already.
type queue struct {
	claimed []claim
	ready   ring
	granted time.Duration // when it last got a grant
	ahead   int           // how many attempts are claimed ahead

	busy    bool // ordered: one of it is in flight
	stopped bool // ordered: behind a dead letter, on_dead: stop
}

// claim is a delivery whose next attempt may start once mark is durable; mark 0: it is not announced, and in
// front of those that are.
type claim struct {
	ref
	mark journal.Mark
}

func (q *queue) len() int     { return len(q.claimed) + q.ready.n + q.ready.more }
func (q *queue) entries() int { return len(q.claimed) + q.ready.n }

// entry is the i-th reference, of those that are claimed and the others.
func (q *queue) entry(i int) ref {
	if i < len(q.claimed) {
		return q.claimed[i].ref
	}
	return q.ready.at(i - len(q.claimed))
}

// may reports whether its front may go, at its time.
func (q *queue) may() bool { return !q.busy && !q.stopped && q.entries() > 0 }

func (q *queue) front() (ref, bool) {
	switch {
	case len(q.claimed) > 0:
		return q.claimed[0].ref, true
	case q.ready.n > 0:
		return q.ready.at(0).first(), true
	}
	return ref{}, false
}

// pop takes the front out. mark is its claim's, 0 if it has none.
func (q *queue) pop() (ref, journal.Mark) {
	if len(q.claimed) == 0 {
		return q.ready.popFront(), 0
	}
	c := q.claimed[0]
	if q.claimed = q.claimed[1:]; len(q.claimed) == 0 {
		q.claimed = nil
	}
	return c.ref, c.mark
}

// putBack puts r before everything else, claimed or not.
func (q *queue) putBack(r ref) {
	if len(q.claimed) == 0 {
		q.ready.pushFront(r)
		return
	}
	q.claimed = append([]claim{{ref: r}}, q.claimed...)
}

// dueNow makes the front due at ms, if it has a due time. Nothing may be claimed.
func (q *queue) dueNow(ms int64) {
	if front, waits := q.front(); waits && front.due() {
		q.ready.popFront()
		q.ready.pushFront(front.restamped(ms))
	}
}

func (q *queue) each(visit func(ref)) {
	for _, c := range q.claimed {
		visit(c.ref)
	}
	for i := range q.ready.n {
		visit(q.ready.at(i))
	}
}

func (q *queue) takeIf(pick func(ref) bool) (taken []ref) {
	var keep []ref
	for i := range q.ready.n {
		if r := q.ready.at(i); pick(r) {
			taken = append(taken, r)
		} else {
			keep = append(keep, r)
		}
	}
	if len(taken) > 0 {
		q.ready.reset(keep)
	}
	return taken
}
