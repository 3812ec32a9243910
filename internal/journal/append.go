package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	appendEvery    = 1500 * time.Microsecond // between the starts of two flushes
	appendMostWait = 64 << 20                // bytes that may wait for a pack
)

// appender is the group commit of TRIGGERS: what waits is packed into one message, synced once. One
// flush is in flight at a time, so the log's order is the order of arrival.
type appender struct {
	j       *Journal
	tail    *tail
	ready   atomic.Bool   // the key index is complete: keyed posts are let in
	trouble fault         // why writes are refused
	packs   atomic.Uint64 // written

	mu     sync.Mutex
	queue  []*posted
	bytes  int
	closed bool
	wake   chan struct{} // holds one token when the queue may have something
	ended  chan struct{} // closed when the flusher has ended

	flushing sync.Mutex // held during a flush, and for handing over the tail
	counter  uint64     // of packs; the flusher's
	begun    time.Time  // start of the last flush; the flusher's
	prev     uint64     // newest known pack; the flusher's
}

// posted is one entry that waits for its pack.
type posted struct {
	ctx           context.Context
	entry         []byte
	producer, key string
	id, fp        keyID // of the key
	marker        bool
	together      int         // of the first of a batch: how many go into one pack; 0 means itself alone
	batch         bool        // one of a batch: it is written even when the caller has gone
	done          chan answer // takes one
}

type answer struct {
	receipt Receipt
	err     error
}

func (p *posted) keyed() bool { return p.key != "" }

// trigger is Append.
func (a *appender) trigger(ctx context.Context, t *Trigger) (Receipt, error) {
	if err := a.space(); err != nil {
		return Receipt{}, err
	}
	p, err := a.prepare(ctx, t)
	if err != nil {
		return Receipt{}, err
	}
	return a.post(p)
}

// triggers is AppendBatch.
func (a *appender) triggers(ctx context.Context, ts []*Trigger) ([]Receipt, error) {
	if len(ts) > packMaxEntries {
		return nil, fmt.Errorf("%w: a batch of %d, may be %d", ErrTooLarge, len(ts), packMaxEntries)
	}
	if len(ts) == 0 {
		return nil, nil
	}
	if err := a.space(); err != nil {
		return nil, err
	}
	batch, size := make([]*posted, len(ts)), 0
	for i, t := range ts {
		p, err := a.prepare(ctx, t)
		if err != nil {
			return nil, err
		}
		batch[i], p.batch = p, true
		size += len(p.entry)
	}
	if size > packMaxBytes {
		return nil, fmt.Errorf("%w: a batch of %d bytes, may be %d", ErrTooLarge, size, packMaxBytes)
	}
	batch[0].together = len(batch)
	return a.postAll(batch)
}

// space refuses triggers while little space is free.
func (a *appender) space() error {
	if low, _ := a.j.disk.Low(); low {
		return fmt.Errorf("%w: %w", ErrFull, ErrLowDisk)
	}
	return nil
}

// prepare encodes a trigger.
func (a *appender) prepare(ctx context.Context, t *Trigger) (*posted, error) {
	if len(t.Payload) > a.j.opt.MaxBody {
		return nil, fmt.Errorf("%w: body of %d bytes, may be %d", ErrTooLarge, len(t.Payload), a.j.opt.MaxBody)
	}
	if t.Key != "" && !a.ready.Load() {
		return nil, ErrStarting
	}
	p := &posted{ctx: ctx, producer: t.Producer, key: t.Key}
	p.entry = appendTrigger(make([]byte, 0, 256+len(t.Payload)), t)
	if p.keyed() {
		p.id, p.fp = keyOf(t)
	}
	if len(p.entry) > a.j.link.entryMost {
		return nil, fmt.Errorf("%w: %d bytes with its headers", ErrTooLarge, len(p.entry))
	}
	return p, nil
}

// marker appends a registry change's marker, and returns its position when it is durable. Little free space does not
// refuse it: the change itself is stored by then, and some make room.
func (a *appender) marker(ctx context.Context, m Marker) (Position, error) {
	r, err := a.post(&posted{ctx: ctx, entry: encodeMarker(&m), marker: true})
	return r.Position, err
}

func (a *appender) post(p *posted) (Receipt, error) {
	receipts, err := a.postAll([]*posted{p})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// postAll returns when all are answered; the error is the first one's.
func (a *appender) postAll(batch []*posted) ([]Receipt, error) {
	if err := a.j.lease.held(); err != nil {
		return nil, err
	}
	if err := a.enqueue(batch...); err != nil {
		return nil, err
	}
	receipts := make([]Receipt, len(batch))
	var first error
	for i, p := range batch {
		select {
		case got := <-p.done:
			receipts[i] = got.receipt
			if first == nil {
				first = got.err
			}
		case <-p.ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, p.ctx.Err())
		}
	}
	return receipts, first
}

