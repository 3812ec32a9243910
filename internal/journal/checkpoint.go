package journal

import "context"

// found is a complete checkpoint and where it stands.
type found struct {
	*Checkpoint
	header             // of its first message
	first, last uint64 // sequences of its first and last message
	before      uint64 // first message of the complete one before
}

// newestCheckpoint returns the newest checkpoint of which all messages are stored, nil when there
// is none. One that a crash cut off is passed over.
func newestCheckpoint(ctx context.Context, l *link, e *epochs) (*found, error) {
	m, ok, err := l.one(ctx, outcomesStream, getRequest{LastFor: checkpointsSubject})
	if err != nil || !ok {
		return nil, err
	}
	p, err := decodeCheckpointPart(m.data)
	if err != nil {
		return nil, damagedAt(outcomesStream, m.seq, err)
	}
	first := p.first
	if p.number == 0 {
		first = m.seq
	}
	for first != 0 {
		f, err := assemble(ctx, l, first)
		if err != nil {
			return nil, err
		}
		if f.Checkpoint != nil && e.valid(f.header, f.first, 0) {
			return f, nil
		}
		first = f.before
	}
	return nil, nil
}

// assemble reads the checkpoint that begins at the sequence first. Its Checkpoint is nil when the last
// message is missing.
func assemble(ctx context.Context, l *link, first uint64) (*found, error) {
	a := assembly{want: first}
	for at := first; !a.complete; {
		ms, err := l.batch(ctx, outcomesStream, at, checkpointsSubject)
		if err != nil {
			return nil, err
		}
		if len(ms) == 0 {
			return &a.found, a.missing()
		}
		for _, m := range ms {
			if err := a.add(m); err != nil {
				return nil, err
			}
			at = m.seq + 1
		}
	}
	cp, err := decodeCheckpoint(a.body)
	if err != nil {
		return nil, damagedAt(outcomesStream, first, err)
	}
	a.Checkpoint = cp
	return &a.found, nil
}

// assembly collects the messages of one checkpoint.
type assembly struct {
	found
	want     uint64 // sequence of the first message
	id       uint64
	next     uint64 // number of the message that comes next
	complete bool
	body     []byte
}

// add takes in a message, unless it is another checkpoint's or a second copy.
func (a *assembly) add(m message) error {
	p, err := decodeCheckpointPart(m.data)
	if err != nil {
		return damagedAt(outcomesStream, m.seq, err)
	}
	if a.next == 0 && (m.seq != a.want || p.number != 0) {
		return a.missing()
	}
	if a.next == 0 {
		a.header, a.id, a.first, a.before = p.header, p.id, m.seq, p.before
	}
	if a.complete || p.writer != a.writer || p.id != a.id || p.number != a.next {
		return nil
	}
	a.next++
	a.body = append(a.body, p.body...)
	a.last, a.complete = m.seq, p.last
	return nil
}

// missing is damage when not even the first message is there.
func (a *assembly) missing() error {
	if a.next > 0 {
		return nil
	}
	return &Damage{Stream: outcomesStream, From: a.want, To: a.want, What: "the first message of a checkpoint is missing"}
}
