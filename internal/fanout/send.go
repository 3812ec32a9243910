package fanout

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// attempt is one request on its way. Its goroutine owns it from start to finish.
type attempt struct {
	lane      *lane
	queue     uint8 // of an ordered lane
	pos       journal.Position
	trigger   *journal.Trigger // nil: to be loaded
	ticket    engine.Ticket
	limit     int64
	remaining int64
	claim     journal.Mark // must be durable before the first byte
	claimed   bool
	from      ref          // what it was in the backlog
	past      journal.Past // of one that lives again
	again     bool
	paced     *replay         // of a replay: whose pace it went at
	traced    func(Attempted) // ends its span; nil: none
	granted   time.Duration
	waited    time.Duration // before that, from parked or due
}

// number is the attempt's, from 1, over all lives of its delivery.
func (a *attempt) number() uint32 { return a.past.Total(a.ticket.Attempt) + 1 }

// restMost is how many goroutines wait for another attempt.
const restMost = 256

// start begins an attempt; the caller holds the lock.
func (f *Fanout) start(a *attempt) {
	f.open[a] = struct{}{}
	select {
	case f.next <- a:
	default:
		f.attempts.Go(func() { f.runAll(a) })
	}
}

// runAll carries one attempt after the other: a new goroutine would have its stack grown again for each.
func (f *Fanout) runAll(a *attempt) {
	for a != nil {
		f.run(a)
		if f.resting.Add(1) > restMost {
			a = nil
		} else {
			a = <-f.next // nil: closed
		}
		f.resting.Add(-1)
	}
}

// pump lets everything go that the engine grants now; the caller holds the lock.
func (f *Fanout) pump(now time.Duration) {
	for !f.stopped && f.waiting > 0 && f.journal.Blocked() == nil {
		g, ok := f.engine.Next(now)
		if !ok {
			break
		}
		f.grant(now, g)
	}
	f.rewake()
}

// grant takes the head of the lane's backlog and sends it. An attempt of a delivery that
// has a record is claimed first.
func (f *Fanout) grant(now time.Duration, g engine.Grant) {
	l := f.index.lanes[g.Lane]
	r, mark := l.backlog.pop()
	f.forget(l, 1)
	a := &attempt{lane: l, queue: r.queue(), pos: r.pos(), ticket: g.Ticket, limit: g.Limit, remaining: g.Remaining, from: r}
	a.granted, a.waited = now, max(now-f.clock.fromMs(r.stamp()), 0)
	if a.past, a.again = l.past[r.pos()]; a.past.Job != 0 && l.replay != nil {
		a.paced = l.replay
		a.paced.out++
	}
	switch {
	case mark != 0:
		a.claim, a.claimed = mark, true
	case r.recorded():
		a.claim, a.claimed = f.claim(now, l, r), true
	}
	if len(l.backlog.ordered) <= 1 { // keys side by side hide the flush as well, and after a crash each claim is a retry
		f.claimAhead(now, l, l.backlog.of(r.queue()))
	}
	f.state(now, l)
	f.start(a)
}

// run carries one attempt: claim, load, send, finish.
func (f *Fanout) run(a *attempt) {
	out := f.prepare(a)
	if out == nil {
		o := f.send(a)
		out = &o
	}
	f.finish(a, *out)
}

// prepare makes the attempt ready to send. It returns an outcome when it cannot be.
func (f *Fanout) prepare(a *attempt) *delivery.Outcome {
	if a.claimed {
		if err := f.journal.WaitFlushed(f.sending, a.claim); err != nil {
			return notSent("local", "the claim was not written")
		}
	}
	if a.trigger == nil {
		t, err := f.journal.Load(f.sending, a.pos)
		if err != nil {
			f.log.Error("a payload could not be read", "position", uint64(a.pos), "subscription", a.lane.subID, "error", err)
			return notSent("local", "payload unreadable")
		}
		a.trigger = t
		a.ticket.Born = f.clock.instant(t.Accepted)
		if a.again {
			a.ticket.Born = f.clock.fromMs(a.past.Revived)
		}
	}
	return nil
}

func notSent(reason, detail string) *delivery.Outcome {
	return &delivery.Outcome{Result: engine.Result{Kind: engine.NotSent}, Reason: reason, Detail: detail}
}

// send makes the request. The lane is checked once more just before the first byte.
func (f *Fanout) send(a *attempt) delivery.Outcome {
	f.mu.Lock()
	sub, timeout, dress := a.lane.sub, a.lane.timeout, a.lane.dress
	f.mu.Unlock()
	if dress.broken != nil {
		return *notSent(delivery.ReasonConfig, dress.broken.Error())
	}
	r := &delivery.Request{
		ID: a.trigger.ID, URL: sub.URL, ContentType: a.trigger.ContentType, Payload: a.trigger.Payload,
		Secrets: sub.Secrets, Attempt: int(a.number()), Timeout: timeout,
		Limit: a.limit, Remaining: a.remaining, Outcomes: sub.Outcomes,
		Start: func() bool { return f.live(a.ticket) },
	}
	f.dressUp(r, dress, a.trigger)
	f.trace(a, r)
	return f.opts.Sender.Send(f.sending, r)
}

func (f *Fanout) live(t engine.Ticket) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.engine.Live(t)
}

