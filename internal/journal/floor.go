package journal

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// trimmer purges what nothing refers to. History is kept behind the floor for as long as Options say
// and both streams are at most half full; then it yields, oldest first. Only the floor pins.
type trimmer struct {
	j    *Journal
	wake chan struct{} // holds a token when a stream is full

	mu     sync.Mutex
	floor  Position
	older  uint64 // first message of the last but one complete checkpoint
	newest uint64 // and of the last: what recovery needs at least
}

// SetFloor allows trimming below: the lowest of cursor, oldest open attempt and oldest reference. It
// only rises.
func (j *Journal) SetFloor(floor Position) {
	t := j.trim
	t.mu.Lock()
	t.floor = max(t.floor, floor)
	t.mu.Unlock()
	j.reg.setFloor(floor)
}

func (t *trimmer) checkpointed(older, newest uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.older, t.newest = older, newest
}

// limits returns what may be purged: TRIGGERS below the floor, OUTCOMES below the last but one complete
// checkpoint, or below the last one when it is so full that the next might not fit.
func (t *trimmer) limits(outcomes span) (triggers, upTo uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if outcomes.bytes > outcomes.max/10*9 {
		return t.floor.Seq(), t.newest
	}
	return t.floor.Seq(), t.older
}

func (t *trimmer) run(ctx context.Context) {
	every := time.NewTicker(t.j.opt.tune.trim)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		if err := t.trim(ctx); err != nil && ctx.Err() == nil {
			t.j.log.Warn("journal: trimming", "error", err)
		}
	}
}

// trim runs one round.
func (t *trimmer) trim(ctx context.Context) error {
	triggers, err := t.j.link.span(ctx, triggersStream)
	if err != nil {
		return err
	}
	outcomes, err := t.j.link.span(ctx, outcomesStream)
	if err != nil {
		return err
	}
	floor, needed := t.limits(outcomes)
	now := time.Now()
	crowded := triggers.bytes > triggers.max/2 || outcomes.bytes > outcomes.max/2
	if err := t.cut(ctx, triggersStream, triggers, floor, now, crowded); err != nil {
		return err
	}
	return t.cut(ctx, outcomesStream, outcomes, needed, now, crowded)
}

// cut purges one stream up to limit, less its history.
func (t *trimmer) cut(ctx context.Context, name string, s span, limit uint64, now time.Time, crowded bool) error {
	limit = min(limit, s.last) // the newest message stays: it says what came before
	if limit <= s.first {
		return nil
	}
	to, err := t.historyStart(ctx, name, now.Add(-max(t.j.opt.History, t.j.opt.tune.kept)), limit)
	if err != nil {
		return err
	}
	if crowded {
		to, err = t.yield(ctx, name, s, now, to, limit)
	}
	if err != nil {
		return err
	}
	if to <= s.first {
		return nil
	}
	return t.purge(ctx, name, to)
}

// yield gives up history until half of the room is free. What is younger than the key window's least
// goes only when the stream is three quarters full.
func (t *trimmer) yield(ctx context.Context, name string, s span, now time.Time, to, limit uint64) (uint64, error) {
	half := s.half(limit)
	if s.bytes <= s.max/4*3 {
		young, err := t.historyStart(ctx, name, now.Add(-t.j.opt.tune.kept), limit)
		if err != nil {
			return 0, err
		}
		half = min(half, young)
	}
	return max(to, half), nil
}

// half returns the sequence from which on about half of the stream's room is taken, at most limit.
func (s span) half(limit uint64) uint64 {
	over := s.bytes - s.max/2
	if over <= 0 || s.bytes == 0 {
		return s.first
	}
	n := float64(s.last-s.first+1) * float64(over) / float64(s.bytes)
	return min(limit, s.first+uint64(n)+1)
}

// historyStart returns the sequence of the first message at or after the instant since, at most limit.
func (t *trimmer) historyStart(ctx context.Context, name string, since time.Time, limit uint64) (uint64, error) {
	m, ok, err := t.j.link.one(ctx, name, getRequest{StartTime: &since})
	if err != nil || !ok {
		return limit, err
	}
	return min(limit, m.seq), nil
}

// purge removes everything below the sequence to.
func (t *trimmer) purge(ctx context.Context, name string, to uint64) error {
	s, err := t.j.link.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(to)); err != nil {
		return err
	}
	if name == triggersStream {
		t.j.packs.trimmed(to)
		t.j.append.trimmed(position(to, 0))
	}
	return nil
}

// trimmed tells the key index which log is kept.
func (a *appender) trimmed(first Position) {
	a.flushing.Lock()
	defer a.flushing.Unlock()
	if a.ready.Load() {
		a.tail.keys.trimmed(first)
	}
}
