package journal

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

const historyMost = 200 // records of one delivery

// History returns the records of one delivery, newest first: of the lane, by the name that it has now and the
// one that it had in TRIGGERS (t is what Load returned), from the instant until on backwards. whole is
// false when the log was trimmed meanwhile, or when there is more than one call reads.
func (j *Journal) History(ctx context.Context, lane engine.LaneID, p Position, t *Trigger, until time.Time) (recs []Record, whole bool, err error) {
	s, err := j.link.span(ctx, outcomesStream)
	if err != nil {
		return nil, false, err
	}
	from, err := j.outcomesAt(ctx, t.Accepted.Add(-time.Second), s.last+1)
	if err != nil {
		return nil, false, err
	}
	last, err := j.outcomesAt(ctx, until.Add(time.Second), s.last)
	if err != nil {
		return nil, false, err
	}
	page := ledgerPage{j: j, lane: lane, before: cursorAt(last+1, 0), limit: historyMost, first: max(s.first, from, 1),
		only: func(r *Record) bool { return r.about(p) || r.about(t.Position) }}
	for seq := last; seq >= page.first && !page.full(); {
		if seq, err = page.backwards(ctx, seq); err != nil {
			return nil, false, err
		}
	}
	for i := range page.recs {
		page.recs[i].Position, page.recs[i].Positions, page.recs[i].N = t.Position, nil, 0
	}
	return page.recs, page.next() == 0 && (from > s.first || s.first <= 1), nil
}

// outcomesAt returns the sequence of the first message of OUTCOMES at or after the instant, or none.
func (j *Journal) outcomesAt(ctx context.Context, at time.Time, none uint64) (uint64, error) {
	m, ok, err := j.link.one(ctx, outcomesStream, getRequest{StartTime: &at})
	if err != nil || !ok {
		return none, err
	}
	return m.seq, nil
}

// about reports whether the record is about the delivery of that name.
func (r *Record) about(p Position) bool {
	if r.Kind == Held || r.Kind == LaneCancelled {
		return false
	}
	if len(r.Positions) > 0 {
		return slices.Contains(r.Positions, p)
	}
	return p >= r.Position && p < r.Position+Position(max(r.N, 1))
}

// Find returns the position of the trigger with that id, by what the id says or, of a keyed one, while its key
// is remembered. It reports false when only its position can name it.
func (j *Journal) Find(id string) (Position, bool) {
	if p, ok := PositionOf(id); ok {
		return p, true
	}
	return j.append.keyed(id)
}

// keyed looks an id up among the keys that are remembered.
func (a *appender) keyed(id string) (Position, bool) {
	const head = len(idByKey)
	if len(id) <= head || id[:head] != idByKey {
		return 0, false
	}
	hash, err := idDigits.DecodeString(id[head:])
	if err != nil || len(hash) != idHashBytes || !a.ready.Load() {
		return 0, false
	}
	a.flushing.Lock()
	defer a.flushing.Unlock()
	u, ok := a.tail.keys.find(keyID(hash[:16]), time.Now())
	return u.position, ok
}

// Completion returns, by lane, the newest record of each delivery of a trigger, read from its acceptance on. whole is
// false when the log was trimmed meanwhile, or when there is more behind it than one call reads. A lane without a record has
// not settled it yet, or never had it.
func (j *Journal) Completion(ctx context.Context, t *Trigger) (last map[engine.LaneID]Record, whole bool, err error) {
	s, err := j.link.span(ctx, outcomesStream)
	if err != nil {
		return nil, false, err
	}
	from, err := j.outcomesAt(ctx, t.Accepted.Add(-time.Second), s.last+1)
	if err != nil {
		return nil, false, err
	}
	c := completion{at: t.Position, last: make(map[engine.LaneID]Record), held: make(map[engine.LaneID]Position)}
	read := 0
	err = j.link.each(ctx, outcomesStream, max(from, 1), s.last, func(m message) error {
		if read += len(m.data); read > ledgerMost {
			return errEnough
		}
		kind, h, err := decodeHeader(m.data)
		if err != nil || kind != kindRecords {
			return err
		}
		if again, err := repeatedOutcome(ctx, j.link, m.seq, h); err != nil || again {
			return err
		}
		_, recs, err := decodeRecords(m.data)
		for i := range recs {
			if j.epochs.valid(h, m.seq, recs[i].Partition) {
				c.see(&recs[i])
			}
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return c.last, false, nil
	}
	return c.last, from > s.first || s.first <= 1, err
}

var errEnough = errors.New("journal: read enough")

// completion follows the deliveries of one trigger.
type completion struct {
	at   Position
	last map[engine.LaneID]Record
	held map[engine.LaneID]Position // their names in HELD
}

func (c *completion) see(r *Record) {
	was, known := c.last[r.Lane]
	held, moved := c.held[r.Lane]
	switch {
	case r.Kind == Held:
		if i := slices.Index(r.Positions, c.at); i >= 0 {
			c.held[r.Lane] = HeldPosition(r.Ref, i)
		}
	case r.Kind == LaneCancelled:
		if known && c.at <= r.Position && was.waits() {
			was.Kind, was.At = Cancelled, r.At
			c.last[r.Lane] = was
		}
	case r.about(c.at), moved && r.about(held):
		one := *r
		one.Position, one.Positions, one.N = c.at, nil, 0
		c.last[r.Lane] = one
	}
}

// waits reports whether the delivery goes on after the record.
func (r *Record) waits() bool {
	switch r.Kind {
	case Failed, Parked, Claimed, Revived, Resent:
		return true
	}
	return false
}
