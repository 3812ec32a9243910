package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
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

// byEvent adds a reason that ends by an event alone.
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
// cap. It changes nothing of the lane.
func (x *spot) own(cost uint32) (d denial, permit breaker.Permit) {
	if x.l.stopped(x.t) {
		d.byEvent(ByPause)
		if x.l.flags&laneDisabled != 0 && x.l.flags&lanePaused == 0 {
			d.reason = ByGone
		}
	}
	if x.now < x.l.pausedUntil {
		d.until(ByEndpoint, x.l.pausedUntil)
	}
	permit = x.p.Breaker.Ask(&x.l.breaker, x.now)
	if !permit.OK {
		d.until(ByBreaker, permit.At)
	}
	x.askRate(cost, &d)
	if x.full() {
		d.byEvent(ByCap)
	}
	return d, permit
}

func (x *spot) askRate(cost uint32, d *denial) {
	rate := x.rate()
	if rate.IsUnlimited() {
		x.cost, x.remaining = cost, -1
		return
	}
	tokens := tokensOf(rate, cost)
	x.bucket = *x.level()
	r := rate.Take(&x.bucket, x.now, tokens)
	x.cost, x.remaining, x.epoch = uint32(tokens), r.Remaining, r.Epoch
	switch {
	case r.Allowed:
	case r.RetryIn > 0:
		d.until(ByRate, x.now+r.RetryIn)
	default: // paused
		d.byEvent(ByRate)
	}
}

// takeToken takes what askRate asked for and returns what remains, -1 without a
// rate.
func (x *spot) takeToken(k *Ticket) int64 {
	if !x.rate().IsUnlimited() {
		*x.level() = x.bucket
	}
	k.Cost, k.BucketEpoch = x.cost, x.epoch
	return x.remaining
}

// tokensOf returns what a cost takes: the whole burst, if that was lowered below
// the cost of what already waited. Else it would block its lane for ever.
func tokensOf(r *limit.Rate, cost uint32) int64 {
	if r.IsPaused() {
		return int64(cost)
	}
	return min(int64(cost), r.Burst())
}

// tooCostly reports whether the cost exceeds the burst: waiting does not help.
func (x *spot) tooCostly(cost uint32) bool {
	r := x.rate()
	return !r.IsUnlimited() && !r.IsPaused() && int64(cost) > r.Burst()
}

// needsBudget reports whether an attempt is a retry that spends.
func (p *profile) needsBudget(attempt uint32, probe bool) bool {
	return attempt > 0 && !probe && !p.NoBudget
}

// askBudget asks for a retry's permit. reserve reports whether it is the
// platform's reserve that refuses.
func (e *Engine) askBudget(x *spot) (perm retry.Permit, at time.Duration, reserve bool) {
	perm, wait := x.p.Budget.Ask(&x.l.window, nil, x.now)
	if perm != retry.Reserved {
		return perm, x.now + wait, false
	}
	perm, wait = x.p.Budget.Ask(&x.l.window, &e.pool, x.now)
	return perm, x.now + wait, perm == retry.Refused
}
