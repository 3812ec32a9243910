package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/retry"
)

// localWait is how long a delivery rests that our own fault kept from starting.
const localWait = time.Second

// Finish ends an attempt, exactly once for each ticket of Send and Grant: Done,
// Park (Verdict.Attempt counts this attempt if it was one; Due tells whether At
// is to be stored with it), Bury, or Drop (Deleted: the lane was removed
// meanwhile, which counts as cancelled, unless it was delivered). To finish more
// than was started panics.
//
// A failed probe raises Attempt, since the endpoint saw it, and has no due time:
// the breaker's interval is what it waits for. A limit of attempts never buries
// a probe itself.
func (e *Engine) Finish(now time.Duration, k Ticket, r Result) Verdict {
	now = e.seen(now)
	l := e.lane(k.Lane)
	t, h := e.tenants.at(uint32(l.tenant)), e.hosts.at(uint32(k.Host))
	if l.inFlight == 0 {
		panic("engine: Finish without a start: each ticket ends exactly once")
	}
	l.inFlight--
	e.total.InFlight--
	e.vacate(t, h, k.Flags)
	x := e.conclude(now, l, t, h, &k, r)
	if l.at != nowhere || l.waiting > 0 {
		e.place(now, uint32(k.Lane), l)
	}
	e.reclassify(now, l.tenant, t)
	e.wakeHost(now, h)
	if k.Flags&FlagProbe != 0 {
		e.wakeProbe(now)
	}
	if k.Flags&FlagRetryReserve != 0 && e.reserve.at != never {
		e.reserve.at = now // it may have been given back
	}
	return x.verdict()
}

// end is a verdict on an attempt: small enough to be returned in registers.
type end struct {
	kind    Kind
	reason  Reason
	due     bool
	flush   bool
	attempt uint32
	at      time.Duration
}

func (x end) verdict() Verdict {
	return Verdict{Kind: x.kind, Reason: x.reason, Due: x.due, At: x.at, Attempt: x.attempt, Flush: x.flush}
}

// conclude charges the slot and turns the result into a verdict.
func (e *Engine) conclude(now time.Duration, l *lane, t *tenant, h *host, k *Ticket, r Result) end {
	took := max(now-k.Started, 0).Seconds()
	if r.Kind == NotSent {
		took = 0
	}
	e.correct(l, t, float64(k.Charged), took)
	if uint32(l.gen) != k.LaneGen {
		return e.finishStale(l, r)
	}
	p := e.profiles.at(l.profile)
	if r.Kind != NotSent && r.Kind != Unknown {
		e.observe(l, t, float32(took))
		e.answered(now, l, h, k, r)
	}
	return e.outcome(now, l, t, p, k, r, took)
}

// finishStale ends an attempt of a removed lane: the slot is free, the rest
// belongs to nobody any more.
func (e *Engine) finishStale(l *lane, r Result) end {
	if r.Kind == OK {
		l.delivered++
		e.total.Delivered++
		return end{kind: Done}
	}
	return e.dropDeleted(l)
}

// answered notes what the answer says about lane and host.
func (e *Engine) answered(now time.Duration, l *lane, h *host, k *Ticket, r Result) {
	if r.Kind != Failed {
		l.answered = second(now)
	}
	if r.Refused {
		e.hostRefused(now, k.Started, h, l.tenant)
	}
	if r.Kind == OK {
		e.hostSucceeded(h)
	}
}

func (e *Engine) outcome(now time.Duration, l *lane, t *tenant, p *profile, k *Ticket, r Result, took float64) end {
	if r.Kind != OK {
		l.streak = 0
	}
	switch r.Kind {
	case OK:
		return e.succeeded(now, l, p, k, took)
	case RejectedR:
		e.neutral(now, l, p, k)
		p.Budget.Answered(&l.window, &e.pool, now, k.Flags.spent(), k.Started)
		return e.bury(l, Rejected, k.Attempt+1)
	case Later:
		return e.later(now, l, p, k, r)
	case Failed:
		e.failed(now, l, p, k)
		return e.again(now, l, p, k, false)
	case Throttled:
		return e.throttled(now, l, p, k, r)
	case Gone:
		e.neutral(now, l, p, k)
		p.Budget.Answered(&l.window, &e.pool, now, k.Flags.spent(), k.Started)
		l.flags |= laneDisabled
		return e.rest(l, ByGone, k.Attempt+1)
	case Unknown:
		e.neutral(now, l, p, k)
		return e.rest(l, ByShutdown, k.Attempt+1)
	case NotSent:
		return e.notSent(now, l, t, p, k)
	}
	panic("engine: Finish needs one of the result kinds")
}

