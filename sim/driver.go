package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
)

// driver drives one engine in virtual time. It calls it as internal/fanout does: a fresh delivery
// is offered and what parks is stated; an end is followed by everything that Next grants; the
// clock ticks at NextWake, at once when that has come nearer, and no sooner than tickLeast after
// its last tick.
type driver struct {
	setup  *Setup
	engine *engine.Engine
	now    time.Duration
	events events
	tickAt time.Duration // when the clock looks next
	expiry time.Duration // when what is beyond its horizon is looked for next

	sources  []source
	lanes    []lane
	attempts []attempt
	free     []uint32 // places in attempts
	gates    []gateState
	all      retry.Window // of all pooled lanes
	pool     retry.Pool
	paid     retry.Budget

	book book
}

// lane is the driver's side of one subscription.
type lane struct {
	spec     *Lane
	group    *group
	tenant   *tally
	timeout  time.Duration
	backlog  backlog
	rnd      *rand.Rand // of its answers
	server   *pool
	throttle limit.Level
	gate     int32 // its gate's place in driver.gates, -1 for none
}

// attempt is one request on its way.
type attempt struct {
	ticket engine.Ticket
	answer answer
	born   time.Duration
	spent  retry.Permit // of the pooled budget
	effect uint64       // flagEffect if an earlier attempt had its effect
}

const (
	tickLeast = 50 * time.Microsecond
	tickMost  = time.Second

	expiryEvery = time.Minute
	horizon     = 72 * time.Hour
)

func newDriver(s *Setup) (*driver, error) {
	config := s.Engine
	if config.Rand == nil {
		config.Rand = stream(s.Seed, forEngine, 0)
	}
	d := &driver{setup: s, engine: engine.New(config), lanes: make([]lane, len(s.Lanes))}
	d.book.open(s, config.Slots)
	for i, t := range s.Tenants {
		if err := d.apply(engine.PutTenant{Tenant: engine.TenantID(i), Weight: t.Weight}); err != nil {
			return nil, err
		}
	}
	if s.Gate != nil {
		d.gates = append(d.gates, gateState{Gate: s.Gate})
	}
	servers := map[*Server]*pool{}
	for i := range s.Lanes {
		if err := d.addLane(i, servers); err != nil {
			return nil, err
		}
	}
	for i := range d.sources {
		if src := &d.sources[i]; src.advance() {
			d.events.push(src.at, anArrival, uint32(i))
		}
	}
	return d, nil
}

func (d *driver) apply(c engine.Change) error {
	if err := d.engine.Apply(0, c); err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	return nil
}

func (d *driver) addLane(i int, servers map[*Server]*pool) error {
	spec := &d.setup.Lanes[i]
	err := d.apply(engine.PutLane{LaneSpec: engine.LaneSpec{
		Lane: engine.LaneID(i), Tenant: spec.Tenant, Host: spec.Host, Profile: spec.Profile,
	}})
	if err != nil {
		return err
	}
	l := &d.lanes[i]
	l.receive(d.setup, i, servers)
	l.gate, l.tenant = -1, &d.book.tenants[spec.Tenant]
	l.group = &d.book.groups[d.setup.Tenants[spec.Tenant].Group]
	if spec.Gate != nil {
		l.gate = int32(len(d.gates))
		d.gates = append(d.gates, gateState{Gate: spec.Gate})
	}
	for k, next := range spec.Arrivals {
		d.sources = append(d.sources, source{next: next, rnd: stream(d.setup.Seed, forArrivals, i<<8|k), lane: uint32(i)})
	}
	return nil
}

// run handles events and ticks until nothing is left, or the drain is over. It reports false if it
// was stopped.
func (d *driver) run() bool {
	end := d.setup.Until + d.setup.Drain
	for n := 0; d.step(end); n++ {
		if n&0xffff == 0 && d.setup.Progress != nil && !d.setup.Progress(d.now) {
			return false
		}
	}
	d.book.close(d.now)
	return true
}