func (a *appender) enqueue(batch ...*posted) error {
	size := 0
	for _, p := range batch {
		p.done = make(chan answer, 1)
		size += len(p.entry)
	}
	if err := a.trouble.get(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return ErrClosed
	case a.bytes+size > appendMostWait:
		return fmt.Errorf("%w: too much waits already", ErrUnavailable)
	}
	a.queue = append(a.queue, batch...)
	a.bytes += size
	signal(a.wake)
	return nil
}

// signal leaves a token, unless one is there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run is the flusher. It ends when the queue is empty after stop.
func (a *appender) run(ctx context.Context) {
	defer close(a.ended)
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			a.refuse(ErrClosed)
			return
		}
		for a.waiting() > 0 {
			a.j.pause(ctx, appendEvery-time.Since(a.begun))
			a.begun = time.Now()
			a.flush(ctx, a.next())
		}
		if a.finished() {
			return
		}
	}
}

func (a *appender) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

func (a *appender) finished() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed && len(a.queue) == 0
}

// stop refuses what comes; what waits is still written.
func (a *appender) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	signal(a.wake)
}

// refuse answers everything that waits.
func (a *appender) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.queue {
		p.done <- answer{err: err}
	}
	a.queue, a.bytes = nil, 0
}

// next takes what goes into one pack, in order. A batch is not taken apart.
func (a *appender) next() []*posted {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, size := 0, 0
	for n < len(a.queue) {
		many := max(a.queue[n].together, 1)
		more := 0
		for _, p := range a.queue[n : n+many] {
			more += len(p.entry)
		}
		if n > 0 && (n+many > packMaxEntries || size+more > packMaxBytes) {
			break
		}
		n, size = n+many, size+more
	}
	batch := a.queue[:n:n]
	a.queue = a.queue[n:]
	a.bytes -= size
	return batch
}

// flush writes one pack and answers its entries.
func (a *appender) flush(ctx context.Context, batch []*posted) {
	a.flushing.Lock()
	defer a.flushing.Unlock()
	batch = a.admit(batch)
	if len(batch) == 0 {
		return
	}
	entries := make([][]byte, len(batch))
	for i, p := range batch {
		entries[i] = p.entry
	}
	a.counter++
	h := header{writer: a.j.writer, counter: a.counter, prev: a.prev, other: a.j.outcomes.acked.Load()}
	data := encodePack(h, entries)
	seq, err := a.j.link.publish(ctx, triggersSubject, data)
	switch {
	case err == nil:
		a.stored(position(seq, len(batch)-1))
		a.settle(ctx, message{seq, time.Now(), data}, batch)
	case errors.Is(err, errRefused):
		answerAll(batch, err)
		signal(a.j.trim.wake)
	default:
		a.trouble.set(err)
		answerAll(batch, err)
		a.resolve(ctx, h, err)
	}
}

