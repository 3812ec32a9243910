package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// Slots are shared by virtual time: a free slot goes to the ready tenant that
// has used the least slot time over its weight, and inside it to the ready lane
// that has used the least (package fair says why and states the bound).
//
// Two rules keep a quiet tenant's wait short. Below its nominal share a tenant
// may take any slot. At or above it, it runs on what others do not use:
//
//   - floor(slots/100) slots stay closed to it, so that a quiet one finds a slot;
//   - only quick lanes run on lent slots. Of a tenant's other lanes at most its
//     nominal are in flight, so what is lent returns soon. (Counting the slow ones
//     alone, instead of refusing a slow lane to any tenant above nominal, bounds a
//     black hole just the same, and a busy tenant's new or slow lanes still run.)
//
// A probe holds its slot for a timeout as a rule, so probes are few: at most a
// twentieth of the slots together and a tenth of a tenant's nominal, at least
// one; the lane that may probe since the longest goes first.

const (
	reservedPart = 100 // one slot in so many is closed to tenants above nominal
	probePart    = 20  // one slot in so many may probe
	probeTenant  = 10  // and one in so many of a tenant's nominal
)

// nominal returns the tenant's share of the slots among those that are active.
func (e *Engine) nominal(t *tenant) int32 {
	if e.activeWeight == 0 {
		return int32(e.slots)
	}
	return int32(max(int64(e.slots)*int64(t.weight)/e.activeWeight, 1))
}

// lends reports whether a slot is free for tenants above nominal.
func (e *Engine) lends() bool { return e.slots-e.inFlight > e.slots/reservedPart }

// mayProbe reports whether a probe of t may start.
func (e *Engine) mayProbe(t *tenant) bool {
	if e.order == Arrival {
		return true
	}
	return e.probes < e.probeTop() && t.probesOut < e.probeShare(t)
}

// probeTop is how many probes may be in flight together.
func (e *Engine) probeTop() int { return max(e.slots/probePart, 1) }

// probeShare is how many of them may be t's.
func (e *Engine) probeShare(t *tenant) int32 { return max(e.nominal(t)/probeTenant, 1) }

// slotFree reports whether a fresh delivery may take a slot: one is
// free for it, and no waiting lane could use it.
func (e *Engine) slotFree(x *spot, probe bool) bool {
	if e.inFlight >= e.slots || probe && !e.mayProbe(x.t) || !e.shareAllows(x, probe) {
		return false
	}
	if e.nothingReady() {
		return true
	}
	first, _, waits := e.first(x.now)
	return !waits || first.id == x.id
}

// nothingReady reports whether no lane waits for a slot.
func (e *Engine) nothingReady() bool {
	return e.others.len()+e.probing.len()+e.arrival.Len() == 0
}

// shareAllows reports whether the share of the lane's tenant lets it start.
func (e *Engine) shareAllows(x *spot, probe bool) bool {
	n := e.nominal(x.t)
	if e.order == Arrival || x.t.inFlight < n {
		return true
	}
	return e.lends() && (x.t.slowOut < n || !probe && x.l.quick(x.now))
}

// best returns the lane that a free slot goes to, or false if none is free or no
// ready lane may use it.
func (e *Engine) best(now time.Duration) (uint32, bool) {
	if e.inFlight >= e.slots {
		return 0, false
	}
	if e.order == Arrival {
		return e.arrival.Top()
	}
	lane, ok := e.bestLane(now)
	probe, some := e.bestProbe(now)
	if !ok || some && e.goesFirst(probe, lane) {
		return probe, some
	}
	return lane, true
}

// goesFirst orders lanes of any tenants.
func (e *Engine) goesFirst(a, b uint32) bool {
	x, y := e.lanes.at(a).tenant, e.lanes.at(b).tenant
	if x != y {
		return e.tenantLess(uint32(x), uint32(y))
	}
	return e.laneLess(a, b)
}

// bestLane returns, probes apart, the lane of least virtual time of the tenant of
// least virtual time that may start one. Tenants that do not belong any more
// where they stand are moved.
func (e *Engine) bestLane(now time.Duration) (uint32, bool) {
	for {
		id, ok := e.top(&e.others, (*tenantOrder)(e))
		if !ok {
			return 0, false
		}
		t := e.tenants.at(id)
		at := t.at
		if e.classify(now, id, t); t.at != at {
			continue
		}
		best, ok := t.quick.Top()
		if slow, some := t.slow.Top(); some && t.slowOut < e.nominal(t) && (!ok || e.laneLess(slow, best)) {
			best = slow
		}
		return best, true
	}
}

// bestProbe returns the lane that may probe since the longest, of those whose
// tenants may start a probe.
func (e *Engine) bestProbe(now time.Duration) (uint32, bool) {
	for e.probes < e.probeTop() {
		id, ok := e.top(&e.probing, (*probeOrder)(e))
		if !ok {
			return 0, false
		}
		t := e.tenants.at(id)
		at := t.probeAt
		if e.classify(now, id, t); t.probeAt == at {
			return t.probe.Top()
		}
	}
	return 0, false
}

// standing is where a tenant stands, with its lanes or with its probes.
type standing uint8

const (
	away  standing = iota // nothing that may start
	below                 // below nominal
	above                 // at nominal or above: runs on lent slots
)

// standings holds the tenants that stand below and above.
type standings [above + 1]fair.Heap

func (s *standings) len() int { return s[below].Len() + s[above].Len() }

// top returns the first tenant among those to whom a slot is open.
func (e *Engine) top(s *standings, order fair.Items) (uint32, bool) {
	a, ok := s[below].Top()
	if !e.lends() {
		return a, ok
	}
	b, some := s[above].Top()
	if !ok || some && order.Less(b, a) {
		return b, some
	}
	return a, true
}

