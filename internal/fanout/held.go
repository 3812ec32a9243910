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

	moveStretch = 32 << 20    // of the log at once, about: what is read of it is in memory
	moveAtOnce  = 1 << 17     // deliveries read at once
	moveFor     = time.Second // then the janitor does something else
	lanesAtOnce = 256         // looked at under one hold of the lock

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

// dropSpent deletes the messages of HELD in which nothing lives: those in front of all others at once. It runs in
// the janitor.
func (f *Fanout) dropSpent() {
	f.mu.Lock()
	spent := f.spent
	f.spent = nil
	mark := f.journal.Record()
	var first uint64 // that lives
	if len(spent) > 0 {
		first = slices.Max(spent) + 1
		for seq := range f.held {
			first = min(first, seq)
		}
	}
	f.mu.Unlock()
	if len(spent) == 0 {
		return
	}
	if err := f.journal.WaitFlushed(f.ctx, mark); err != nil {
		return // the next start finds them
	}
	if err := f.journal.DropHeldBelow(f.ctx, first); err != nil {
		f.log.Warn("spent messages of HELD were not deleted; the next start does it", "below", first, "error", err)
	}
	for _, seq := range spent {
		if seq < first {
			continue
		}
		if err := f.journal.DropHeld(f.ctx, seq); err != nil {
			f.log.Warn("a spent message of HELD was not deleted; the next start does it", "sequence", seq, "error", err)
		}
	}
}

// moveOld moves what lies below the position that moveBelow gives, for about a second: what is left comes with the
// next call. It goes through the log, not from lane to lane: where many lanes wait side by side, what they have in one
// stretch is read once, and stands together in HELD, so that lanes that go on together read that once as well. It
// runs in the janitor.
func (f *Fanout) moveOld() {
	from, below := f.moveBelow()
	begin := f.clock.now()
	for from < below && f.ctx.Err() == nil && f.clock.now()-begin < moveFor {
		to := min(below, f.journal.Beyond(from, moveStretch))
		if err := f.moveStretch(to); err != nil && f.ctx.Err() == nil {
			f.log.Warn("old deliveries stay where they are", "error", err)
			return
		}
		from = to
	}
}

// moveBelow says where what is referred to begins, and below which position it is old: older than an hour; the
// older half of the log when references pin more than half of its room; and of what is referred to when memory runs
// short.
func (f *Fanout) moveBelow() (lowest, below journal.Position) {
	f.mu.Lock()
	cursor, crowded := f.cursor, f.waiting > f.opts.MaxWaiting/4*3
	f.mu.Unlock()
	lowest = f.lowest(cursor)
	pinned := f.journal.Pinned(lowest)
	f.slowPinners(pinned > slowAbove)
	if lowest >= cursor {
		return lowest, 0
	}
	if now := f.clock.now(); f.agedAt == 0 || now-f.agedAt >= time.Minute { // the log is read for it
		aged, err := f.journal.PositionAt(f.ctx, f.clock.wall(now-moveAfter))
		if err != nil {
			return lowest, 0
		}
		f.aged, f.agedAt = aged, now
	}
	below = f.aged
	if crowded || pinned > moveAbove {
		below = max(below, lowest+(cursor-lowest)/2)
	}
	return lowest, min(below, cursor)
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

// lowest is the lowest position in TRIGGERS that a waiting or dead delivery refers to, at most the cursor. Some
// lanes at a time: there may be a million references, and everybody waits for the lock.
func (f *Fanout) lowest(cursor journal.Position) journal.Position {
	lowest := cursor
	for from, more := 0, true; more; from += lanesAtOnce {
		f.mu.Lock()
		lanes := f.index.lanes[min(from, len(f.index.lanes)):]
		more = len(lanes) > lanesAtOnce
		for _, l := range lanes[:min(len(lanes), lanesAtOnce)] {
			if l != nil && l.size > 0 {
				lowest = l.lowest(lowest)
			}
		}
		f.mu.Unlock()
	}
	return lowest
}

// lowest is the lowest position in TRIGGERS of the lane's, if it is lower.
func (l *lane) lowest(than journal.Position) journal.Position {
	l.backlog.each(func(r ref) { than = lower(than, r.pos()) })
	for _, r := range l.dead {
		than = lower(than, r.pos())
	}
	for _, c := range l.staged() {
		than = lower(than, c.pos())
	}
	return than
}

// pick is what is about to move: references of one lane, neighbours in a queue, or from its lists.
type pick struct {
	refs     []ref
	queue    uint8
	number   uint64             // of the first in that queue's ready; 0: they are in any list, by name
	triggers []*journal.Trigger // of refs; nil: not read
}

// moveStretch moves everything below the position: of each lane a message full, then of those that had one the
// next, until nothing is left.
func (f *Fanout) moveStretch(below journal.Position) error {
	f.mu.Lock()
	lanes := slices.Clone(f.index.lanes)
	f.mu.Unlock()
	for len(lanes) > 0 {
		var again []*lane
		for len(lanes) > 0 {
			var picks []*pick
			from, n := len(again), 0
			for ; len(lanes) > 0 && n < moveAtOnce; lanes = lanes[1:] {
				if p := f.pick(lanes[0], below); len(p.refs) > 0 {
					picks, again, n = append(picks, p), append(again, lanes[0]), n+len(p.refs)
				}
			}
			if err := f.readPicks(picks); err != nil {
				return err
			}
			for i, p := range picks {
				if err := f.move(again[from+i], p); err != nil {
					return err
				}
			}
		}
		lanes = again
	}
	return nil
}

// readPicks reads payloads in the order of the log, of each pick about as many as a message takes.
func (f *Fanout) readPicks(picks []*pick) error {
	type place struct {
		pos     journal.Position
		pick, i int
	}
	var all []place
	bytes := make([]int, len(picks))
	for n, p := range picks {
		p.triggers = make([]*journal.Trigger, len(p.refs))
		for i, r := range p.refs {
			all = append(all, place{r.pos(), n, i})
		}
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.pos, b.pos) })
	for _, at := range all {
		if bytes[at.pick] > moveBytes && at.i > 0 {
			continue
		}
		t, err := f.journal.LoadInOrder(f.ctx, at.pos)
		if err != nil {
			return err
		}
		picks[at.pick].triggers[at.i] = t
		bytes[at.pick] += len(t.Payload)
	}
	return nil
}

