package limit

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"
)

const (
	maxShards   = 64
	shardBound  = 64               // a shard with room for less is not worth having
	idle        = 10 * time.Second // a bucket that has been full for so long is forgotten
	shortOfRoom = 8                // cells that a newcomer looks at when there is no room
	lookEvery   = 16               // calls of a key
)

// Table holds a bucket for each key, at most a bound of them, safe for
// concurrent use. A key's first bucket is full. A Table must not be copied.
//
// Forgetting never grants anything. Only a full bucket is forgotten, and a full
// one is what the key finds when it comes back. When there is no room and none
// is found to forget, newcomers share: one bucket, the overflow bucket, for each
// contract in their shard. A newcomer that gets a bucket of its own after that
// starts with no more than is left in the one that it shared.
//
// Keys are spread over shards, each with a lock and an equal part of the bound
// of its own. So a Table may be short of room in one shard at some nine tenths
// of its bound. Nothing walks the table: a call looks at a bounded number of
// buckets besides its own. A take of a key that has a bucket locks that alone.
//
// A key is known by its 64-bit hash under the seed, which costs the same however
// long it is. Two keys with one hash share a bucket: among a million keys that is
// one chance in 37 million (n^2 / 2^65), and nobody who does not know the seed
// can look for it. A key costs 64 bytes, and up to 512 while cells are few of
// many.
type Table struct {
	seed   maphash.Seed
	shards []shard
}

// shard is two cache lines: what every decision reads is in the first, what
// changes with the keys in the second.
type shard struct {
	cells    cells
	mu       sync.Mutex
	last     int64   // no bucket is made, or found full, at an earlier instant
	overflow []state // by contract: as many as are in use at once
	epoch    uint16  // none that was forgotten is later
}

// NewTable returns an empty table for at most bound keys, 1 or more. The seed,
// of maphash.MakeSeed, keeps callers who choose their keys from choosing their
// shard, or another's bucket.
func NewTable(bound int, seed maphash.Seed) *Table {
	if bound < 1 {
		panic("limit: the bound of a Table must be at least 1")
	}
	n := min(maxShards, 1<<bits.Len(uint(bound/shardBound)))
	t := &Table{seed: seed, shards: make([]shard, n)}
	for i := range t.shards {
		t.shards[i].cells.bound = (bound + i) / n
	}
	return t
}

// Take takes cost tokens of the key's bucket or none, as Rate.Take. The contract
// is the one that holds for the key now: if it is another than before, whole
// tokens are kept, as Rate.Change. Unlimited and paused contracts need no bucket
// and leave one that is there as it is.
func (t *Table) Take(key string, r Rate, now time.Duration, cost int64) (d Decision) {
	if cost < 1 {
		panic("limit: cost must be at least 1") // not under the lock
	}
	if r.n == 0 {
		r.special(&d, &Level{}, 0, cost)
		return d
	}
	s, hash := t.shard(key)
	at := instant(now)
	h := s.cells.hold(hash)
	if h == nil {
		s.mu.Lock()
		s.takeLocked(&d, hash, &r, at, cost)
		s.mu.Unlock()
		return d
	}
	due := h.take(&d, &r, at, cost)
	h.mu.Unlock()
	if due {
		s.mu.Lock()
		s.sweepLocked(s.seenLocked(at) - int64(idle))
		s.mu.Unlock()
	}
	return d
}

// take reports whether it is time to look at another cell.
func (e *state) take(d *Decision, r *Rate, at, cost int64) bool {
	at = e.seen(at)
	e.under(r, at)
	r.take(d, &e.level, at, cost)
	e.calls++
	return e.calls%lookEvery == 0
}

// Refund gives the tokens of one take back, as Rate.Refund. What came from an
// overflow bucket, or from a bucket that has been forgotten since, stays taken.
func (t *Table) Refund(key string, now time.Duration, cost int64, epoch uint16) {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	s, hash := t.shard(key)
	h := s.cells.hold(hash)
	if h == nil {
		s.mu.Lock()
		h = s.cells.hold(hash)
		s.mu.Unlock()
	}
	if h == nil {
		return
	}
	r := h.rate()
	r.Refund(&h.level, time.Duration(h.seen(instant(now))), cost, epoch)
	h.mu.Unlock()
}

// Len returns the number of keys that have a bucket.
func (t *Table) Len() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += s.cells.n
		s.mu.Unlock()
	}
	return n
}

func (t *Table) shard(key string) (*shard, uint64) {
	hash := maphash.String(t.seed, key)
	return &t.shards[hash&uint64(len(t.shards)-1)], max(hash, 1)
}

// seenLocked clamps an instant to the largest seen.
func (s *shard) seenLocked(at int64) int64 {
	s.last = max(s.last, at)
	return s.last
}

// takeLocked decides for a key that was not found, or that moved meanwhile.
func (s *shard) takeLocked(d *Decision, hash uint64, r *Rate, at, cost int64) {
	at = s.seenLocked(at)
	h := s.cells.hold(hash)
	if h == nil && s.roomLocked(at) {
		h = s.addLocked(hash, r, at)
	}
	if h == nil {
		s.sharedLocked(r, at).take(d, r, at, cost)
		return
	}
	h.take(d, r, at, cost)
	h.mu.Unlock()
}

// roomLocked looks at a few cells and reports whether there is room for one more.
func (s *shard) roomLocked(at int64) bool {
	s.sweepLocked(at - int64(idle))
	for i := 0; i < shortOfRoom && s.cells.n >= s.cells.bound; i++ {
		s.sweepLocked(at)
	}
	return s.cells.n < s.cells.bound
}

// sharedLocked returns the overflow bucket of a contract. It takes the place of
// a full one, which owes nobody anything, or is added.
func (s *shard) sharedLocked(r *Rate, at int64) *state {
	place := -1
	for i := range s.overflow {
		o := &s.overflow[i]
		if o.is(r) {
			return o
		}
		if o.full(at) {
			place = i
		}
	}
	if place < 0 {
		place = len(s.overflow)
		s.overflow = append(s.overflow, state{})
	}
	o := &s.overflow[place]
	*o = newState(r, o.level.epoch+1)
	return o
}

func newState(r *Rate, epoch uint16) state {
	return state{n: r.n, per: r.per, burst: r.burst, level: Level{epoch: epoch}}
}

// addLocked gives a key a bucket. Its epochs are later than those of all that
// the key may have had, so that a late Refund finds none of them.
func (s *shard) addLocked(hash uint64, r *Rate, at int64) *cell {
	left := int64(r.burst)
	for i := range s.overflow {
		o := &s.overflow[i]
		s.pastLocked(&o.level)
		if o.is(r) {
			left = r.Left(&o.level, time.Duration(at))
		}
	}
	e := newState(r, s.epoch)
	e.last = at
	r.SetLeft(&e.level, time.Duration(at), left)
	return s.cells.add(hash, e)
}

// sweepLocked looks at one cell, in turn, and forgets it if it was full then.
func (s *shard) sweepLocked(then int64) {
	h, i := s.cells.look()
	switch {
	case h == nil:
	case h.full(then):
		s.pastLocked(&h.level)
		s.cells.remove(i)
	default:
		h.mu.Unlock()
	}
}

// pastLocked notes a level's epoch, which wraps around.
func (s *shard) pastLocked(l *Level) {
	if int16(l.epoch-s.epoch) > 0 {
		s.epoch = l.epoch
	}
}