// admit answers what needs no writing: callers that have gone, and keys that the index knows. What
// it lets through bears no key that stands in the log up to prev, inside the window.
func (a *appender) admit(batch []*posted) []*posted {
	now := time.Now()
	out := batch[:0]
	for _, p := range batch {
		if p.ctx.Err() != nil && !p.batch {
			continue
		}
		if p.keyed() {
			if use, ok := a.tail.keys.find(p.id, now); ok {
				p.done <- use.answer(p)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

func answerAll(batch []*posted, err error) {
	for _, p := range batch {
		p.done <- answer{err: err}
	}
}

// stored notes the newest durable position. Readers are told of it apart.
func (a *appender) stored(last Position) {
	a.packs.Add(1)
	a.prev = last.Seq()
	a.j.newest.Store(uint64(last))
}

// settle answers a durable pack, and tells readers of it: an entry without a key is answered at once, one with a key
// when the tail has passed it.
func (a *appender) settle(ctx context.Context, m message, batch []*posted) {
	seq, keyed := m.seq, false
	for i, p := range batch {
		if p.keyed() {
			keyed = true
			continue
		}
		p.done <- answer{receipt: a.receipt(p, position(seq, i))}
	}
	a.j.packs.written(ctx, m)
	a.j.durable.raise(seq)
	if !a.ready.Load() {
		return // no keyed post was let in
	}
	err := a.tail.advance(ctx, seq)
	if keyed {
		a.settleKeyed(ctx, seq, batch, err)
	}
	if err != nil {
		a.catchUp(ctx, err)
	}
}

func (a *appender) receipt(p *posted, at Position) Receipt {
	if p.marker {
		return Receipt{Position: at}
	}
	return Receipt{ID: triggerID(a.j.writer, at, p.producer, p.key), Position: at}
}

// settleKeyed answers by what the log has decided.
func (a *appender) settleKeyed(ctx context.Context, seq uint64, batch []*posted, err error) {
	var pack *Pack
	if err == nil {
		pack, err = a.j.packs.get(ctx, seq)
	}
	for i, p := range batch {
		switch {
		case !p.keyed():
		case err != nil:
			p.done <- answer{err: fmt.Errorf("%w: %w", ErrUnavailable, err)}
		case pack.Entries[i].Trigger != nil:
			p.done <- answer{receipt: a.receipt(p, position(seq, i))}
		default:
			p.done <- a.repeated(p)
		}
	}
}

// repeated answers an entry that the log has found to be a repeat.
func (a *appender) repeated(p *posted) answer {
	use, ok := a.tail.keys.find(p.id, time.Now())
	if !ok {
		return answer{err: fmt.Errorf("%w: the key's first trigger is no longer known", ErrUnavailable)}
	}
	return use.answer(p)
}

// catchUp reads on until the tail has passed everything written: before, no keyed post may be packed.
func (a *appender) catchUp(ctx context.Context, err error) {
	for err != nil && ctx.Err() == nil {
		a.raise(err)
		pause(ctx, resolveEvery)
		err = a.tail.advance(ctx, a.prev)
	}
	a.trouble.clear()
}

const resolveEvery = 200 * time.Millisecond

// raise makes err the reason for refusing, and refuses what waits.
func (a *appender) raise(err error) {
	a.trouble.set(err)
	a.refuse(err)
}

// resolve ends the doubt about a pack that got no answer. It is looked up by (writer, counter); it is not
// written again, since its callers have been told to come again. When it is not there for a while the
// embedded server is opened anew, and what is not there then never will be. Until the end of it
// everything is refused.
func (a *appender) resolve(ctx context.Context, h header, err error) {
	a.j.log.Error("journal: no answer to a pack", "counter", h.counter, "error", err)
	link := a.j.link
	generation, since := link.generation(), time.Now()
	for ctx.Err() == nil {
		a.raise(err)
		last, found, lookup := a.lookUp(ctx, h)
		if lookup == nil && (found || errors.Is(err, errAway) || link.generation() != generation) {
			a.resolved(ctx, last)
			return
		}
		if errors.Is(lookup, ErrDamaged) {
			err = lookup
		}
		if time.Since(since) >= link.patience {
			if failed := link.reopen(generation); failed != nil {
				a.j.log.Error("journal: the embedded server does not open", "error", failed)
			}
		}
		pause(ctx, resolveEvery)
	}
}

func (a *appender) resolved(ctx context.Context, last Position) {
	if last.Seq() > a.prev {
		a.stored(last)
		a.j.durable.raise(a.prev)
	}
	if a.ready.Load() {
		a.catchUp(ctx, a.tail.advance(ctx, a.prev))
	}
	a.trouble.clear()
}

// lookUp reads what has been stored since the pack was made. It returns the newest position, and reports
// whether the pack is there.
func (a *appender) lookUp(ctx context.Context, h header) (last Position, found bool, err error) {
	s, err := a.j.link.whole(ctx, triggersStream)
	if err != nil {
		return 0, false, err
	}
	if s.last < a.prev {
		return 0, false, &Damage{Stream: triggersStream, From: s.last + 1, To: a.prev, What: "acknowledged messages are gone"}
	}
	for seq := a.prev + 1; seq <= s.last; seq++ {
		p, err := a.j.packs.between(ctx, seq)
		if err != nil || p == nil {
			return 0, false, errors.Join(err, ErrUnavailable)
		}
		last = p.last()
		found = found || p.header.writer == h.writer && p.header.counter == h.counter
	}
	return last, found, nil
}

// fault is an error that can be set and cleared. Safe for concurrent use.
type fault struct{ p atomic.Pointer[error] }

func (f *fault) set(err error) { f.p.Store(&err) }
func (f *fault) clear()        { f.p.Store(nil) }

func (f *fault) get() error {
	if e := f.p.Load(); e != nil {
		return *e
	}
	return nil
}
