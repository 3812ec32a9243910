package journal

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// tasks are the journal's goroutines; Close ends them and waits.
type tasks struct {
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
}

func (t *tasks) start(run func(context.Context)) {
	t.wg.Go(func() { run(t.ctx) })
}

// Open locks the directory, starts the embedded server on it or takes the lease of the cluster, begins a new
// epoch and recovers the delivery state. Errors: ErrLocked, ErrDamaged (a *Damage says where; nothing has been deleted),
// ErrUnavailable, and those of bad options.
func Open(ctx context.Context, o Options) (*Journal, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	j := &Journal{opt: o, log: o.Logger, writer: randomWriter(), unlock: unlock, epochs: &epochs{}, durable: &watermark{}}
	if err := j.open(ctx); err != nil {
		j.shutdown()
		return nil, err
	}
	return j, nil
}

func randomWriter() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

func (j *Journal) open(ctx context.Context) (err error) {
	if j.disk, err = newDiskWatch(j.opt.Dir, j.opt.measure(), j.opt.Ballast); err != nil {
		return err
	}
	box, err := newSecretBox(j.opt.Dir, j.opt.SecretKey, j.opt.Previous...)
	if err != nil {
		return err
	}
	if j.link, err = openLink(j.opt); err != nil {
		return err
	}
	j.tasks.ctx, j.tasks.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if j.link.cluster != nil {
		if j.lease, err = j.link.acquire(ctx, j.writer, j.opt.tune.lease); err != nil {
			return err
		}
		j.tasks.start(j.lease.keep)
	}
	if err := j.link.openStreams(ctx, j.opt.MaxBytes); err != nil {
		return err
	}
	registry, err := j.link.bucket(ctx, registryConfig)
	if err != nil {
		return fmt.Errorf("journal: registry: %w", err)
	}
	if err := j.link.names.syncAll(); err != nil {
		return err
	}
	j.kept = newLazy(j.link, sizesBucket)
	j.packs = newPacks(j.link, j.opt.Cache)
	j.held = newPacks(j.link, j.opt.Cache/4)
	j.held.load = func(ctx context.Context, seq uint64) (*Pack, error) { return fetchHeld(ctx, j.link, seq) }
	if err := j.recover(ctx); err != nil {
		return err
	}
	j.tasks.start(j.outcomes.run)
	j.tasks.start(j.append.run)
	j.tasks.start(j.append.rebuild)
	for _, load := range []func(context.Context) error{
		func(ctx context.Context) (err error) {
			j.reg, err = openRegistry(ctx, registry, box, j.append.marker)
			return err
		},
		func(ctx context.Context) (err error) { j.access, err = openAccess(ctx, j.link); return err },
		func(ctx context.Context) (err error) { j.jobs, err = openJobs(ctx, j.link); return err },
		func(ctx context.Context) (err error) { j.tiers, err = openTiers(ctx, j.link); return err },
	} {
		if err := j.link.insist(ctx, load); err != nil {
			return err
		}
	}
	j.tasks.start(j.trim.run)
	j.tasks.start(j.reseal)
	return j.link.names.syncAll() // streams of the registry and of the keys may be new
}

// recover begins the epoch and reads the state as it was then.
func (j *Journal) recover(ctx context.Context) error {
	triggers, err := j.link.whole(ctx, triggersStream)
	if err != nil {
		return err
	}
	outcomes, err := j.link.whole(ctx, outcomesStream)
	if err != nil {
		return err
	}
	held, err := j.link.span(ctx, heldStream)
	if err != nil {
		return err
	}
	if err := j.checkNewest(ctx, triggers, outcomes); err != nil {
		return err
	}
	if err := j.epochs.load(ctx, j.link, 0); err != nil {
		return err
	}
	newest, err := newestCheckpoint(ctx, j.link, j.epochs)
	if err != nil {
		return err
	}
	if newest != nil {
		j.epochs.assume(newest)
	}
	mine, err := j.epochs.begin(ctx, j.link, header{writer: j.writer, counter: 1, prev: outcomes.last, other: triggers.last})
	if err != nil {
		return err
	}
	outcomes.last = mine.seq - 1
	state, err := recoverState(ctx, j.link, j.epochs, newest, triggers, outcomes, held)
	if err != nil {
		return err
	}
	state.Epoch = mine.epoch
	j.epoch = mine.epoch
	j.state.Store(state)
	j.ready(triggers, mine, newest)
	j.outcomes.decided = slices.Collect(maps.Keys(state.Decided)) // the caller owns the map
	return j.startTail(ctx, triggers)
}

// checkNewest makes sure that the newest pack can be read and knows of no outcome that is gone.
func (j *Journal) checkNewest(ctx context.Context, triggers, outcomes span) error {
	if triggers.last == 0 || triggers.last < triggers.first {
		return nil
	}
	p, err := j.packs.get(ctx, triggers.last)
	if err != nil {
		return err
	}
	j.newest.Store(uint64(p.last()))
	if known := p.header.other; known > outcomes.last {
		return &Damage{Stream: outcomesStream, From: outcomes.last + 1, To: known,
			What: fmt.Sprintf("message %d of TRIGGERS knows them, OUTCOMES ends before", triggers.last)}
	}
	return nil
}

// ready makes the parts that write.
func (j *Journal) ready(triggers span, mine epochRecord, newest *found) {
	j.durable.raise(triggers.last)
	j.trim = &trimmer{j: j, wake: make(chan struct{}, 1)}
	j.append = &appender{j: j, prev: triggers.last, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	j.outcomes = &outcomes{j: j, counter: mine.counter, enc: recordEncoder{most: j.opt.tune.flush}, wake: make(chan struct{}, 1)}
	j.outcomes.acked.Store(mine.seq)
	if newest != nil {
		j.outcomes.before, j.outcomes.older = newest.first, newest.before
		j.trim.checkpointed(newest.before, newest.first)
	}
}

// startTail places the tail of TRIGGERS before the key window.
func (j *Journal) startTail(ctx context.Context, triggers span) error {
	from := time.Now().Add(-j.opt.tune.window)
	at, since := triggers.last, from
	m, ok, err := j.link.one(ctx, triggersStream, getRequest{StartTime: &from})
	if err != nil {
		return err
	}
	if ok {
		at = m.seq - 1
		if m.seq == triggers.first && triggers.first > 1 {
			since = m.at
		}
	}
	keys := newKeyIndex(j.opt.tune.window, j.opt.tune.most)
	keys.since.Store(since.UnixMilli())
	j.append.tail = &tail{j: j, keys: keys, at: at}
	return nil
}

// Close ends ingest, writes what has been handed over, and closes the streams cleanly. A context that
// ends first cuts the writing short: what was not acknowledged may then be lost. Later calls
// return what the first did.
func (j *Journal) Close(ctx context.Context) error {
	j.close.Do(func() { j.closed = j.end(ctx) })
	return j.closed
}

func (j *Journal) end(ctx context.Context) error {
	j.append.stop()
	j.outcomes.stop()
	err := j.outcomes.flushed.wait(ctx, j.outcomes.total())
	select {
	case <-j.append.ended:
	case <-ctx.Done():
	}
	j.shutdown()
	return err
}

// shutdown ends the goroutines, the server and the lock, as far as they have been started.
func (j *Journal) shutdown() {
	if j.tasks.cancel != nil {
		j.tasks.cancel()
		j.tasks.wg.Wait()
		j.durable.stop(ErrClosed)
	}
	if j.lease != nil {
		j.lease.release()
	}
	if j.link != nil {
		j.link.close()
	}
	j.unlock()
}
