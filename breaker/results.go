package breaker

import (
	"math"
	"time"
)

// Each attempt for which a permit was taken ends in exactly one of Success,
// Failure, Denial, Neutral. gen and probe are the permit's.

// Success records a 2xx. It reports whether the breaker closed by it (it was the
// probe). The caller then clears the failures that it counts for the rate rule:
// else the next failure would open the breaker for those of the outage.
func (c *Config) Success(s *State, now time.Duration, gen uint16, probe bool) (closed bool) {
	if !c.counts(s, gen, probe) {
		return false
	}
	if probe {
		c.Reset(s)
		return true
	}
	s.failures, s.denied = 0, 0
	return false
}

// Failure records a failed attempt: 5xx, 3xx, a transport error, a timeout. It
// reports whether the breaker opened by it, or opened again after a failed
// probe. calls and failures are the lane's decayed counts, this attempt
// included; calls are successes and failures only.
func (c *Config) Failure(s *State, now time.Duration, gen uint16, probe bool, calls, failures float64, rnd Rand) (opened bool) {
	if !c.counts(s, gen, probe) {
		return false
	}
	s.denied = 0
	s.failures = next(s.failures)
	if !probe && s.failures < orElse(c.Consecutive, consecutive) && !c.tooMany(calls, failures) {
		return false
	}
	s.trips = min(s.trips&^denialBit+1, topTrips)
	c.open(s, now, rnd)
	return true
}

// Denial records a 401, 403 or 404. One says nothing about the endpoint's
// health (see Neutral); Denied in a row, without a success or failure between
// them, say that it does not want us: it opens for OpenMax, and ByDenial holds.
// It reports whether the breaker opened by it, or opened again.
func (c *Config) Denial(s *State, now time.Duration, gen uint16, probe bool, rnd Rand) (opened bool) {
	if !c.counts(s, gen, probe) {
		return false
	}
	s.denied = next(s.denied)
	if s.denied < orElse(c.Denied, denied) {
		c.Neutral(s, now, gen, probe)
		return false
	}
	s.trips = topTrips | denialBit
	c.open(s, now, rnd)
	return true
}

// Neutral records an end that counts neither way: any other 4xx, a rejection,
// 429, NotSent, Unknown. It breaks no row of failures or denials and closes
// nothing; a probe's place is free at once, for a probe with another message.
func (c *Config) Neutral(s *State, now time.Duration, gen uint16, probe bool) {
	if probe && c.counts(s, gen, probe) {
		s.phase = Open
	}
}

// Reset closes s and forgets everything, in a new generation: the endpoint is
// another one (its URL was edited).
func (c *Config) Reset(s *State) { *s = State{gen: s.gen + 1} }

// counts reports whether the result is of this generation: that of the probe
// that is out, or of an attempt since the breaker closed.
func (c *Config) counts(s *State, gen uint16, probe bool) bool {
	if c.Off || gen != s.gen {
		return false
	}
	if probe {
		return s.phase == HalfOpen
	}
	return s.phase == Closed
}

func (c *Config) tooMany(calls, failures float64) bool {
	return calls >= orElse(c.MinCalls, minCalls) && failures > calls*orElse(c.Ratio, ratio)
}

// open begins the interval of the trips-th opening in a row.
func (c *Config) open(s *State, now time.Duration, rnd Rand) {
	d := c.interval(s.trips &^ denialBit)
	d -= time.Duration(jitter * rnd.Float64() * float64(d))
	s.phase = Open
	s.until = plus(now, d)
	s.gen++
}

// interval returns Open * 2^(trips-1), at most OpenMax.
func (c *Config) interval(trips uint8) time.Duration {
	longest := orElse(c.OpenMax, openMax)
	d := min(orElse(c.Open, openFirst), longest)
	for range trips - 1 {
		if d > longest/2 {
			return longest
		}
		d *= 2
	}
	return d
}

// next counts one more without wrapping around.
func next(n uint16) uint16 {
	if n == math.MaxUint16 {
		return n
	}
	return n + 1
}
