package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/nats-io/nats.go/jetstream"
)

// A message of HELD holds old deliveries of one lane in order, payload included: header, lane, number,
// then for each the position it had in TRIGGERS, its id, and the entry as it stands in a pack. OUTCOMES names it once it is stored; what nothing names is deleted
// at the next start.

// PutHeld stores deliveries of one lane, at most a pack's number, and returns the message's sequence
// when it is durable. Errors: ErrFull, ErrUnavailable (in doubt: a copy nobody names).
func (j *Journal) PutHeld(ctx context.Context, lane engine.LaneID, triggers []*Trigger) (uint64, error) {
	if n := len(triggers); n < 1 || n > packMaxEntries {
		panic(fmt.Sprintf("journal: PutHeld of %d deliveries: a message takes 1 to %d", n, packMaxEntries))
	}
	return j.link.publish(ctx, heldSubject, encodeHeld(header{writer: j.writer, epoch: j.epoch}, lane, triggers))
}

func encodeHeld(h header, lane engine.LaneID, triggers []*Trigger) []byte {
	b := h.append(beginFrame(nil, kindHeld))
	b = binary.AppendUvarint(b, uint64(lane))
	b = binary.AppendUvarint(b, uint64(len(triggers)))
	for _, t := range triggers {
		b = binary.AppendUvarint(b, uint64(t.Position))
		b = appendString(b, t.ID)
		b = appendTrigger(b, t)
	}
	sealFrame(b)
	return b
}

// decodeHeld reads a message of HELD. It keeps nothing of data.
func decodeHeld(data []byte) (engine.LaneID, []*Trigger, error) {
	body, err := openFrameOf(kindHeld, data)
	if err != nil {
		return 0, nil, err
	}
	d := dec{b: body}
	d.header()
	lane := engine.LaneID(d.uvarint32())
	n := d.countOf(3)
	if n > packMaxEntries {
		d.fail(fmt.Sprintf("%d held deliveries in a message", n))
		return 0, nil, d.err
	}
	out := make([]*Trigger, 0, n)
	before := &Trigger{}
	for range n {
		e := Entry{Position: Position(d.uvarint())}
		id := d.str("")
		d.entry(&e, before)
		if d.err == nil && e.Trigger == nil {
			d.fail("held entry without a trigger")
		}
		if d.err != nil {
			return 0, nil, d.err
		}
		before = e.Trigger
		before.ID = id
		out = append(out, before)
	}
	return lane, out, d.end()
}

// loadHeld returns one delivery's trigger, with the position that it had in TRIGGERS.
func (j *Journal) loadHeld(ctx context.Context, p Position) (*Trigger, error) {
	pack, err := j.held.get(ctx, p.Seq())
	if err != nil {
		return nil, err
	}
	if i := p.Index(); i < len(pack.Entries) {
		return pack.Entries[i].Trigger, nil
	}
	return nil, fmt.Errorf("%w: nothing is held at %d", ErrNotFound, p.Unheld())
}

// fetchHeld reads one message of HELD as a pack.
func fetchHeld(ctx context.Context, l *link, seq uint64) (*Pack, error) {
	m, ok, err := l.one(ctx, heldStream, getRequest{Seq: max(seq, 1)})
	if err != nil {
		return nil, err
	}
	if !ok || m.seq != seq {
		return nil, fmt.Errorf("%w: message %d of HELD is not there", ErrNotFound, seq)
	}
	_, triggers, err := decodeHeld(m.data)
	if err != nil {
		return nil, damagedAt(heldStream, seq, err)
	}
	p := &Pack{Seq: seq, At: m.at, Bytes: len(m.data), Entries: make([]Entry, len(triggers))}
	for i, t := range triggers {
		p.Entries[i] = Entry{Position: t.Position, Trigger: t}
	}
	return p, nil
}

// DropHeld deletes a message of HELD in which nothing lives any more. That it is gone already is no error.
func (j *Journal) DropHeld(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, j.link.patience)
	defer cancel()
	s, err := j.link.js.Stream(ctx, heldStream)
	if err != nil {
		return unanswered(heldStream, err)
	}
	if err := s.DeleteMsg(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return unanswered(heldStream, err)
	}
	return nil
}

// DropHeldBelow deletes all messages of HELD below the sequence.
func (j *Journal) DropHeldBelow(ctx context.Context, seq uint64) error {
	if seq <= 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, j.link.patience)
	defer cancel()
	s, err := j.link.js.Stream(ctx, heldStream)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(seq))
	}
	if err != nil {
		return unanswered(heldStream, err)
	}
	j.held.trimmed(seq)
	return nil
}

// KeepHeld deletes the messages of HELD for which live reports false: a crash came between their storing
// and their record, or between their last delivery's end and their deletion. Call it once, before
// PutHeld.
func (j *Journal) KeepHeld(ctx context.Context, live func(seq uint64) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := j.link.js.Stream(ctx, heldStream)
	if err != nil {
		return unanswered(heldStream, err)
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return unanswered(heldStream, err)
	}
	gone := make(map[uint64]bool, len(info.State.Deleted))
	for _, seq := range info.State.Deleted {
		gone[seq] = true
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		if gone[seq] || live(seq) {
			continue
		}
		if err := j.DropHeld(ctx, seq); err != nil {
			return err
		}
	}
	return nil
}

// Pinned is the share of TRIGGERS' room that lies at or above the position: what a reference there
// keeps from being trimmed. 0 when the stream does not answer.
func (j *Journal) Pinned(p Position) float64 {
	s, err := j.link.span(context.Background(), triggersStream)
	if err != nil || s.max <= 0 || s.last < s.first || p.Seq() > s.last {
		return 0
	}
	n := float64(s.last - max(p.Seq(), s.first) + 1)
	return float64(s.bytes) / float64(s.max) * n / float64(s.last-s.first+1)
}

// Beyond returns a position behind from, so that about so many bytes of TRIGGERS lie between.
func (j *Journal) Beyond(from Position, bytes int64) Position {
	n := uint64(1)
	if s, err := j.link.span(context.Background(), triggersStream); err == nil && s.bytes > 0 {
		n = max(n, uint64(float64(s.last-s.first+1)*float64(bytes)/float64(s.bytes)))
	}
	return position(max(from.Seq(), 1)+n, 0)
}
