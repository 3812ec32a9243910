package fanout

import (
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

const countsOpen = 4 // of a tenant at once: each reads the log for its time range, and walks what is dead under the lock

// beginCount takes a place among the selections of a tenant that are being counted or purged: begun gives it back.
// Error: ErrBusy.
func (f *Fanout) beginCount(tenant string) (begun func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counting[tenant] >= countsOpen {
		return nil, fmt.Errorf("%w: has %d selections of dead letters being counted or purged, which is the most at once", ErrBusy, countsOpen)
	}
	return f.enter(f.counting, tenant), nil
}

// inRange is what was accepted in a time range, of a lane's dead letters; nil is all. It is asked for half a million
// under the lock: what is surely inside is told by its position, and the others are bits, by their message.
type inRange struct {
	from, to journal.Position // what is between, and not in HELD, is inside
	some     map[journal.Position]*[messageEntries / 64]uint64
}

const messageEntries = 256 // a position's low byte is its place in its message

func (in *inRange) has(p journal.Position) bool {
	if in == nil || !p.Held() && p >= in.from && p < in.to {
		return true
	}
	bits := in.some[p/messageEntries]
	return bits != nil && bits[p%messageEntries/64]>>(p%64)&1 == 1
}

func (in *inRange) add(p journal.Position) {
	bits := in.some[p/messageEntries]
	if bits == nil {
		bits = new([messageEntries / 64]uint64)
		in.some[p/messageEntries] = bits
	}
	bits[p%messageEntries/64] |= 1 << (p % 64)
}

// within returns those of the lane's dead letters in the selection that were accepted in its time range; nil is
// all, without a range.
//
// Positions are in order of storing, which comes at most acceptedLag after acceptance: only what is near a
// bound has to be read, and what is in HELD. The caller holds moving, for as long as it uses the result.
func (f *Fanout) within(ctx context.Context, l *lane, s *Selection) (*inRange, error) {
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
	in := &inRange{from: zone.surelyFrom, to: zone.surelyTo, some: make(map[journal.Position]*[messageEntries / 64]uint64)}
	for _, r := range dead {
		if !s.takes(r) || !r.pos().Held() && (r.pos() < zone.low || r.pos() >= zone.high) {
			continue
		}
		for ; r.count() > 0; r = r.next() {
			if in.has(r.pos()) {
				continue
			}
			t, err := f.journal.Load(ctx, r.pos())
			if errors.Is(err, journal.ErrNotFound) || errors.Is(err, journal.ErrTrimmed) {
				continue // settled meanwhile
			}
			if err != nil {
				return nil, err
			}
			if s.accepted(t) {
				in.add(r.pos())
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
func (s *Selection) selects(r ref, in *inRange) bool { return s.takes(r) && in.has(r.pos()) }

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
		if last := len(left) - 1; last >= 0 && left[last].pos()+journal.Position(left[last].count()) == one.pos() {
			left[last] = newRef(left[last].pos(), one.stamp(), uint32(left[last].count()+1), one.reason(), flagRecorded|flagRun).in(one.queue())
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
		rec.Position, rec.N = chunk[0].pos(), uint32(len(chunk))
		if !contiguous(chunk) {
			rec.Positions = make([]journal.Position, len(chunk))
			for i, r := range chunk {
				rec.Positions[i] = r.pos()
			}
		}
		mark = f.write(rec)
	}
	return mark
}

func contiguous(refs []ref) bool {
	for i, r := range refs {
		if !r.pos().Held() || r.pos() != refs[0].pos()+journal.Position(i) {
			return len(refs) == 1
		}
	}
	return true
}
