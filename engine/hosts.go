package engine

import (
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// A host limits how many requests are in flight to it, over all tenants. When
// lanes of two tenants are refused within ten seconds its concurrency is halved;
// each success adds one, up to the full limit. One tenant's refusals slow only
// its own lanes: else a tenant could point bad paths at another's host.

const (
	hostLeast  = 64 // least default limit
	hostPart   = 4  // default limit: one slot in so many
	hostFloor  = 2
	hostWithin = 10 * time.Second
)

// host is the live state of one host.
type host struct {
	inFlight int32
	limit    int32 // lowered by refusals; 0: not lowered
	refused  TenantID
	known    bool          // refused holds a tenant
	at       time.Duration // of that refusal
	halved   time.Duration // of the last halving: attempts older than it halve no more
	waiting  queue
}

// hostTop returns the full limit of every host, or -1 for none.
func (e *Engine) hostTop() int32 {
	switch {
	case e.hostLimit < 0:
		return -1
	case e.hostLimit > 0:
		return int32(e.hostLimit)
	}
	return int32(max(hostLeast, e.slots/hostPart))
}

func (e *Engine) full(h *host) bool {
	limit := e.hostTop()
	if limit < 0 {
		return false
	}
	if h.limit > 0 {
		limit = min(limit, h.limit)
	}
	return h.inFlight >= limit
}

// hostRefused notes a refusal of an attempt that started at the instant
// started, and halves the concurrency if another tenant was refused too. An
// attempt from before the last halving does not halve again: the many that were
// in flight together are one sign, not many.
func (e *Engine) hostRefused(now, started time.Duration, h *host, t TenantID) {
	top := e.hostTop()
	if top < 0 {
		return
	}
	two := h.known && h.refused != t && now-h.at <= hostWithin
	h.known, h.refused, h.at = true, t, now
	if !two || started < h.halved {
		return
	}
	h.halved = now
	h.limit = max(min(e.hostLimitOf(h), h.inFlight)/2, hostFloor)
}

// hostLimitOf returns the host's limit in force.
func (e *Engine) hostLimitOf(h *host) int32 {
	top := e.hostTop()
	if h.limit > 0 {
		return min(top, h.limit)
	}
	return top
}

// hostSucceeded raises a lowered limit by one.
func (e *Engine) hostSucceeded(h *host) {
	if h.limit == 0 {
		return
	}
	h.limit++
	if h.limit >= e.hostTop() {
		h.limit = 0
	}
}

// wakeHost lets the lane go on that the host's room goes to, if there is room.
// One that must wait for its tenant's share does not keep the next from it.
func (e *Engine) wakeHost(now time.Duration, h *host) {
	for h.waiting.len() > 0 && !e.full(h) {
		x := e.place(now, e.pop(&h.waiting))
		if x.l.at.ready() && e.shareAllows(&x, x.l.at == inProbe) {
			return
		}
	}
}

// wakeHosts looks once a round for hosts that have room and a queue. One that was woken may have lost its tenant's
// share before it started (a weight, the slots or who is active changed); until it starts, no event of the host
// need come to wake the next.
func (e *Engine) wakeHosts(now time.Duration) {
	for i := range e.hosts.len() {
		e.wakeHost(now, e.hosts.at(uint32(i)))
	}
}

// wakeReserve lets the lane go on that the platform's next retry goes to. The
// next one follows when this one has started or given up (unready); at once, if
// this one must wait for its tenant's share.
func (e *Engine) wakeReserve(now time.Duration) {
	for e.reserve.len() > 0 && e.reserve.at <= now {
		x := e.place(now, e.pop(&e.reserve))
		if !x.l.at.ready() {
			continue
		}
		x.l.flags |= laneReserve
		if e.shareAllows(&x, false) {
			e.reserve.at = never
			return
		}
	}
}

const never = time.Duration(math.MaxInt64)

// awaitReserve queues a lane for the platform's reserve, which has one for the
// next lane at the instant at.
func (e *Engine) awaitReserve(x *spot, at time.Duration) {
	if e.reserve.len() == 0 || e.reserve.at != never {
		e.reserve.at = at
	}
	x.l.at = inReserve
	e.enqueue(&e.reserve, reserveHost, x)
}

// queue holds lanes that wait for one shared thing: tenants by virtual time,
// lanes within, so that it is split as slots are.
type queue struct {
	heap fair.Heap     // of waiters
	at   time.Duration // reserve only: when there is something to hand out
}

func (q *queue) len() int { return q.heap.Len() }

// waiter is one tenant's lanes in one queue.
type waiter struct {
	key   float64 // the tenant's virtual time when last looked at
	lanes fair.Heap
	id    waiterID
	pos   int32
}

// waiterID names a waiter: the reserve's host is the one past all others.
type waiterID struct {
	host   HostID
	tenant TenantID
}

const reserveHost = ^HostID(0)

// waiters holds the waiters of all queues, and finds them.
type waiters struct {
	all   []waiter
	free  []uint32
	index map[waiterID]uint32
}

func (w *waiters) find(id waiterID) (uint32, bool) {
	i, ok := w.index[id]
	return i, ok
}

func (w *waiters) add(id waiterID, key float64) uint32 {
	if w.index == nil {
		w.index = make(map[waiterID]uint32)
	}
	i := uint32(len(w.all))
	if n := len(w.free); n > 0 {
		i, w.free = w.free[n-1], w.free[:n-1]
	} else {
		w.all = append(w.all, waiter{})
	}
	w.all[i].id, w.all[i].key = id, key
	w.index[id] = i
	return i
}

func (w *waiters) drop(i uint32) {
	delete(w.index, w.all[i].id)
	w.free = append(w.free, i)
}

// enqueue adds a lane to a queue; it begins to wait.
func (e *Engine) enqueue(q *queue, h HostID, x *spot) {
	e.rise(x.l, x.t)
	name := e.waiterName(h, x.l)
	i, ok := e.waiters.find(name)
	if !ok {
		i = e.waiters.add(name, x.t.virtual)
		q.heap.Push((*waiterOrder)(e), i)
	}
	e.waiters.all[i].lanes.Push(e.readyOrder(), x.id)
}

// waiterName returns where a lane waits. When the order is Arrival, tenants play
// no part: all wait as one.
func (e *Engine) waiterName(h HostID, l *lane) waiterID {
	if e.order == Arrival {
		return waiterID{host: h}
	}
	return waiterID{host: h, tenant: l.tenant}
}

func (e *Engine) waiterOf(h HostID, l *lane) *waiter {
	i, _ := e.waiters.find(e.waiterName(h, l))
	return &e.waiters.all[i]
}

// dequeue takes a lane out of a queue.
func (e *Engine) dequeue(q *queue, h HostID, l *lane) {
	i, _ := e.waiters.find(e.waiterName(h, l))
	w := &e.waiters.all[i]
	w.lanes.Remove(e.readyOrder(), l.pos)
	if w.lanes.Len() == 0 {
		q.heap.Remove((*waiterOrder)(e), w.pos)
		e.waiters.drop(i)
	}
}

// pop takes the first lane out of a queue that has one. Virtual times grow while
// their tenants wait here: keys are brought up when they come to the top.
func (e *Engine) pop(q *queue) uint32 {
	for {
		i, _ := q.heap.Top()
		w := &e.waiters.all[i]
		if v := e.tenants.at(uint32(w.id.tenant)).virtual; v > w.key {
			w.key = v
			q.heap.Fix((*waiterOrder)(e), 0)
			continue
		}
		id, _ := w.lanes.Top()
		l := e.lanes.at(id)
		e.dequeue(q, w.id.host, l)
		l.at = nowhere
		return id
	}
}

// waiterOrder orders waiters by their tenants' virtual times.
type waiterOrder Engine

func (o *waiterOrder) Less(a, b uint32) bool {
	x, y := &o.waiters.all[a], &o.waiters.all[b]
	if x.key != y.key {
		return x.key < y.key
	}
	return x.id.tenant < y.id.tenant
}
func (o *waiterOrder) SetIndex(id uint32, i int32) { o.waiters.all[id].pos = i }
