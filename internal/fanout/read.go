package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// readLoop is the one reader: packs in log order. It owns the reader.
func (f *Fanout) readLoop(r *journal.Reader) {
	defer f.loops.Done()
	defer r.Close()
	for {
		if !f.awaitRoom() {
			return
		}
		pack, err := r.Next(f.ctx)
		if errors.Is(err, journal.ErrUnavailable) && f.ctx.Err() == nil { // it comes back
			f.log.Warn("the log cannot be read just now", "error", err)
			f.pauseReading()
			continue
		}
		if err != nil {
			if f.ctx.Err() == nil {
				f.readErr.Store(&err)
				f.log.Error("the reader stopped: nothing is delivered any more", "error", err)
			}
			return
		}
		f.offerPack(pack)
	}
}

// pauseReading waits for a moment.
func (f *Fanout) pauseReading() {
	t := time.NewTimer(200 * time.Millisecond)
	defer t.Stop()
	select {
	case <-f.ctx.Done():
	case <-t.C:
	}
}

// awaitRoom waits until more may be offered. It reports false when the reader must end.
func (f *Fanout) awaitRoom() bool {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return false
		case <-retry.C:
		case <-f.moved:
		}
		f.mu.Lock()
		room := f.waiting < f.opts.MaxWaiting && !f.stopped && f.journal.Blocked() == nil
		f.mu.Unlock()
		if room {
			return true
		}
		retry.Reset(20 * time.Millisecond)
	}
}

func (f *Fanout) offerPack(p *journal.Pack) {
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Marker != nil {
			f.applyMarker(e.Position, *e.Marker)
			continue
		}
		f.mu.Lock()
		if e.Position >= f.cursor {
			if e.Trigger != nil {
				f.offerTrigger(e.Trigger)
			}
			f.passLocked(e.Position)
		}
		f.mu.Unlock()
	}
}

// passLocked moves the cursor behind a position.
func (f *Fanout) passLocked(p journal.Position) {
	f.cursor = p + 1
	if f.decided != nil && f.cursor > f.passed {
		f.decided = nil
	}
}

// offerTrigger decides one trigger for all its lanes, under one hold of the lock: a position
// is decided as a whole.
func (f *Fanout) offerTrigger(t *journal.Trigger) {
	now := f.clock.now()
	born := f.clock.instant(t.Accepted)
	f.index.match(t, func(l *lane) {
		if _, known := f.decided[journal.DeliveryKey{Lane: l.id, Position: t.Position}]; !known {
			f.offer(now, l, t, born)
		}
	})
	f.dirty = true
	f.rewake()
}

func (f *Fanout) offer(now time.Duration, l *lane, t *journal.Trigger, born time.Duration) {
	q := l.queueOf(t)
	v := f.engine.Offer(now, engine.Delivery{Lane: l.id, Cost: 1, Born: born, Behind: l.backlog.behind(q)})
	switch v.Kind {
	case engine.Send:
		l.backlog.occupy(q)
		f.start(&attempt{lane: l, queue: q, pos: t.Position, trigger: t, ticket: v.Ticket, limit: v.Limit, remaining: v.Remaining, granted: now})
	case engine.Park:
		l.denied++
		f.parkFresh(now, l, t, v)
	case engine.Bury:
		r := newRef(t.Position, f.clock.ms(now), 0, v.Reason, flagRecorded).in(q)
		f.remember(l, len(t.Payload))
		l.dead = append(l.dead, r)
		f.resize(l)
		f.stateOrder(now, l)
		f.write(f.record(l, journal.Dead, r))
	case engine.Drop:
		kind := journal.Dropped
		if l.removed {
			kind = journal.Cancelled
		} else {
			l.denied++
			f.ends.refused++
		}
		f.write(f.record(l, kind, newRef(t.Position, f.clock.ms(now), 0, v.Reason, 0)))
	}
}

// parkFresh puts a first offer into the backlog. Its record is written only if it still
// waits after a flush. Over the tenant's quota it is dead at once, as a record alone.
func (f *Fanout) parkFresh(now time.Duration, l *lane, t *journal.Trigger, v engine.Verdict) {
	f.ends.parked++
	tn := l.tenant
	if f.overQuota(tn) {
		r := newRef(t.Position, f.clock.ms(now), 0, engine.OverQuota, flagRecorded).in(l.queueOf(t))
		f.engine.Settle(now, l.id, engine.ToBuried, 1)
		f.remember(l, 0)
		l.dead = append(l.dead, r)
		f.resize(l)
		f.stateOrder(now, l)
		f.write(f.record(l, journal.Dead, r))
		return
	}
	r := newRef(t.Position, f.clock.ms(now), v.Attempt, v.Reason, 0).in(l.queueOf(t))
	number := l.backlog.push(r)
	f.late = append(f.late, lateRecord{lane: l, queue: r.queue(), number: number, at: now})
	f.remember(l, len(t.Payload))
	f.state(now, l)
}

