package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Selection names dead letters. Both a tenant and a subscription narrow it; a replay and a purge need one of
// them.
type Selection struct {
	Tenant, Subscription string
	Reasons              []engine.Reason // none: all
	Since, Until         time.Time       // accepted at or after Since and before Until; zero: no bound
	Bound                int64           // died before this anchored wall millisecond; 0: no bound
}

// DeadLetter is one delivery that waits for a person: one trigger for one subscription.
type DeadLetter struct {
	Subscription string
	Tenant       string
	Trigger      *journal.Trigger // nil: Err says why it cannot be read
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

// names reports whether the selection has the lane.
func (s *Selection) names(l *lane) bool {
	return !l.removed && (s.Tenant == "" || l.tenant.name == s.Tenant) && (s.Subscription == "" || l.subID == s.Subscription)
}

// takes reports whether the selection has a dead letter, but for its time range.
func (s *Selection) takes(r ref) bool {
	return (s.Bound == 0 || r.stamp() < s.Bound) && (len(s.Reasons) == 0 || slices.Contains(s.Reasons, r.reason()))
}

func (s *Selection) ranged() bool { return !s.Since.IsZero() || !s.Until.IsZero() }

func (s *Selection) accepted(t *journal.Trigger) bool {
	return (s.Since.IsZero() || !t.Accepted.Before(s.Since)) && (s.Until.IsZero() || t.Accepted.Before(s.Until))
}

// lanesOf returns the lanes of the selection by number. Error: ErrNotFound for a subscription that is not there.
func (f *Fanout) lanesOf(s *Selection) ([]*lane, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Subscription != "" {
		l := f.index.bySub[s.Subscription]
		if l == nil || !s.names(l) {
			return nil, fmt.Errorf("%w: subscription %q", ErrNotFound, s.Subscription)
		}
		return []*lane{l}, nil
	}
	var out []*lane
	for _, l := range f.index.lanes {
		if l != nil && s.names(l) {
			out = append(out, l)
		}
	}
	return out, nil
}

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
			want = max(want, 64)
		}
		found, cursors := f.deadFrom(&s, from, want)
		for i := range found {
			f.fill(ctx, &found[i])
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
	p := l.past[r.pos]
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
	d.Trigger, d.Err = f.journal.Load(ctx, d.at.pos)
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
	if f.fill(ctx, &d); d.Err != nil {
		return d, nil, false, nil
	}
	if err = f.journal.WaitFlushed(ctx, f.journal.Record()); err != nil { // its last record may be a moment old
		return d, nil, false, err
	}
	history, whole, err = f.journal.History(ctx, l.id, r.pos, d.Trigger, d.Died)
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
		if known && r.pos == p {
			return l, r, nil
		}
	}
	for _, r := range dead {
		if known && !r.pos.Held() {
			continue
		}
		for ; r.count() > 0; r = r.next() {
			t, err := f.journal.Load(ctx, r.pos)
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

// within returns those of the lane's dead letters in the selection that were accepted in its time range; nil is
// all, without a range.
//
// Positions are in order of storing, which comes at most acceptedLag after acceptance: only what is near a
// bound has to be read, and what is in HELD.
func (f *Fanout) within(ctx context.Context, l *lane, s *Selection) (map[journal.Position]struct{}, error) {
	if !s.ranged() {
		return nil, nil
	}
	zone, err := f.zone(ctx, s)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	dead := slices.Clone(l.dead)
	f.mu.Unlock()
	in := make(map[journal.Position]struct{})
	for _, r := range dead {
		if !s.takes(r) || !r.pos.Held() && (r.pos < zone.low || r.pos >= zone.high) {
			continue
		}
		for ; r.count() > 0; r = r.next() {
			if !r.pos.Held() && r.pos >= zone.surelyFrom && r.pos < zone.surelyTo {
				in[r.pos] = struct{}{}
				continue
			}
			t, err := f.journal.Load(ctx, r.pos)
			if errors.Is(err, journal.ErrNotFound) || errors.Is(err, journal.ErrTrimmed) {
				continue // settled meanwhile
			}
			if err != nil {
				return nil, err
			}
			if s.accepted(t) {
				in[r.pos] = struct{}{}
			}
		}
	}
	return in, nil
}

// zone is a time range as positions: outside of low and high nothing was accepted in it, between surelyFrom and
// surelyTo everything.
type zone struct{ low, high, surelyFrom, surelyTo journal.Position }

func (f *Fanout) zone(ctx context.Context, s *Selection) (z zone, err error) {
	z = zone{high: math.MaxUint64, surelyTo: math.MaxUint64}
	at := func(p *journal.Position, t time.Time) {
		if err == nil {
			*p, err = f.journal.PositionAt(ctx, t)
		}
	}
	if !s.Since.IsZero() {
		at(&z.low, s.Since)
		at(&z.surelyFrom, s.Since.Add(acceptedLag))
	}
	if !s.Until.IsZero() {
		at(&z.surelyTo, s.Until)
		at(&z.high, s.Until.Add(acceptedLag))
	}
	return z, err
}

// PurgeDead gives up dead letters: they are cancelled. It returns how many, with dry how many it would.
func (f *Fanout) PurgeDead(ctx context.Context, s Selection, dry bool) (n int, err error) {
	if s.Tenant == "" && s.Subscription == "" {
		return 0, fmt.Errorf("%w: subscription: name it, or a tenant", ErrInvalid)
	}
	lanes, err := f.lanesOf(&s)
	if err != nil {
		return 0, err
	}
	s.Bound = f.awaitBound()
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
	n := f.purge(l, &Selection{}, map[journal.Position]struct{}{r.pos: {}})
	mark := f.journal.Record()
	f.mu.Unlock()
	if n == 0 {
		return fmt.Errorf("%w: dead letter", ErrNotFound)
	}
	return f.journal.WaitFlushed(ctx, mark)
}

// awaitBound returns a millisecond that has begun, and before which every death so far was: later ones
// are not before it, so that two selections with it name the same.
func (f *Fanout) awaitBound() int64 {
	bound := f.clock.ms(f.clock.now()) + 1
	for f.clock.ms(f.clock.now()) < bound {
		<-time.After(f.clock.fromMs(bound) - f.clock.now())
	}
	return bound
}

// selects reports whether one delivery of r is in the selection; in is what within returned.
func (s *Selection) selects(r ref, in map[journal.Position]struct{}) bool {
	if !s.takes(r) {
		return false
	}
	_, inside := in[r.pos]
	return in == nil || inside
}

func (f *Fanout) countDead(l *lane, s *Selection, in map[journal.Position]struct{}) (n int) {
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
func (f *Fanout) purge(l *lane, s *Selection, in map[journal.Position]struct{}) int {
	if l.removed {
		return 0
	}
	gone := l.takeDead(0, math.MaxInt, func(r ref) bool { return s.selects(r, in) })
	l.replay.gone(l, gone.taken, nil)
	for _, r := range gone.taken {
		delete(l.past, r.pos)
		f.release(r)
	}
	n := deliveries(gone.taken)
	if n == 0 {
		return 0
	}
	f.recordEach(l, gone.taken, journal.Record{Kind: journal.Purged, At: f.clock.wall(f.clock.now())})
	f.resize(l)
	f.forget(l, n)
	f.engine.Settle(f.clock.now(), l.id, engine.ToPurged, uint32(n))
	f.dirty = true
	return n
}

// cutout is what takeDead took, one reference a delivery, and how many references in front it passed over.
type cutout struct {
	taken  []ref
	passed int
	all    bool // the end was reached
}

// takeDead takes up to most deliveries out of the lane's dead, in order: those that pick names, from the from-th
// reference on.
func (l *lane) takeDead(from, most int, pick func(ref) bool) (c cutout) {
	kept, i := from, from
	for ; i < len(l.dead) && len(c.taken) < most; i++ {
		rest := l.dead[i]
		if !rest.run() {
			if pick(rest) {
				c.taken = append(c.taken, rest)
			} else {
				l.dead[kept], kept = rest, kept+1
			}
			continue
		}
		left, rest := split(rest, most-len(c.taken), pick, &c.taken)
		whole := left
		if rest.count() > 0 {
			whole = append(slices.Clip(left), rest)
		}
		if len(whole) > 1 {
			l.dead = slices.Replace(l.dead, i, i+1, whole...) // rare: a part of a run
		} else if len(whole) == 1 {
			l.dead[i] = whole[0]
		}
		for _, r := range left {
			l.dead[kept], kept = r, kept+1
		}
		if i += max(len(left), 1) - 1; rest.count() > 0 {
			i += min(len(left), 1)
			break
		}
	}
	c.passed, c.all = kept, i == len(l.dead)
	if hole := i - kept; kept <= len(l.dead)-i {
		copy(l.dead[hole:], l.dead[:kept]) // what was passed over moves up: a reader's way is from the front
		l.dead = l.dead[hole:]
	} else {
		l.dead = slices.Delete(l.dead, kept, i)
	}
	return c
}

// split takes up to most of a run's deliveries. It returns references to those that it passed over, and to the
// rest that it did not look at.
func split(run ref, most int, pick func(ref) bool, taken *[]ref) (left []ref, rest ref) {
	for n := 0; run.count() > 0 && n < most; run = run.next() {
		one := run.first()
		if pick(one) {
			*taken, n = append(*taken, one), n+1
			continue
		}
		if last := len(left) - 1; last >= 0 && left[last].pos+journal.Position(left[last].count()) == one.pos {
			left[last] = newRef(left[last].pos, one.stamp(), uint32(left[last].count()+1), one.reason(), flagRecorded|flagRun)
			continue
		}
		left = append(left, one)
	}
	return left, run
}

// recordEach writes one kind of record for several deliveries of a lane: neighbours in HELD as a range, the others
// by name.
func (f *Fanout) recordEach(l *lane, refs []ref, like journal.Record) (mark journal.Mark) {
	like.Partition, like.Lane = l.part, l.id
	for chunk := range slices.Chunk(refs, moveMost) {
		rec := like
		rec.Position = chunk[0].pos
		if contiguous(chunk) {
			rec.N = uint32(len(chunk))
		} else {
			rec.Positions = make([]journal.Position, len(chunk))
			for i, r := range chunk {
				rec.Positions[i] = r.pos
			}
		}
		mark = f.journal.Record(rec)
	}
	return mark
}

func contiguous(refs []ref) bool {
	for i, r := range refs {
		if !r.pos.Held() || r.pos != refs[0].pos+journal.Position(i) {
			return len(refs) == 1
		}
	}
	return true
}
