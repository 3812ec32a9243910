package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/retry"
)

const (
	// joinFor is how long a due head is waited behind: first in, first out.
	joinFor = 10 * time.Second
	// freshInRow is how many fresh ones go past an older head before it goes.
	freshInRow = 4
)

// Offer decides on a fresh delivery: Send (with a ticket), Park, Bury
// (TooCostly), or Drop (the lane's choice, or the lane was removed: Deleted,
// which counts as cancelled). A delivery with attempts behind it may be offered
// too; it spends retry budget.
//
// A denial takes nothing. Its reason is the first in the order of checks: pause,
// endpoint's pause, breaker, bucket, cap, order, host, slots, retry budget. Its
// instant is the latest of all time-bound reasons.
func (e *Engine) Offer(now time.Duration, d Delivery) (v Verdict) {
	now = e.seen(now)
	e.wakeDue(now)
	e.lane(d.Lane)
	x := spot{now: now, id: uint32(d.Lane)}
	x.l, x.t, x.p, x.h, x.g = e.look(x.id)
	e.warmed = x.warm()
	d.Cost = max(d.Cost, 1)
	x.l.flags |= laneUsed
	x.l.offered++
	e.total.Offered++
	if x.l.flags&laneRemoved != 0 {
		out := e.dropDeleted(x.id)
		out.state(&v)
		return v
	}
	e.activate(now, x.l.tenant, x.t)
	x.l.window.Offer(now, x.p.Budget.HalfLife)
	if x.tooCostly(d.Cost) {
		out := e.bury(x.l, TooCostly, d.Attempt)
		out.state(&v)
		return v
	}
	den, permit := x.own(d.Cost)
	if den.reason == None {
		e.shared(&x, &d, permit.Probe, &den)
	}
	perm := e.paid(&x, d.Attempt, permit.Probe, &den)
	e.offered(&x, d.Attempt, den.reason)
	if den.reason != None {
		return e.deny(&x, d, den)
	}
	x.l.passHead(now)
	v.Ticket.Lane, v.Ticket.Attempt, v.Ticket.Cost, v.Ticket.Born = d.Lane, d.Attempt, d.Cost, d.Born
	e.sendFresh(&x, head{permit, perm}, &v)
	return v
}

// shared asks what the lane's own limits let through: order, host, slots.
func (e *Engine) shared(x *spot, d *Delivery, probe bool, den *denial) {
	if d.Behind || x.l.waiting > 0 && e.behind(x, probe) {
		den.byEvent(ByOrder)
		if x.l.at == inWake {
			den.at = time.Duration(x.l.key)
		}
	}
	if e.full(x.h) {
		den.byEvent(ByHost)
	}
	if !e.slotFree(x, probe) {
		den.byEvent(slotReason(probe, e.slots-e.inFlight))
	}
}

// paid asks for the permit of an attempt that is a retry.
func (e *Engine) paid(x *spot, attempt uint32, probe bool, den *denial) retry.Permit {
	if !x.p.needsBudget(attempt, probe) {
		return retry.Refused
	}
	perm, at, _ := e.askBudget(x)
	if perm == retry.Refused {
		den.until(ByBudget, at)
	}
	return perm
}

// slotReason names what a probe lacks: a slot, or a place among the probes.
func slotReason(probe bool, free int) Reason {
	if probe && free > 0 {
		return ByBreaker
	}
	return BySlots
}

// behind reports whether a fresh delivery joins behind what waits, of which there is some. A head that
// is not yet due, or that is a retry without budget, holds nobody back.
func (e *Engine) behind(x *spot, probe bool) bool {
	if x.l.headDue > x.now || e.broke(x, probe) {
		return false
	}
	return x.now-x.l.headDue < joinFor || x.l.credit >= freshInRow
}

// broke reports whether the lane's head is a retry without budget.
func (e *Engine) broke(x *spot, probe bool) bool {
	if !x.p.needsBudget(x.l.headAttempt, probe) {
		return false
	}
	perm, _, _ := e.askBudget(x)
	return perm == retry.Refused
}

// passHead counts a fresh send that goes past a due head.
func (l *lane) passHead(now time.Duration) {
	if l.waiting > 0 && l.headDue <= now {
		l.credit = min(l.credit+1, freshInRow)
	}
}

// sendFresh starts a fresh delivery with the ticket in v.
func (e *Engine) sendFresh(x *spot, with head, v *Verdict) {
	waits := x.l.at != nowhere
	if !x.l.at.ready() {
		e.rise(x.l, x.t)
	}
	if waits {
		e.unplace(x.l, x.t)
	}
	v.Kind, v.Attempt, v.Limit = Send, v.Ticket.Attempt, x.burst()
	v.Remaining = e.start(x, &v.Ticket, with)
	if waits {
		e.place(x.now, x.id)
	}
}

// deny parks, or drops what the lane's own limits refuse if that is its choice.
func (e *Engine) deny(x *spot, d Delivery, den denial) Verdict {
	e.denials[den.reason]++
	v := Verdict{Kind: Park, Reason: den.reason, At: den.at, Attempt: d.Attempt, Limit: x.burst()}
	if x.p.Drop && d.Attempt == 0 && (den.reason == ByRate || den.reason == ByCap) {
		v.Kind = Drop
		e.lost.at(x.id).dropped++
		e.total.Dropped++
		return v
	}
	e.park(x.l, 1)
	return v
}
