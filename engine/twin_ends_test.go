package engine

import (
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/retry"
)

// begin takes what a start takes.
func (w *twin) begin(t *rapid.T, now time.Duration, k Ticket, cost int64) {
	l := w.lanes[k.Lane]
	tn := w.tenants[l.Tenant]
	p := l.Profile.Breaker.Ask(&l.breaker, now)
	if !p.OK || p.Probe != (k.Flags&FlagProbe != 0) {
		t.Fatalf("lane %d: started as %+v where the breaker says %+v", k.Lane, k, p)
	}
	if k.Flags&FlagProbe == 0 && k.Attempt > 0 && !l.Profile.NoBudget {
		perm, _ := l.Profile.Budget.Ask(&l.window, &w.pool, now)
		if perm == retry.Refused || perm != k.Flags.spent() {
			t.Fatalf("lane %d: retry %+v went where the budget says %v", k.Lane, k, perm)
		}
		l.Profile.Budget.Spend(&l.window, &w.pool, now, perm)
	}
	l.Profile.Breaker.Take(&l.breaker, now, p)
	cost = min(cost, l.c.rate.Burst())
	if d := l.c.rate.Take(&l.c.level, now, cost); !d.Allowed {
		t.Fatalf("lane %d: started beyond its contract", k.Lane)
	}
	l.c.starts = append(l.c.starts, start{now, cost})
	w.touch(now, tn)
	l.out++
	l.c.out++
	tn.out++
	w.host(l).out++
	if k.Flags&FlagSlow != 0 {
		tn.slowOut++
	}
	if k.Flags&FlagProbe != 0 {
		tn.probes++
		l.probesOut[k] = true
	}
	l.account.InFlight++
}

// end says what should become of an attempt.
func (w *twin) end(now time.Duration, k Ticket, r Result) Verdict {
	l := w.lanes[k.Lane]
	tn, h := w.tenants[l.Tenant], w.hosts[k.Host]
	l.out--
	l.c.out--
	tn.out--
	h.out--
	if k.Flags&FlagSlow != 0 {
		tn.slowOut--
	}
	if k.Flags&FlagProbe != 0 {
		tn.probes--
		delete(l.probesOut, k)
	}
	l.account.InFlight--
	if l.removed {
		if r.Kind == OK {
			l.account.Delivered++
			return Verdict{Kind: Done}
		}
		l.account.Cancelled++
		return Verdict{Kind: Drop, Reason: Deleted}
	}
	w.hostSays(now, l, h, k, r)
	v := w.result(now, l, k, r)
	switch v.Kind {
	case Done:
		l.account.Delivered++
	case Bury:
		l.account.Dead++
	case Park:
		l.account.Parked++
	}
	return v
}

func (w *twin) hostSays(now time.Duration, l *twinLane, h *twinHost, k Ticket, r Result) {
	if w.hostLimit < 0 || r.Kind == NotSent || r.Kind == Unknown {
		return
	}
	if r.Refused {
		two := h.known && h.refused != l.Tenant && now-h.at <= 10*time.Second
		h.known, h.refused, h.at = true, l.Tenant, now
		if two && k.Started >= h.halved {
			h.halved = now
			h.limit = max(min(h.limit, h.out)/2, 2)
		}
	}
	if r.Kind == OK && h.limit < w.hostLimit {
		h.limit++
	}
}