func (e *Engine) succeeded(now time.Duration, l *lane, p *profile, k *Ticket, took float64) end {
	l.delivered++
	e.total.Delivered++
	l.observeSuccess(float32(took))
	l.strikes = 0
	p.Budget.Succeeded(&l.window, &e.pool, now, k.Flags.spent(), k.Started)
	x := end{kind: Done, attempt: k.Attempt + 1}
	if p.Breaker.Success(&l.breaker, now, k.BreakerGen, k.Flags&FlagProbe != 0) {
		l.window.Failures = 0
		l.startRamp()
		x.flush = true
		return x
	}
	if now >= l.pausedUntil {
		l.climb()
	}
	return x
}

// later ends an attempt that only the slow schedule tries again: a redirect,
// which is a failure, or a 4xx, which is an answer.
func (e *Engine) later(now time.Duration, l *lane, p *profile, k *Ticket, r Result) end {
	if !r.Answered {
		e.failed(now, l, p, k)
		return e.again(now, l, p, k, true)
	}
	p.Budget.Answered(&l.window, &e.pool, now, k.Flags.spent(), k.Started)
	if r.Denied {
		p.Breaker.Denial(&l.breaker, now, k.BreakerGen, k.Flags&FlagProbe != 0, e.rand)
	} else {
		e.neutral(now, l, p, k)
	}
	return e.again(now, l, p, k, true)
}

func (e *Engine) failed(now time.Duration, l *lane, p *profile, k *Ticket) {
	p.Budget.Failed(&l.window, now)
	w := &l.window
	p.Breaker.Failure(&l.breaker, now, k.BreakerGen, k.Flags&FlagProbe != 0, w.Calls(), float64(w.Failures), e.rand)
}

func (e *Engine) neutral(now time.Duration, l *lane, p *profile, k *Ticket) {
	p.Breaker.Neutral(&l.breaker, now, k.BreakerGen, k.Flags&FlagProbe != 0)
}

// again parks a failed attempt until the schedule tries it again, or buries it.
func (e *Engine) again(now time.Duration, l *lane, p *profile, k *Ticket, slow bool) end {
	attempts := k.Attempt + 1
	if k.Flags&FlagProbe != 0 {
		x := e.rest(l, ByBreaker, attempts)
		x.at = l.breaker.NextProbe()
		return x
	}
	if p.MaxAttempts > 0 && attempts >= p.MaxAttempts {
		return e.bury(l, Exhausted, attempts)
	}
	due := now + p.Schedule.Delay(attempts, slow, e.rand)
	if due > k.Born+p.Horizon {
		return e.bury(l, Expired, attempts)
	}
	x := e.rest(l, ByRetry, attempts)
	x.at, x.due = due, true
	return x
}

// throttled pauses the lane. The attempt does not count, nor does its spend: the
// endpoint said when, not that it failed.
func (e *Engine) throttled(now time.Duration, l *lane, p *profile, k *Ticket, r Result) end {
	e.neutral(now, l, p, k)
	p.Budget.GiveBack(&l.window, &e.pool, now, k.Flags.spent(), k.Started)
	l.pausedUntil = max(l.pausedUntil, now+retry.Pause(r.RetryAfter, uint32(l.strikes), e.rand))
	l.strikes = min(l.strikes+1, 64)
	l.startRamp()
	x := e.rest(l, ByEndpoint, k.Attempt)
	x.at = l.pausedUntil
	return x
}

// notSent gives back slot, token, permit and budget, as if nothing had started.
func (e *Engine) notSent(now time.Duration, l *lane, t *tenant, p *profile, k *Ticket) end {
	e.neutral(now, l, p, k)
	p.Budget.GiveBack(&l.window, &e.pool, now, k.Flags.spent(), k.Started)
	if !p.Rate.IsUnlimited() {
		p.Rate.Refund(&l.bucket, now, int64(k.Cost), k.BucketEpoch)
	}
	if l.stopped(t) {
		return e.rest(l, ByPause, k.Attempt)
	}
	x := e.rest(l, ByLocal, k.Attempt)
	x.at, x.due = now+localWait, true
	return x
}

func (e *Engine) bury(l *lane, r Reason, attempt uint32) end {
	l.dead++
	e.total.Dead++
	return end{kind: Bury, reason: r, attempt: attempt}
}

// dropDeleted cancels what belongs to a removed lane.
func (e *Engine) dropDeleted(l *lane) end {
	l.cancelled++
	e.total.Cancelled++
	return end{kind: Drop, reason: Deleted}
}

// rest parks.
func (e *Engine) rest(l *lane, r Reason, attempts uint32) end {
	e.park(l, 1)
	return end{kind: Park, reason: r, attempt: attempts}
}
