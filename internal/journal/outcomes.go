package journal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const flushEvery = 10 * time.Millisecond // between the starts of two flushes

// outcomes is the one writer of OUTCOMES: records and checkpoints in the order in which they were
// handed over, one synced message per flush.
type outcomes struct {
	j       *Journal
	flushed watermark     // marks that are durable
	acked   atomic.Uint64 // newest known sequence of OUTCOMES
	trouble fault         // why nothing gets durable

	mu      sync.Mutex
	queue   []work
	handed  uint64    // marks given out
	waiting int       // records handed over and not durable
	oldest  time.Time // when the oldest of the queue was handed over
	taken   time.Time // the same for what is being flushed; zero is nothing
	closed  bool
	last    time.Duration // what the last flush took
	flushes uint64
	spent   time.Duration // on all flushes
	wake    chan struct{} // holds one token when the queue may have something

	// The flusher's.
	counter uint64
	begun   time.Time
	enc     recordEncoder
	before  uint64        // first message of the newest complete checkpoint
	older   uint64        // and of the one before that
	decided []DeliveryKey // what was decided before the start; of that, what the cursor has not passed
}

// work is one item of the queue: records, or a checkpoint.
type work struct {
	recs []Record
	cp   *Checkpoint
	mark uint64 // durable with it
}

// record is Record. Records handed over one after the other share an item.
func (o *outcomes) record(recs []Record) Mark {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(recs) == 0 || o.closed {
		return Mark(o.handed)
	}
	o.begunLocked()
	o.handed++
	o.waiting += len(recs)
	if n := len(o.queue); n > 0 && o.queue[n-1].cp == nil {
		w := &o.queue[n-1]
		w.recs, w.mark = append(w.recs, recs...), o.handed
	} else {
		o.queue = append(o.queue, work{recs: append(make([]Record, 0, 64), recs...), mark: o.handed})
	}
	signal(o.wake)
	return Mark(o.handed)
}

func (o *outcomes) checkpoint(cp *Checkpoint) Mark {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return Mark(o.handed + 1) // never durable
	}
	o.begunLocked()
	o.handed++
	o.queue = append(o.queue, work{cp: cp, mark: o.handed})
	signal(o.wake)
	return Mark(o.handed)
}

func (o *outcomes) begunLocked() {
	if len(o.queue) == 0 {
		o.oldest = time.Now()
	}
}

// run is the flusher. It ends when the queue is empty after stop, or with ctx.
func (o *outcomes) run(ctx context.Context) {
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			o.flushed.stop(ErrClosed)
			return
		}
		for ctx.Err() == nil && o.flush(ctx) {
		}
		if o.finished() {
			o.flushed.stop(ErrClosed)
			return
		}
	}
}

// flush writes everything that waits and reports whether there was something.
func (o *outcomes) flush(ctx context.Context) bool {
	if !o.pending() {
		return false
	}
	o.j.pause(ctx, flushEvery-time.Since(o.begun))
	o.begun = time.Now()
	for _, w := range o.take() {
		if w.cp != nil {
			o.writeCheckpoint(ctx, w.cp)
		} else {
			o.writeRecords(ctx, w.recs)
		}
		if ctx.Err() != nil {
			return false
		}
		o.settle(w)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = time.Since(o.begun)
	o.flushes++
	o.spent += o.last
	o.taken = time.Time{}
	return true
}

// total stands for everything handed over.
func (o *outcomes) total() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handed
}

func (o *outcomes) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) > 0
}

func (o *outcomes) take() []work {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue
	o.queue, o.taken = nil, o.oldest
	return q
}

func (o *outcomes) settle(w work) {
	o.mu.Lock()
	o.waiting -= len(w.recs)
	o.mu.Unlock()
	o.flushed.raise(w.mark)
}

func (o *outcomes) finished() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed && len(o.queue) == 0
}