// remember and forget keep the count and the estimated bytes of what a tenant has waiting or dead.
func (f *Fanout) remember(l *lane, bytes int) {
	l.tenant.count++
	l.tenant.bytes += float64(bytes)
}

func (f *Fanout) forget(l *lane, n int) {
	tn := l.tenant
	if tn.count > 0 {
		tn.bytes -= tn.bytes / float64(tn.count) * float64(min(n, tn.count))
	}
	if tn.count -= n; tn.count <= 0 {
		tn.count, tn.bytes = 0, 0
	}
}

// resize brings the numbers of references held up to date with the lane's.
func (f *Fanout) resize(l *lane) {
	waiting := l.backlog.entries() + len(l.staged())
	size := waiting + len(l.dead)
	f.waiting += waiting - l.waiting
	f.dead += len(l.dead) - (l.size - l.waiting)
	l.tenant.refs += size - l.size
	l.waiting, l.size = waiting, size
}

// state tells the engine what waits on a lane.
func (f *Fanout) state(now time.Duration, l *lane) {
	f.resize(l)
	if l.removed {
		return
	}
	l.stopAtDead()
	head, waits := l.backlog.head()
	f.stateHead(now, l, head, waits)
	if l.backlog.ordered == nil || !waits || !f.engine.Broke(l.id) {
		return
	}
	if head, waits = l.backlog.choose(true); waits { // a retry without budget holds its own queue alone
		f.stateHead(now, l, head, waits)
	}
}

func (f *Fanout) stateHead(now time.Duration, l *lane, head ref, waits bool) {
	b := engine.Backlog{Count: uint32(l.backlog.may())}
	if waits {
		b.HeadDue = f.clock.fromMs(head.stamp())
		b.HeadBorn = b.HeadDue // corrected by the trigger when it is loaded
		b.HeadAttempt = head.attempt()
		b.HeadCost = 1
	}
	f.engine.Waiting(now, l.id, b)
}

// stateOrder is state for what changes whose turn it is on an ordered lane alone: an end, a death.
func (f *Fanout) stateOrder(now time.Duration, l *lane) {
	if l.backlog.ordered != nil {
		f.state(now, l)
	}
}

// record makes the outcome record of a delivery from its reference.
func (f *Fanout) record(l *lane, kind journal.Kind, r ref) journal.Record {
	rec := journal.Record{
		Kind: kind, Partition: l.part, Lane: l.id, Position: r.pos(),
		Attempt: r.attempt(), Reason: r.reason(), At: f.clock.wall(f.clock.now()),
	}
	if kind == journal.Dead {
		rec.At = time.UnixMilli(r.stamp()) // as it is told until then: a restart knows it by this
	}
	if r.due() {
		rec.Due = time.UnixMilli(r.stamp())
	}
	if r.run() {
		rec.N = uint32(r.count())
	}
	return rec
}

// applyMarker brings a registry change into force at its position, in log order.
func (f *Fanout) applyMarker(p journal.Position, m journal.Marker) {
	registry := f.journal.Registry()
	registry.Reached(m, p)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p < f.cursor {
		return
	}
	f.passLocked(p)
	var err error
	switch m.Kind {
	case "tenant":
		if t, ok := registry.Tenant(m.ID); ok {
			err = f.applyTenant(t)
		}
	case "subscription":
		if s, ok := registry.Subscription(m.ID); ok && !s.Deleted {
			err = f.applySubscription(s, false)
		}
	}
	if err != nil {
		f.log.Error("a registry change was not applied", "kind", m.Kind, "id", m.ID, "error", err)
	}
	f.pump(f.clock.now())
}

// awaitPosition waits until the reader has passed p, or a while: the change is durable either way.
func (f *Fanout) awaitPosition(ctx context.Context, p journal.Position) error {
	ctx, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		f.mu.Lock()
		passed := f.cursor > p
		f.mu.Unlock()
		if passed {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}
