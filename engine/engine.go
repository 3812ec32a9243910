// Package engine is where the policies meet: it decides, for every delivery,
// whether it is sent now, parked, buried or dropped, and which of those that
// wait goes next.
//
// It does no I/O, reads no clock and starts nothing. A driver owns the sockets,
// the disk and the time; the service and the simulator are two of them. An
// Engine has one owner at a time: it is not safe for concurrent use. Equal calls
// give equal answers.
//
// # The driver's duties
//
//  1. Hand every call the present instant: monotonic time since one origin. An
//     instant before the largest one seen is taken as that one.
//  2. Apply a tenant before its lanes, and a lane before the first Offer. Ids
//     are dense and never reused.
//  3. Offer each fresh delivery once. Send: start it, with the verdict's ticket.
//     Park: put it into the lane's backlog, with Verdict.Attempt and, if
//     Verdict.Due, its due time Verdict.At; then state the backlog by Waiting.
//     Bury, Drop: record it, nothing else follows.
//  4. After every call that may have made something ready (Finish, Waiting,
//     Apply, Tick), call Next until it grants nothing. For each Grant take the
//     head that was last stated off the backlog, start it, and state by Waiting
//     what is the head now. Until then the lane gets no second grant.
//  5. State by Waiting whenever the head or the count of a lane's backlog
//     changes, also when the reason is the driver's own (expiry, cancelling,
//     replay). The head is the one whose own due time, or else the instant at
//     which it was parked, comes first. Order is the driver's: what may not go
//     before another is offered with Behind, and stated only when its turn has
//     come (Backlog.Count is without it until then).
//  6. Ask Live just before the first byte; if it is false, finish with NotSent.
//  7. Finish every ticket exactly once, whatever happened to the request.
//     Carry out its verdict as in 3. Flush: the breaker closed, so treat all
//     retries of the lane as due now, in their order, and state that by Waiting.
//  8. Report what moves without an attempt by Settle, before the Waiting that
//     shows it: expiry, cancelling, replay, resend, purge.
//  9. Sleep until NextWake, then call Tick and Next.
//
// # Where a lane stands
//
// A lane with a backlog is ready (could run now if it had the slot), or in the
// wake heap (an instant will help), or queued for its host or for the platform's
// retry reserve, or nowhere (only an event will help: its own Finish, a change).
// It is in one of them at a time, so nothing that is blocked stands in anyone's
// way; each move is O(log n).
package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/retry"
)

const defaultSlots = 1200

// Engine decides for one platform. Make it with New.
type Engine struct {
	order     Order
	rand      retry.Rand
	hostLimit int // as configured

	now      time.Duration // the largest instant seen
	slots    int
	inFlight int
	probes   int // probes in flight
	mean     float32
	pool     retry.Pool

	lanes    slab[lane]
	lost     slab[lost] // by lane
	tenants  slab[tenant]
	hosts    slab[host]
	groups   slab[group]
	profiles profiles

	lastVirtual float64   // virtual time of the tenant served last
	serves      uint32    // starts, to break ties by least recently served
	others      standings // ready tenants by virtual time, when the order is Fair
	probing     standings // those that wait to probe, by since when
	arrival     fair.Heap
	wake        fair.Heap
	reserve     queue
	waiters     waiters

	active       []TenantID // tenants active in the last minute
	activeWeight int64
	measure      measure

	warmed uint32

	total   Counters
	denials [32]uint64
}

// New returns an engine without tenants and lanes. It panics if c.Rand is
// missing: without chance, all that failed together would come back together.
func New(c Config) *Engine {
	if c.Rand == nil {
		panic("engine: Config.Rand is required")
	}
	slots := c.Slots
	if slots <= 0 {
		slots = defaultSlots
	}
	return &Engine{
		order: c.Order, rand: c.Rand, hostLimit: c.HostLimit, slots: slots, now: max(c.Origin, 0),
	}
}

// seen clamps now to the largest instant seen, and to the origin.
func (e *Engine) seen(now time.Duration) time.Duration {
	e.now = max(e.now, now)
	return e.now
}

// Tick does what an instant alone brings: lanes whose limit, breaker, pause or
// due time has passed become ready, and once a second the measuring round runs.
// What became ready goes by Next.
func (e *Engine) Tick(now time.Duration) {
	now = e.seen(now)
	e.wakeDue(now)
	e.measureDue(now)
}

// NextWake returns the earliest instant at which Tick or Next has something to
// do, or false if only another call can change anything.
func (e *Engine) NextWake() (at time.Duration, ok bool) {
	if _, _, grants := e.first(e.now); grants {
		return e.now, true
	}
	at, ok = e.measure.next, e.measure.next > 0
	if id, some := e.wake.Top(); some {
		at, ok = earlier(at, ok, time.Duration(e.lanes.at(id).key))
	}
	if e.reserve.len() > 0 {
		at, ok = earlier(at, ok, e.reserve.at)
	}
	return at, ok
}

func earlier(at time.Duration, ok bool, other time.Duration) (time.Duration, bool) {
	if !ok {
		return other, true
	}
	return min(at, other), true
}

// Live reports whether the attempt that owns t may still send its first byte:
// its lane is neither removed nor paused.
func (e *Engine) Live(t Ticket) bool {
	l := e.lane(t.Lane)
	return uint32(l.gen) == t.LaneGen && !l.stopped(e.tenants.at(uint32(l.tenant)))
}

// lane returns a lane that Apply added.
func (e *Engine) lane(id LaneID) *lane {
	if int(id) < e.lanes.len() {
		if l := e.lanes.at(uint32(id)); l.flags&laneKnown != 0 {
			return l
		}
	}
	panic("engine: a lane must be added by Apply before it is used")
}
