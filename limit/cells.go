package limit

// cells is a hash table of buckets: open addressing, linear probing, backward
// shift on removal (Knuth, 6.4, algorithm R). A cell is a cache line, and holds
// all that a decision needs.
type cells struct {
	list []cell // a power of two, or empty; at most three quarters used
	n    int    // used
	hand int    // the next that is looked at
}

type cell struct {
	hash  uint64 // of the key; 0: unused
	level Level
	rate  Rate // neither unlimited nor paused
}

const minCells = 8

func (c *cells) home(hash uint64) int { return int(hash>>8) & (len(c.list) - 1) }

func (c *cells) find(hash uint64) *cell {
	if c.n == 0 {
		return nil
	}
	mask := len(c.list) - 1
	for i := c.home(hash); c.list[i].hash != 0; i = (i + 1) & mask {
		if c.list[i].hash == hash {
			return &c.list[i]
		}
	}
	return nil
}

// add puts in what is not there. The pointer holds until cells change.
func (c *cells) add(h cell) *cell {
	if 4*(c.n+1) > 3*len(c.list) {
		c.resize(max(minCells, 2*len(c.list)))
	}
	mask, i := len(c.list)-1, c.home(h.hash)
	for c.list[i].hash != 0 {
		i = (i + 1) & mask
	}
	c.list[i] = h
	c.n++
	return &c.list[i]
}

// remove empties cell i and moves what is behind it closer to its home.
func (c *cells) remove(i int) {
	mask := len(c.list) - 1
	for j := (i + 1) & mask; c.list[j].hash != 0; j = (j + 1) & mask {
		if (j-c.home(c.list[j].hash))&mask >= (j-i)&mask {
			c.list[i] = c.list[j]
			i = j
		}
	}
	c.list[i] = cell{}
	c.n--
	if 8*c.n < len(c.list) {
		c.resize(len(c.list) / 2)
	}
}

// resize makes room for more, or for fewer. Doubling and halving are rare: a
// step costs O(1) over all.
func (c *cells) resize(size int) {
	if c.n == 0 && size < minCells {
		*c = cells{}
		return
	}
	old := c.list
	*c = cells{list: make([]cell, max(size, minCells))}
	for _, h := range old {
		if h.hash != 0 {
			c.add(h)
		}
	}
}

// look returns the next cell in turn that is used, if it is, and its place.
func (c *cells) look() (*cell, int) {
	if len(c.list) == 0 {
		return nil, 0
	}
	c.hand = (c.hand + 1) & (len(c.list) - 1)
	if h := &c.list[c.hand]; h.hash != 0 {
		return h, c.hand
	}
	return nil, 0
}

// full reports whether a bucket was full at the instant.
func (h *cell) full(at int64) bool {
	return h.level.tat < at || h.level.tat == at && h.level.frac == 0
}
