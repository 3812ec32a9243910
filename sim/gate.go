package sim

import (
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// Gate is a rate limit outside of the engine, as others build it, for comparison. In front of a lane
// it is that lane's contract, in front of the platform one limit for all.
type Gate struct {
	Rate     limit.Rate
	Hold     bool          // what exceeds it waits inside a slot (the literature's "wait"); else in memory, before it asks for one
	Bound    int           // how many may wait in memory; 0 means any number
	Deadline time.Duration // how long they may; 0 means for ever
}

// gateState is a gate as it runs. Whoever waits has waited longest at the front.
type gateState struct {
	*Gate
	level   limit.Level
	waiting ring[gated]
	armed   bool // a token event is in the queue
}

// gated is one that waits, 16 bytes: a delivery by lane, or an attempt.
type gated struct {
	born time.Duration
	id   uint32
}

// queueOf and holdOf return the gate that a lane's deliveries wait at before they are offered, and
// inside their slots; -1 for none.
func (d *driver) queueOf(l *lane) int32 { return d.gateOf(l, false) }
func (d *driver) holdOf(l *lane) int32  { return d.gateOf(l, true) }

func (d *driver) gateOf(l *lane, hold bool) int32 {
	switch {
	case l.gate >= 0 && d.gates[l.gate].Hold == hold:
		return l.gate
	case d.setup.Gate != nil && d.setup.Gate.Hold == hold:
		return 0
	}
	return -1
}

// passes takes a token, or lets the delivery wait in memory; beyond the bound it is lost.
func (d *driver) passes(gate int32, born time.Duration, lane uint32) bool {
	g, l := &d.gates[gate], &d.lanes[lane]
	if g.waiting.n == 0 && g.Rate.Take(&g.level, d.now, 1).Allowed {
		return true
	}
	d.book.gated(l)
	if g.Bound > 0 && g.waiting.n >= g.Bound {
		d.book.drop(l)
		return false
	}
	d.book.wait(l, 1)
	d.await(gate, gated{born, lane})
	return false
}

// held takes a token, or lets the attempt wait in its slot.
func (d *driver) held(gate int32, attempt uint32) bool {
	g := &d.gates[gate]
	if g.waiting.n == 0 && g.Rate.Take(&g.level, d.now, 1).Allowed {
		return true
	}
	d.await(gate, gated{0, attempt})
	return false
}

func (d *driver) await(gate int32, x gated) {
	g := &d.gates[gate]
	g.waiting.pushBack(x)
	if !g.armed {
		d.arm(gate)
	}
}

// arm asks for an event when the next token is there.
func (d *driver) arm(gate int32) {
	g := &d.gates[gate]
	if wait := g.Rate.Peek(&g.level, d.now, 1); wait.Reason != limit.Paused {
		g.armed = true
		d.events.push(d.now+wait.RetryIn, aToken, uint32(gate))
	}
}

// token lets go whoever waits longest, as far as the tokens reach.
func (d *driver) token(gate uint32) {
	g := &d.gates[gate]
	g.armed = false
	for g.waiting.n > 0 {
		x := g.waiting.at(0)
		late := !g.Hold && g.Deadline > 0 && d.now > x.born+g.Deadline
		if !late && !g.Rate.Take(&g.level, d.now, 1).Allowed {
			break
		}
		g.waiting.popFront()
		d.leave(g.Hold, late, x)
	}
	if g.waiting.n > 0 && !g.armed {
		d.arm(int32(gate))
	}
}

func (d *driver) leave(hold, late bool, x gated) {
	if hold {
		d.send(x.id)
		return
	}
	l := &d.lanes[x.id]
	d.book.wait(l, -1)
	if late {
		d.book.drop(l)
		return
	}
	d.offer(x.id, x.born)
}