func (w *twin) result(now time.Duration, l *twinLane, k Ticket, r Result) Verdict {
	p, probe, spent := l.Profile, k.Flags&FlagProbe != 0, k.Flags.spent()
	if r.Kind != OK {
		l.row = 0
	}
	neutral := func() { p.Breaker.Neutral(&l.breaker, now, k.BreakerGen, probe) }
	failure := func() {
		p.Budget.Failed(&l.window, now)
		p.Breaker.Failure(&l.breaker, now, k.BreakerGen, probe, l.window.Calls(), float64(l.window.Failures), w.rand)
	}
	switch r.Kind {
	case OK:
		p.Budget.Succeeded(&l.window, &w.pool, now, spent, k.Started)
		l.strikes = 0
		if p.Breaker.Success(&l.breaker, now, k.BreakerGen, probe) {
			l.window.Failures = 0
			l.window2, l.row = 1, 0
			return Verdict{Kind: Done, Flush: true}
		}
		w.climb(now, l)
		return Verdict{Kind: Done}
	case RejectedR:
		neutral()
		p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
		return Verdict{Kind: Bury, Reason: Rejected, Attempt: k.Attempt + 1}
	case Later:
		switch {
		case !r.Answered:
			failure()
		case r.Denied:
			p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
			p.Breaker.Denial(&l.breaker, now, k.BreakerGen, probe, w.rand)
		default:
			p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
			neutral()
		}
		return w.retry(now, l, k, true)
	case Failed:
		failure()
		return w.retry(now, l, k, false)
	case Throttled:
		neutral()
		p.Budget.GiveBack(&l.window, &w.pool, now, spent, k.Started)
		l.pausedUntil = max(l.pausedUntil, now+retry.Pause(r.RetryAfter, l.strikes, w.rand))
		l.strikes++
		l.window2, l.row = 1, 0
		return Verdict{Kind: Park, Reason: ByEndpoint, At: l.pausedUntil, Due: true, Attempt: k.Attempt}
	case Gone:
		neutral()
		p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
		l.disabled = true
		return Verdict{Kind: Park, Reason: ByGone, Attempt: k.Attempt + 1}
	case Unknown:
		neutral()
		return Verdict{Kind: Park, Reason: ByShutdown, Attempt: k.Attempt + 1}
	}
	neutral()
	p.Budget.GiveBack(&l.window, &w.pool, now, spent, k.Started)
	l.c.rate.Refund(&l.c.level, now, int64(k.Cost), k.BucketEpoch)
	w.unsend(l, k)
	if l.paused || l.disabled || w.tenants[l.Tenant].suspended {
		return Verdict{Kind: Park, Reason: ByPause, Attempt: k.Attempt}
	}
	return Verdict{Kind: Park, Reason: ByLocal, At: now + time.Second, Due: true, Attempt: k.Attempt}
}

// unsend forgets a start of which no byte left.
func (w *twin) unsend(l *twinLane, k Ticket) {
	for i, s := range l.c.starts {
		if s.at == k.Started && s.cost == int64(k.Cost) {
			l.c.starts = append(l.c.starts[:i], l.c.starts[i+1:]...)
			return
		}
	}
}

func (w *twin) retry(now time.Duration, l *twinLane, k Ticket, slow bool) Verdict {
	n := k.Attempt + 1
	if k.Flags&FlagProbe != 0 {
		return Verdict{Kind: Park, Reason: ByBreaker, At: l.breaker.NextProbe(), Attempt: n}
	}
	if m := l.Profile.MaxAttempts; m > 0 && n >= m {
		return Verdict{Kind: Bury, Reason: Exhausted, Attempt: n}
	}
	due := now + l.Profile.Schedule.Delay(n, slow, w.rand)
	if due > k.Born+l.Profile.Horizon {
		return Verdict{Kind: Bury, Reason: Expired, Attempt: n}
	}
	return Verdict{Kind: Park, Reason: ByRetry, At: due, Due: true, Attempt: n}
}

func (w *twin) climb(now time.Duration, l *twinLane) {
	if l.window2 == 0 || now < l.pausedUntil {
		return
	}
	l.row++
	if l.row < l.window2 {
		return
	}
	l.window2, l.row = l.window2*2, 0
	if l.Profile.Cap >= 0 && l.window2 >= l.Profile.Cap {
		l.window2 = 0
	}
}

func (w *twin) touch(now time.Duration, t *twinTenant) {
	t.active, t.last = true, now
	if w.round == 0 {
		w.round = now + time.Second
	}
}

// touchWaiting counts tenants as active whose lanes wait for a slot.
func (w *twin) touchWaiting(now time.Duration) {
	for i, t := range w.tenants {
		if w.e.tenants.at(uint32(i)).claims > 0 {
			w.touch(now, t)
		}
	}
}

// tick lets tenants that were idle for a minute stop counting, once a second.
func (w *twin) tick(now time.Duration) {
	if w.round == 0 || now < w.round {
		return
	}
	left := false
	for i, t := range w.tenants {
		if w.e.tenants.at(uint32(i)).claims > 0 || t.out > 0 {
			t.last = now
		}
		t.active = t.active && now-t.last < time.Minute
		left = left || t.active
	}
	w.round = 0
	if left {
		w.round = now + time.Second
	}
}

// wantContract checks B + rT over every interval between two starts.
func (l *twinLane) wantContract(t *rapid.T) {
	r := l.c.rate
	if r.IsUnlimited() {
		return
	}
	for i := range l.c.starts {
		sum := int64(0)
		for j := i; j < len(l.c.starts); j++ {
			sum += l.c.starts[j].cost
			span := (l.c.starts[j].at - l.c.starts[i].at).Seconds()
			if float64(sum) > float64(r.Burst())+r.PerSecond()*span+1e-6 {
				t.Fatalf("lane %d: %d tokens in %vs, contract %v", l.Lane, sum, span, r.String())
			}
		}
	}
}
