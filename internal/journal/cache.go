package journal

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// packs keeps decoded packs, least recently used first out, within a number of bytes. One that is
// asked for by several at once is read once. What it returns is shared and never changed. Safe for
// concurrent use.
type packs struct {
	link *link
	room int64
	held bool // of HELD, not of TRIGGERS

	fetched atomic.Uint64 // messages read because they were not at hand

	mu    sync.Mutex
	bytes int64
	order *list.List // of *Pack, most recently used first
	bySeq map[uint64]*list.Element
	reads map[uint64]*packRead
}

type packRead struct {
	done chan struct{}
	pack *Pack
	err  error
}

func newPacks(l *link, room int64) *packs {
	return &packs{link: l, room: room, order: list.New(), bySeq: make(map[uint64]*list.Element), reads: make(map[uint64]*packRead)}
}

// Load returns one trigger through a byte-bounded cache of decoded packs. It is shared: not to be
// changed. Errors: ErrTrimmed, ErrNotFound (nothing there, or a void repeat), ErrDamaged, ErrUnavailable.
func (j *Journal) Load(ctx context.Context, p Position) (*Trigger, error) {
	if p.Held() {
		return j.loadHeld(ctx, p)
	}
	pack, err := j.packs.get(ctx, p.Seq())
	if err != nil {
		return nil, err
	}
	if i := p.Index(); i < len(pack.Entries) && pack.Entries[i].Trigger != nil {
		return pack.Entries[i].Trigger, nil
	}
	return nil, fmt.Errorf("%w: no trigger at position %d", ErrNotFound, p)
}

// cached returns the pack when it is at hand.
func (c *packs) cached(seq uint64) *Pack {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cachedLocked(seq)
}

func (c *packs) cachedLocked(seq uint64) *Pack {
	e := c.bySeq[seq]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*Pack)
}

// get returns the pack, judged.
func (c *packs) get(ctx context.Context, seq uint64) (*Pack, error) {
	c.mu.Lock()
	if p := c.cachedLocked(seq); p != nil {
		c.mu.Unlock()
		return p, nil
	}
	r, reading := c.reads[seq]
	if !reading {
		r = &packRead{done: make(chan struct{})}
		c.reads[seq] = r
		go c.read(context.WithoutCancel(ctx), seq, r)
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.pack, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *packs) read(ctx context.Context, seq uint64, r *packRead) {
	r.pack, r.err = c.fetch(ctx, seq)
	if r.err == nil {
		c.put(r.pack)
	}
	c.mu.Lock()
	delete(c.reads, seq)
	c.mu.Unlock()
	close(r.done)
}

func (c *packs) fetch(ctx context.Context, seq uint64) (*Pack, error) {
	c.fetched.Add(1)
	if c.held {
		return fetchHeld(ctx, c.link, seq)
	}
	m, ok, err := c.link.one(ctx, triggersStream, getRequest{Seq: max(seq, 1)})
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, c.absent(ctx, seq)
	}
	return c.judged(ctx, m)
}

// absent says why there is no message with that sequence.
func (c *packs) absent(ctx context.Context, seq uint64) error {
	s, err := c.link.span(ctx, triggersStream)
	switch {
	case err != nil:
		return err
	case seq < s.first:
		return fmt.Errorf("%w: position %d is below %d", ErrTrimmed, position(seq, 0), position(s.first, 0))
	case seq > s.last:
		return fmt.Errorf("%w: position %d is beyond the end", ErrNotFound, position(seq, 0))
	}
	return &Damage{Stream: triggersStream, From: seq, To: seq, What: "message is missing"}
}

// put keeps p, as the one used last.
func (c *packs) put(p *Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bySeq[p.Seq] != nil {
		return
	}
	c.bySeq[p.Seq] = c.order.PushFront(p)
	c.bytes += p.memory()
	for c.bytes > c.room && c.order.Len() > 1 {
		c.dropLocked(c.order.Back())
	}
}

func (c *packs) dropLocked(e *list.Element) {
	old := c.order.Remove(e).(*Pack)
	delete(c.bySeq, old.Seq)
	c.bytes -= old.memory()
}

// trimmed forgets what stood below the sequence first.
func (c *packs) trimmed(first uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq, e := range c.bySeq {
		if seq < first {
			c.dropLocked(e)
		}
	}
}

// memory is about what the decoded pack takes.
func (p *Pack) memory() int64 { return int64(p.Bytes + 320*len(p.Entries)) }
