package engine

import (
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/retry"
)

// counters returns the lane's account.
func (e *Engine) counters(id uint32) Counters {
	l, lost := e.lanes.at(id), e.lost.at(id)
	return Counters{
		Offered: l.offered, Delivered: l.delivered, Dead: uint64(l.dead),
		Cancelled: lost.cancelled, Dropped: lost.dropped,
		Parked: uint64(l.parked), InFlight: uint64(l.inFlight),
	}
}

// Lane returns one lane, or false if Apply never added it. A removed lane is
// still there, with its account.
func (e *Engine) Lane(now time.Duration, id LaneID) (LaneView, bool) {
	now = e.seen(now)
	if int(id) >= e.lanes.len() || e.lanes.at(uint32(id)).flags&laneKnown == 0 {
		return LaneView{}, false
	}
	return e.view(now, uint32(id)), true
}

// Lanes hands every lane that was not removed to visit, by id.
func (e *Engine) Lanes(now time.Duration, visit func(LaneView)) {
	now = e.seen(now)
	for i := range e.lanes.len() {
		if l := e.lanes.at(uint32(i)); l.flags&(laneKnown|laneRemoved) == laneKnown {
			visit(e.view(now, uint32(i)))
		}
	}
}

func (e *Engine) view(now time.Duration, id uint32) LaneView {
	x := e.spot(now, id)
	l := x.l
	v := LaneView{
		Lane: LaneID(id), Tenant: l.tenant, Host: l.host, Counters: e.counters(id),
		Waiting: Backlog{
			Count: l.waiting, HeadDue: l.headDue, HeadBorn: l.headBorn,
			HeadAttempt: l.headAttempt, HeadCost: l.headCost,
		},
		Cap:      int(l.cap),
		Paused:   l.flags&lanePaused != 0 || x.t.suspended,
		Disabled: l.flags&laneDisabled != 0,
		Removed:  l.flags&laneRemoved != 0,
		Breaker:  l.breaker.Phase(now), Probe: l.breaker.NextProbe(),
		ByDenial: l.breaker.ByDenial(),
		MeanSlot: duration(l.mean), P99: duration(l.p99),
	}
	v.PausedFor = max(l.pausedUntil-now, 0)
	if l.ramp > 0 {
		v.Ramp = 1 << (l.ramp - 1)
	}
	if !v.Removed {
		v.Tokens = x.rate().Left(x.level(), now)
		v.Offered = l.window.Offered(now, x.p.Budget.HalfLife)
		v.Budget, v.Failing = 1, failureRatio(&l.window)
		if !x.p.NoBudget {
			v.Budget = x.p.Budget.Fill(&l.window, now)
		}
		v.Blocked, v.Until = e.blocked(&x)
	}
	return v
}

// failureRatio is the share of failures in what the breaker counts; both decay alike.
func failureRatio(w *retry.Window) float64 {
	if calls := w.Calls(); calls > 0 {
		return float64(w.Failures) / calls
	}
	return 0
}

// blocked says why the lane's head does not go now.
func (e *Engine) blocked(x *spot) (Reason, time.Duration) {
	l := x.l
	if l.waiting == 0 {
		return None, 0
	}
	d, _ := x.own(l.headCost)
	if l.headDue > x.now {
		d.until(ByRetry, l.headDue)
	}
	switch {
	case l.at == inHost:
		d.byEvent(ByHost)
	case l.at == inReserve:
		d.until(ByBudget, e.reserve.at)
	case l.flags&laneBudget != 0:
		d.until(ByBudget, time.Duration(l.key))
	case l.at == inProbe:
		d.byEvent(ByBreaker)
	case l.at.ready():
		d.byEvent(BySlots)
	}
	return d.reason, d.at
}

func duration(seconds float32) time.Duration {
	return time.Duration(float64(seconds) * float64(time.Second))
}

// Broke reports whether all that the lane's head lacks is retry budget: another that has not been tried could go.
func (e *Engine) Broke(id LaneID) bool { return e.lane(id).flags&laneBudget != 0 }

// Tenants hands every tenant that was not removed to visit, by id.
func (e *Engine) Tenants(visit func(TenantView)) {
	for i := range e.tenants.len() {
		if t := e.tenants.at(uint32(i)); t.known {
			visit(e.tenantView(TenantID(i), t))
		}
	}
}

// Tenant returns one tenant as plain data, and reports whether there is one.
func (e *Engine) Tenant(id TenantID) (TenantView, bool) {
	if int(id) >= e.tenants.len() || !e.tenants.at(uint32(id)).known {
		return TenantView{}, false
	}
	return e.tenantView(id, e.tenants.at(uint32(id))), true
}

func (e *Engine) tenantView(id TenantID, t *tenant) TenantView {
	v := TenantView{
		Tenant: id, Weight: int(t.weight), InFlight: int(t.inFlight),
		Nominal: int(e.nominal(t)), Share: float64(t.round.share),
		Demand: float64(t.round.demand), Served: math.NaN(),
	}
	if t.active > 0 && t.round.judged {
		v.Served = float64(t.round.served)
		v.Short = v.Served < shortBelow
	}
	return v
}

// Stats returns the platform as plain data.
func (e *Engine) Stats(now time.Duration) Stats {
	now = e.seen(now)
	s := Stats{
		Slots: e.slots, InFlight: e.inFlight, Counters: e.total,
		Jain: e.measure.jain, ShortChanged: e.measure.short, Entitled: e.measure.entitled,
		Reserve: e.pool.Fill(now), Denials: e.denials,
	}
	if s.Entitled == 0 {
		s.Jain = 1
	}
	return s
}