// finish settles or parks the delivery, and lets go what may go now.
func (f *Fanout) finish(a *attempt, o delivery.Outcome) {
	f.mu.Lock()
	now := f.clock.now()
	if f.cutting && o.Status == 0 && o.Result.Kind != engine.NotSent {
		o.Result = engine.Result{Kind: engine.Unknown}
	}
	v := f.engine.Finish(now, a.ticket, o.Result)
	delete(f.open, a)
	f.settle(now, a, o, v)
	if a.paced != nil {
		a.paced.answered(now, a.lane.cap, v)
	}
	if a.lane.replay != nil {
		f.feed(now, a.lane)
	}
	f.dirty = true
	f.pump(now)
	f.mu.Unlock()
	f.afterwards(a, o, v)
}

// settle records what became of the attempt; the caller holds the lock.
func (f *Fanout) settle(now time.Duration, a *attempt, o delivery.Outcome, v engine.Verdict) {
	l := a.lane
	l.backlog.vacate(a.queue)
	r := newRef(a.pos, f.clock.ms(now), v.Attempt, v.Reason, flagRecorded).in(a.queue)
	switch {
	case v.Kind == engine.Done:
		r = newRef(a.pos, r.stamp(), a.ticket.Attempt+1, engine.None, 0)
		f.write(f.outcome(a, journal.Delivered, r, o))
		f.ended(a, journal.Delivered)
		f.release(r)
	case l.removed:
		f.write(f.outcome(a, journal.Cancelled, r, o))
		f.ended(a, journal.Cancelled)
		f.release(r)
	case v.Kind == engine.Bury:
		l.dead = append(l.dead, r)
		f.died(l, r)
		f.resize(l)
		f.remember(l, len(a.payload()))
		f.write(f.outcome(a, journal.Dead, r, o))
	default:
		f.park(now, a, o, v)
	}
	if v.Flush && !l.removed {
		f.unclaim(now, l)
		f.writeLate(now, l)
		l.backlog.dueNow(f.clock.ms(now))
		f.state(now, l)
	}
	f.stateOrder(now, l)
}

// park puts an attempt that did not settle back into the backlog: a retry by its due time, what
// our own decision stopped in front, in its old place.
func (f *Fanout) park(now time.Duration, a *attempt, o delivery.Outcome, v engine.Verdict) {
	l := a.lane
	kind := journal.Failed
	if o.Result.Kind == engine.NotSent {
		kind = journal.Parked
	}
	r := newRef(a.pos, f.clock.ms(now), v.Attempt, v.Reason, flagRecorded)
	if v.Due {
		r = newRef(a.pos, f.clock.msUp(v.At), v.Attempt, v.Reason, flagRecorded|flagDue)
	}
	l.backlog.putBack(r.in(a.queue))
	f.remember(l, len(a.payload()))
	f.write(f.outcome(a, kind, r, o))
	f.state(now, l)
}

func (a *attempt) payload() []byte {
	if a.trigger == nil {
		return nil
	}
	return a.trigger.Payload
}

// outcome is a record with what the endpoint said.
func (f *Fanout) outcome(a *attempt, kind journal.Kind, r ref, o delivery.Outcome) journal.Record {
	rec := f.record(a.lane, kind, r)
	if r.pos().Held() && a.trigger != nil {
		rec.Ref = uint64(a.trigger.Position)
	}
	rec.Status, rec.Took = uint16(o.Status), o.Took
	if kind != journal.Delivered {
		rec.Detail = o.Reason
		if o.Detail != "" {
			rec.Detail += ": " + o.Detail
		}
		if said := startOf(o.Snippet); said != "" {
			rec.Detail += ": " + said
		}
		rec.Detail = rec.Detail[:min(len(rec.Detail), 256)]
	}
	return rec
}

// startOf is the beginning of an answer as one line of text.
func startOf(answer []byte) string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(string(answer[:min(len(answer), 120)]), " "))
	return strings.TrimSpace(line)
}

// afterwards does what must not happen under the lock.
func (f *Fanout) afterwards(a *attempt, o delivery.Outcome, v engine.Verdict) {
	select {
	case f.moved <- struct{}{}:
	default:
	}
	if v.Reason == engine.ByGone && v.Kind == engine.Park {
		f.disable(a.lane.subID, "gone")
	}
	if f.opts.Observe.Attempt == nil && a.traced == nil {
		return
	}
	done := Attempted{
		Subscription: a.lane.subID, Tenant: a.lane.tenant.name, Number: a.number(),
		Outcome: o, Verdict: v.Kind, Reason: v.Reason, Waited: a.waited, Trigger: a.trigger, Took: f.clock.now() - a.granted,
	}
	if a.trigger != nil {
		done.SinceAccepted = f.clock.now() - f.clock.instant(a.trigger.Accepted)
	}
	if a.traced != nil {
		a.traced(done)
	}
	if f.opts.Observe.Attempt != nil {
		f.opts.Observe.Attempt(done)
	}
}

// disable keeps a 410 over restarts. It runs in the attempt's own goroutine.
func (f *Fanout) disable(subscription, why string) {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	sub, ok := f.journal.Registry().Subscription(subscription)
	if !ok || sub.Deleted || sub.Disabled != "" {
		return
	}
	sub.Disabled = why
	if _, err := f.PutSubscription(ctx, sub); err != nil && !errors.Is(err, ErrNotFound) {
		f.log.Error("a disabled subscription was not stored", "subscription", subscription, "error", err)
	}
}
