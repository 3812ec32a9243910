package limit

import (
	"sync"
	"sync/atomic"
	"time"
)

// cells are a shard's buckets: a hash table with open addressing, linear probing
// and backward shift on removal (Knuth, 6.4, algorithm R). Whoever changes what
// is where holds the shard's lock; who only looks for a key takes no lock but
// that of the cell it found (see array.hold), and writes to no memory that other
// keys' callers need.
type cells struct {
	now   atomic.Pointer[array] // nil: none
	bound int                   // of n; immutable
	_     [48]byte              // what every decision reads has a cache line for itself
	n     int                   // used
	hand  int                   // the next that is looked at
}

// array is a power of two cells, at most three quarters used. One that has been
// replaced holds nothing.
type array struct{ list []cell }

// cell is a cache line, and holds all that a decision needs. To change the key of
// a cell takes the shard's lock and the cell's; to change the rest, the cell's.
type cell struct {
	mu  sync.Mutex
	key atomic.Uint64 // hash; 0: unused
	state
}

// state is that of a bucket under its contract, which is neither unlimited nor paused.
type state struct {
	last     int64 // largest instant seen
	level    Level
	per      int64 // of the contract; what else a Rate holds follows from these
	n, burst uint32
	calls    uint32
}

const minCells = 8

func (a *array) home(hash uint64) int { return int(hash>>8) & (len(a.list) - 1) }

// hold returns the key's cell with its lock held. It may return nil although the
// key is there, if that moves meanwhile: only under the shard's lock nil means
// that there is none.
func (c *cells) hold(hash uint64) *cell {
	a := c.now.Load()
	if a == nil {
		return nil
	}
	mask, i := len(a.list)-1, a.home(hash)
	for range len(a.list) {
		switch h := &a.list[i]; h.key.Load() {
		case hash:
			h.mu.Lock()
			if h.key.Load() == hash {
				return h
			}
			h.mu.Unlock() // it moved, or is forgotten
			return nil
		case 0:
			return nil
		}
		i = (i + 1) & mask
	}
	return nil
}

func (c *cells) size() int {
	if a := c.now.Load(); a != nil {
		return len(a.list)
	}
	return 0
}

// add puts in what is not there, and returns it with its lock held.
func (c *cells) add(hash uint64, e state) *cell {
	if size := c.size(); 4*(c.n+1) > 3*size {
		c.resize(max(minCells, 2*size))
	}
	c.n++
	h := c.now.Load().free(hash)
	h.mu.Lock()
	h.state = e
	h.key.Store(hash)
	return h
}

// free returns the cell in which a new key belongs.
func (a *array) free(hash uint64) *cell {
	mask, i := len(a.list)-1, a.home(hash)
	for a.list[i].key.Load() != 0 {
		i = (i + 1) & mask
	}
	return &a.list[i]
}

// remove empties cell i, whose lock is held, and moves what is behind it closer to
// its home. It gives the lock back.
func (c *cells) remove(i int) {
	a := c.now.Load()
	mask, hole := len(a.list)-1, &a.list[i]
	for j := (i + 1) & mask; ; j = (j + 1) & mask {
		h := &a.list[j]
		hash := h.key.Load()
		if hash == 0 {
			break
		}
		if (j-a.home(hash))&mask >= (j-i)&mask {
			h.mu.Lock()
			hole.state = h.state
			hole.key.Store(hash)
			hole.mu.Unlock()
			i, hole = j, h
		}
	}
	hole.state = state{}
	hole.key.Store(0)
	hole.mu.Unlock()
	c.n--
	if 8*c.n < len(a.list) {
		c.resize(len(a.list) / 2)
	}
}

// resize makes room for more, or for fewer. Doubling and halving are rare: a
// step costs O(1) over all.
func (c *cells) resize(size int) {
	var a *array
	if c.n > 0 || size >= minCells {
		a = &array{make([]cell, max(size, minCells))}
	} else {
		c.hand = 0
	}
	if old := c.now.Load(); old != nil {
		old.moveTo(a)
	}
	c.now.Store(a)
}

// moveTo leaves every cell unused, so that whoever has found one in here looks again.
func (a *array) moveTo(to *array) {
	for i := range a.list {
		h := &a.list[i]
		hash := h.key.Load()
		if hash == 0 {
			continue
		}
		h.mu.Lock()
		into := to.free(hash)
		into.state = h.state
		into.key.Store(hash)
		h.key.Store(0)
		h.mu.Unlock()
	}
}

// look returns the next cell in turn, with its lock held, and its place; nil if
// that is unused, or in use at this moment.
func (c *cells) look() (*cell, int) {
	a := c.now.Load()
	if a == nil {
		return nil, 0
	}
	c.hand = (c.hand + 1) & (len(a.list) - 1)
	if h := &a.list[c.hand]; h.key.Load() != 0 && h.mu.TryLock() {
		return h, c.hand
	}
	return nil, 0
}

// seen clamps now to the largest seen.
func (e *state) seen(at int64) int64 {
	e.last = max(e.last, at)
	return e.last
}

// full reports whether a bucket was full at the instant.
func (e *state) full(at int64) bool {
	return e.level.tat < at || e.level.tat == at && e.level.frac == 0
}

// rate returns the contract.
func (e *state) rate() Rate {
	r, err := compile(uint64(e.n), uint64(e.per), uint64(e.burst))
	if err != nil {
		panic("limit: unreachable: it is of a Rate")
	}
	return r
}

// is reports whether r is the contract.
func (e *state) is(r *Rate) bool { return e.n == r.n && e.per == r.per && e.burst == r.burst }

// under brings the bucket to another contract.
func (e *state) under(r *Rate, at int64) {
	if !e.is(r) {
		old := e.rate()
		r.Change(&e.level, time.Duration(at), &old)
		e.n, e.per, e.burst = r.n, r.per, r.burst
	}
}
