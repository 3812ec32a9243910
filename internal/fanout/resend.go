package fanout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Resend offers a trigger once more to subscriptions of tenants that it is addressed to, whatever became of it
// there before: a delivery of its own in the account, with the same id. It returns the trigger's position when
// that is durable. A trigger is named by its id, or by its position in digits.
//
// All of them or none. Errors: ErrNotFound for a subscription, or for a trigger that is not there or not for it;
// journal.ErrTrimmed when the log does not hold it any more; ErrConflict while it is on its way there, or a dead
// letter there, which a replay takes.
func (f *Fanout) Resend(ctx context.Context, trigger string, subscriptions []string) (journal.Position, error) {
	p, known := f.position(trigger)
	if !known || p.Held() {
		return 0, fmt.Errorf("%w: trigger %q", ErrNotFound, trigger)
	}
	t, err := f.journal.Load(ctx, p)
	if err != nil {
		return 0, err
	}
	if t.ID != trigger && trigger != fmt.Sprint(uint64(p)) {
		return 0, fmt.Errorf("%w: trigger %q", ErrNotFound, trigger)
	}
	var lanes []*lane
	for _, id := range subscriptions {
		l, err := f.mayResend(ctx, t, id)
		if err != nil {
			return 0, err
		}
		if !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	if err := f.notHeld(ctx, t, lanes); err != nil {
		return 0, err
	}
	f.mu.Lock()
	for _, l := range lanes {
		if err = f.atRest(l, p); err != nil {
			f.mu.Unlock()
			return 0, err
		}
	}
	now := f.clock.now()
	for _, l := range lanes {
		f.resend(now, l, t)
	}
	mark := f.journal.Record()
	f.pump(now)
	f.mu.Unlock()
	return p, f.journal.WaitFlushed(ctx, mark)
}

// mayResend finds the lane of a subscription that may see the trigger.
func (f *Fanout) mayResend(ctx context.Context, t *journal.Trigger, id string) (*lane, error) {
	lanes, err := f.lanesOf(&Selection{Subscription: id})
	if err != nil || len(lanes) != 1 {
		return nil, fmt.Errorf("%w: subscription %q", ErrNotFound, id)
	}
	l := lanes[0]
	seen := f.shown(t, l.tenant.name)
	f.mu.Lock()
	disabled := l.sub.Disabled
	f.mu.Unlock()
	switch {
	case !seen:
		return nil, fmt.Errorf("%w: trigger %q", ErrNotFound, t.ID)
	case disabled != "":
		return nil, fmt.Errorf("%w: subscription %s is disabled (%s); enable it first", ErrConflict, id, disabled)
	}
	if _, over := f.Pressure(l.tenant.name); over {
		return nil, fmt.Errorf("%w: the backlog of %s's tenant is over its quota", ErrConflict, id)
	}
	if _, _, err := f.findDead(ctx, id, fmt.Sprint(uint64(t.Position))); err == nil {
		return nil, fmt.Errorf("%w: it is a dead letter of %s: replay it", ErrConflict, id)
	}
	return l, nil
}

// atRest refuses what has not been offered to the lane yet, or is on its way there; the caller holds the lock.
func (f *Fanout) atRest(l *lane, p journal.Position) error {
	if l.removed {
		return fmt.Errorf("%w: subscription %q", ErrNotFound, l.subID)
	}
	busy := p >= f.cursor || f.decided != nil
	at := func(r ref) { busy = busy || r.pos() == p }
	for a := range f.open {
		busy = busy || a.lane == l && (a.pos == p || a.trigger != nil && a.trigger.Position == p)
	}
	l.backlog.each(at)
	for _, c := range l.staged() {
		at(c.ref)
	}
	for _, r := range l.dead {
		at(r)
	}
	if busy {
		return onItsWay(l)
	}
	return nil
}

func onItsWay(l *lane) error {
	return fmt.Errorf("%w: it is on its way to %s; wait until that is settled", ErrConflict, l.subID)
}

// notHeld refuses what waits on a lane under a name in HELD, which does not tell the trigger: the ledger does.
func (f *Fanout) notHeld(ctx context.Context, t *journal.Trigger, lanes []*lane) error {
	f.mu.Lock()
	held := slices.DeleteFunc(slices.Clone(lanes), func(l *lane) bool {
		some := false
		l.backlog.each(func(r ref) { some = some || r.pos().Held() })
		return !some
	})
	mark := f.journal.Record()
	f.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	if err := f.journal.WaitFlushed(ctx, mark); err != nil {
		return err
	}
	last, _, err := f.journal.Completion(ctx, t)
	if err != nil {
		return err
	}
	for _, l := range held {
		if d := (Fate{Record: last[l.id]}); d.Kind != 0 && !d.Settled() {
			return onItsWay(l)
		}
	}
	return nil
}

// resend parks a delivery that was settled, or never was, as a new one; the caller holds the lock.
func (f *Fanout) resend(now time.Duration, l *lane, t *journal.Trigger) {
	r := newRef(t.Position, f.clock.ms(now), 0, engine.None, flagRecorded).in(l.queueOf(t))
	if l.past == nil {
		l.past = make(map[journal.Position]journal.Past)
	}
	l.past[r.pos()] = journal.Past{Revived: f.clock.ms(now)}
	rec := f.record(l, journal.Resent, r)
	rec.At = f.clock.wall(now)
	f.write(rec)
	f.engine.Settle(now, l.id, engine.ToResent, 1)
	l.backlog.push(r)
	f.remember(l, len(t.Payload))
	f.state(now, l)
	f.dirty = true
}
