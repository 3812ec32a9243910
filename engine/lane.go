package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
)

// lane is the live state of one lane: three cache lines, no pointers. A lane
// stands in at most one heap at a time: at says in which, pos where in it, and
// key is its order there if that heap goes by key.
//
// Fifty thousand lanes are far from the processor, so what a delivery that waits
// for nothing touches is in the first two lines.
type lane struct {
	tenant      TenantID
	host        HostID
	profile     uint32
	inFlight    uint32
	waiting     uint32        // of those parked, what the driver stated
	cap         int32         // -1: none
	pausedUntil time.Duration // the endpoint's own pause
	bucket      limit.Level
	flags       laneFlags
	at          place
	ramp        uint8   // 0: off; n: at most 2^(n-1) in flight
	gen         uint8   // ids are never reused, so it moves once: at removal
	answered    uint32  // second of the last answer, plus one
	mean, p99   float32 // slot time, seconds; 0 before the first end

	virtual   float64 // slot seconds used within the tenant
	offered   uint64
	delivered uint64
	served    uint32 // e.serves at its last start
	window    retry.Window
	breaker   breaker.State // its instants, which only an open one reads, are in the third line

	// What only waiting, denials and edits touch.
	key                   int64 // wake: instant; probe: since when one may go; else ready: micro-slots wanted
	headDue, headBorn     time.Duration
	headAttempt, headCost uint32
	dead, parked          uint32
	pos                   int32
	streak                uint16 // successes in a row under the ramp
	credit                uint8  // fresh sends since the backlog's last one
	strikes               uint8  // 429s without Retry-After in a row; a ramp is on while there are any
}

// lost is the part of a lane's account that hardly any delivery touches.
type lost struct{ cancelled, dropped uint64 }

type laneFlags uint8

const (
	laneKnown    laneFlags = 1 << iota
	laneRemoved            // stays as a tombstone: ids are never reused
	lanePaused             // by a person
	laneDisabled           // 410
	laneRestate            // its head was granted, the next one is not stated yet
	laneBudget             // its head waits for retry budget
	laneReserve            // ready to take the platform's next reserved retry
	laneUsed               // something was offered: too late to restore
)

// place is the heap that a lane or a tenant stands in.
type place uint8

const (
	nowhere   place = iota // nothing waits, or only an event can help
	inQuick                // ready: the tenant's lanes whose slots return soon
	inSlow                 // ready: the tenant's other lanes
	inProbe                // ready: the tenant's lanes that wait to probe
	inArrival              // ready: all lanes, when the order is Arrival
	inWake                 // an instant will help
	inHost                 // the host is full
	inReserve              // the platform's retry reserve is empty
)

func (p place) ready() bool { return p >= inQuick && p <= inArrival }

// tenant is the live state of one tenant. What every delivery touches comes first.
type tenant struct {
	virtual     float64 // slot seconds used over weight
	lastVirtual float64 // that of the lane served last
	lastActive  time.Duration
	inFlight    int32
	slowOut     int32 // of those in flight, on lanes that were not quick
	weight      int32
	claims      int32 // lanes ready, or granted and not restated
	active      int32 // place in e.active, plus one
	served      uint32
	mean        float32 // slot time of its attempts, seconds
	known       bool
	suspended   bool
	at, probeAt standing // with its lanes, and with those that wait to probe

	round round

	pos, probePos      int32
	probesOut          int32
	lanes              int32 // not removed
	wants              int64 // micro-slots that its ready lanes could use
	quick, slow, probe fair.Heap

	_ [48]byte // so that each begins with a cache line
}

// spot is a lane at an instant, with all that a decision about it looks at.
type spot struct {
	now time.Duration
	id  uint32
	l   *lane
	t   *tenant
	p   *profile
	h   *host
	g   *group // nil: the contract is the lane's own

	// Where the bucket stands once the attempt that own asked for has its tokens.
	// It becomes the lane's when the attempt starts: a denial changes nothing.
	bucket    limit.Level
	remaining int64
	cost      uint32
	epoch     uint16
}

func (e *Engine) spot(now time.Duration, id uint32) spot {
	l, t, p, h, g := e.look(id)
	return spot{now: now, id: id, l: l, t: t, p: p, h: h, g: g}
}

