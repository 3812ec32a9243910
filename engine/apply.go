package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/retry"
)

// FieldError is a change that Apply refused: the field and the rule it breaks.
// Nothing was changed.
type FieldError struct{ Field, Rule string }

func (e *FieldError) Error() string { return "engine: " + e.Field + ": " + e.Rule }

func refuse(field, rule string, args ...any) error {
	return &FieldError{Field: field, Rule: fmt.Sprintf(rule, args...)}
}

// Apply carries out a change, or returns a *FieldError and changes nothing. No
// change refills a bucket.
func (e *Engine) Apply(now time.Duration, c Change) error {
	now = e.seen(now)
	switch c := c.(type) {
	case PutTenant:
		return e.putTenant(now, c)
	case RemoveTenant:
		return e.removeTenant(c)
	case PutLane:
		return e.putLane(now, c)
	case PauseLane:
		return e.pauseLane(now, c)
	case RemoveLane:
		return e.removeLane(now, c)
	case RestoreLane:
		return e.restoreLane(now, c)
	case SetSlots:
		return e.setSlots(now, c)
	}
	panic("engine: Apply needs one of the Change types")
}

// maxID bounds ids: they are dense, so a larger one is a mistake that would
// allocate its whole range.
const maxID = 1 << 28

func (e *Engine) knownTenant(id TenantID) *tenant {
	if int(id) >= e.tenants.len() || !e.tenants.at(uint32(id)).known {
		return nil
	}
	return e.tenants.at(uint32(id))
}

func (e *Engine) knownLane(id LaneID) (*lane, error) {
	if int(id) < e.lanes.len() {
		if l := e.lanes.at(uint32(id)); l.flags&(laneKnown|laneRemoved) == laneKnown {
			return l, nil
		}
	}
	return nil, refuse("lane", "must be one that PutLane added and RemoveLane did not remove, is %d", id)
}

func (e *Engine) putTenant(now time.Duration, c PutTenant) error {
	if c.Weight < 0 || c.Weight > 1000 {
		return refuse("tenant.weight", "must be 1 to 1000, or 0 for 1, is %d", c.Weight)
	}
	if c.Tenant >= maxID {
		return refuse("tenant", "must be a dense id below %d, is %d", maxID, c.Tenant)
	}
	e.tenants.grow(uint32(c.Tenant))
	t := e.tenants.at(uint32(c.Tenant))
	t.known = true
	e.setWeight(now, c.Tenant, t, int32(max(c.Weight, 1)))
	if t.suspended != c.Suspended {
		t.suspended = c.Suspended
		e.replaceLanesOf(now, c.Tenant)
	}
	return nil
}

// setWeight changes a tenant's weight, and with it, if it is active, everybody's
// nominal share.
func (e *Engine) setWeight(now time.Duration, id TenantID, t *tenant, w int32) {
	by := int64(w - t.weight)
	t.weight = w
	if t.active == 0 || by == 0 {
		return
	}
	e.activeWeight += by
	if by < 0 {
		e.reclassifyAll(now)
	} else {
		e.reclassify(now, id, t)
	}
}

// replaceLanesOf places a tenant's lanes anew after it was suspended or resumed.
// Resuming ramps. It looks at every lane of the platform: it is rare.
func (e *Engine) replaceLanesOf(now time.Duration, id TenantID) {
	for i := range e.lanes.len() {
		l := e.lanes.at(uint32(i))
		if l.tenant != id || l.flags&laneKnown == 0 {
			continue
		}
		if !e.tenants.at(uint32(id)).suspended {
			l.startRamp()
		}
		e.place(now, uint32(i))
	}
}

func (e *Engine) removeTenant(c RemoveTenant) error {
	t := e.knownTenant(c.Tenant)
	switch {
	case t == nil:
		return refuse("tenant", "must be one that PutTenant added, is %d", c.Tenant)
	case t.lanes > 0:
		return refuse("tenant", "must have no lanes left, has %d", t.lanes)
	}
	t.known = false
	return nil
}

