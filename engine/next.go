package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/retry"
)

// Next grants a slot to the head of a lane's backlog, or returns false if no
// slot is free or nothing that waits may use it. It is the only way out for what
// waits, and takes slot, token, permit and budget at once.
func (e *Engine) Next(now time.Duration) (Grant, bool) {
	now = e.seen(now)
	e.wakeDue(now)
	for {
		x, with, ok := e.first(now)
		if ok {
			return e.sendHead(&x, with), true
		}
		if e.reserve.len() == 0 || e.reserve.at > now {
			return Grant{}, false
		}
		e.wakeReserve(now) // the one that was called could not start: the next is
	}
}

// head is what a lane's head starts with.
type head struct {
	permit breaker.Permit
	perm   retry.Permit
}

// first returns the lane that a free slot goes to, or false if there is none. A
// lane that cannot start any more is placed anew: since it was ready, its host or
// the reserve may have been taken by another.
func (e *Engine) first(now time.Duration) (spot, head, bool) {
	for {
		id, ok := e.best(now)
		if !ok {
			return spot{}, head{}, false
		}
		x := e.spot(now, id)
		if h, ok := e.startable(&x); ok {
			return x, h, true
		}
		e.place(now, id)
	}
}

// startable reports whether a ready lane's head passes all checks but the slot's.
func (e *Engine) startable(x *spot) (h head, ok bool) {
	d, permit := x.own(x.l.headCost)
	h.permit = permit
	if d.reason != None || e.order == Fair && permit.Probe != (x.l.at == inProbe) || e.full(x.h) {
		return h, false
	}
	if !x.p.needsBudget(x.l.headAttempt, permit.Probe) {
		return h, true
	}
	h.perm, _, _ = e.askBudget(x)
	return h, h.perm != retry.Refused
}

func (e *Engine) sendHead(x *spot, with head) Grant {
	l := x.l
	e.unplace(l, x.t)
	l.credit = 0
	l.waiting--
	e.unpark(l, 1)
	if l.waiting > 0 {
		l.flags |= laneRestate
		x.t.claims++
	}
	g := Grant{Lane: LaneID(x.id), Limit: x.burst(), Ticket: Ticket{
		Lane: LaneID(x.id), Attempt: l.headAttempt, Cost: l.headCost, Born: l.headBorn, Flags: FlagBacklog,
	}}
	g.Remaining = e.start(x, &g.Ticket, with)
	e.granted(x)
	return g
}

// start takes slot, token, permit and budget for an attempt whose checks have
// passed, fills its ticket and returns the tokens that remain. The lane must not
// be in a heap.
func (e *Engine) start(x *spot, k *Ticket, with head) (remaining int64) {
	l := x.l
	l.flags |= laneUsed
	k.LaneGen, k.Host, k.Group, k.Started = uint32(l.gen), l.host, x.p.Group, x.now
	k.Flags |= startFlags(with)
	if !l.quick(x.now) {
		k.Flags |= FlagSlow
	}
	x.p.Breaker.Take(&l.breaker, x.now, with.permit)
	k.BreakerGen = with.permit.Gen
	remaining = x.takeToken(k)
	if with.perm != retry.Refused {
		x.p.Budget.Spend(&l.window, &e.pool, x.now, with.perm)
	}
	x.t.lastActive = x.now
	k.Charged = e.charge(l, x.t)
	e.occupy(x.t, x.h, k.Flags)
	l.inFlight++
	if x.g != nil {
		x.g.inFlight++
	}
	e.total.InFlight++
	x.t.round.start(k)
	e.reclassify(x.now, l.tenant, x.t)
	e.wakeHost(x.now, x.h)
	return remaining
}

func startFlags(with head) (f TicketFlags) {
	if with.permit.Probe {
		f = FlagProbe
	}
	switch with.perm {
	case retry.Own:
		f |= FlagRetryOwn
	case retry.Reserved:
		f |= FlagRetryReserve
	}
	return f
}

// spent returns the budget's permit that the attempt was paid with.
func (f TicketFlags) spent() retry.Permit {
	switch {
	case f&FlagRetryOwn != 0:
		return retry.Own
	case f&FlagRetryReserve != 0:
		return retry.Reserved
	}
	return retry.Refused
}
