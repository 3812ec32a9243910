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
	id, head, ok := e.first(now)
	if !ok {
		return Grant{}, false
	}
	return e.sendHead(now, id, e.lanes.at(id), head), true
}

// head is what a lane's head starts with.
type head struct {
	permit breaker.Permit
	perm   retry.Permit
}

// first returns the lane that a free slot goes to, or false if there is none. A
// lane that cannot start any more is placed anew: since it was ready, its host or
// the reserve may have been taken by another.
func (e *Engine) first(now time.Duration) (uint32, head, bool) {
	for {
		id, ok := e.best(now)
		if !ok {
			return 0, head{}, false
		}
		l := e.lanes.at(id)
		if h, ok := e.startable(now, l); ok {
			return id, h, true
		}
		e.place(now, id, l)
	}
}

// startable reports whether a ready lane's head passes all checks but the slot's.
func (e *Engine) startable(now time.Duration, l *lane) (h head, ok bool) {
	p := e.profiles.at(l.profile)
	d, permit := e.own(now, l, p, l.headCost)
	h.permit = permit
	if d.reason != None || e.order == Fair && permit.Probe != (l.at == inProbe) || e.hostFull(l.host) {
		return h, false
	}
	if !needsBudget(p, l.headAttempt, permit.Probe) {
		return h, true
	}
	h.perm, _, _ = e.askBudget(now, l, p)
	return h, h.perm != retry.Refused
}

func (e *Engine) sendHead(now time.Duration, id uint32, l *lane, h head) Grant {
	t, p := e.tenants.at(uint32(l.tenant)), e.profiles.at(l.profile)
	e.unplace(l, t)
	l.credit = 0
	l.waiting--
	e.unpark(l, 1)
	if l.waiting > 0 {
		l.flags |= laneRestate
		t.claims++
	}
	g := Grant{Lane: LaneID(id), Limit: p.perSecond, Ticket: Ticket{
		Lane: LaneID(id), Attempt: l.headAttempt, Cost: l.headCost, Born: l.headBorn, Flags: FlagBacklog,
	}}
	g.Remaining = e.start(now, l, t, p, &g.Ticket, h)
	e.granted(now, l, t)
	if h.permit.Probe {
		e.wakeProbe(now)
	}
	return g
}

// start takes slot, token, permit and budget for an attempt whose checks have
// passed, fills its ticket and returns the tokens that remain. The lane must not
// be in a heap.
func (e *Engine) start(now time.Duration, l *lane, t *tenant, p *profile, k *Ticket, with head) (remaining int64) {
	l.flags |= laneUsed
	k.LaneGen, k.Host, k.Started = uint32(l.gen), l.host, now
	k.Flags |= startFlags(with)
	if !l.quick(now) {
		k.Flags |= FlagSlow
	}
	p.Breaker.Take(&l.breaker, now, with.permit)
	k.BreakerGen = with.permit.Gen
	remaining = e.takeToken(now, l, p, k)
	if with.perm != retry.Refused {
		p.Budget.Spend(&l.window, &e.pool, now, with.perm)
	}
	e.activate(now, l.tenant, t)
	k.Charged = e.charge(l, t)
	h := e.hosts.at(uint32(k.Host))
	e.occupy(t, h, k.Flags)
	l.inFlight++
	e.total.InFlight++
	e.started(t, k)
	e.reclassify(now, l.tenant, t)
	e.wakeHost(now, h)
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

// takeToken takes the cost from the bucket and returns what remains, -1 without
// a rate.
func (e *Engine) takeToken(now time.Duration, l *lane, p *profile, k *Ticket) int64 {
	if p.Rate.IsUnlimited() {
		return -1
	}
	cost := p.tokens(k.Cost)
	d := p.Rate.Take(&l.bucket, now, cost)
	if !d.Allowed {
		panic("engine: the bucket denied what it had just promised")
	}
	k.Cost, k.BucketEpoch = uint32(cost), d.Epoch
	return d.Remaining
}