// move writes one message of HELD, and gives what is in it and still waits its new names.
func (f *Fanout) move(l *lane, p *pick) error {
	p.cut()
	seq, err := f.journal.PutHeld(f.ctx, l.id, p.triggers)
	if err != nil {
		return err
	}
	f.moving.Lock()
	defer f.moving.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.commitMove(l, p, seq) {
		f.spent = append(f.spent, seq)
	}
	return nil
}

// cut shortens the pick to what was read and fits a message.
func (p *pick) cut() {
	n, bytes := 0, 0
	for ; n < len(p.refs) && p.triggers[n] != nil; n++ {
		if bytes += len(p.triggers[n].Payload); n > 0 && bytes > moveBytes {
			break
		}
	}
	p.refs, p.triggers = p.refs[:n], p.triggers[:n]
}

// pick chooses the next deliveries of a lane to move; none when nothing lies below.
func (f *Fanout) pick(l *lane, below journal.Position) *pick {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l == nil || l.removed || l.size == 0 {
		return &pick{}
	}
	if l.backlog.claimedBelow(below) {
		f.unclaim(f.clock.now(), l)
	}
	f.writeLate(f.clock.now(), l)
	return l.pick(below)
}

// pick is Fanout.pick: they are in the order in which they wait.
func (l *lane) pick(below journal.Position) *pick {
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
	for _, list := range [][]ref{l.backlog.later, l.dead} {
		if len(p.refs) > 0 {
			break
		}
		for _, r := range list {
			if old(r) && len(p.refs) < moveMost {
				p.refs = append(p.refs, r)
			}
		}
	}
	return p
}

// pickOrdered chooses among all that was never attempted on an ordered lane, parked and dead, when some of that is dead:
// so their names in HELD are in log order, and a replay finds their places (putBetween).
func (l *lane) pickOrdered(old func(ref) bool) *pick {
	p := &pick{}
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

// commitMove gives those that still wait their names in HELD, and reports whether there were any.
func (f *Fanout) commitMove(l *lane, p *pick, seq uint64) bool {
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
func (l *lane) rename(p *pick, seq uint64) []journal.Position {
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
func (l *lane) collapse(p *pick, seq uint64) {
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
