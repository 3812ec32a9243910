package fanout

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// DeadLetter is one delivery that waits for a person: one trigger for one subscription.
type DeadLetter struct {
	Subscription string
	Tenant       string
	Trigger      *journal.Trigger // nil: Err says why it cannot be read; without its payload in a list
	Bytes        int              // of its payload
	Err          error
	Reason       engine.Reason // of the last death
	Died         time.Time
	First        engine.Reason
	FirstDied    time.Time
	Deaths       uint32
	Replays      uint32
	Attempts     uint32 // over all its lives

	at ref
}

// DeadCursor is where a page of dead letters begins: behind so many of the lane that died at one instant.
type DeadCursor struct {
	Lane  uint32
	Stamp int64
	Skip  int
}

const (
	deadPage    = 100   // dead letters of a page, when nobody says
	deadLook    = 10000 // looked at for one page
	acceptedLag = time.Minute
)

// DeadLetters lists dead letters by lane, in the order in which they died, and returns the cursor of the next
// page; nil is the end. A page may be short: one call looks at a bounded number.
func (f *Fanout) DeadLetters(ctx context.Context, s Selection, from DeadCursor, limit int) ([]DeadLetter, *DeadCursor, error) {
	if _, err := f.lanesOf(&s); err != nil {
		return nil, nil, err
	}
	limit = cmp.Or(limit, deadPage)
	out := []DeadLetter{}
	for looked := 0; looked < deadLook; {
		want := limit - len(out)
		if s.ranged() {
			want = max(want, moveMost)
		}
		found, cursors := f.deadFrom(&s, from, want)
		for i := range found {
			f.fill(ctx, &found[i])
			found[i].lighten()
			from = cursors[i]
			if t := found[i].Trigger; t == nil && s.ranged() || t != nil && !s.accepted(t) {
				continue
			}
			if out = append(out, found[i]); len(out) == limit {
				break
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if len(found) < want && (len(found) == 0 || from == cursors[len(found)-1]) {
			return out, nil, nil
		}
		if looked += want; len(out) == limit {
			break
		}
	}
	return out, &from, nil
}

// deadFrom collects up to n, each with the cursor behind it.
func (f *Fanout) deadFrom(s *Selection, from DeadCursor, n int) (out []DeadLetter, behind []DeadCursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := int(from.Lane); i < len(f.index.lanes); i++ {
		l := f.index.lanes[i]
		if l == nil || !s.names(l) {
			continue
		}
		at := DeadCursor{Lane: uint32(i)}
		if at.Lane != from.Lane {
			from = DeadCursor{Lane: at.Lane}
		}
		for _, r := range l.dead {
			if r.stamp() < from.Stamp {
				continue
			}
			if r.stamp() != at.Stamp {
				at.Stamp, at.Skip = r.stamp(), 0
			}
			for ; r.count() > 0; r = r.next() {
				at.Skip++
				if at.Stamp == from.Stamp && at.Skip <= from.Skip || !s.takes(r) {
					continue
				}
				if len(out) == n {
					return out, behind
				}
				out, behind = append(out, f.letter(l, r.first())), append(behind, at)
			}
		}
	}
	return out, behind
}

// next is what is left of a run without its first, count 0 when that was the last.
func (r ref) next() ref {
	if !r.run() {
		return ref{word: r.word&^(attemptMax<<attemptShift) | flagRun}
	}
	return r.rest()
}

// letter is what memory knows of a dead delivery.
func (f *Fanout) letter(l *lane, r ref) DeadLetter {
	p := l.past[r.pos()]
	d := DeadLetter{
		Subscription: l.subID, Tenant: l.tenant.name, Reason: r.reason(), Died: time.UnixMilli(r.stamp()).UTC(),
		First: r.reason(), FirstDied: time.UnixMilli(r.stamp()).UTC(), Deaths: 1, Replays: p.Replays, Attempts: p.Total(r.attempt()), at: r,
	}
	if p.Deaths > 0 {
		d.First, d.FirstDied, d.Deaths = p.First, time.UnixMilli(p.FirstAt).UTC(), p.Deaths
	}
	return d
}

// fill reads the trigger.
func (f *Fanout) fill(ctx context.Context, d *DeadLetter) {
	if d.Trigger, d.Err = f.journal.Load(ctx, d.at.pos()); d.Trigger != nil {
		d.Bytes = len(d.Trigger.Payload)
	}
}

// lighten drops the payload: a page has room for a thousand of any size.
func (d *DeadLetter) lighten() {
	if d.Trigger != nil {
		t := *d.Trigger
		t.Payload, d.Trigger = nil, &t
	}
}

// DeadLetter returns one dead letter with its history, newest first; whole reports whether the log still has all
// of it. A trigger is named by its id, or by its position in digits.
func (f *Fanout) DeadLetter(ctx context.Context, subscription, trigger string) (d DeadLetter, history []journal.Record, whole bool, err error) {
	l, r, err := f.findDead(ctx, subscription, trigger)
	if err != nil {
		return d, nil, false, err
	}
	f.mu.Lock()
	d = f.letter(l, r)
	f.mu.Unlock()
	if f.fill(ctx, &d); d.Trigger == nil {
		return d, nil, false, nil
	}
	if err = f.journal.WaitFlushed(ctx, f.journal.Record()); err != nil { // its last record may be a moment old
		return d, nil, false, err
	}
	history, whole, err = f.journal.History(ctx, l.id, r.pos(), d.Trigger, d.Died)
	return d, history, whole, err
}

// findDead looks for the dead letter of a trigger: by its position where that is known, and among those in
// HELD by what is held.
func (f *Fanout) findDead(ctx context.Context, subscription, trigger string) (*lane, ref, error) {
	lanes, err := f.lanesOf(&Selection{Subscription: subscription})
	if err != nil {
		return nil, ref{}, err
	}
	l := lanes[0]
	p, known := f.position(trigger)
	f.mu.Lock()
	dead := slices.Clone(l.dead)
	f.mu.Unlock()
	for _, r := range dead {
		if known && r.pos() == p {
			return l, r, nil
		}
	}
	for _, r := range dead {
		if known && !r.pos().Held() {
			continue
		}
		for ; r.count() > 0; r = r.next() {
			t, err := f.journal.Load(ctx, r.pos())
			if ctx.Err() != nil {
				return nil, ref{}, ctx.Err()
			}
			if err == nil && (known && t.Position == p || !known && t.ID == trigger) {
				return l, r.first(), nil
			}
		}
	}
	return nil, ref{}, fmt.Errorf("%w: dead letter", ErrNotFound)
}

// position is what a name of a trigger says, its id or its position in digits.
func (f *Fanout) position(trigger string) (journal.Position, bool) {
	var p uint64
	if n, err := fmt.Sscanf(trigger, "%d", &p); n == 1 && err == nil && fmt.Sprint(p) == trigger {
		return journal.Position(p), true
	}
	return f.journal.Find(trigger)
}

// PurgeDead gives up dead letters: they are cancelled. It returns how many, with dry how many it would. Error: ErrBusy
// while as many of the tenant's selections are counted as may be at once.
func (f *Fanout) PurgeDead(ctx context.Context, s Selection, dry bool) (n int, err error) {
	if s.Tenant == "" && s.Subscription == "" {
		return 0, fmt.Errorf("%w: subscription: name it, or a tenant", ErrInvalid)
	}
	lanes, err := f.lanesOf(&s)
	if err != nil {
		return 0, err
	}
	tenant := s.Tenant
	if len(lanes) > 0 {
		tenant = lanes[0].tenant.name
	}
	begun, err := f.beginCount(tenant)
	if err != nil {
		return 0, err
	}
	defer begun()
	s.Bound = f.awaitBound()
	f.moving.RLock()
	defer f.moving.RUnlock()
	var mark journal.Mark
	for _, l := range lanes {
		in, err := f.within(ctx, l, &s)
		if err != nil {
			return n, err
		}
		f.mu.Lock()
		if dry {
			n += f.countDead(l, &s, in)
		} else {
			n += f.purge(l, &s, in)
			mark = f.journal.Record()
		}
		f.mu.Unlock()
	}
	return n, f.journal.WaitFlushed(ctx, mark)
}

// PurgeOne gives up one dead letter.
func (f *Fanout) PurgeOne(ctx context.Context, subscription, trigger string) error {
	l, r, err := f.findDead(ctx, subscription, trigger)
	if err != nil {
		return err
	}
	f.mu.Lock()
	n := 0
	if !l.removed {
		n = f.purged(l, l.takeOne(r.pos()))
	}
	mark := f.journal.Record()
	f.mu.Unlock()
	if n == 0 {
		return fmt.Errorf("%w: dead letter", ErrNotFound)
	}
	return f.journal.WaitFlushed(ctx, mark)
}

// takeOne takes the dead letter at a position; nil: there is none.
func (l *lane) takeOne(p journal.Position) []ref {
	at := slices.IndexFunc(l.dead, func(r ref) bool { return p >= r.pos() && p < r.pos()+journal.Position(r.count()) })
	if at < 0 {
		return nil
	}
	return l.takeDead(at, 1, func(r ref) bool { return r.pos() == p }).taken
}

func (f *Fanout) countDead(l *lane, s *Selection, in *inRange) (n int) {
	for _, r := range l.dead {
		if in == nil && s.takes(r) {
			n += r.count()
			continue
		}
		for ; r.count() > 0; r = r.next() {
			if s.selects(r.first(), in) {
				n++
			}
		}
	}
	return n
}

// purge cancels what is selected of a lane; the caller holds the lock.
func (f *Fanout) purge(l *lane, s *Selection, in *inRange) int {
	if l.removed {
		return 0
	}
	return f.purged(l, l.takeDead(0, math.MaxInt, func(r ref) bool { return s.selects(r, in) }).taken)
}

// purged cancels what was taken out of a lane's dead; the caller holds the lock.
func (f *Fanout) purged(l *lane, taken []ref) int {
	if len(taken) == 0 {
		return 0
	}
	now := f.clock.now()
	f.recordEach(l, taken, journal.Record{Kind: journal.Purged, At: f.clock.wall(now)})
	f.settlePurged(now, l, taken)
	f.pump(now)
	return deliveries(taken)
}

// settlePurged forgets what was taken out of a lane's dead and is recorded as purged; the caller holds the lock.
func (f *Fanout) settlePurged(now time.Duration, l *lane, taken []ref) {
	l.replay.gone(l, taken, nil)
	for _, r := range taken {
		delete(l.past, r.pos())
		f.release(r)
	}
	n := deliveries(taken)
	f.resize(l)
	f.forget(l, n)
	f.engine.Settle(now, l.id, engine.ToPurged, uint32(n))
	f.stateOrder(now, l)
	f.dirty = true
}
