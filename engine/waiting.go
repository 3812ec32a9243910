package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/retry"
)

// Waiting states what waits on a lane: how many, and the head. It is idempotent;
// state it whenever the head or the count changes. The account does not move by
// it. To state more than the account has parked is the driver's bug and panics.
// On a removed lane it does nothing.
func (e *Engine) Waiting(now time.Duration, id LaneID, b Backlog) {
	now = e.seen(now)
	l := e.lane(id)
	if l.flags&laneRemoved != 0 {
		return
	}
	if b.Count > l.parked {
		panic("engine: Waiting states more than the account has parked: state what a verdict parked, once")
	}
	x := e.spot(now, uint32(id))
	continues := e.restated(l, x.t)
	was := e.unplace(l, x.t)
	l.waiting, l.headDue, l.headBorn = b.Count, b.HeadDue, b.HeadBorn
	l.headAttempt, l.headCost = b.HeadAttempt, max(b.HeadCost, 1)
	e.replace(&x, was, continues)
}

// restated ends the time in which a granted lane's next head is unknown, and
// reports whether it was one: then it goes on waiting, and does not begin to.
func (e *Engine) restated(l *lane, t *tenant) bool {
	if l.flags&laneRestate == 0 {
		return false
	}
	l.flags &^= laneRestate
	t.claims--
	return true
}

// Settle moves n deliveries in the lane's account without an attempt. To move
// more than there are is the driver's bug and panics. On a removed lane only
// what is dead moves: what was parked is cancelled already.
func (e *Engine) Settle(now time.Duration, id LaneID, m Moved, n uint32) {
	now = e.seen(now)
	l := e.lane(id)
	if l.flags&laneRemoved != 0 && m != ToPurged {
		return
	}
	x := e.spot(now, uint32(id))
	was := e.unplace(l, x.t)
	e.transfer(uint32(id), m, n)
	e.replace(&x, was, false)
}

func (e *Engine) transfer(id uint32, m Moved, n uint32) {
	l := e.lanes.at(id)
	switch m {
	case ToExpired, ToBuried:
		e.unpark(l, n)
		l.dead += n
		e.total.Dead += uint64(n)
	case ToCancelled:
		e.unpark(l, n)
		e.lost.at(id).cancelled += uint64(n)
		e.total.Cancelled += uint64(n)
	case ToRevived:
		e.undead(l, n)
		if l.parked == 0 {
			l.startRamp()
		}
		e.park(l, n)
	case ToReplayed:
		e.undead(l, n)
		e.park(l, n)
	case ToResent:
		l.offered += uint64(n)
		e.total.Offered += uint64(n)
		e.park(l, n)
	case ToPurged:
		e.undead(l, n)
		e.lost.at(id).cancelled += uint64(n)
		e.total.Cancelled += uint64(n)
	default:
		panic("engine: Settle needs one of the Moved constants")
	}
}

func (e *Engine) park(l *lane, n uint32) {
	l.parked += n
	e.total.Parked += uint64(n)
}

func (e *Engine) unpark(l *lane, n uint32) {
	if n > l.parked {
		panic("engine: more moved than the account has parked: settle each delivery once")
	}
	l.parked -= n
	e.total.Parked -= uint64(n)
	l.waiting = min(l.waiting, l.parked)
}

func (e *Engine) undead(l *lane, n uint32) {
	if n > l.dead {
		panic("engine: more moved than the account has dead: settle each delivery once")
	}
	l.dead -= n
	e.total.Dead -= uint64(n)
}

// place puts a lane where it belongs now, by its head. It costs O(log n).
func (e *Engine) place(now time.Duration, id uint32) spot {
	x := e.spot(now, id)
	was := e.unplace(x.l, x.t)
	e.replace(&x, was, false)
	return x
}

// replace finds the place of a lane that was taken out of another. continues
// tells that it was ready until its last start, and so does not begin to wait.
func (e *Engine) replace(x *spot, was place, continues bool) {
	l := x.l
	if l.waiting == 0 {
		e.restated(l, x.t)
	}
	if l.waiting > 0 && l.flags&laneRestate == 0 {
		e.settle(x, was.ready() || continues)
	}
	if was.ready() && !l.at.ready() {
		e.reclassify(x.now, l.tenant, x.t)
		e.wakeHost(x.now, x.h)
	}
}

