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
// the breaker's interval is what it waits for, and neither schedule nor attempt
// limit end it. (How many of a delivery's attempts were probes is not kept: if it
// later fails as an ordinary attempt, all of them count.)
func (e *Engine) Finish(now time.Duration, k Ticket, r Result) (v Verdict) {
	now = e.seen(now)
	if e.lane(k.Lane).inFlight == 0 {
		panic("engine: Finish without a start: each ticket ends exactly once")
	}
	x := spot{now: now, id: uint32(k.Lane)}
	x.l, x.t, x.p, x.h, x.g = e.look(x.id)
	x.h = e.hosts.at(uint32(k.Host)) // the lane may have moved meanwhile
	x.g = e.group(k.Group)           // or be removed
	x.l.inFlight--
	if x.g != nil {
		x.g.inFlight--
	}
	e.total.InFlight--
	e.vacate(x.t, x.h, k.Flags)
	out := e.conclude(&x, &k, &r)
	out.state(&v)
	if x.l.at != nowhere || x.l.waiting > 0 {
		e.place(now, x.id)
	}
	e.reclassify(now, x.l.tenant, x.t)
	e.wakeHost(now, x.h)
	e.wakeGroup(now, x.g)
	if k.Flags&FlagRetryReserve != 0 && e.reserve.at != never {
		e.reserve.at = now // it may have been given back
	}
	return v
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

// state writes x to v, the zero verdict.
func (x *end) state(v *Verdict) {
	v.Kind, v.Reason, v.Due, v.At, v.Attempt, v.Flush = x.kind, x.reason, x.due, x.at, x.attempt, x.flush
}

// conclude charges the slot and turns the result into a verdict.
func (e *Engine) conclude(x *spot, k *Ticket, r *Result) end {
	took := seconds(x.now - k.Started)
	if r.Kind == NotSent {
		took = 0
	}
	e.correct(x.l, x.t, float64(k.Charged), took)
	if uint32(x.l.gen) != k.LaneGen {
		return e.finishStale(x, r)
	}
	if r.Kind != OK {
		x.l.streak = 0
	}
	if r.Kind != NotSent && r.Kind != Unknown {
		e.observe(x.l, x.t, float32(took))
		e.answered(x, k, r)
	}
	return e.outcome(x, k, r)
}

// seconds is d in seconds, a rounding or two less exact than d.Seconds and ten
// times as fast: two of them are on every delivery's way.
func seconds(d time.Duration) float64 { return float64(d) * 1e-9 }

// finishStale ends an attempt of a removed lane: the slot is free, the rest
// belongs to nobody any more.
func (e *Engine) finishStale(x *spot, r *Result) end {
	if r.Kind == OK {
		x.l.delivered++
		e.total.Delivered++
		return end{kind: Done}
	}
	return e.dropDeleted(x.id)
}

// answered notes what the answer says about lane and host.
func (e *Engine) answered(x *spot, k *Ticket, r *Result) {
	if r.Kind != Failed {
		x.l.answered = second(x.now)
	}
	if r.Refused {
		e.hostRefused(x.now, k.Started, x.h, x.l.tenant)
	}
	if r.Kind == OK {
		e.hostSucceeded(x.h)
	}
}

func (e *Engine) outcome(x *spot, k *Ticket, r *Result) end {
	switch r.Kind {
	case OK:
		return e.succeeded(x, k)
	case RejectedR:
		x.neutral(k)
		e.countAnswer(x, k)
		return e.bury(x.l, Rejected, k.Attempt+1)
	case Later:
		return e.later(x, k, r)
	case Failed:
		e.failed(x, k)
		return e.again(x, k, false)
	case Throttled:
		return e.throttled(x, k, r)
	case Gone:
		x.neutral(k)
		e.countAnswer(x, k)
		x.l.flags |= laneDisabled
		return e.rest(x.l, ByGone, k.Attempt+1)
	case Unknown:
		x.neutral(k)
		return e.rest(x.l, ByShutdown, k.Attempt+1)
	case NotSent:
		return e.notSent(x, k)
	}
	panic("engine: Finish needs one of the result kinds")
}

func (e *Engine) succeeded(x *spot, k *Ticket) end {
	l := x.l
	l.delivered++
	e.total.Delivered++
	l.observeSuccess(float32(seconds(x.now - k.Started)))
	if l.ramp > 0 {
		l.strikes = 0
	}
	x.p.Budget.Succeeded(&l.window, &e.pool, x.now, k.Flags.spent(), k.Started)
	v := end{kind: Done, attempt: k.Attempt + 1}
	if x.p.Breaker.Success(&l.breaker, x.now, k.BreakerGen, k.probe()) {
		l.window.Failures = 0
		l.startRamp()
		v.flush = true
		return v
	}
	if x.now >= l.pausedUntil {
		l.climb()
	}
	return v
}

// later ends an attempt that only the slow schedule tries again: a redirect,
// which is a failure, or a 4xx, which is an answer.
func (e *Engine) later(x *spot, k *Ticket, r *Result) end {
	switch {
	case !r.Answered:
		e.failed(x, k)
	case r.Denied:
		e.countAnswer(x, k)
		x.p.Breaker.Denial(&x.l.breaker, x.now, k.BreakerGen, k.probe(), e.rand)
	default:
		e.countAnswer(x, k)
		x.neutral(k)
	}
	return e.again(x, k, true)
}

// failed counts a failure, for budget and breaker.
func (e *Engine) failed(x *spot, k *Ticket) {
	w := &x.l.window
	x.p.Budget.Failed(w, x.now)
	x.p.Breaker.Failure(&x.l.breaker, x.now, k.BreakerGen, k.probe(), w.Calls(), float64(w.Failures), e.rand)
}

// countAnswer counts an answer that is no 2xx, for the budget.
func (e *Engine) countAnswer(x *spot, k *Ticket) {
	x.p.Budget.Answered(&x.l.window, &e.pool, x.now, k.Flags.spent(), k.Started)
}

// neutral counts neither way for the breaker, and frees a probe's place.
func (x *spot) neutral(k *Ticket) {
	x.p.Breaker.Neutral(&x.l.breaker, x.now, k.BreakerGen, k.probe())
}

func (k *Ticket) probe() bool { return k.Flags&FlagProbe != 0 }

// again parks a failed attempt until the schedule tries it again, or buries it.
func (e *Engine) again(x *spot, k *Ticket, slow bool) end {
	attempts := k.Attempt + 1
	if k.probe() {
		v := e.rest(x.l, ByBreaker, attempts)
		v.at = x.l.breaker.NextProbe()
		return v
	}
	if x.p.MaxAttempts > 0 && attempts >= x.p.MaxAttempts {
		return e.bury(x.l, Exhausted, attempts)
	}
	due := x.now + x.p.Schedule.Delay(attempts, slow, e.rand)
	if due > k.Born+x.p.Horizon {
		return e.bury(x.l, Expired, attempts)
	}
	v := e.rest(x.l, ByRetry, attempts)
	v.at, v.due = due, true
	return v
}

// throttled pauses the lane. The attempt does not count, nor does its spend: the
// endpoint said when, not that it failed.
func (e *Engine) throttled(x *spot, k *Ticket, r *Result) end {
	l := x.l
	x.neutral(k)
	x.p.Budget.GiveBack(&l.window, &e.pool, x.now, k.Flags.spent(), k.Started)
	l.pausedUntil = max(l.pausedUntil, x.now+retry.Pause(r.RetryAfter, uint32(l.strikes), e.rand))
	l.strikes = min(l.strikes+1, 64)
	l.startRamp()
	v := e.rest(l, ByEndpoint, k.Attempt)
	v.at, v.due = l.pausedUntil, true // stored, so that a restart keeps the pause
	return v
}

// notSent gives back slot, token, permit and budget, as if nothing had started.
func (e *Engine) notSent(x *spot, k *Ticket) end {
	x.neutral(k)
	x.p.Budget.GiveBack(&x.l.window, &e.pool, x.now, k.Flags.spent(), k.Started)
	if r := x.rate(); !r.IsUnlimited() {
		r.Refund(x.level(), x.now, int64(k.Cost), k.BucketEpoch)
	}
	if x.l.stopped(x.t) {
		return e.rest(x.l, ByPause, k.Attempt)
	}
	v := e.rest(x.l, ByLocal, k.Attempt)
	v.at, v.due = x.now+localWait, true
	return v
}

func (e *Engine) bury(l *lane, r Reason, attempt uint32) end {
	l.dead++
	e.total.Dead++
	return end{kind: Bury, reason: r, attempt: attempt}
}

// dropDeleted cancels what belongs to a removed lane.
func (e *Engine) dropDeleted(id uint32) end {
	e.lost.at(id).cancelled++
	e.total.Cancelled++
	return end{kind: Drop, reason: Deleted}
}

// rest parks.
func (e *Engine) rest(l *lane, r Reason, attempts uint32) end {
	e.park(l, 1)
	return end{kind: Park, reason: r, attempt: attempts}
}
