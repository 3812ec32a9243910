package admit

import (
	"math/bits"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// table holds the counters of one policy.
type table struct {
	bound    int
	index    map[string]*counter
	held     []*counter
	hand     int                        // the next to look at
	overflow [SlidingWindow + 1]counter // of those who have none of their own
	epochs   uint16                     // those of counters that were forgotten are before it
}

// looks is how many counters a newcomer looks at when there is no room.
const looks = 8

func (t *table) counter(now time.Duration, key []byte, s Spec) *counter {
	t.sweep(now)
	if c := t.index[string(key)]; c != nil {
		c.under(now, s)
		return c
	}
	for i := 0; len(t.held) >= t.bound && i < looks; i++ {
		t.sweep(now)
	}
	if len(t.held) < t.bound {
		return t.add(now, string(key), s)
	}
	o := &t.overflow[s.Algorithm]
	if o.idle(now) {
		o.begin(now, s, o.epoch()+1)
	} else {
		o.under(now, lower(o.spec, s))
	}
	return o
}

func (t *table) add(now time.Duration, key string, s Spec) *counter {
	c := &counter{key: key}
	c.begin(now, s, t.epochs)
	if o := &t.overflow[s.Algorithm]; !o.idle(now) {
		c.useAsMuch(now, o)
	}
	t.index[key] = c
	t.held = append(t.held, c)
	return c
}

// sweep looks at one counter, in turn, and forgets it if nothing of it is used.
func (t *table) sweep(now time.Duration) {
	if t.hand >= len(t.held) {
		t.hand = 0
		if len(t.held) == 0 {
			return
		}
	}
	c := t.held[t.hand]
	if c.busy || !c.idle(now) {
		t.hand++
		return
	}
	if e := c.epoch() + 1; int16(e-t.epochs) > 0 {
		t.epochs = e
	}
	delete(t.index, c.key)
	last := len(t.held) - 1
	t.held[t.hand] = t.held[last]
	t.held[last] = nil
	t.held = t.held[:last]
	if last == 0 {
		t.held, t.index = nil, map[string]*counter{} // neither shrinks by itself
	}
}

// counter is the state of one limit of one key; never of a paused one.
type counter struct {
	key    string
	busy   bool   // found by the decision in progress
	offset uint16 // of its epochs, so that a late refund finds no other's
	spec   Spec
	rate   limit.Rate    // TokenBucket
	level  limit.Level   // TokenBucket
	window *limit.Window // the others
}

// begin makes it one of which nothing is used. A Spec is valid here.
func (c *counter) begin(now time.Duration, s Spec, offset uint16) {
	*c = counter{key: c.key, busy: c.busy, offset: offset, spec: s}
	switch s.Algorithm {
	case TokenBucket:
		c.rate = compiled(s)
	case FixedWindow:
		c.window = must(limit.NewFixed(s.Limit, s.Window))
	case SlidingWindow:
		c.window = must(limit.NewSliding(s.Limit, s.Window, SlidingParts))
	}
	if c.window != nil {
		c.offset = 0 // epochs of windows are instants
		c.window.Left(now)
	}
}

func compiled(s Spec) limit.Rate { return must(s.Rate()) }

func must[T any](v T, err error) T {
	if err != nil {
		panic("admit: a Check must be valid: " + err.Error())
	}
	return v
}

// under goes on under another contract of the same algorithm; what was used
// stays used.
func (c *counter) under(now time.Duration, s Spec) {
	if c.spec == s {
		return
	}
	c.spec = s
	if c.window != nil {
		if err := c.window.Set(now, s.Limit, s.Window); err != nil {
			panic("admit: a Check must be valid: " + err.Error())
		}
		return
	}
	r := compiled(s)
	r.Change(&c.level, now, &c.rate)
	c.rate = r
}

// idle reports whether nothing is used, also of one that never began.
func (c *counter) idle(now time.Duration) bool {
	if c.window != nil {
		return c.window.Left(now) == c.spec.Limit
	}
	return c.rate.Left(&c.level, now) == c.rate.Burst()
}

// useAsMuch leaves no more than is left of the other.
func (c *counter) useAsMuch(now time.Duration, other *counter) {
	if c.window == nil {
		c.rate.SetLeft(&c.level, now, other.rate.Left(&other.level, now))
		return
	}
	used := other.spec.Limit - other.window.Left(now)
	c.window.Take(now, min(used, c.spec.Limit))
}

func (c *counter) peek(now time.Duration, cost int64) limit.Decision {
	if c.window != nil {
		return c.own(c.window.Peek(now, cost))
	}
	return c.own(c.rate.Peek(&c.level, now, cost))
}

func (c *counter) take(now time.Duration, cost int64) limit.Decision {
	if c.window != nil {
		return c.own(c.window.Take(now, cost))
	}
	return c.own(c.rate.Take(&c.level, now, cost))
}

func (c *counter) refund(now time.Duration, cost int64, epoch uint16) {
	if c.window != nil {
		c.window.Refund(now, cost, epoch-c.offset)
		return
	}
	c.rate.Refund(&c.level, now, cost, epoch-c.offset)
}

func (c *counter) own(d limit.Decision) limit.Decision {
	d.Epoch += c.offset
	return d
}

func (c *counter) epoch() uint16 { return c.level.Epoch() + c.offset }

// lower returns the lower rate of two contracts of one algorithm, with the lower
// burst.
func lower(a, b Spec) Spec {
	slow, other := a, b
	aHi, aLo := bits.Mul64(uint64(a.Limit), uint64(b.Window))
	bHi, bLo := bits.Mul64(uint64(b.Limit), uint64(a.Window))
	if bHi < aHi || bHi == aHi && bLo < aLo {
		slow, other = b, a
	}
	slow.Burst = min(slow.Burst, other.Burst)
	if slow.Algorithm != TokenBucket && slow.Window == other.Window {
		slow.Limit = min(slow.Limit, other.Limit)
	}
	return slow
}
