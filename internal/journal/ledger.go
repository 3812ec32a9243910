package journal

import (
	"context"

	"github.com/fairlane-dev/fairlane/engine"
)

const (
	ledgerBatch = 32       // messages read at once, backwards
	ledgerMost  = 64 << 20 // bytes read for one page
	ledgerTop   = 500      // records of one page
)

// Deliveries reads the ledger of one lane, newest first, below the cursor before (0: from the end):
// every record of the lane that counts. It returns at most limit records (0 means 100, at most 500),
// and the cursor for the next page, 0 at the end. A page may be short, even empty, and not the last
// one: one call reads a bounded part of the log.
func (j *Journal) Deliveries(ctx context.Context, lane engine.LaneID, before uint64, limit int) (recs []Record, next uint64, err error) {
	if limit <= 0 {
		limit = 100
	}
	s, err := j.link.span(ctx, outcomesStream)
	if err != nil {
		return nil, 0, err
	}
	if before == 0 {
		before = cursorAt(s.last+1, 0)
	}
	p := ledgerPage{j: j, lane: lane, before: before, limit: min(limit, ledgerTop), first: max(s.first, 1)}
	for seq := min(before>>16, s.last); seq >= p.first && !p.full(); {
		if seq, err = p.backwards(ctx, seq); err != nil {
			return nil, 0, err
		}
	}
	p.unheld(ctx)
	return p.recs, p.next(), nil
}

// unheld gives deliveries that were in HELD the position of their trigger: by a record that tells it, else by
// what is held. Where both are gone it is 0.
func (p *ledgerPage) unheld(ctx context.Context) {
	origin := make(map[Position]Position)
	for i := range p.recs {
		if r := &p.recs[i]; r.Position.Held() && r.Ref != 0 && r.Kind != Revived {
			origin[r.Position] = Position(r.Ref)
		}
	}
	for i := range p.recs {
		r := &p.recs[i]
		if !r.Position.Held() {
			continue
		}
		at, known := origin[r.Position]
		if t, err := p.j.loadHeld(ctx, r.Position); !known && err == nil {
			at = t.Position
		}
		r.Position, r.Ref = at, 0
	}
}

// cursorAt stands before the record with that index in its message.
func cursorAt(seq uint64, index int) uint64 { return seq<<16 | uint64(index) }

// ledgerPage collects one page.
type ledgerPage struct {
	j      *Journal
	lane   engine.LaneID
	only   func(*Record) bool // nil: all
	before uint64
	limit  int
	first  uint64 // oldest message kept
	recs   []Record
	read   int // bytes
}

func (p *ledgerPage) full() bool { return len(p.recs) == p.limit || p.read >= ledgerMost }

// next is the cursor to go on with.
func (p *ledgerPage) next() uint64 {
	if p.before <= cursorAt(p.first, 0) {
		return 0
	}
	return p.before
}

// backwards takes in some messages up to the sequence seq, the newest first, and returns the sequence
// to go on with.
func (p *ledgerPage) backwards(ctx context.Context, seq uint64) (uint64, error) {
	from := max(p.first, seq-min(seq, ledgerBatch)+1)
	var ms []message
	err := p.j.link.each(ctx, outcomesStream, from, seq, func(m message) error {
		ms = append(ms, m)
		return nil
	})
	if err != nil {
		return seq, p.trimmed(ctx, from, err)
	}
	for i := len(ms) - 1; i >= 0 && !p.full(); i-- {
		if err := p.message(ctx, ms[i]); err != nil {
			return 0, damagedAt(outcomesStream, ms[i].seq, err)
		}
		seq = ms[i].seq - 1
	}
	return seq, nil
}

// trimmed returns nil when the messages that err misses have been trimmed meanwhile, and err otherwise.
func (p *ledgerPage) trimmed(ctx context.Context, from uint64, err error) error {
	if s, e := p.j.link.span(ctx, outcomesStream); e == nil && s.first > from {
		p.first = s.first
		return nil
	}
	return err
}

// message takes the lane's records out of one message, the last one first.
func (p *ledgerPage) message(ctx context.Context, m message) error {
	p.read += len(m.data)
	kind, h, err := decodeHeader(m.data)
	if err != nil {
		return err
	}
	if kind != kindRecords {
		p.before = cursorAt(m.seq, 0)
		return nil
	}
	if again, err := repeatedOutcome(ctx, p.j.link, m.seq, h); err != nil || again {
		p.before = cursorAt(m.seq, 0)
		return err
	}
	_, recs, err := decodeRecords(m.data)
	if err != nil {
		return err
	}
	for i := len(recs) - 1; i >= 0 && len(p.recs) < p.limit; i-- {
		if at := cursorAt(m.seq, i); at < p.before {
			p.before = at
			if recs[i].Lane == p.lane && recs[i].Kind != Held && (p.only == nil || p.only(&recs[i])) && p.j.epochs.valid(h, m.seq, recs[i].Partition) {
				p.recs = append(p.recs, recs[i])
			}
		}
	}
	return nil
}
