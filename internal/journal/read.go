package journal

import (
	"context"
)

const (
	readBatch = 64
	readBytes = 1 << 20
)

// Reader reads packs in log order from a position on, new ones as they become durable. Not safe
// for concurrent use.
type Reader struct {
	j     *Journal
	from  Position
	next  uint64 // sequence
	ahead []message
	close context.CancelFunc
	done  context.Context
}

// Reader begins with the pack that holds from (0: the oldest kept); entries of it below from are
// left out. Errors come with Next.
func (j *Journal) Reader(from Position) (*Reader, error) {
	done, cancel := context.WithCancel(context.Background())
	return &Reader{j: j, from: from, next: from.Seq(), close: cancel, done: done}, nil
}

// Close ends a Next that waits, and all later ones.
func (r *Reader) Close() { r.close() }

// Next returns the next pack, which is shared: not to be changed. It waits until one is durable.
// In a repeated pack every entry is void; a pack may have no entries at or beyond the start.
//
// Errors: ErrTrimmed when the log no longer reaches back to the start; ErrDamaged, with the
// positions; ErrUnavailable, after which Next may be tried again; ErrClosed; the context's.
func (r *Reader) Next(ctx context.Context) (*Pack, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.done, cancel)()
	p, err := r.read(ctx)
	if r.done.Err() != nil {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, err
	}
	r.next = p.Seq + 1
	return r.cut(p), nil
}

func (r *Reader) read(ctx context.Context) (*Pack, error) {
	if r.next == 0 {
		s, err := r.j.link.span(ctx, triggersStream)
		if err != nil {
			return nil, err
		}
		r.next = max(s.first, 1)
	}
	if err := r.j.durable.wait(ctx, r.next); err != nil {
		return nil, err
	}
	if p := r.j.packs.cached(r.next); p != nil {
		return p, nil
	}
	for len(r.ahead) > 0 && r.ahead[0].seq < r.next {
		r.ahead = r.ahead[1:]
	}
	if len(r.ahead) == 0 {
		var err error
		if r.ahead, err = r.j.link.batch(ctx, triggersStream, r.next, ""); err != nil {
			return nil, err
		}
	}
	if len(r.ahead) == 0 || r.ahead[0].seq != r.next {
		r.ahead = nil
		return nil, r.j.packs.absent(ctx, r.next)
	}
	return r.j.packs.judged(ctx, r.ahead[0])
}

// cut leaves out what stands before the start.
func (r *Reader) cut(p *Pack) *Pack {
	if p.Seq != r.from.Seq() || r.from.Index() == 0 {
		return p
	}
	c := *p
	c.Entries = c.Entries[min(r.from.Index(), len(c.Entries)):]
	return &c
}

// judged decodes a message of TRIGGERS and decides what of it is void. That follows from the log
// alone, and only from a short part of it: a pack names the newest one that its writer knew (prev),
// and the writer had made sure that nothing up to there bears the same key. So an entry is void if
// its producer and key stand in a pack between the two, or before it in its own; and a pack is void
// if the same (writer, counter) stands between. On one machine there is nothing between, except
// where an acknowledgement got lost.
func (c *packs) judged(ctx context.Context, m message) (*Pack, error) {
	p, err := decodePack(m.seq, m.at, m.data)
	if err != nil {
		return nil, damagedAt(triggersStream, m.seq, err)
	}
	if p.header.prev >= p.Seq {
		return nil, &Damage{Stream: triggersStream, From: p.Seq, To: p.header.prev, What: "messages that were here before are gone"}
	}
	seen := make(map[producerKey]struct{})
	for seq := p.header.prev + 1; seq < p.Seq; seq++ {
		q, err := c.between(ctx, seq)
		if err != nil {
			return nil, err
		}
		if q == nil {
			continue
		}
		if q.header.writer == p.header.writer && q.header.counter == p.header.counter {
			p.voidAll()
			return p, nil
		}
		q.collectKeys(seen)
	}
	p.voidSeen(seen)
	return p, nil
}

// between returns a pack without judging it: void entries count as well. Nil when it is trimmed.
func (c *packs) between(ctx context.Context, seq uint64) (*Pack, error) {
	if p := c.cached(seq); p != nil {
		return p, nil
	}
	m, ok, err := c.link.one(ctx, triggersStream, getRequest{Seq: seq})
	if err != nil || !ok {
		return nil, err
	}
	p, err := decodePack(m.seq, m.at, m.data)
	return p, damagedAt(triggersStream, seq, err)
}

// producerKey is an idempotency key with whose it is.
type producerKey struct{ producer, key string }

// said returns what the entry says, void or not; nil for a marker.
func (e *Entry) said() *Trigger {
	if e.Trigger != nil {
		return e.Trigger
	}
	return e.voided
}

func (e *Entry) void() {
	if e.Trigger != nil {
		e.Trigger, e.voided = nil, e.Trigger
	}
}

// voidAll makes p a repeat as a whole; its markers say nothing new.
func (p *Pack) voidAll() {
	for i := range p.Entries {
		p.Entries[i].void()
		p.Entries[i].Marker = nil
	}
	p.repeat = true
}

func (p *Pack) collectKeys(into map[producerKey]struct{}) {
	for i := range p.Entries {
		if t := p.Entries[i].said(); t != nil && t.Key != "" {
			into[producerKey{t.Producer, t.Key}] = struct{}{}
		}
	}
}

func (p *Pack) voidSeen(seen map[producerKey]struct{}) {
	for i := range p.Entries {
		t := p.Entries[i].Trigger
		if t == nil || t.Key == "" {
			continue
		}
		k := producerKey{t.Producer, t.Key}
		if _, again := seen[k]; again {
			p.Entries[i].void()
		}
		seen[k] = struct{}{}
	}
}