// step handles the next event or tick, if it is not after the end.
func (d *driver) step(end time.Duration) bool {
	e := d.events.top()
	switch {
	case e == nil && d.settled():
		return false
	case e == nil || d.tickAt < e.at || d.tickAt == e.at && e.class() == anArrival:
		if d.tickAt > end {
			return false
		}
		d.to(d.tickAt)
		d.tick()
	case e.at > end:
		return false
	default:
		d.to(e.at)
		d.handle(e)
	}
	return true
}

// settled reports whether nothing waits and nothing is in flight: ticks alone would go on for ever.
func (d *driver) settled() bool { return d.book.waiting == 0 && len(d.free) == len(d.attempts) }

func (d *driver) to(at time.Duration) {
	d.now = max(d.now, at)
	d.book.to(d.now)
}

func (d *driver) handle(e *event) {
	switch e.class() {
	case anEnd:
		id := e.id
		d.events.pop()
		d.end(id)
	case aToken:
		id := e.id
		d.events.pop()
		d.token(id)
	case anArrival:
		d.arrive(e)
	}
}

// arrive hands a fresh delivery to the gates, or offers it.
func (d *driver) arrive(e *event) {
	src := &d.sources[e.id]
	born, id := src.at, src.lane
	if src.advance() && src.at < d.setup.Until {
		d.events.again(src.at)
	} else {
		d.events.pop()
	}
	l := &d.lanes[id]
	d.book.offered(l, born)
	if g := d.queueOf(l); g >= 0 && !d.passes(g, born, id) {
		return
	}
	d.offer(id, born)
}

// offer is what the service's reader does with each delivery.
func (d *driver) offer(id uint32, born time.Duration) {
	l := &d.lanes[id]
	v := d.engine.Offer(d.now, engine.Delivery{Lane: engine.LaneID(id), Cost: 1, Born: born})
	d.watch(Offered, id, &v)
	switch v.Kind {
	case engine.Send:
		d.start(v.Ticket, born, 0)
	case engine.Park:
		d.book.denied(d.now, l, v.Reason)
		l.backlog.push(newRef(born, ms(d.now), v.Attempt, v.Reason, 0))
		d.book.wait(l, 1)
		d.state(id)
	case engine.Bury:
		l.group.Dead++
	case engine.Drop:
		d.book.drop(l)
	}
	d.rewake()
}

// state tells the engine what waits on a lane.
func (d *driver) state(id uint32) {
	l := &d.lanes[id]
	b := engine.Backlog{Count: uint32(l.backlog.len())}
	if head, ok := l.backlog.head(); ok {
		b.HeadDue = fromMs(head.stamp())
		b.HeadBorn, b.HeadAttempt, b.HeadCost = b.HeadDue, head.attempt(), 1
	}
	d.engine.Waiting(d.now, engine.LaneID(id), b)
}

// pump lets everything go that the engine grants now.
func (d *driver) pump() {
	for d.book.waiting > 0 {
		g, ok := d.engine.Next(d.now)
		if !ok {
			break
		}
		l := &d.lanes[g.Lane]
		r := l.backlog.pop()
		d.book.wait(l, -1)
		g.Ticket.Born = r.born
		d.watch(Granted, uint32(g.Lane), &engine.Verdict{Kind: engine.Send, Attempt: g.Ticket.Attempt})
		d.state(uint32(g.Lane))
		d.start(g.Ticket, r.born, r.effect())
	}
}

// start begins an attempt, or lets it wait inside its slot where that is the policy.
func (d *driver) start(k engine.Ticket, born time.Duration, effect uint64) {
	id := d.place()
	d.attempts[id] = attempt{ticket: k, born: born, effect: effect}
	l := &d.lanes[k.Lane]
	if l.spec.Pooled && k.Attempt > 0 && !d.pooled(id) {
		d.events.push(d.now, anEnd, id)
		return
	}
	d.book.started(d.now, l, &k, born)
	if g := d.holdOf(l); g >= 0 && !d.held(g, id) {
		return
	}
	d.send(id)
}

func (d *driver) place() uint32 {
	if n := len(d.free); n > 0 {
		id := d.free[n-1]
		d.free = d.free[:n-1]
		return id
	}
	d.attempts = append(d.attempts, attempt{})
	return uint32(len(d.attempts) - 1)
}