// look finds what a spot points to. Where every delivery passes, it stands in for
// spot: a spot that is returned is copied, and the copy waits for far memory.
func (e *Engine) look(id uint32) (*lane, *tenant, *profile, *host, *group) {
	l := e.lanes.at(id)
	p := e.profiles.at(l.profile)
	return l, e.tenants.at(uint32(l.tenant)), p, e.hosts.at(uint32(l.host)), e.group(p.Group)
}

// warm reads a word of each cache line that a delivery will touch: from memory that
// is far they come together, and not each when it is asked for.
func (x *spot) warm() uint32 {
	return x.l.inFlight + x.l.served + uint32(x.t.inFlight) + x.t.round.prompt[0] + uint32(x.h.inFlight)
}

const chunkBits = 9

// slab holds values of one kind by dense index, in chunks that never move.
type slab[T any] struct {
	chunks []*[1 << chunkBits]T
}

// at returns the value at index i, which grow has reached.
func (s *slab[T]) at(i uint32) *T {
	return &s.chunks[i>>chunkBits][i&(1<<chunkBits-1)]
}

// len returns the number of values that at may be asked for.
func (s *slab[T]) len() int { return len(s.chunks) << chunkBits }

// grow makes index i valid.
func (s *slab[T]) grow(i uint32) {
	for int(i) >= s.len() {
		s.chunks = append(s.chunks, new([1 << chunkBits]T))
	}
}

// expected returns the slot time in seconds to charge for a start of l.
func (e *Engine) expected(l *lane, t *tenant) float32 {
	return float32(fair.Guess(float64(l.mean), float64(t.mean), float64(e.mean)))
}

const (
	quickMean   = 1.0 // seconds: what is lent returns within it, on average
	quickWithin = 60  // seconds since the last answer
)

// quick reports whether the lane's slots return soon: it answered within the
// last minute, with a mean slot time of at most a second.
func (l *lane) quick(now time.Duration) bool {
	return l.mean <= quickMean && l.answered > 0 && second(now)-l.answered < quickWithin
}

// second returns the instant in whole seconds, plus one: 0 is never.
func second(now time.Duration) uint32 { return uint32(now/time.Second) + 1 }

const (
	laneAlpha     = 1.0 / 8 // weight of the newest sample in the lane's mean
	tenantAlpha   = 1.0 / 32
	platformAlpha = 1.0 / 256
	p99Step       = 0.1
)

// observe counts the slot time of an attempt that ended.
func (e *Engine) observe(l *lane, t *tenant, took float32) {
	l.mean = drift(l.mean, took, laneAlpha)
	t.mean = drift(t.mean, took, tenantAlpha)
	e.mean = drift(e.mean, took, platformAlpha)
}

// least is a nanosecond: an estimate of 0 means none, and one that shrinks for
// ever becomes a subnormal number, which is slow to calculate with.
const least = 1e-9

func drift(mean, x, alpha float32) float32 {
	if mean == 0 {
		return atLeast(x)
	}
	return atLeast(mean + (x-mean)*alpha)
}

// atLeast is max with least. (The built-in max of floats minds NaN and -0.)
func atLeast(x float32) float32 {
	if x < least {
		return least
	}
	return x
}

// observeSuccess moves the estimate of the p99 of successes: up by 99 parts when
// above it, down by one when below, so it rests where one in a hundred is above
// (Robbins and Monro 1951; the step is a share of the estimate).
func (l *lane) observeSuccess(took float32) {
	switch {
	case l.p99 == 0:
		l.p99 = atLeast(took)
	case took > l.p99:
		l.p99 += l.p99 * p99Step * 0.99
	default:
		l.p99 = atLeast(l.p99 - l.p99*p99Step*0.01)
	}
}

const rampTop = 16 // doublings after which a ramp is over, whatever the cap

// startRamp lets the lane begin again with one in flight.
func (l *lane) startRamp() { l.ramp, l.streak = 1, 0 }

// climb counts a success under the ramp: as many in a row as the window is wide
// double it.
func (l *lane) climb() {
	if l.ramp == 0 {
		return
	}
	l.streak++
	if uint32(l.streak) < 1<<(l.ramp-1) {
		return
	}
	l.ramp, l.streak = l.ramp+1, 0
	if l.ramp > rampTop || l.cap >= 0 && int32(1)<<(l.ramp-1) >= l.cap {
		l.ramp = 0
	}
}

// stopped reports whether a person or a 410 keeps the lane from sending.
func (l *lane) stopped(t *tenant) bool {
	return l.flags&(lanePaused|laneDisabled|laneRemoved) != 0 || t.suspended
}
