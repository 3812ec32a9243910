package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/retry"
)

// denial collects why a delivery may not start: the first reason in the order of
// checks, the latest instant of all time-bound ones, and whether one of them
// ends by an event alone. The zero denial permits.
type denial struct {
	reason Reason
	event  bool
	at     time.Duration
}

// until adds a reason that ends at an instant.
func (d *denial) until(r Reason, at time.Duration) {
	d.note(r)
	d.at = max(d.at, at)
}

// event adds a reason that ends by an event.
func (d *denial) byEvent(r Reason) {
	d.note(r)
	d.event = true
}

func (d *denial) note(r Reason) {
	if d.reason == None {
		d.reason = r
	}
}

// own asks what is the lane's alone: pause, endpoint's pause, breaker, bucket,
// cap. It changes nothing.
func (e *Engine) own(now time.Duration, l *lane, p *profile, cost uint32) (d denial, permit breaker.Permit) {
	if l.stopped(e.tenants.at(uint32(l.tenant))) {
		d.byEvent(ByPause)
		if l.flags&laneDisabled != 0 && l.flags&lanePaused == 0 {
			d.reason = ByGone
		}
	}
	if now < l.pausedUntil {
		d.until(ByEndpoint, l.pausedUntil)
	}
	permit = p.Breaker.Ask(&l.breaker, now)
	if !permit.OK {
		d.until(ByBreaker, permit.At)
	}
	e.askRate(now, l, p, cost, &d)
	if l.full() {
		d.byEvent(ByCap)
	}
	return d, permit
}

func (e *Engine) askRate(now time.Duration, l *lane, p *profile, cost uint32, d *denial) {
	if p.Rate.IsUnlimited() {
		return
	}
	r := p.Rate.Peek(&l.bucket, now, p.tokens(cost))
	switch {
	case r.Allowed:
	case r.RetryIn > 0:
		d.until(ByRate, now+r.RetryIn)
	default: // paused
		d.byEvent(ByRate)
	}
}

// tokens returns what a cost takes: the whole burst, if that was lowered below
// the cost of what already waited. Else it would block its lane for ever.
func (p *profile) tokens(cost uint32) int64 {
	if p.Rate.IsPaused() {
		return int64(cost)
	}
	return min(int64(cost), p.Rate.Burst())
}

// tooCostly reports whether the cost exceeds the burst: waiting does not help.
func (p *profile) tooCostly(cost uint32) bool {
	return !p.Rate.IsUnlimited() && !p.Rate.IsPaused() && int64(cost) > p.Rate.Burst()
}

// needsBudget reports whether an attempt is a retry that spends.
func needsBudget(p *profile, attempt uint32, probe bool) bool {
	return attempt > 0 && !probe && !p.NoBudget
}

// askBudget asks for a retry's permit. reserve reports whether it is the
// platform's reserve that refuses.
func (e *Engine) askBudget(now time.Duration, l *lane, p *profile) (perm retry.Permit, at time.Duration, reserve bool) {
	perm, wait := p.Budget.Ask(&l.window, nil, now)
	if perm != retry.Reserved {
		return perm, now + wait, false
	}
	perm, wait = p.Budget.Ask(&l.window, &e.pool, now)
	return perm, now + wait, perm == retry.Refused
}
