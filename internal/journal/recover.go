package journal

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
)

// recoverState folds the newest complete checkpoint (nil: there is none) and what stands behind it in
// OUTCOMES. Nothing may name more than TRIGGERS and HELD hold.
func recoverState(ctx context.Context, l *link, e *epochs, newest *found, triggers, outcomes, held span) (*State, error) {
	f, err := recoverFold(ctx, l, e, newest, outcomes)
	if err != nil {
		return nil, err
	}
	if f.known > triggers.last {
		return nil, &Damage{Stream: triggersStream, From: triggers.last + 1, To: f.known,
			What: fmt.Sprintf("message %d of OUTCOMES knows them, TRIGGERS ends before", f.where)}
	}
	if known := f.held(); known > held.last {
		return nil, &Damage{Stream: heldStream, From: held.last + 1, To: known, What: "OUTCOMES knows them, HELD ends before"}
	}
	s := f.state()
	s.Crashed = outcomes.last > 0
	if newest != nil {
		s.Crashed = !newest.Clean || newest.last != outcomes.last
	}
	return s, nil
}

func recoverFold(ctx context.Context, l *link, e *epochs, newest *found, outcomes span) (*fold, error) {
	f, from := newFold(nil), max(outcomes.first, 1)
	if newest != nil {
		f, from = newFold(newest.Checkpoint), newest.first+1
		f.knows(newest.Cursor.Seq()-min(newest.Cursor.Seq(), 1), newest.first) // it may stand behind the last
	}
	return f, l.each(ctx, outcomesStream, from, outcomes.last, func(m message) error { return f.message(ctx, l, e, m) })
}

// held returns the highest sequence of HELD in which something lives: what is stored there next must not take
// the name of something lost.
func (f *fold) held() (most uint64) {
	for _, l := range f.lanes {
		l.eachPosition(func(p Position) {
			if p.Held() {
				most = max(most, p.Seq())
			}
		})
	}
	return most
}

// eachPosition visits what waits, is dead, or has an unknown outcome.
func (l *laneFold) eachPosition(visit func(Position)) {
	for _, refs := range [...][]Ref{l.waiting.list(), l.dead.list()} {
		for _, r := range refs {
			visit(r.Position)
		}
	}
	for p := range l.open {
		visit(p)
	}
}

// message folds one message of OUTCOMES.
func (f *fold) message(ctx context.Context, l *link, e *epochs, m message) error {
	kind, h, err := decodeHeader(m.data)
	if err != nil {
		return err
	}
	if h.prev >= m.seq {
		return &Damage{Stream: outcomesStream, From: m.seq, To: h.prev, What: "messages that were here before are gone"}
	}
	f.knows(h.other, m.seq)
	if kind != kindRecords {
		return nil
	}
	if again, err := repeatedOutcome(ctx, l, m.seq, h); err != nil || again {
		return err
	}
	_, recs, err := decodeRecords(m.data)
	if err != nil {
		return err
	}
	for i := range recs {
		r := &recs[i]
		if !e.valid(h, m.seq, r.Partition) {
			continue
		}
		if !r.Position.Held() {
			f.knows(r.Position.Seq(), m.seq)
		}
		f.apply(r)
	}
	return nil
}

// decodeHeader reads the header of a message of any kind.
func decodeHeader(data []byte) (kind byte, h header, err error) {
	kind, body, err := openFrame(data)
	if err != nil {
		return 0, header{}, err
	}
	d := dec{b: body}
	h = d.header()
	return kind, h, d.err
}

// repeatedOutcome reports whether the message at seq is a second copy: the same (writer, counter)
// stands between it and the newest message that its writer knew.
func repeatedOutcome(ctx context.Context, l *link, seq uint64, h header) (bool, error) {
	for at := h.prev + 1; at < seq; at++ {
		m, ok, err := l.one(ctx, outcomesStream, getRequest{Seq: at})
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		_, other, err := decodeHeader(m.data)
		if err != nil {
			return false, damagedAt(outcomesStream, at, err)
		}
		if other.writer == h.writer && other.counter == h.counter {
			return true, nil
		}
	}
	return false, nil
}

// fold applies records to a checkpoint. A delivery is in one place: waiting, dead, open (its
// outcome is unknown), settled, or unknown; the counters say how many are where.
type fold struct {
	base    Checkpoint
	lanes   map[engine.LaneID]*laneFold
	jobs    map[uint32]*JobCount
	decided map[DeliveryKey]struct{}
	last    Position
	odd     int // records that do not fit what was known, and changed nothing

	known uint64 // the highest sequence of TRIGGERS that OUTCOMES names,
	where uint64 // and in which message
}

type laneFold struct {
	counters      engine.Counters
	tokens        int64
	waiting, dead refSet
	open          map[Position]uint32 // attempts made before the one whose outcome is unknown
	settled       map[Position]struct{}
	past          map[Position]Past
}

type spot uint8

const (
	unknown spot = iota
	isWaiting
	isDead
	isOpen
	isSettled
)