func (e *Engine) checkLane(c *PutLane) error {
	t := e.knownTenant(c.Tenant)
	switch {
	case t == nil:
		return refuse("lane.tenant", "must be one that PutTenant added, is %d", c.Tenant)
	case c.Lane >= maxID:
		return refuse("lane", "must be a dense id below %d, is %d", maxID, c.Lane)
	case c.Host >= maxID:
		return refuse("lane.host", "must be a dense id below %d, is %d", maxID, c.Host)
	}
	if int(c.Lane) < e.lanes.len() {
		l := e.lanes.at(uint32(c.Lane))
		if l.flags&laneRemoved != 0 {
			return refuse("lane", "must be a new id: %d was removed, and ids are never reused", c.Lane)
		}
		if l.flags&laneKnown != 0 && l.tenant != c.Tenant {
			return refuse("lane.tenant", "must stay %d: a lane never changes its tenant", l.tenant)
		}
	}
	if err := e.checkGroup(c); err != nil {
		return err
	}
	return checkProfile(&c.Profile)
}

func checkProfile(p *Profile) error {
	switch {
	case p.Cap < -1 || p.Cap > math.MaxInt32:
		return refuse("lane.profile.cap", "must be -1 for none, 0 for paused, or more, is %d", p.Cap)
	case p.Horizon < 0 || p.Horizon > retry.MaxDelay:
		return refuse("lane.profile.horizon", "must be 0 for 72h, or up to 366 days, is %v", p.Horizon)
	case p.Timeout < 0:
		return refuse("lane.profile.timeout", "must be 0 for 15s, or more, is %v", p.Timeout)
	case !finite(p.Budget.Ratio):
		return refuse("lane.profile.budget.ratio", "must be finite, is %v", p.Budget.Ratio)
	case !finite(p.Budget.Reserve):
		return refuse("lane.profile.budget.reserve", "must be finite, is %v", p.Budget.Reserve)
	case !finite(p.Schedule.SlowJitter):
		return refuse("lane.profile.schedule.slowjitter", "must be finite, is %v", p.Schedule.SlowJitter)
	case !finite(p.Breaker.MinCalls) || !finite(p.Breaker.Ratio):
		return refuse("lane.profile.breaker", "must be finite, is %v of %v", p.Breaker.Ratio, p.Breaker.MinCalls)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func (e *Engine) putLane(now time.Duration, c PutLane) error {
	if err := e.checkLane(&c); err != nil {
		return err
	}
	e.lanes.grow(uint32(c.Lane))
	e.hosts.grow(uint32(c.Host))
	l := e.lanes.at(uint32(c.Lane))
	t := e.tenants.at(uint32(c.Tenant))
	was := e.unplace(l, t)
	old := l.host
	if l.flags&laneKnown == 0 {
		e.addLane(l, &c, t)
		e.joinGroup(uint32(c.Lane), e.profiles.at(l.profile), int32(c.Profile.Cap))
	} else {
		e.editLane(now, l, &c)
	}
	l.host, l.cap = c.Host, int32(c.Profile.Cap)
	l.setPaused(c.Paused)
	x := e.spot(now, uint32(c.Lane))
	if x.g != nil {
		x.g.put(now, x.p, l.cap)
	}
	e.replace(&x, was, false)
	e.wakeGroup(now, x.g)
	if old != l.host {
		e.wakeHost(now, e.hosts.at(uint32(old)))
	}
	return nil
}

func (e *Engine) addLane(l *lane, c *PutLane, t *tenant) {
	l.flags = laneKnown
	l.tenant = c.Tenant
	l.profile = e.profiles.hold(c.Profile)
	t.lanes++
}

func (e *Engine) editLane(now time.Duration, l *lane, c *PutLane) {
	old := l.profile
	l.profile = e.profiles.hold(c.Profile)
	was, is := e.profiles.at(old), e.profiles.at(l.profile)
	is.Rate.Change(&l.bucket, now, &was.Rate)
	e.profiles.release(old)
	if c.NewURL {
		if l.breaker.NextProbe() > 0 {
			l.startRamp()
		}
		is.Breaker.Reset(&l.breaker)
		l.window.Failures = 0
		l.flags &^= laneDisabled
		l.pausedUntil, l.strikes = 0, 0
	}
}

// setPaused pauses or resumes; resuming ramps.
func (l *lane) setPaused(paused bool) {
	if paused {
		l.flags |= lanePaused
		return
	}
	if l.flags&lanePaused != 0 {
		l.startRamp()
	}
	l.flags &^= lanePaused
}

func (e *Engine) pauseLane(now time.Duration, c PauseLane) error {
	l, err := e.knownLane(c.Lane)
	if err != nil {
		return err
	}
	if !c.Paused && l.flags&laneDisabled != 0 {
		l.flags &^= laneDisabled
		l.startRamp()
	}
	l.setPaused(c.Paused)
	e.place(now, uint32(c.Lane))
	return nil
}

func (e *Engine) removeLane(now time.Duration, c RemoveLane) error {
	l, err := e.knownLane(c.Lane)
	if err != nil {
		return err
	}
	x := e.spot(now, uint32(c.Lane))
	was := e.unplace(l, x.t)
	l.flags |= laneRemoved
	l.gen++
	n := l.parked
	e.unpark(l, n)
	l.cancelled += uint64(n)
	e.total.Cancelled += uint64(n)
	x.t.lanes--
	x.g.leave(x.id)
	e.profiles.release(l.profile)
	e.replace(&x, was, false)
	return nil
}

func (e *Engine) restoreLane(now time.Duration, c RestoreLane) error {
	l, err := e.knownLane(c.Lane)
	switch {
	case err != nil:
		return err
	case l.flags&laneUsed != 0:
		return refuse("lane", "must be restored before its first Offer, %d was used", c.Lane)
	case c.Counters.InFlight != 0:
		return refuse("counters.inflight", "must be 0: what was in flight is parked by now, is %d", c.Counters.InFlight)
	case !c.Counters.Balanced():
		return refuse("counters", "must balance: offered = delivered + parked + dead + in flight + cancelled + dropped")
	case c.Counters.Parked > math.MaxUint32 || c.Counters.Dead > math.MaxUint32:
		return refuse("counters.parked, counters.dead", "must be below 2^32")
	case c.Tokens < 0:
		return refuse("tokens", "must be 0 or more, is %d", c.Tokens)
	}
	e.addTotals(l, -1)
	k := c.Counters
	l.offered, l.delivered, l.cancelled, l.dropped = k.Offered, k.Delivered, k.Cancelled, k.Dropped
	l.dead, l.parked = uint32(k.Dead), uint32(k.Parked)
	e.addTotals(l, 1)
	x := e.spot(now, uint32(c.Lane))
	if left := c.Tokens; x.g == nil || left < x.rate().Left(x.level(), now) { // of a group's lanes the least
		x.rate().SetLeft(x.level(), now, left)
	}
	if c.PausedUntil > now {
		l.pausedUntil = c.PausedUntil
		l.startRamp()
	}
	return nil
}

// addTotals adds the lane's account to the platform's, sign times.
func (e *Engine) addTotals(l *lane, sign int) {
	n := uint64(sign)
	e.total.Offered += n * l.offered
	e.total.Delivered += n * l.delivered
	e.total.Cancelled += n * l.cancelled
	e.total.Dropped += n * l.dropped
	e.total.Dead += n * uint64(l.dead)
	e.total.Parked += n * uint64(l.parked)
}

func (e *Engine) setSlots(now time.Duration, c SetSlots) error {
	if c.Slots < 1 || c.Slots > math.MaxInt32 {
		return refuse("slots", "must be 1 or more, is %d", c.Slots)
	}
	e.slots = c.Slots
	e.reclassifyAll(now)
	e.wakeHosts(now)
	return nil
}
