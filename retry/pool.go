package retry

import (
	"math"
	"time"
)

const (
	poolFloor = 10.0 // reserved retries per second
	poolShare = 0.01 // of the platform's successes per second
	poolGrain = halfLife / grains
)

var poolFade = fade(poolGrain, halfLife)

// Pool is the platform's reserve of retries, shared by all lanes: r per second,
// r = max(10, 1 % of the platform's successes per second), with one second of
// depth. The zero Pool is full.
//
// It is a meter: a reserved retry adds 1, r per second drains, and one more
// passes while it leaves at most r in the meter. So in any interval T at most
// max(r) + integral of r over T retries are paid for and not given back, and
// however much was spent, the next one passes within 0.1 s after the meter has
// come below r. The successes are a count with a half-life of 10 s; time is
// counted in grains of 9.77 ms, as in Window, and within a grain r stands still.
type Pool struct {
	clock     time.Duration
	since     time.Duration // when the meter was last found empty
	successes float64
	used      float64
}

// Fill returns which part of the reserve is left at now, 0 to 1, for metrics.
func (p *Pool) Fill(now time.Duration) float64 {
	at := *p
	at.advance(now)
	return max(0, 1-at.used/at.rate())
}

func (p *Pool) rate() float64 {
	return max(poolFloor, poolShare*p.successes*math.Ln2/halfLife.Seconds())
}

func (p *Pool) ready() bool { return p.used+1 <= p.rate() }

// readyAt returns the first instant from now on at which one more passes.
func (p *Pool) readyAt(now time.Duration) time.Duration {
	if p == nil || p.used+1 <= poolFloor { // used only drains, and r is at least the floor
		return now
	}
	at := *p
	at.advance(now)
	if at.ready() {
		return now
	}
	for !at.ready() {
		at.step()
	}
	return at.clock
}

// advance brings p to now. It steps through the grains in which the meter
// drains (about a second at most) and jumps over the rest.
func (p *Pool) advance(now time.Duration) {
	left := whole(p.clock, now, halfLife)
	for ; left > 0 && p.used > 0; left -= poolGrain {
		p.step()
	}
	if left > 0 {
		p.clock += left
		p.successes *= fade(left, halfLife)
	}
}

func (p *Pool) step() {
	p.clock += poolGrain
	p.successes *= poolFade
	p.used -= p.rate() * poolGrain.Seconds()
	if p.used <= 0 {
		p.used, p.since = 0, p.clock
	}
}

func (p *Pool) spend(now time.Duration) {
	if p == nil {
		return
	}
	p.advance(now)
	p.used++
}

// giveBack undoes a spend of the instant at, unless the meter has been empty
// since: then nothing of it is left to give back.
func (p *Pool) giveBack(now, at time.Duration) {
	if p == nil {
		return
	}
	p.advance(now)
	if at >= p.since {
		p.used = max(0, p.used-1)
	}
}

func (p *Pool) succeeded(now time.Duration) {
	if p == nil {
		return
	}
	p.advance(now)
	p.successes++
}
