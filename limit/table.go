package limit

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"time"
)

const (
	maxShards   = 64
	shardBound  = 64               // a shard with room for less is not worth having
	idle        = 10 * time.Second // a bucket that has been full for so long is forgotten
	shortOfRoom = 4                // buckets that a newcomer looks at when there is no room
)

// Table holds a bucket for each key, at most a bound of them, safe for
// concurrent use. A key's first bucket is full. A Table must not be copied.
//
// Forgetting never grants anything. Only a full bucket is forgotten, and a full
// one is what the key finds when it comes back. When there is no room and none
// is found to forget, newcomers share one bucket, the overflow bucket of their
// shard, under the strictest of their contracts: the lowest rate and the lowest
// burst of all that use it, until it is full again. A newcomer that gets a bucket
// of its own after that starts with no more than was left in the overflow bucket.
//
// Keys are spread over shards, each with a lock and an equal part of the bound
// of its own. So a Table may be short of room in one shard at some nine tenths
// of its bound. Each call looks at one bucket besides its own, and when there is
// no room at shortOfRoom more: nothing walks the table.
//
// A key costs some 130 bytes and its own length, which the caller bounds.
type Table struct {
	seed   maphash.Seed
	shards []shard
}

type shard struct {
	bound int

	mu       sync.Mutex
	last     time.Duration
	index    map[string]int32 // where in held
	held     []held
	hand     int // the next to look at
	overflow held
	epoch    uint16 // none that was forgotten is later

	_ [64]byte // shards share no cache line
}

type held struct {
	key   string
	rate  Rate // neither unlimited nor paused
	level Level
}

// NewTable returns an empty table for at most bound keys, 1 or more. The seed,
// of maphash.MakeSeed, keeps callers who choose their keys from choosing their
// shard.
func NewTable(bound int, seed maphash.Seed) *Table {
	if bound < 1 {
		panic("limit: the bound of a Table must be at least 1")
	}
	n := min(maxShards, 1<<bits.Len(uint(bound/shardBound)))
	t := &Table{seed: seed, shards: make([]shard, n)}
	for i := range t.shards {
		t.shards[i].bound = (bound + i) / n
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
	s := t.shard(key)
	s.mu.Lock()
	at := s.seenLocked(now)
	h := s.bucketLocked(key, &r, at)
	h.rate.take(&d, &h.level, at, cost)
	if d.Reason == Never && cost <= int64(r.burst) { // of the overflow bucket, until it is full
		d.Reason, d.RetryIn = Later, d.ResetIn
	}
	s.sweepLocked(at, idle)
	s.mu.Unlock()
	return d
}

// Refund gives the tokens of one take back, as Rate.Refund. What came from an
// overflow bucket, or from a bucket that has been forgotten since, stays taken.
func (t *Table) Refund(key string, now time.Duration, cost int64, epoch uint16) {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.seenLocked(now)
	if i, known := s.index[key]; known {
		h := &s.held[i]
		h.rate.Refund(&h.level, time.Duration(at), cost, epoch)
	}
}

// Len returns the number of keys that have a bucket.
func (t *Table) Len() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.held)
		s.mu.Unlock()
	}
	return n
}

func (t *Table) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)&uint64(len(t.shards)-1)]
}

// seenLocked clamps now to the largest seen.
func (s *shard) seenLocked(now time.Duration) int64 {
	s.last = max(s.last, time.Duration(instant(now)))
	return int64(s.last)
}

// bucketLocked returns the bucket that decides for a key, under its contract.
func (s *shard) bucketLocked(key string, r *Rate, at int64) *held {
	i, known := s.index[key]
	switch {
	case known:
		h := &s.held[i]
		h.under(r, at)
		return h
	case len(s.held) < s.bound || s.makeRoomLocked(at):
		return s.addLocked(key, r, at)
	}
	o := &s.overflow
	if o.full(at) {
		*o = held{rate: *r, level: Level{epoch: o.level.epoch + 1}}
	}
	low := lower(&o.rate, r)
	o.under(&low, at)
	return o
}

func (h *held) under(r *Rate, at int64) {
	if h.rate != *r {
		r.Change(&h.level, time.Duration(at), &h.rate)
		h.rate = *r
	}
}

// addLocked gives a key a bucket. Its epochs are later than those of all that
// the key may have had, so that a late Refund finds none of them.
func (s *shard) addLocked(key string, r *Rate, at int64) *held {
	s.pastLocked(&s.overflow.level)
	h := held{key: strings.Clone(key), rate: *r, level: Level{epoch: s.epoch + 1}}
	if o := &s.overflow; !o.full(at) {
		r.SetLeft(&h.level, time.Duration(at), o.rate.Left(&o.level, time.Duration(at)))
	}
	if s.index == nil {
		s.index = map[string]int32{}
	}
	s.index[h.key] = int32(len(s.held))
	s.held = append(s.held, h)
	return &s.held[len(s.held)-1]
}

// makeRoomLocked looks for a bucket to forget and reports whether there is room.
func (s *shard) makeRoomLocked(at int64) bool {
	for range shortOfRoom {
		s.sweepLocked(at, 0)
	}
	return len(s.held) < s.bound
}

// sweepLocked looks at one bucket, in turn, and forgets it if it has been full
// for so long.
func (s *shard) sweepLocked(at int64, since time.Duration) {
	if s.hand >= len(s.held) {
		s.hand = 0
	}
	if s.hand < len(s.held) && s.held[s.hand].full(at-int64(since)) {
		s.forgetLocked(s.hand)
		return
	}
	s.hand++
}

func (s *shard) forgetLocked(i int) {
	s.pastLocked(&s.held[i].level)
	delete(s.index, s.held[i].key)
	last := len(s.held) - 1
	if i != last {
		s.held[i] = s.held[last]
		s.index[s.held[i].key] = int32(i)
	}
	s.held[last] = held{}
	s.held = s.held[:last]
	if last == 0 {
		s.index, s.held = nil, nil // neither shrinks by itself
	}
}

// pastLocked notes a level's epoch, which wraps around.
func (s *shard) pastLocked(l *Level) {
	if int16(l.epoch-s.epoch) > 0 {
		s.epoch = l.epoch
	}
}

// full reports whether a bucket was full at the instant.
func (h *held) full(at int64) bool {
	return h.level.tat < at || h.level.tat == at && h.level.frac == 0
}

// lower returns the lower rate of two contracts with their lower burst.
func lower(a, b *Rate) Rate {
	slow := a
	aHi, aLo := bits.Mul64(uint64(a.n), uint64(b.per))
	bHi, bLo := bits.Mul64(uint64(b.n), uint64(a.per))
	if bHi < aHi || bHi == aHi && bLo < aLo {
		slow = b
	}
	r, err := compile(uint64(slow.n), uint64(slow.per), uint64(min(a.burst, b.burst)))
	if err != nil {
		panic("limit: unreachable: a lower burst fills sooner")
	}
	return r
}
