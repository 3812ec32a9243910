package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
)

// twin is the policies in their plainest form: it keeps every fact by itself,
// scans all lanes for every question, has no heaps, no wake-ups, no laziness.
// Only the order among those that could run is read from the engine's virtual
// times; what these should be has tests of its own.
type twin struct {
	groups    map[GroupID]*twinContract
	e         *Engine // for virtual times alone
	d         *driver // for the backlogs
	slots     int
	order     Order
	hostLimit int
	rand      retry.Rand
	pool      retry.Pool
	tenants   []*twinTenant
	lanes     []*twinLane
	hosts     map[HostID]*twinHost
	round     time.Duration // of the next measuring round; 0: none
}

type twinTenant struct {
	weight               int
	suspended            bool
	active               bool
	last                 time.Duration
	out, slowOut, probes int
}

type twinLane struct {
	PutLane
	breaker     breaker.State
	window      retry.Window
	paused      bool
	disabled    bool
	removed     bool
	pausedUntil time.Duration
	strikes     uint32
	out         int
	own         twinContract
	c           *twinContract // own, or a group's
	window2     int           // ramp: 0 none
	row         int
	credit      int
	account     Counters
	probesOut   map[Ticket]bool
}

// twinContract is what a receiver takes: a lane's, or a group's.
type twinContract struct {
	rate   limit.Rate
	level  limit.Level
	cap    int
	out    int
	starts []start
}

type start struct {
	at   time.Duration
	cost int64
}

type twinHost struct {
	out, limit int
	refused    TenantID
	known      bool
	at, halved time.Duration
}

func (w *twin) host(l *twinLane) *twinHost {
	h := w.hosts[l.Host]
	if h == nil {
		h = &twinHost{limit: w.hostLimit}
		w.hosts[l.Host] = h
	}
	return h
}

func (w *twin) inFlight() (n, probes int) {
	for _, t := range w.tenants {
		n += t.out
		probes += t.probes
	}
	return n, probes
}

func (w *twin) nominal(t *twinTenant) int {
	sum := 0
	for _, o := range w.tenants {
		if o.active {
			sum += o.weight
		}
	}
	if sum == 0 {
		return w.slots
	}
	return max(w.slots*t.weight/sum, 1)
}

// denied lists why an attempt may not start: reasons in the order of checks.
type denied []struct {
	reason Reason
	at     time.Duration
}

func (x *denied) add(r Reason, at time.Duration) {
	*x = append(*x, struct {
		reason Reason
		at     time.Duration
	}{r, at})
}

func (x denied) latest() (at time.Duration) {
	for _, d := range x {
		at = max(at, d.at)
	}
	return at
}

func (w *twin) quick(now time.Duration, l *twinLane) bool {
	m := w.e.lane(l.Lane)
	return m.quick(now)
}

// own lists the lane's own reasons.
func (w *twin) own(now time.Duration, l *twinLane, cost int64) (x denied, probe bool) {
	switch {
	case l.paused || l.removed || w.tenants[l.Tenant].suspended && !l.disabled:
		x.add(ByPause, 0)
	case l.disabled:
		x.add(ByGone, 0)
	}
	if now < l.pausedUntil {
		x.add(ByEndpoint, l.pausedUntil)
	}
	p := l.Profile.Breaker.Ask(&l.breaker, now)
	if !p.OK {
		x.add(ByBreaker, p.At)
	}
	if d := l.c.rate.Peek(&l.c.level, now, min(cost, l.c.rate.Burst())); !d.Allowed {
		at := time.Duration(0)
		if d.RetryIn > 0 {
			at = now + d.RetryIn
		}
		x.add(ByRate, at)
	}
	if l.c.cap >= 0 && l.c.out >= l.c.cap || l.window2 > 0 && l.out >= l.window2 {
		x.add(ByCap, 0)
	}
	return x, p.Probe
}

// slot reports whether the lane's tenant may take one.
func (w *twin) slot(now time.Duration, l *twinLane, probe bool) bool {
	used, probes := w.inFlight()
	if used >= w.slots {
		return false
	}
	if w.order == Arrival {
		return true
	}
	t := w.tenants[l.Tenant]
	n := w.nominal(t)
	if probe && (probes >= max(w.slots/20, 1) || t.probes >= max(n/10, 1)) {
		return false
	}
	if t.out < n {
		return true
	}
	if w.slots-used <= w.slots/100 {
		return false
	}
	return t.slowOut < n || w.quick(now, l) && !probe
}

func (w *twin) hostFull(l *twinLane) bool {
	return w.hostLimit > 0 && w.host(l).out >= w.host(l).limit
}

func (w *twin) budget(now time.Duration, l *twinLane, attempt uint32, probe bool) (retry.Permit, time.Duration) {
	if attempt == 0 || probe || l.Profile.NoBudget {
		return retry.Own, 0
	}
	p, wait := l.Profile.Budget.Ask(&l.window, &w.pool, now)
	return p, wait
}