// settle finds the place of a lane that stands nowhere and has a head.
func (e *Engine) settle(x *spot, wasReady bool) {
	d, permit := x.own(x.l.headCost)
	if x.l.headDue > x.now {
		d.until(ByRetry, x.l.headDue)
	}
	switch {
	case d.event:
	case d.reason != None:
		e.sleep(x, d.at)
	case e.full(x.h):
		x.l.at = inHost
		e.enqueue(&x.h.waiting, x.l.host, x)
	case !e.afford(x, permit.Probe):
	default:
		if !wasReady {
			e.rise(x.l, x.t)
		}
		e.ready(x, permit.Probe)
	}
}

// afford reports whether the head, if it is a retry, has budget. Without, it
// waits: for the decay, or for the platform's reserve.
func (e *Engine) afford(x *spot, probe bool) bool {
	if !x.p.needsBudget(x.l.headAttempt, probe) {
		return true
	}
	perm, at, reserve := e.askBudget(x)
	switch {
	case perm != retry.Refused:
		return true
	case reserve:
		e.awaitReserve(x, max(at, x.now+1))
	default:
		e.sleep(x, at)
	}
	x.l.flags |= laneBudget
	return false
}

// sleep puts a lane into the wake heap.
func (e *Engine) sleep(x *spot, at time.Duration) {
	x.l.key = int64(max(at, x.now+1))
	e.push(&e.wake, (*keyOrder)(e), x.id, inWake)
}

// ready puts a lane where slots are handed out.
func (e *Engine) ready(x *spot, probe bool) {
	l, t := x.l, x.t
	t.claims++
	e.activate(x.now, l.tenant, t)
	if probe && e.order == Fair {
		l.key = int64(l.breaker.NextProbe())
		e.push(&t.probe, (*keyOrder)(e), x.id, inProbe)
		e.classify(x.now, uint32(l.tenant), t)
		return
	}
	l.key = e.want(x)
	t.wants += l.key
	switch {
	case e.order == Arrival:
		e.push(&e.arrival, (*arrivalOrder)(e), x.id, inArrival)
		return
	case l.quick(x.now):
		e.push(&t.quick, (*laneOrder)(e), x.id, inQuick)
	default:
		e.push(&t.slow, (*laneOrder)(e), x.id, inSlow)
	}
	e.classify(x.now, uint32(l.tenant), t)
}

func (e *Engine) push(h *fair.Heap, order fair.Items, id uint32, at place) {
	e.lanes.at(id).at = at
	h.Push(order, id)
}

// unplace takes a lane out of where it stands and returns where that was. The
// tenant keeps its place: the caller ends with classify if the lane was ready.
func (e *Engine) unplace(l *lane, t *tenant) (was place) {
	was = l.at
	l.at = nowhere
	l.flags &^= laneBudget
	switch was {
	case inQuick:
		t.quick.Remove((*laneOrder)(e), l.pos)
	case inSlow:
		t.slow.Remove((*laneOrder)(e), l.pos)
	case inProbe:
		t.probe.Remove((*keyOrder)(e), l.pos)
	case inArrival:
		e.arrival.Remove((*arrivalOrder)(e), l.pos)
	case inWake:
		e.wake.Remove((*keyOrder)(e), l.pos)
	case inHost:
		e.dequeue(&e.hosts.at(uint32(l.host)).waiting, l.host, l)
	case inReserve:
		e.dequeue(&e.reserve, reserveHost, l)
	}
	if was.ready() {
		e.unready(l, t, was)
	}
	return was
}

func (e *Engine) unready(l *lane, t *tenant, was place) {
	t.claims--
	if was != inProbe {
		t.wants -= l.key
	}
	if l.flags&laneReserve != 0 {
		l.flags &^= laneReserve
		e.reserve.at = e.now
	}
}

// reclassify is classify for a tenant that may have nothing ready.
func (e *Engine) reclassify(now time.Duration, id TenantID, t *tenant) {
	if t.claims > 0 || t.at != away || t.probeAt != away {
		e.classify(now, uint32(id), t)
	}
}

// wakeDue moves the lanes whose instant has come.
func (e *Engine) wakeDue(now time.Duration) {
	for {
		id, ok := e.wake.Top()
		if !ok || e.lanes.at(id).key > int64(now) {
			break
		}
		e.place(now, id)
	}
	if e.reserve.len() > 0 {
		e.wakeReserve(now)
	}
}