// newFold starts from a checkpoint, or from nothing.
func newFold(cp *Checkpoint) *fold {
	f := &fold{lanes: make(map[engine.LaneID]*laneFold), jobs: make(map[uint32]*JobCount), decided: make(map[DeliveryKey]struct{})}
	if cp == nil {
		return f
	}
	f.base = *cp
	for i := range cp.Lanes {
		l := &cp.Lanes[i]
		lane := f.lane(l.Lane)
		lane.counters, lane.tokens = l.Counters, l.Tokens
		lane.waiting.refs, lane.dead.refs = l.Waiting, l.Dead
		for _, refs := range [...][]Ref{l.Waiting, l.Dead} {
			for _, r := range refs {
				f.decide(l.Lane, r.Position)
			}
		}
	}
	for _, o := range cp.Open {
		f.lane(o.Lane).open[o.Position] = o.Attempt
		f.decide(o.Lane, o.Position)
	}
	for _, p := range cp.Past {
		f.lane(p.Lane).past[p.Position] = p.Past
	}
	for _, j := range cp.Jobs {
		*f.job(j.Number) = j
	}
	for _, k := range cp.decided {
		f.decide(k.Lane, k.Position)
		if l := f.lane(k.Lane); l.where(k.Position) == unknown {
			l.settled[k.Position] = struct{}{}
		}
	}
	return f
}

func (f *fold) lane(id engine.LaneID) *laneFold {
	l := f.lanes[id]
	if l == nil {
		l = &laneFold{open: make(map[Position]uint32), settled: make(map[Position]struct{}), past: make(map[Position]Past)}
		f.lanes[id] = l
	}
	return l
}

// knows notes that message where of OUTCOMES names message seq of TRIGGERS. If that is not there, new
// triggers would take the positions of lost ones and count as decided.
func (f *fold) knows(seq, where uint64) {
	if seq > f.known {
		f.known, f.where = seq, where
	}
}

// decide notes that the reader must not offer the delivery again.
func (f *fold) decide(lane engine.LaneID, p Position) {
	if p >= f.base.Cursor && !p.Held() {
		f.decided[DeliveryKey{lane, p}] = struct{}{}
		f.last = max(f.last, p)
	}
}

// apply folds one record in. One that does not fit (the delivery is settled, or was never offered)
// is counted and changes nothing.
func (f *fold) apply(r *Record) {
	l := f.lane(r.Lane)
	switch {
	case r.Kind == Held:
		f.odd += l.moved(r)
	case r.Kind == LaneCancelled:
		f.cancelUpTo(l, r.Position)
	case len(r.Positions) > 0:
		for _, p := range r.Positions {
			one := *r
			one.Position = p
			f.one(l, &one)
		}
	case r.N > 1 && r.Position.Held():
		for i := range min(r.N, packMaxEntries) {
			one := *r
			one.Position += Position(i)
			f.one(l, &one)
		}
	default:
		f.one(l, r)
	}
}

// one folds a record of one delivery in.
func (f *fold) one(l *laneFold, r *Record) {
	at := l.where(r.Position)
	first := at == unknown && r.Position >= f.base.Cursor && !r.Position.Held()
	if first {
		at = isOpen
	}
	if !fits(r.Kind, at) {
		f.odd++
		return
	}
	if first {
		l.counters.Offered++
		l.counters.InFlight++
	}
	f.decide(r.Lane, r.Position)
	f.remember(l, r, l.dead.get(r.Position, at == isDead))
	l.leave(r.Position, at)
	l.enter(r)
}

// moved gives deliveries their names in HELD, and returns how many were not there to be moved.
func (l *laneFold) moved(r *Record) (odd int) {
	for i, p := range r.Positions {
		switch name := HeldPosition(r.Ref, i); l.where(p) {
		case isWaiting:
			l.waiting.rename(p, name)
		case isDead:
			l.dead.rename(p, name)
		default:
			if p != 0 {
				odd++
			}
			continue
		}
		if past, ok := l.past[p]; ok {
			delete(l.past, p)
			l.past[HeldPosition(r.Ref, i)] = past
		}
	}
	return odd
}

// fits reports whether a record of the kind can follow for a delivery in that place.
func fits(k Kind, at spot) bool {
	switch k {
	case Revived, Purged:
		return at == isDead
	case Resent:
		return at == isSettled || at == unknown || at == isOpen
	default:
		return at == isWaiting || at == isDead || at == isOpen
	}
}

func (l *laneFold) where(p Position) spot {
	if _, ok := l.open[p]; ok {
		return isOpen
	}
	if _, ok := l.settled[p]; ok {
		return isSettled
	}
	if l.waiting.has(p) {
		return isWaiting
	}
	if l.dead.has(p) {
		return isDead
	}
	return unknown
}

