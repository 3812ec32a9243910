package journal

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// keyIndex recognises idempotency keys: it holds the first trigger of each key in the window, which
// is the smallest of an hour, ten million entries and the log that is kept, counted on the packs'
// timestamps and evicted in log order. After it the key is new. Not safe for concurrent use.
type keyIndex struct {
	window time.Duration
	most   int

	byKey map[keyID]int // number of the use
	uses  []keyUse      // in log order; the first has number begin
	begin int
	since atomic.Int64 // unix ms: every key used from here on is known
}

// keyID is the first half of SHA-256 over producer and key; fingerprints are cut the same way.
type keyID [16]byte

type keyUse struct {
	id          keyID
	fingerprint keyID
	position    Position
	at          int64 // unix ms
}

func newKeyIndex(window time.Duration, most int) *keyIndex {
	return &keyIndex{window: window, most: most, byKey: make(map[keyID]int)}
}

func keyOf(t *Trigger) (id, fingerprint keyID) {
	h := keyHash(t.Producer, t.Key)
	return keyID(h[:16]), keyID(t.Fingerprint[:16])
}

// find returns the first use of the key, when it is inside the window at the instant now.
func (k *keyIndex) find(id keyID, now time.Time) (keyUse, bool) {
	n, ok := k.byKey[id]
	if !ok {
		return keyUse{}, false
	}
	u := k.uses[n-k.begin]
	return u, now.UnixMilli()-u.at < k.window.Milliseconds()
}

// pass takes in the next pack of the log.
func (k *keyIndex) pass(p *Pack) {
	at := p.At.UnixMilli()
	for i := range p.Entries {
		t := p.Entries[i].Trigger
		if t == nil || t.Key == "" {
			continue
		}
		id, fingerprint := keyOf(t)
		k.byKey[id] = k.begin + len(k.uses)
		k.uses = append(k.uses, keyUse{id, fingerprint, t.Position, at})
	}
	k.evict(p.At)
}

// evict forgets what is older than the window at the instant now, or too much.
func (k *keyIndex) evict(now time.Time) {
	oldest := now.Add(-k.window).UnixMilli()
	n := 0
	for n < len(k.uses) && (k.uses[n].at < oldest || len(k.uses)-n > k.most) {
		n++
	}
	k.drop(n)
}

// trimmed forgets what stood below first.
func (k *keyIndex) trimmed(first Position) {
	n := 0
	for n < len(k.uses) && k.uses[n].position < first {
		n++
	}
	k.drop(n)
}

// drop removes the first n uses.
func (k *keyIndex) drop(n int) {
	for i, u := range k.uses[:n] {
		k.since.Store(max(k.since.Load(), u.at+1))
		if k.byKey[u.id] == k.begin+i { // not used again since
			delete(k.byKey, u.id)
		}
	}
	k.uses = k.uses[n:]
	k.begin += n
}

// reach returns how far back a key is recognised at the instant now.
func (k *keyIndex) reach(now time.Time) time.Duration {
	return max(0, min(k.window, now.Sub(time.UnixMilli(k.since.Load()))))
}

// answer says what becomes of a keyed post that the log, or the index, has seen before: its first
// trigger's receipt, or ErrKeyConflict.
func (u keyUse) answer(p *posted) answer {
	if u.fingerprint != p.fp {
		return answer{err: ErrKeyConflict}
	}
	return answer{receipt: Receipt{ID: triggerID(0, u.position, p.producer, p.key), Position: u.position, Repeat: true}}
}

// tail follows TRIGGERS for the keys: it has read everything up to the sequence at. Its owner is
// the rebuild until ready, then the appender's flusher.
type tail struct {
	j    *Journal
	keys *keyIndex
	at   uint64
}

// advance reads on up to the sequence to.
func (t *tail) advance(ctx context.Context, to uint64) error {
	for t.at < to {
		if p := t.j.packs.cached(t.at + 1); p != nil {
			t.pass(p)
			continue
		}
		ms, err := t.j.link.batch(ctx, triggersStream, t.at+1, "")
		if err != nil {
			return err
		}
		if len(ms) == 0 {
			return t.j.packs.absent(ctx, t.at+1)
		}
		for _, m := range ms {
			if err := t.take(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tail) take(ctx context.Context, m message) error {
	if m.seq != t.at+1 {
		return t.j.packs.absent(ctx, t.at+1)
	}
	p, err := t.j.packs.judged(ctx, m)
	if err != nil {
		return err
	}
	t.j.packs.put(p)
	t.pass(p)
	return nil
}

func (t *tail) pass(p *Pack) {
	t.keys.pass(p)
	t.at = p.Seq
}

// rebuild reads the window's packs and then lets keyed posts in. It tries again for as long as the
// journal is open: damage inside the window keeps keyed posts out, and is reported.
func (a *appender) rebuild(ctx context.Context) {
	for ctx.Err() == nil {
		err := a.tail.advance(ctx, a.j.durable.at.Load())
		if err == nil && a.finishRebuild(ctx) {
			return
		}
		if err != nil && ctx.Err() == nil {
			a.trouble.set(fmt.Errorf("duplicate index: %w", err))
			a.j.log.Error("journal: duplicate index", "error", err)
			if errors.Is(err, ErrDamaged) {
				return
			}
			pause(ctx, time.Second)
		}
	}
}

// finishRebuild hands the tail over to the flusher, once nothing has been written meanwhile.
func (a *appender) finishRebuild(ctx context.Context) bool {
	a.flushing.Lock()
	defer a.flushing.Unlock()
	if a.tail.advance(ctx, a.j.durable.at.Load()) != nil {
		return false
	}
	a.ready.Store(true)
	a.trouble.clear()
	return true
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
