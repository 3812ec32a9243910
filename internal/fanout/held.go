package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Old references are moved into HELD, payload and all, so that they do not pin the log of
// triggers, and so that memory holds one reference a message of HELD instead of one a delivery.
// A delivery that has moved is known by its place in HELD from then on.

const (
	moveAfter = time.Hour // older than it, a delivery moves
	moveMost  = 256       // deliveries in a message of HELD
	moveBytes = 256 << 10 // and their payload, about

	moveAbove = 0.5 // share of the log's room pinned by references: the older half moves
	slowAbove = 0.7 // and producers of those who pin it are slowed
)

// deliveries counts what references stand for.
func deliveries(refs []ref) (n int) {
	for _, r := range refs {
		n += r.count()
	}
	return n
}

// keep counts deliveries that live in HELD, and release those that are settled. A message without
// any is deleted, once what settled them is durable.
func (f *Fanout) keep(r ref) {
	if r.pos().Held() {
		f.held[r.pos().Seq()] += r.count()
	}
}

func (f *Fanout) release(r ref) {
	if !r.pos().Held() {
		return
	}
	seq := r.pos().Seq()
	if f.held[seq] -= r.count(); f.held[seq] <= 0 {
		delete(f.held, seq)
		f.spent = append(f.spent, seq)
	}
}

// dropSpent deletes the messages of HELD in which nothing lives. It runs in the janitor.
func (f *Fanout) dropSpent() {
	f.mu.Lock()
	spent := f.spent
	f.spent = nil
	mark := f.journal.Record()
	f.mu.Unlock()
	if len(spent) == 0 {
		return
	}
	if err := f.journal.WaitFlushed(f.ctx, mark); err != nil {
		return // the next start finds them
	}
	for _, seq := range spent {
		if err := f.journal.DropHeld(f.ctx, seq); err != nil {
			f.log.Warn("a spent message of HELD was not deleted; the next start does it", "sequence", seq, "error", err)
		}
	}
}

// moveOld moves what lies below the position that moveBelow gives. It runs in the janitor.
func (f *Fanout) moveOld() {
	below := f.moveBelow()
	if below == 0 {
		return
	}
	f.mu.Lock()
	lanes := append([]*lane(nil), f.index.lanes...)
	f.mu.Unlock()
	for _, l := range lanes {
		for l != nil && f.ctx.Err() == nil {
			moved, err := f.moveSome(l, below)
			if err != nil {
				f.log.Warn("old deliveries stay where they are", "error", err)
				return
			}
			if !moved {
				break
			}
		}
	}
}

// moveBelow says what is old: older than an hour; the older half of the log when references pin
// more than half of its room; and of what is referred to when memory runs short. 0 is nothing.
func (f *Fanout) moveBelow() journal.Position {
	f.mu.Lock()
	lowest, crowded := f.lowestLocked(), f.waiting > f.opts.MaxWaiting/4*3
	cursor := f.cursor
	f.mu.Unlock()
	pinned := f.journal.Pinned(lowest)
	f.slowPinners(pinned > slowAbove)
	if lowest >= cursor {
		return 0
	}
	below, err := f.journal.PositionAt(f.ctx, f.clock.wall(f.clock.now()-moveAfter))
	if err != nil {
		return 0
	}
	if crowded || pinned > moveAbove {
		below = max(below, lowest+(cursor-lowest)/2)
	}
	if below <= lowest {
		return 0
	}
	return min(below, cursor)
}

// slowPinners marks the tenants that hold more than the mean of what is parked and dead, while the log is
// crowded.
func (f *Fanout) slowPinners(crowded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var bytes, holders float64
	for _, tn := range f.index.tenants {
		if tn.count > 0 {
			bytes += tn.bytes
			holders++
		}
	}
	for _, tn := range f.index.tenants {
		tn.slowed = crowded && tn.count > 0 && tn.bytes*holders >= bytes
	}
}

// lowestLocked is the lowest position in TRIGGERS that a waiting or dead delivery refers to.
func (f *Fanout) lowestLocked() journal.Position {
	lowest := f.cursor
	for _, l := range f.index.lanes {
		if l == nil || l.size == 0 {
			continue
		}
		l.backlog.each(func(r ref) { lowest = lower(lowest, r.pos()) })
		for _, r := range l.dead {
			lowest = lower(lowest, r.pos())
		}
		for _, c := range l.staged() {
			lowest = lower(lowest, c.pos())
		}
	}
	return lowest
}

// pick is what is about to move: references of one lane, neighbours in a queue, or from its lists.
type pick struct {
	refs   []ref
	queue  uint8
	number uint64 // of the first in that queue's ready; 0: they are in any list, by name
}

// moveSome moves one message full of a lane's old deliveries, and reports whether there was one.
func (f *Fanout) moveSome(l *lane, below journal.Position) (bool, error) {
	f.mu.Lock()
	if l.backlog.claimedBelow(below) {
		f.unclaim(f.clock.now(), l)
	}
	f.writeLate(f.clock.now(), l)
	p := l.pick(below)
	f.mu.Unlock()
	if len(p.refs) == 0 {
		return false, nil
	}
	triggers, err := f.loadAll(&p)
	if err != nil || len(triggers) == 0 {
		return false, err
	}
	seq, err := f.journal.PutHeld(f.ctx, l.id, triggers)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.commitMove(l, p, seq) {
		f.spent = append(f.spent, seq)
	}
	return true, nil
}

