package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// readersMost packs are read at once.
const readersMost = 4

// packs keeps decoded packs within a number of bytes. One that is asked for by several at once is read once. What it
// returns is shared and never changed. Safe for concurrent use.
//
// Lanes that drain side by side ask for packs all over a part of the log, again and again. So what waits to be read
// is read in the order of the log, round and round: the server loads a block of 8 MB for a cold read, and the next
// one is near. And any pack goes out but for the newest: were it the one not used for longest, and that part of the
// log a little larger than the room, every pack would go out just before it is asked for.
type packs struct {
	link *link
	room int64
	load func(ctx context.Context, seq uint64) (*Pack, error) // from the stream

	fetched atomic.Uint64 // messages read because they were not at hand

	mu      sync.Mutex
	bytes   int64
	bySeq   map[uint64]*Pack
	newest  [keepNewest]uint64 // the last that came, in turn
	came    int
	reads   map[uint64]*packRead
	queue   []uint64 // of reads: not begun, ascending
	at      uint64   // where reading is
	readers int
}

const keepNewest = 8

type packRead struct {
	done chan struct{}
	pack *Pack
	err  error
}

func newPacks(l *link, room int64) *packs {
	c := &packs{link: l, room: room, bySeq: make(map[uint64]*Pack), reads: make(map[uint64]*packRead)}
	c.load = c.fromTriggers
	return c
}

// Load returns one trigger through a byte-bounded cache of decoded packs. It is shared: not to be
// changed. Errors: ErrTrimmed, ErrNotFound (nothing there, or a void repeat), ErrDamaged, ErrUnavailable.
func (j *Journal) Load(ctx context.Context, p Position) (*Trigger, error) {
	if p.Held() {
		return j.loadHeld(ctx, p)
	}
	pack, err := j.packs.get(ctx, p.Seq())
	return pack.trigger(p, err)
}

// LoadInOrder is Load of what is not in HELD, for one who reads through the log alone: it does not wait for those
// who read here and there.
func (j *Journal) LoadInOrder(ctx context.Context, p Position) (*Trigger, error) {
	pack := j.packs.cached(p.Seq())
	var err error
	if pack == nil {
		if pack, err = j.packs.fetch(ctx, p.Seq()); err == nil {
			j.packs.put(pack)
		}
	}
	return pack.trigger(p, err)
}

// trigger is the pack's at the position, unless there was an error.
func (pack *Pack) trigger(p Position, err error) (*Trigger, error) {
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
	return c.bySeq[seq]
}

// get returns the pack, judged.
func (c *packs) get(ctx context.Context, seq uint64) (*Pack, error) {
	c.mu.Lock()
	if p := c.bySeq[seq]; p != nil {
		c.mu.Unlock()
		return p, nil
	}
	r := c.reads[seq]
	if r == nil {
		r = c.askLocked(seq)
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.pack, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *packs) askLocked(seq uint64) *packRead {
	r := &packRead{done: make(chan struct{})}
	c.reads[seq] = r
	at, _ := slices.BinarySearch(c.queue, seq)
	c.queue = slices.Insert(c.queue, at, seq)
	if c.readers < readersMost {
		c.readers++
		go c.read()
	}
	return r
}

// read reads what is asked for until there is nothing.
func (c *packs) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		i, _ := slices.BinarySearch(c.queue, c.at)
		if i == len(c.queue) {
			i = 0
		}
		seq := c.queue[i]
		c.queue, c.at = slices.Delete(c.queue, i, i+1), seq
		c.mu.Unlock()
		pack, err := c.fetch(context.Background(), seq)
		c.mu.Lock()
		if err == nil {
			c.putLocked(pack)
		}
		c.endLocked(seq, pack, err)
		if errors.Is(err, ErrUnavailable) { // each would take as long to find out
			for _, seq := range c.queue {
				c.endLocked(seq, nil, err)
			}
			c.queue = nil
		}
	}
	c.readers--
}

func (c *packs) endLocked(seq uint64, pack *Pack, err error) {
	r := c.reads[seq]
	delete(c.reads, seq)
	r.pack, r.err = pack, err
	close(r.done)
}

func (c *packs) fetch(ctx context.Context, seq uint64) (*Pack, error) {
	c.fetched.Add(1)
	return c.load(ctx, seq)
}

func (c *packs) fromTriggers(ctx context.Context, seq uint64) (*Pack, error) {
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

// written keeps a message that was stored just now, for those who follow the log: the server keeps a block of the log
// in memory for ten seconds after it was last read, and lets go at once of one that nobody read. What cannot be judged
// now is read as any other.
func (c *packs) written(ctx context.Context, m message) {
	if p, err := c.judged(ctx, m); err == nil {
		c.put(p)
	}
}

// put keeps p.
func (c *packs) put(p *Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(p)
}

func (c *packs) putLocked(p *Pack) {
	if c.bySeq[p.Seq] != nil {
		return
	}
	c.bySeq[p.Seq] = p
	c.bytes += p.memory()
	c.newest[c.came%keepNewest] = p.Seq
	c.came++
	for seq, old := range c.bySeq { // in no order
		if c.bytes <= c.room {
			return
		}
		if !slices.Contains(c.newest[:], seq) {
			c.dropLocked(old)
		}
	}
	for seq, old := range c.bySeq { // the newest alone are too much
		if c.bytes > c.room && seq != p.Seq {
			c.dropLocked(old)
		}
	}
}

func (c *packs) dropLocked(p *Pack) {
	delete(c.bySeq, p.Seq)
	c.bytes -= p.memory()
}

// trimmed forgets what stood below the sequence first.
func (c *packs) trimmed(first uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq, p := range c.bySeq {
		if seq < first {
			c.dropLocked(p)
		}
	}
}

// memory is about what the decoded pack takes.
func (p *Pack) memory() int64 { return int64(p.Bytes + 320*len(p.Entries)) }