// send makes the request: what comes back, and when, is drawn now.
func (d *driver) send(id uint32) {
	a := &d.attempts[id]
	l := &d.lanes[a.ticket.Lane]
	a.answer = l.ask(d.now)
	d.book.sent(l, &a.answer)
	d.events.push(d.now+a.answer.after, anEnd, id)
}

// pooled pays a retry from the budget of all pooled lanes. Refused, the attempt ends as not sent.
func (d *driver) pooled(id uint32) bool {
	a := &d.attempts[id]
	a.spent, _ = d.paid.Ask(&d.all, &d.pool, d.now)
	if a.spent == retry.Refused {
		a.answer.result.Kind = engine.NotSent
		return false
	}
	d.paid.Spend(&d.all, &d.pool, d.now, a.spent)
	return true
}

// count tells the pooled budget how an attempt ended.
func (d *driver) count(a *attempt) {
	if a.answer.result.Kind == engine.OK {
		d.paid.Succeeded(&d.all, &d.pool, d.now, a.spent, a.ticket.Started)
		return
	}
	d.paid.Failed(&d.all, d.now)
}

// end is what the service does with an answer.
func (d *driver) end(id uint32) {
	a := d.attempts[id]
	d.free = append(d.free, id)
	lane := uint32(a.ticket.Lane)
	l := &d.lanes[lane]
	if a.answer.effect {
		d.book.effect(l, a.effect)
		a.effect = flagEffect
	}
	if a.answer.result.Kind != engine.NotSent {
		d.book.ended(d.now, l, &a.ticket)
		if l.spec.Pooled {
			d.count(&a)
		}
	}
	v := d.engine.Finish(d.now, a.ticket, a.answer.result)
	d.watch(Ended, lane, &v)
	switch v.Kind {
	case engine.Done:
		d.book.delivered(d.now, l, a.born)
	case engine.Bury:
		l.group.Dead++
	case engine.Drop:
		d.book.drop(l)
	default:
		d.park(lane, &a, &v)
	}
	if v.Flush {
		l.backlog.dueNow(ms(d.now))
		d.state(lane)
	}
	d.pump()
	d.rewake()
}

// park puts an attempt that did not settle back: a retry by its due time, what our own decision
// stopped in front.
func (d *driver) park(id uint32, a *attempt, v *engine.Verdict) {
	l := &d.lanes[id]
	d.book.denied(d.now, l, v.Reason)
	if v.Due {
		l.backlog.push(newRef(a.born, msUp(v.At), v.Attempt, v.Reason, flagDue|a.effect))
	} else {
		l.backlog.ready.pushFront(newRef(a.born, ms(d.now), v.Attempt, v.Reason, a.effect))
	}
	d.book.wait(l, 1)
	d.state(id)
}

// tick lets the engine act at this instant and sets when the clock looks again.
func (d *driver) tick() {
	d.engine.Tick(d.now)
	d.tickAt = d.now // what follows must not wake it
	if d.now >= d.expiry {
		d.expire()
		d.expiry = d.now + expiryEvery
	}
	d.pump()
	next := d.now + tickMost
	if at, ok := d.engine.NextWake(); ok {
		next = min(next, at)
	}
	d.tickAt = max(next, d.now+tickLeast)
}

// expire buries what has waited beyond its horizon.
func (d *driver) expire() {
	for i := range d.lanes {
		l := &d.lanes[i]
		if l.backlog.len() == 0 {
			continue
		}
		n := l.backlog.takeOlder(d.now - cmp.Or(l.spec.Profile.Horizon, horizon))
		if n == 0 {
			continue
		}
		l.group.Dead += uint64(n)
		d.book.wait(l, -n)
		d.engine.Settle(d.now, engine.LaneID(i), engine.ToExpired, uint32(n))
		d.state(uint32(i))
	}
}

// rewake ticks at once when something falls due before the clock would look.
func (d *driver) rewake() {
	if at, ok := d.engine.NextWake(); ok && at < d.tickAt {
		d.tick()
	}
}

func (d *driver) watch(c Call, lane uint32, v *engine.Verdict) {
	if d.setup.Watch != nil {
		d.setup.Watch(Step{At: d.now, Lane: engine.LaneID(lane), Call: c, Kind: v.Kind, Reason: v.Reason, Until: v.At, Attempt: v.Attempt})
	}
}