// could reports whether the head of the lane's backlog could start now.
func (w *twin) could(now time.Duration, l *twinLane) bool {
	b := *w.d.backlog(l.Lane)
	if l.removed || len(b) == 0 || b[0].at > now {
		return false
	}
	x, probe := w.own(now, l, int64(b[0].cost))
	if len(x) > 0 || w.hostFull(l) || !w.slot(now, l, probe) {
		return false
	}
	perm, _ := w.budget(now, l, b[0].attempt, probe)
	return perm != retry.Refused
}

// offer says what should become of a fresh delivery. waits are the lanes that
// could start, in the order in which a free slot would go to them.
func (w *twin) offer(now time.Duration, d Delivery) (k Kind, r Reason, at time.Duration, probe bool) {
	l := w.lanes[d.Lane]
	switch {
	case l.removed:
		return Drop, Deleted, 0, false
	case !l.c.rate.IsUnlimited() && !l.c.rate.IsPaused() && int64(d.Cost) > l.c.rate.Burst():
		return Bury, TooCostly, 0, false
	}
	x, probe := w.own(now, l, int64(d.Cost))
	if len(x) == 0 {
		x = w.common(now, l, d.Behind, probe)
	}
	if len(x) == 0 {
		return Send, None, 0, probe
	}
	if l.Profile.Drop && (x[0].reason == ByRate || x[0].reason == ByCap) {
		return Drop, x[0].reason, x.latest(), false
	}
	return Park, x[0].reason, x.latest(), false
}

func (w *twin) common(now time.Duration, l *twinLane, behind, probe bool) (x denied) {
	if behind || w.behind(now, l) {
		x.add(ByOrder, 0)
	}
	if w.hostFull(l) {
		x.add(ByHost, 0)
	}
	used, _ := w.inFlight()
	if !w.slot(now, l, probe) || w.otherFirst(now, l) {
		if probe && used < w.slots {
			x.add(ByBreaker, 0)
		} else {
			x.add(BySlots, 0)
		}
	}
	return x
}

func (w *twin) behind(now time.Duration, l *twinLane) bool {
	b := *w.d.backlog(l.Lane)
	if len(b) == 0 || b[0].at > now {
		return false
	}
	probe := l.Profile.Breaker.Ask(&l.breaker, now).Probe
	if perm, _ := w.budget(now, l, b[0].attempt, probe); perm == retry.Refused {
		return false
	}
	return now-b[0].at < 10*time.Second || l.credit >= 4
}

// otherFirst reports whether a waiting lane other than l would get a free slot.
func (w *twin) otherFirst(now time.Duration, l *twinLane) bool {
	first := w.first(now)
	return first != nil && first != l
}

// first returns the lane that a free slot goes to. Of all lanes that may probe
// only the one that may since the longest is a candidate.
func (w *twin) first(now time.Duration) (best *twinLane) {
	w.touchWaiting(now)
	var probe *twinLane
	for _, l := range w.lanes {
		switch {
		case !w.could(now, l):
		case w.e.lane(l.Lane).at == inProbe:
			if probe == nil || w.probesBefore(l, probe) {
				probe = l
			}
		case best == nil || w.before(l, best):
			best = l
		}
	}
	if best == nil || probe != nil && w.before(probe, best) {
		return probe
	}
	return best
}

func (w *twin) probesBefore(a, b *twinLane) bool {
	x, y := w.e.lane(a.Lane).key, w.e.lane(b.Lane).key
	switch {
	case x != y:
		return x < y
	case a.Tenant != b.Tenant:
		return a.Tenant < b.Tenant
	}
	return (*keyOrder)(w.e).Less(uint32(a.Lane), uint32(b.Lane))
}

// before orders by the engine's virtual times: tenants, then lanes.
func (w *twin) before(a, b *twinLane) bool {
	switch {
	case w.order == Arrival:
		return (*arrivalOrder)(w.e).Less(uint32(a.Lane), uint32(b.Lane))
	case a.Tenant != b.Tenant:
		return w.e.tenantLess(uint32(a.Tenant), uint32(b.Tenant))
	}
	return w.e.laneLess(uint32(a.Lane), uint32(b.Lane))
}

// contract gives a new lane its contract: its own, or that of its group.
func (w *twin) contract(l *twinLane) *twinContract {
	l.c = &l.own
	if g := l.Profile.Group; g != 0 {
		if w.groups == nil {
			w.groups = map[GroupID]*twinContract{}
		}
		if w.groups[g] == nil {
			w.groups[g] = &twinContract{rate: l.Profile.Rate}
		}
		l.c = w.groups[g]
	} else {
		l.c.rate = l.Profile.Rate
	}
	return l.c
}

func (c *twinContract) change(now time.Duration, p *Profile) {
	p.Rate.Change(&c.level, now, &c.rate)
	if p.Rate != c.rate {
		c.starts = nil // another contract: its own intervals
	}
	c.rate, c.cap = p.Rate, p.Cap
}