// stop takes nothing more; what waits is still written.
func (o *outcomes) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	signal(o.wake)
}

// writeRecords writes as many messages as it takes.
func (o *outcomes) writeRecords(ctx context.Context, recs []Record) {
	for i := range recs {
		if o.enc.full() {
			o.write(ctx, recordsSubject, o.enc.message)
		}
		o.enc.add(&recs[i])
	}
	o.write(ctx, recordsSubject, o.enc.message)
}

// write stores one message. It returns its sequence when it is durable, and tries until then, or until
// ctx ends: state is never given up. A message that got no answer is written again with the same
// counter, and readers drop the second copy.
func (o *outcomes) write(ctx context.Context, subject string, encode func(header) []byte) uint64 {
	o.counter++
	data := encode(o.header())
	for tries := 1; ; tries++ {
		generation := o.j.link.generation()
		seq, err := o.j.link.publish(ctx, subject, data)
		if err == nil {
			o.acked.Store(seq)
			o.trouble.clear()
			return seq
		}
		if ctx.Err() != nil {
			return 0
		}
		o.trouble.set(err)
		o.j.log.Error("journal: outcomes are not written", "error", err)
		if tries > 1 && !errors.Is(err, errRefused) { // once may be a slow disk
			o.reopen(generation)
		}
		o.repair(ctx, err)
		if ctx.Err() != nil {
			return 0
		}
	}
}

func (o *outcomes) reopen(generation uint64) {
	if err := o.j.link.reopen(generation); err != nil {
		o.j.log.Error("journal: the embedded server does not open", "error", err)
	}
}

// repair returns when another try makes sense. It does not return while acknowledged messages are gone.
func (o *outcomes) repair(ctx context.Context, err error) {
	if errors.Is(err, ErrFull) {
		signal(o.j.trim.wake)
	}
	for pause(ctx, resolveEvery); ctx.Err() == nil; pause(ctx, resolveEvery) {
		s, err := o.j.link.whole(ctx, outcomesStream)
		if err == nil && s.last < o.acked.Load() {
			err = &Damage{Stream: outcomesStream, From: s.last + 1, To: o.acked.Load(), What: "acknowledged messages are gone"}
		}
		if err == nil {
			return
		}
		o.trouble.set(err)
		if !errors.Is(err, ErrDamaged) {
			return
		}
	}
}

func (o *outcomes) header() header {
	return header{writer: o.j.writer, counter: o.counter, prev: o.acked.Load(), other: o.j.durable.at.Load(), epoch: o.j.epoch}
}

// writeCheckpoint writes a checkpoint, which counts once its last message is stored.
//
// One that is taken before the reader has passed what the last process had decided names what is left of
// that: its records stand before the checkpoint, and would otherwise be forgotten.
func (o *outcomes) writeCheckpoint(ctx context.Context, cp *Checkpoint) {
	o.decided = slices.DeleteFunc(o.decided, func(k DeliveryKey) bool { return k.Position < cp.Cursor })
	cp.decided = o.decided
	part := checkpointPart{id: o.counter + 1, before: o.before}
	emit := func(piece []byte, last bool) error {
		part.last, part.body = last, piece
		seq := o.write(ctx, checkpointsSubject, func(h header) []byte {
			part.header = h
			return part.encode()
		})
		if part.number == 0 {
			part.first = seq
		}
		part.number++
		return ctx.Err()
	}
	if encodeCheckpoint(cp, o.j.opt.tune.flush, emit) == nil {
		o.older, o.before = o.before, part.first
		o.j.trim.checkpointed(o.older, o.before)
	}
}

// unflushed returns how many records wait, and for how long the oldest has.
func (o *outcomes) unflushed() (n int, age time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since := o.taken
	if since.IsZero() && len(o.queue) > 0 {
		since = o.oldest
	}
	if since.IsZero() {
		return o.waiting, 0
	}
	return o.waiting, time.Since(since)
}