// pick chooses the next deliveries of a lane to move, in the order in which they wait.
func (l *lane) pick(below journal.Position) pick {
	if l.removed {
		return pick{}
	}
	old := func(r ref) bool { return !r.pos().Held() && r.pos() < below }
	p := l.pickOrdered(old)
	if len(p.refs) > 0 {
		return p
	}
	l.backlog.eachQueue(func(q *queue) {
		if len(p.refs) == 0 {
			p.fill(&q.ready, old)
		}
	})
	if len(p.refs) > 0 {
		return p
	}
	for _, list := range [][]ref{l.backlog.later, l.dead} {
		for _, r := range list {
			if old(r) && len(p.refs) < moveMost {
				p.refs = append(p.refs, r)
			}
		}
		if len(p.refs) > 0 {
			return p
		}
	}
	return p
}

// pickOrdered chooses among all that was never attempted on an ordered lane, parked and dead, when some of that is dead:
// so their names in HELD are in log order, and a replay finds their places (putBetween).
func (l *lane) pickOrdered(old func(ref) bool) (p pick) {
	if l.backlog.ordered == nil {
		return p
	}
	never := func(r ref) bool { return old(r) && r.attempt() == 0 }
	for _, r := range l.dead {
		if never(r) && len(p.refs) < moveMost {
			p.refs = append(p.refs, r)
		}
	}
	if len(p.refs) == 0 {
		return p
	}
	l.backlog.eachQueue(func(q *queue) {
		for i, n := 0, 0; i < q.ready.n && n < moveMost; i++ {
			if r := q.ready.at(i); never(r) {
				p.refs = append(p.refs, r)
				n++
			}
		}
	})
	slices.SortFunc(p.refs, func(a, b ref) int { return cmp.Compare(a.pos(), b.pos()) })
	p.refs = p.refs[:min(len(p.refs), moveMost)]
	return p
}

// fill takes neighbours in the queue that are old.
func (p *pick) fill(q *ring, old func(ref) bool) {
	for i := range q.n {
		if !old(q.at(i)) {
			continue
		}
		p.queue, p.number = q.at(i).queue(), q.first+uint64(i)
		for ; i < q.n && old(q.at(i)) && len(p.refs) < moveMost; i++ {
			p.refs = append(p.refs, q.at(i))
		}
		return
	}
}

// loadAll reads the payloads, and shortens the pick to what fits a message.
func (f *Fanout) loadAll(p *pick) ([]*journal.Trigger, error) {
	var out []*journal.Trigger
	bytes := 0
	for i, r := range p.refs {
		t, err := f.journal.Load(f.ctx, r.pos())
		if err != nil {
			return nil, err
		}
		if bytes += len(t.Payload); i > 0 && bytes > moveBytes {
			p.refs = p.refs[:i]
			break
		}
		out = append(out, t)
	}
	return out, nil
}

// commitMove gives those that still wait their names in HELD, and reports whether there were any.
func (f *Fanout) commitMove(l *lane, p pick, seq uint64) bool {
	if l.removed {
		return false
	}
	rec := f.record(l, journal.Held, ref{})
	rec.Ref, rec.Positions = seq, l.rename(p, seq)
	n := 0
	for _, old := range rec.Positions {
		if old != 0 {
			n++
		}
	}
	if n == 0 {
		return false
	}
	f.held[seq] = n
	rec.N = uint32(n)
	f.journal.Record(rec)
	l.renamed(rec.Positions, seq)
	l.collapse(p, seq)
	f.state(f.clock.now(), l)
	f.dirty = true
	return true
}

// rename gives those of the pick that still wait their names in message seq. It returns the names they
// had, 0 for those that have gone.
func (l *lane) rename(p pick, seq uint64) []journal.Position {
	had := make([]journal.Position, len(p.refs))
	if p.number != 0 {
		for i, old := range p.refs {
			if r, waits := l.backlog.of(p.queue).ready.numbered(p.number + uint64(i)); waits && r.pos() == old.pos() {
				had[i], *r = old.pos(), r.at(journal.HeldPosition(seq, i))
			}
		}
		return had
	}
	place := make(map[journal.Position]int, len(p.refs))
	for i, r := range p.refs {
		place[r.pos()] = i
	}
	for _, list := range [][]ref{l.backlog.later, l.dead} {
		for j := range list {
			if i, picked := place[list[j].pos()]; picked {
				had[i], list[j] = list[j].pos(), list[j].at(journal.HeldPosition(seq, i))
			}
		}
	}
	heapify(l.backlog.later) // names break ties
	for i := range l.backlog.ordered {
		q := &l.backlog.ordered[i].ready
		for number := q.first; number < q.first+uint64(q.n); number++ {
			r, _ := q.numbered(number)
			if i, picked := place[r.pos()]; picked {
				had[i], *r = r.pos(), r.at(journal.HeldPosition(seq, i))
			}
		}
	}
	return had
}

// collapse makes one reference of the neighbours in the ready queue that have moved into message seq
// and were never tried.
func (l *lane) collapse(p pick, seq uint64) {
	if p.number == 0 {
		return
	}
	q := &l.backlog.of(p.queue).ready
	last := p.number + uint64(len(p.refs)) - 1
	if last < q.first {
		return
	}
	end := int(last-q.first) + 1
	begin := end
	for begin > 0 && joins(q.at(begin-1), seq) {
		begin--
	}
	if n := end - begin; n > 1 {
		first := q.at(begin)
		q.replace(begin, n, newRef(first.pos(), first.stamp(), uint32(n), first.reason(), flagRecorded|flagRun).in(p.queue))
	}
}

func joins(r ref, seq uint64) bool {
	return r.pos().Held() && r.pos().Seq() == seq && r.attempt() == 0 && !r.run() && !r.due() && r.reason() != engine.ByShutdown
}
