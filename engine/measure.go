package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// Once a second, over the tenants active in the last minute, the engine
// measures what each wanted, what its max-min share was, and whether it got it.
// Nothing is decided by these figures.
//
//   - Demand, in slots: the expected slot time of the first attempts started in
//     the window, over its length, plus the due backlog that could run now, each
//     lane's within its cap and its contract. Never re-offers.
//   - Served over entitled. Whose demand is within its share is entitled to all
//     that its own limits let through, each within a second of its offer. Whose
//     demand is above is entitled to the share (to its nominal at most, if it has
//     no quick lane and so may not borrow), and is served by what it started or
//     holds.
//
// A window is judged one round later, when the second of its last offer is over.

const (
	roundEvery = time.Second
	promptIn   = time.Second // sent within it counts as served
	shortBelow = 0.97
)

// round is a tenant's part in the measuring: the open window and the one before.
type round struct {
	started float32   // expected slot seconds of all starts in the open window
	first   float32   // of first attempts alone
	through [2]uint32 // first offers that the tenant's own limits let through
	prompt  [2]uint32 // those sent within a second
	lent    bool      // a quick lane started

	demand, share float32 // slots
	entitled      float32 // slots, of the window before; 0: to all it offered
	used          float32 // slots started in the window before, or held at its end
	served        float32 // of the window judged last
	judged        bool    // it had an entitlement in that window
}

// measure is the platform's part.
type measure struct {
	next    time.Duration // instant of the next round; 0: nothing to measure
	began   time.Duration // of the open window
	demands []fair.Demand
	shares  []float64
	ratios  []float64
	sharer  fair.Sharer

	jain     float64
	short    int
	entitled int
}

func (m *measure) begin(now time.Duration) {
	m.began, m.next = now, now+roundEvery
}

// offered notes a first offer that the lane's own limits let through: sent, or
// refused for want of a slot, or behind others that wait for one.
func (e *Engine) offered(x *spot, attempt uint32, r Reason) {
	switch {
	case attempt > 0:
		return
	case r == None:
		x.t.round.prompt[0]++
	case r != BySlots && r != ByOrder || !e.through(x):
		return
	}
	x.t.round.through[0]++
}

// through reports whether only slots keep a fresh delivery and all before it:
// contract and cap have room for them, and the lane may borrow. (Who wants a slot
// for a slow lane beyond its nominal is held back by its own slowness.)
func (e *Engine) through(x *spot) bool {
	l, ahead := x.l, int64(x.l.waiting)
	if ahead > 0 && !l.at.ready() {
		return false
	}
	if room := x.room(); x.rate().Left(x.level(), x.now) <= ahead || room >= 0 && room <= ahead {
		return false
	}
	return e.order == Arrival || x.t.slowOut < e.nominal(x.t) || l.quick(x.now)
}

// start notes a start.
func (r *round) start(k *Ticket) {
	r.started += k.Charged
	if k.Attempt == 0 {
		r.first += k.Charged
	}
	if k.Flags&FlagSlow == 0 {
		r.lent = true
	}
}

// granted notes a waiting first attempt that went within a second, for the
// window of its offer.
func (e *Engine) granted(x *spot) {
	l := x.l
	if l.headAttempt > 0 || x.now-l.headDue > promptIn {
		return
	}
	if l.headDue >= e.measure.began {
		x.t.round.prompt[0]++
	} else {
		x.t.round.prompt[1]++
	}
}

// measureDue runs the round, if it is due.
func (e *Engine) measureDue(now time.Duration) {
	m := &e.measure
	if m.next == 0 || now < m.next {
		return
	}
	window := (now - m.began).Seconds()
	e.survey(window)
	m.sharer.MaxMin(float64(e.slots), m.demands, m.shares)
	e.turn(now, window)
	if len(e.active) == 0 {
		m.next = 0
		return
	}
	m.begin(now)
	e.wakeHosts(now)
}

// survey judges the window before the open one, and gathers the open one's
// demands.
func (e *Engine) survey(window float64) {
	m := &e.measure
	m.ratios, m.demands, m.shares, m.short = m.ratios[:0], m.demands[:0], m.shares[:0], 0
	for _, id := range e.active {
		t := e.tenants.at(uint32(id))
		r := &t.round
		if r.served, r.judged = r.ratio(); r.judged {
			m.ratios = append(m.ratios, float64(r.served))
			if r.served < shortBelow {
				m.short++
			}
		}
		want := float64(r.first)/window + float64(t.wants)/microSlots
		m.demands = append(m.demands, fair.Demand{Want: want, Weight: float64(t.weight)})
		m.shares = append(m.shares, 0)
	}
	m.jain, m.entitled = fair.Jain(m.ratios), len(m.ratios)
}

// ratio is served over entitled of the window before, at most 1; false without
// entitlement.
func (r *round) ratio() (float32, bool) {
	switch {
	case r.entitled > 0:
		return min(r.used/r.entitled, 1), true
	case r.through[1] > 0:
		return min(float32(r.prompt[1])/float32(r.through[1]), 1), true
	}
	return 0, false
}

// turn closes the open window and opens the next. Tenants that were idle for a
// minute go, and the rest is sorted by the nominal shares that this leaves.
func (e *Engine) turn(now time.Duration, window float64) {
	before := e.activeWeight
	for i := len(e.active) - 1; i >= 0; i-- {
		t := e.tenants.at(uint32(e.active[i]))
		if t.claims > 0 || t.inFlight > 0 {
			t.lastActive = now
		}
		if now-t.lastActive >= activeFor {
			e.deactivate(t)
			continue
		}
		e.entitle(t, e.measure.demands[i].Want, e.measure.shares[i], window)
		r := &t.round
		r.through = [2]uint32{0, r.through[0]}
		r.prompt = [2]uint32{0, r.prompt[0]}
		r.started, r.first, r.lent = 0, 0, false
	}
	if e.activeWeight != before {
		e.reclassifyAll(now)
	}
}

// entitle sets what the open window is judged by, one round later.
func (e *Engine) entitle(t *tenant, want, share, window float64) {
	r := &t.round
	r.demand, r.share = float32(want), float32(share)
	r.used = max(float32(float64(r.started)/window), float32(t.inFlight))
	if share >= want {
		r.entitled = 0
		return
	}
	if e.order == Fair && !r.lent && t.quick.Len() == 0 {
		share = min(share, float64(e.nominal(t)))
	}
	r.entitled = float32(share)
}

// reclassifyAll puts every ready tenant where it belongs after the nominal
// shares grew. (When they shrink, best notices.)
func (e *Engine) reclassifyAll(now time.Duration) {
	for _, id := range e.active {
		if t := e.tenants.at(uint32(id)); t.claims > 0 {
			e.reclassify(now, id, t)
		}
	}
}

// microSlots is the unit in which ready lanes' wants add up and come off exactly.
const microSlots = 1e6

// want returns the micro-slots that a ready lane could use in a second.
func (e *Engine) want(x *spot) int64 {
	count := float64(x.l.waiting)
	if r := x.rate(); !r.IsUnlimited() {
		count = min(count, float64(r.Left(x.level(), x.now))+r.PerSecond())
	}
	slots := count * float64(e.expected(x.l, x.t)) / roundEvery.Seconds()
	if x.l.cap >= 0 {
		slots = min(slots, float64(x.l.cap))
	}
	return int64(min(slots, float64(e.slots)) * microSlots)
}
