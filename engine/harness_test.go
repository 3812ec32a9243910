package engine

import (
	"math/rand/v2"
	"testing"
	"time"
)

// entry is one waiting delivery as a driver keeps it.
type entry struct {
	at      time.Duration // its own due time, or the instant at which it was parked
	own     bool          // at is its own due time
	born    time.Duration
	seq     uint64
	attempt uint32
	cost    uint32
}

// ordered is a value that a heap orders.
type ordered[T any] interface{ before(T) bool }

// pile is a binary heap of values, the first on top.
type pile[T ordered[T]] []T

func (p *pile[T]) push(x T) {
	q := append(*p, x)
	i := len(q) - 1
	for i > 0 && x.before(q[(i-1)/2]) {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = x
	*p = q
}

func (p *pile[T]) pop() T {
	q := *p
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	i := 0
	for {
		c := 2*i + 1
		if c >= len(q) {
			break
		}
		if c+1 < len(q) && q[c+1].before(q[c]) {
			c++
		}
		if !q[c].before(last) {
			break
		}
		q[i] = q[c]
		i = c
	}
	if len(q) > 0 {
		q[i] = last
	}
	*p = q
	return top
}

// backlog is a lane's waiting deliveries, the next one first.
type backlog = pile[entry]

func (x entry) before(y entry) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	return x.seq < y.seq
}

// driver does a driver's duties, plainly.
type driver struct {
	e       *Engine
	now     time.Duration
	seq     uint64
	lanes   []*backlog
	started func(Ticket, entry) // told of every start
}

func newDriver(c Config) *driver {
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(1, 2))
	}
	return &driver{e: New(c), started: func(Ticket, entry) {}}
}

func (d *driver) apply(t testing.TB, changes ...Change) {
	t.Helper()
	for _, c := range changes {
		if err := d.e.Apply(d.now, c); err != nil {
			t.Fatal(err)
		}
	}
}

// lane adds a lane of a tenant, each to a host of its own.
func (d *driver) lane(t testing.TB, tenant TenantID, id LaneID, p Profile) {
	t.Helper()
	d.apply(t, PutLane{LaneSpec: LaneSpec{Lane: id, Tenant: tenant, Host: HostID(id), Profile: p}})
}

func (d *driver) backlog(id LaneID) *backlog {
	for len(d.lanes) <= int(id) {
		d.lanes = append(d.lanes, new(backlog))
	}
	return d.lanes[id]
}

// state tells the engine what waits.
func (d *driver) state(id LaneID) {
	b := *d.backlog(id)
	s := Backlog{Count: uint32(len(b))}
	if len(b) > 0 {
		s.HeadDue, s.HeadBorn, s.HeadAttempt, s.HeadCost = b[0].at, b[0].born, b[0].attempt, b[0].cost
	}
	d.e.Waiting(d.now, id, s)
}

// park keeps what a verdict parked.
func (d *driver) park(id LaneID, v Verdict, born time.Duration, cost uint32) {
	d.seq++
	x := entry{at: d.now, born: born, seq: d.seq, attempt: v.Attempt, cost: cost}
	if v.Due {
		x.at, x.own = v.At, true
	}
	d.backlog(id).push(x)
	d.state(id)
}

// offer offers a fresh delivery.
func (d *driver) offer(id LaneID) Verdict { return d.offerCost(id, 1) }

func (d *driver) offerCost(id LaneID, cost uint32) Verdict {
	return d.offerOf(Delivery{Lane: id, Born: d.now, Cost: cost})
}

func (d *driver) offerOf(x Delivery) Verdict {
	id, cost := x.Lane, x.Cost
	v := d.e.Offer(d.now, x)
	switch v.Kind {
	case Send:
		d.started(v.Ticket, entry{born: d.now, cost: cost, at: d.now})
	case Park:
		d.park(id, v, d.now, cost)
	}
	return v
}

// next takes one grant.
func (d *driver) next() (Grant, bool) {
	g, ok := d.e.Next(d.now)
	if !ok {
		return g, false
	}
	x := d.backlog(g.Lane).pop()
	d.state(g.Lane)
	d.started(g.Ticket, x)
	return g, true
}

// drain takes all grants and returns their tickets.
func (d *driver) drain() (all []Ticket) {
	for {
		g, ok := d.next()
		if !ok {
			return all
		}
		all = append(all, g.Ticket)
	}
}

// finish ends an attempt.
func (d *driver) finish(k Ticket, r Result) Verdict {
	v := d.e.Finish(d.now, k, r)
	if v.Kind == Park {
		d.park(k.Lane, v, k.Born, k.Cost)
	}
	if v.Flush {
		d.flush(k.Lane)
	}
	return v
}

// flush makes all retries due now, in their order.
func (d *driver) flush(id LaneID) {
	b := d.backlog(id)
	old := *b
	*b = nil
	for _, x := range old {
		if x.own {
			x.at, x.own = min(x.at, d.now), false
		}
		b.push(x)
	}
	d.state(id)
}

// to moves to a later instant.
func (d *driver) to(at time.Duration) {
	d.now = at
	d.e.Tick(at)
}

// wantBalanced checks every account and that the platform's is their sum.
func (d *driver) wantBalanced(t testing.TB, lanes int) {
	t.Helper()
	var sum Counters
	for i := range lanes {
		v, ok := d.e.Lane(d.now, LaneID(i))
		if !ok {
			continue
		}
		if !v.Counters.Balanced() {
			t.Fatalf("lane %d: account does not balance: %+v", i, v.Counters)
		}
		if !v.Removed && v.Counters.Parked != uint64(len(*d.backlog(LaneID(i)))) {
			t.Fatalf("lane %d: account says %d parked, the driver has %d", i, v.Counters.Parked, len(*d.backlog(LaneID(i))))
		}
		sum = sum.Plus(v.Counters)
	}
	if s := d.e.Stats(d.now); s.Counters != sum || !s.Counters.Balanced() {
		t.Fatalf("platform: %+v is not the sum of the lanes' %+v", s.Counters, sum)
	}
}