// leave takes the delivery out of its place, and of the account of that place. What is settled stays
// counted: a resend is offered once more.
func (l *laneFold) leave(p Position, at spot) {
	c := &l.counters
	switch at {
	case isWaiting:
		l.waiting.remove(p)
		c.Parked--
	case isDead:
		l.dead.remove(p)
		c.Dead--
	case isOpen:
		delete(l.open, p)
		c.InFlight--
	case isSettled, unknown:
		delete(l.settled, p)
		c.Offered++
	}
}

// enter puts the delivery where the record says.
func (l *laneFold) enter(r *Record) {
	c := &l.counters
	switch r.Kind {
	case Failed, Parked, Revived, Resent:
		l.waiting.add(r.ref())
		c.Parked++
	case Dead:
		l.dead.add(r.ref())
		c.Dead++
	case Claimed:
		l.open[r.Position] = max(r.Attempt, 1) - 1
		c.InFlight++
	case Delivered:
		l.settle(r.Position, &c.Delivered)
	case Cancelled, Purged:
		l.settle(r.Position, &c.Cancelled)
	case Dropped:
		l.settle(r.Position, &c.Dropped)
	}
}

func (l *laneFold) settle(p Position, count *uint64) {
	l.settled[p] = struct{}{}
	*count++
}

// cancelUpTo cancels what waits at or below p. The dead stay until they are purged.
func (f *fold) cancelUpTo(l *laneFold, p Position) {
	l.waiting.index() // runs are taken apart
	for _, r := range l.waiting.list() {
		if r.Position <= p || r.Position.Held() {
			f.remember(l, &Record{Kind: Cancelled, Position: r.Position}, Ref{})
			l.leave(r.Position, isWaiting)
			l.settle(r.Position, &l.counters.Cancelled)
		}
	}
}

// ref is the backlog entry that a record leaves.
func (r *Record) ref() Ref {
	ref := Ref{Position: r.Position, Stamp: r.At.UnixMilli(), Attempt: r.Attempt, Reason: r.Reason}
	if !r.Due.IsZero() {
		ref.Stamp, ref.Due = r.Due.UnixMilli(), true
	}
	return ref
}

// state returns the outcome: lanes by number, open attempts by lane and position.
func (f *fold) state() *State {
	s := &State{Checkpoint: f.base, Decided: f.decided, Last: f.last}
	s.Lanes, s.Open = make([]LaneState, 0, len(f.lanes)), nil
	for id, l := range f.lanes {
		s.Lanes = append(s.Lanes, LaneState{Lane: id, Counters: l.counters, Tokens: l.tokens, Waiting: l.waiting.list(), Dead: l.dead.list()})
		for p, attempt := range l.open {
			s.Open = append(s.Open, OpenAttempt{Lane: id, Position: p, Attempt: attempt})
		}
	}
	s.Past, s.Jobs = f.pasts()
	slices.SortFunc(s.Lanes, func(a, b LaneState) int { return cmp.Compare(a.Lane, b.Lane) })
	slices.SortFunc(s.Open, func(a, b OpenAttempt) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Position, b.Position))
	})
	return s
}

// refSet is a list in order with removal by position. The index is built when it is first needed:
// most lanes of a checkpoint are not touched by what stands behind it.
type refSet struct {
	refs []Ref
	at   map[Position]int
	gone map[int]struct{} // places in refs that have been removed
}

func (s *refSet) index() map[Position]int {
	if s.at == nil {
		s.refs = expanded(s.refs)
		s.at, s.gone = make(map[Position]int, len(s.refs)), make(map[int]struct{})
		for i, r := range s.refs {
			s.at[r.Position] = i
		}
	}
	return s.at
}

// expanded takes runs apart.
func expanded(refs []Ref) []Ref {
	if !slices.ContainsFunc(refs, func(r Ref) bool { return r.Run > 1 }) {
		return refs
	}
	var out []Ref
	for _, r := range refs {
		n := max(r.Run, 1)
		r.Run = 0
		for range n {
			out = append(out, r)
			r.Position++
		}
	}
	return out
}

// rename gives a member another position; it keeps its place.
func (s *refSet) rename(p, name Position) {
	i := s.index()[p]
	delete(s.at, p)
	s.at[name] = i
	s.refs[i].Position = name
}

// get returns the member at p, or nothing unless it is one.
func (s *refSet) get(p Position, member bool) Ref {
	if !member {
		return Ref{}
	}
	return s.refs[s.index()[p]]
}

func (s *refSet) has(p Position) bool {
	if len(s.refs) == 0 {
		return false
	}
	_, ok := s.index()[p]
	return ok
}

func (s *refSet) add(r Ref) {
	s.index()[r.Position] = len(s.refs)
	s.refs = append(s.refs, r)
}

func (s *refSet) remove(p Position) {
	i := s.index()[p]
	delete(s.at, p)
	s.gone[i] = struct{}{}
}

// list returns what is left, in order.
func (s *refSet) list() []Ref {
	if len(s.gone) == 0 {
		return s.refs
	}
	out := make([]Ref, 0, len(s.refs)-len(s.gone))
	for i, r := range s.refs {
		if _, gone := s.gone[i]; !gone {
			out = append(out, r)
		}
	}
	return out
}