// classify puts the tenant where it belongs now. A lane at the top that is not
// quick any more moves to the slow ones.
func (e *Engine) classify(now time.Duration, id uint32, t *tenant) {
	if e.order == Arrival {
		return // then tenants stand nowhere
	}
	for {
		top, ok := t.quick.Top()
		if !ok || e.lanes.at(top).quick(now) {
			break
		}
		t.quick.Pop((*laneOrder)(e))
		e.push(&t.slow, (*laneOrder)(e), top, inSlow)
	}
	if to := e.standsAt(t); to != t.at {
		e.others.move((*tenantOrder)(e), id, t.at, to, t.pos)
		t.at = to
	}
	if to := e.probesAt(t); to != t.probeAt {
		e.probing.move((*probeOrder)(e), id, t.probeAt, to, t.probePos)
		t.probeAt = to
	} else if to != away { // another lane may be the first by now
		e.probing[to].Fix((*probeOrder)(e), t.probePos)
	}
}

// move takes a tenant from one standing to another.
func (s *standings) move(order fair.Items, id uint32, from, to standing, pos int32) {
	if from != away {
		s[from].Remove(order, pos)
	}
	if to != away {
		s[to].Push(order, id)
	}
}

// fixTenant restores the order after t's virtual time changed.
func (e *Engine) fixTenant(t *tenant) {
	if t.at != away {
		e.others[t.at].Fix((*tenantOrder)(e), t.pos)
	}
}

// standsAt returns where a tenant belongs with its lanes, probes apart.
func (e *Engine) standsAt(t *tenant) standing {
	quick, slow := t.quick.Len() > 0, t.slow.Len() > 0
	if !quick && !slow {
		return away
	}
	n := e.nominal(t)
	switch {
	case t.inFlight < n:
		return below
	case quick || t.slowOut < n:
		return above
	}
	return away
}

// probesAt returns where a tenant belongs with its lanes that wait to probe.
func (e *Engine) probesAt(t *tenant) standing {
	if t.probe.Len() == 0 || t.probesOut >= e.probeShare(t) {
		return away
	}
	n := e.nominal(t)
	switch {
	case t.inFlight < n:
		return below
	case t.slowOut < n:
		return above
	}
	return away
}

// rise begins a wait, or a start that waited for nothing: idle time earns
// nothing. Call it while l is not ready.
func (e *Engine) rise(l *lane, t *tenant) {
	if t.claims == 0 {
		t.virtual = fair.Wake(t.virtual, e.lastVirtual)
		e.fixTenant(t)
	}
	l.virtual = fair.Wake(l.virtual, t.lastVirtual)
}

// charge takes the expected slot time at a start. The lane must not be in a heap.
func (e *Engine) charge(l *lane, t *tenant) (charged float32) {
	charged = e.expected(l, t)
	e.lastVirtual, t.lastVirtual = t.virtual, l.virtual
	t.virtual = fair.Charge(t.virtual, float64(charged), int(t.weight))
	l.virtual += float64(charged)
	e.serves++
	t.served, l.served = e.serves, e.serves
	e.fixTenant(t)
	return charged
}

// correct charges at the end what the slot was held for beyond the estimate.
func (e *Engine) correct(l *lane, t *tenant, charged, took float64) {
	t.virtual = fair.Correct(t.virtual, charged, took, int(t.weight))
	e.fixTenant(t)
	l.virtual += took - charged
	if l.at != nowhere {
		e.fixLane(l, t)
	}
}

// fixLane restores the order of the heap that l stands in.
func (e *Engine) fixLane(l *lane, t *tenant) {
	switch l.at {
	case inQuick:
		t.quick.Fix((*laneOrder)(e), l.pos)
	case inSlow:
		t.slow.Fix((*laneOrder)(e), l.pos)
	case inHost:
		e.waiterOf(l.host, l).lanes.Fix(e.readyOrder(), l.pos)
	case inReserve:
		e.waiterOf(reserveHost, l).lanes.Fix(e.readyOrder(), l.pos)
	}
}

// occupy and vacate count a slot, everywhere it is counted.
func (e *Engine) occupy(t *tenant, h *host, f TicketFlags) { e.count(t, h, f, 1) }
func (e *Engine) vacate(t *tenant, h *host, f TicketFlags) { e.count(t, h, f, -1) }

func (e *Engine) count(t *tenant, h *host, f TicketFlags, by int32) {
	e.inFlight += int(by)
	t.inFlight += by
	h.inFlight += by
	if f&FlagSlow != 0 {
		t.slowOut += by
	}
	if f&FlagProbe != 0 {
		t.probesOut += by
		e.probes += int(by)
	}
}

// activeFor is how long a tenant counts for the nominal shares after its last
// offer, start or wait.
const activeFor = time.Minute

// activate notes that the tenant has something to do.
func (e *Engine) activate(now time.Duration, id TenantID, t *tenant) {
	t.lastActive = now
	if t.active > 0 {
		return
	}
	e.active = append(e.active, id)
	t.active = int32(len(e.active))
	e.activeWeight += int64(t.weight)
	if e.measure.next == 0 {
		e.measure.begin(now)
	}
}

// deactivate takes the tenant out of those that share the slots.
func (e *Engine) deactivate(t *tenant) {
	i, last := t.active-1, len(e.active)-1
	e.active[i] = e.active[last]
	e.tenants.at(uint32(e.active[i])).active = i + 1
	e.active = e.active[:last]
	t.active, t.round = 0, round{}
	e.activeWeight -= int64(t.weight)
}
