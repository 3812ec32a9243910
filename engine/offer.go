package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
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
func (e *Engine) Offer(now time.Duration, d Delivery) Verdict {
	now = e.seen(now)
	e.wakeDue(now)
	l := e.lane(d.Lane)
	t, p := e.tenants.at(uint32(l.tenant)), e.profiles.at(l.profile)
	hostFull := e.hostFull(l.host) // asked early: its memory is far, and what follows does not wait for it
	d.Cost = max(d.Cost, 1)
	l.flags |= laneUsed
	l.offered++
	e.total.Offered++
	if l.flags&laneRemoved != 0 {
		return e.dropDeleted(l).verdict()
	}
	e.activate(now, l.tenant, t)
	l.window.Offer(now, p.Budget.HalfLife)
	if p.tooCostly(d.Cost) {
		return e.bury(l, TooCostly, d.Attempt).verdict()
	}
	den, permit := e.own(now, l, p, d.Cost)
	if den.reason == None {
		e.shared(now, l, t, p, d, permit.Probe, hostFull, &den)
	}
	perm := e.paid(now, l, p, d.Attempt, permit, &den)
	e.offered(now, l, t, p, d, den.reason)
	if den.reason != None {
		return e.deny(l, p, d, den)
	}
	e.passHead(now, l)
	return e.sendFresh(now, l, t, p, d, head{permit, perm})
}

// shared asks what the lane's own limits let through: order, host, slots.
func (e *Engine) shared(now time.Duration, l *lane, t *tenant, p *profile, d Delivery, probe, hostFull bool, den *denial) {
	if e.behind(now, l, p, probe) {
		den.byEvent(ByOrder)
		if l.at == inWake {
			den.at = time.Duration(l.key)
		}
	}
	if hostFull {
		den.byEvent(ByHost)
	}
	if !e.slotFree(now, d.Lane, l, t, probe) {
		den.byEvent(slotReason(probe, e.slots-e.inFlight))
	}
}

// paid asks for the permit of an attempt that is a retry.
func (e *Engine) paid(now time.Duration, l *lane, p *profile, attempt uint32, permit breaker.Permit, den *denial) retry.Permit {
	if !needsBudget(p, attempt, permit.Probe) {
		return retry.Refused
	}
	perm, at, _ := e.askBudget(now, l, p)
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

// behind reports whether a fresh delivery joins behind what waits. A head that
// is not yet due, or that has no retry budget, holds nobody back.
func (e *Engine) behind(now time.Duration, l *lane, p *profile, probe bool) bool {
	if p.Ordered {
		return l.waiting > 0 || l.inFlight > 0
	}
	if l.waiting == 0 || l.headDue > now || e.broke(now, l, p, probe) {
		return false
	}
	return now-l.headDue < joinFor || l.credit >= freshInRow
}

// broke reports whether the lane's head is a retry without budget.
func (e *Engine) broke(now time.Duration, l *lane, p *profile, probe bool) bool {
	if !needsBudget(p, l.headAttempt, probe) {
		return false
	}
	perm, _, _ := e.askBudget(now, l, p)
	return perm == retry.Refused
}

// passHead counts a fresh send that goes past a due head.
func (e *Engine) passHead(now time.Duration, l *lane) {
	if l.waiting > 0 && l.headDue <= now {
		l.credit = min(l.credit+1, freshInRow)
	}
}

func (e *Engine) sendFresh(now time.Duration, l *lane, t *tenant, p *profile, d Delivery, with head) (v Verdict) {
	moved := l.at != nowhere
	if !l.at.ready() {
		e.rise(l, t)
	}
	e.unplace(l, t)
	v.Kind, v.Attempt, v.Limit = Send, d.Attempt, p.perSecond
	v.Ticket.Lane, v.Ticket.Attempt, v.Ticket.Cost, v.Ticket.Born = d.Lane, d.Attempt, d.Cost, d.Born
	v.Remaining = e.start(now, l, t, p, &v.Ticket, with)
	if moved {
		e.place(now, uint32(d.Lane), l)
	}
	return v
}

// deny parks, or drops what the lane's own limits refuse if that is its choice.
func (e *Engine) deny(l *lane, p *profile, d Delivery, den denial) Verdict {
	e.denials[den.reason]++
	if p.Drop && d.Attempt == 0 && (den.reason == ByRate || den.reason == ByCap) {
		l.dropped++
		e.total.Dropped++
		return Verdict{Kind: Drop, Reason: den.reason, At: den.at, Limit: p.perSecond}
	}
	l.parked++
	e.total.Parked++
	return Verdict{Kind: Park, Reason: den.reason, At: den.at, Attempt: d.Attempt, Limit: p.perSecond}
}
