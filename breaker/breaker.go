// Package breaker is the circuit breaker of one lane.
//
// Closed, everything passes. After too many failures it opens: nothing passes
// until an interval has elapsed, then one probe. If the probe succeeds the
// breaker closes; if it fails the interval doubles. Nothing here reads a clock or
// draws from a global source; now is the monotonic time since an origin that the
// caller chose once.
//
// Generations. Opening, taking a probe, closing and Reset each begin a new one.
// A permit carries its generation; a result of an earlier one changes nothing,
// so a request that started before the breaker opened neither closes it nor
// frees the probe's place. Generations wrap around after 65,536, far more than
// begin while one request is in flight.
//
// A probe's place has an owner (its generation) and an expiry: it is free again
// with any result of the probe, and at the latest one second after the request's
// timeout. So a breaker is never stuck: from every state Ask permits when enough
// time passes.
package breaker

import (
	"math"
	"time"
)

// Rand is the random source handed in: uniform in [0, 1).
type Rand interface{ Float64() float64 }

// Config is shared by many lanes; its zero value is the shipped one.
type Config struct {
	Off         bool          // everything passes, nothing is counted
	Consecutive uint16        // failures in a row, whatever their spacing, that open it; 0 means 5
	MinCalls    float64       // calls below which the share of failures says nothing; 0 means 20
	Ratio       float64       // opens above this share of failures; 0 means 0.5
	Open        time.Duration // first interval; 0 means 30s
	OpenMax     time.Duration // longest interval; 0 means 10m
	ProbeExpiry time.Duration // the request's timeout; 0 means 15s
	Denied      uint16        // 401, 403, 404 in a row that open it for OpenMax; 0 means 20
}

const (
	consecutive = 5
	minCalls    = 20
	ratio       = 0.5
	openFirst   = 30 * time.Second
	openMax     = 10 * time.Minute
	probeExpiry = 15 * time.Second
	denied      = 20

	// jitter: an interval is drawn from the last fifth before its full length,
	// so that lanes that opened together do not probe together.
	jitter = 0.2
	// grace is the time a probe's own timeout has to be reported before its
	// place counts as lost. Without it every timed out probe would be followed
	// by another at once, and its failure ignored as late.
	grace = time.Second
	// topTrips is beyond every ladder: the interval is OpenMax.
	topTrips = 64
)

// Phase is where a breaker stands.
type Phase uint8

const (
	Closed   Phase = iota
	Open           // nothing passes, or the next one passes as a probe
	HalfOpen       // a probe is out
)

// String returns "closed", "open" or "half-open".
func (p Phase) String() string {
	switch p {
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	default:
		return "closed"
	}
}

// State is one lane's breaker, 24 bytes. Zero is closed. It is not safe for
// concurrent use.
type State struct {
	gen        uint16 // what a closed one needs is together, and first
	failures   uint16 // in a row
	denied     uint16 // 401, 403, 404 in a row
	phase      Phase
	trips      uint8         // intervals in a row, with denialBit
	until      time.Duration // Open: when a probe may go
	probeUntil time.Duration // HalfOpen: when the probe's place is free again
}

// denialBit in State.trips: it opened by denials.
const denialBit = 0x80

// Permit is what Ask hands out. At is the instant to ask again when !OK.
type Permit struct {
	OK    bool
	Probe bool   // it is the one probe: needs and spends no retry budget
	Gen   uint16 // to be handed in again with the result
	At    time.Duration
}

// Ask decides whether an attempt may start at now, and changes nothing.
func (c *Config) Ask(s *State, now time.Duration) Permit {
	if c.Off || s.phase == Closed {
		return Permit{OK: true, Gen: s.gen}
	}
	if at := s.NextProbe(); now < at {
		return Permit{Gen: s.gen, At: at}
	}
	return Permit{OK: true, Probe: true, Gen: s.gen + 1}
}

// Take records that p, which Ask gave at this same instant, is used: a probe
// becomes the one in flight.
func (c *Config) Take(s *State, now time.Duration, p Permit) {
	if !p.OK || p != c.Ask(s, now) {
		panic("breaker: Take needs the permit that Ask gave, with nothing in between")
	}
	if !p.Probe {
		return
	}
	s.gen = p.Gen
	s.phase = HalfOpen
	s.probeUntil = plus(now, plus(orElse(c.ProbeExpiry, probeExpiry), grace))
}

// Phase returns where the breaker stands at now. A probe whose place has
// expired is not out any more.
func (s *State) Phase(now time.Duration) Phase {
	if s.phase == HalfOpen && now >= s.probeUntil {
		return Open
	}
	return s.phase
}

// NextProbe returns the instant from which Ask permits a probe if no result
// comes; 0 when closed.
func (s *State) NextProbe() time.Duration {
	switch s.phase {
	case Open:
		return s.until
	case HalfOpen:
		return s.probeUntil
	default:
		return 0
	}
}

// ByDenial reports whether it was opened by 401, 403, 404, and still answers so.
func (s *State) ByDenial() bool { return s.trips&denialBit != 0 }

// plus adds without wrapping around.
func plus(a, b time.Duration) time.Duration {
	if b > math.MaxInt64-max(a, 0) {
		return math.MaxInt64
	}
	return a + b
}

func orElse[T time.Duration | uint16 | float64](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}
