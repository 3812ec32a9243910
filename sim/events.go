package sim

import "time"

// event is 24 bytes: an instant, the order of its making under its class, and what it is about.
type event struct {
	at    time.Duration
	order uint64
	id    uint32
}

// class orders events of one instant.
type class uint8

const (
	anEnd     class = iota // of an attempt
	aToken                 // of a gate
	anArrival              // of a source
)

const classShift = 60

func (e *event) class() class { return class(e.order >> classShift) }

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// events is a heap with four children a node: half as deep as with two.
type events struct {
	heap []event
	made uint64
}

func (q *events) push(at time.Duration, c class, id uint32) {
	q.made++
	q.heap = append(q.heap, event{at, uint64(c)<<classShift | q.made, id})
	h := q.heap
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 4
		if !h[i].before(&h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// top is the next event, nil when there is none.
func (q *events) top() *event {
	if len(q.heap) == 0 {
		return nil
	}
	return &q.heap[0]
}

func (q *events) pop() event {
	e, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	q.sink()
	return e
}

// again moves the top to a later instant, as if it had been taken out and made anew.
func (q *events) again(at time.Duration) {
	e := &q.heap[0]
	q.made++
	e.at, e.order = at, uint64(e.class())<<classShift|q.made
	q.sink()
}

func (q *events) sink() {
	h := q.heap
	for i := 0; ; {
		first, least := 4*i+1, i
		for c := first; c < min(first+4, len(h)); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
