package admit

import (
	"math"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// Local decides in this process, as the shared store does in Redis: all checks of a decision
// pass and are recorded, or none is. It is safe for concurrent use.
//
// It keeps at most a bound of counters, and forgetting never grants anything: only a counter that
// is unused (a full bucket, an empty window) is forgotten. When there is no room, newcomers to a
// policy share one counter of that policy and contract, until it is unused.
//
// now is the monotonic time since an origin; fixed windows are aligned to the origin, so whoever
// wants days of the wall clock hands in the Unix time at the start and goes on monotonically.
type Local struct {
	bound int

	mu       sync.Mutex
	last     time.Duration
	index    map[string]*counter
	all      []*counter // those of index
	hand     int        // the next of all to look at
	overflow map[overflow]*counter
	epoch    uint16 // none that was forgotten is later

	name  []byte // scratch
	found [MaxChecks]*counter
}

// counter is the state of one limit for one key: a bucket, or a window.
type counter struct {
	name   string
	spec   Spec
	rate   limit.Rate
	level  limit.Level
	base   uint16        // added to the level's epochs, so that a counter that was forgotten shares none
	window *limit.Window // nil: a bucket
	idleAt time.Duration // from then on it is unused, if nothing more is taken
}

// NewLocal returns an empty store of at most bound counters, 1 or more, and one more
// for each contract of each policy.
func NewLocal(bound int) *Local {
	if bound < 1 {
		panic("admit: the bound of a Local must be at least 1")
	}
	return &Local{bound: bound, index: map[string]*counter{}, overflow: map[overflow]*counter{}}
}

// Take decides and, if all checks pass, records. Checks that Validate refuses panic.
func (l *Local) Take(now time.Duration, checks []Check) Answer { return l.decide(now, checks, true) }

// Peek decides as Take would and records nothing.
func (l *Local) Peek(now time.Duration, checks []Check) Answer { return l.decide(now, checks, false) }

func (l *Local) decide(now time.Duration, checks []Check, take bool) Answer {
	out := Answer{Allowed: true, Checks: make([]limit.Decision, len(checks))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, now)
	for i := range checks {
		c := &checks[i]
		d := &out.Checks[i]
		d.Reason = limit.Paused
		if c.Spec.Limit > 0 {
			l.found[i] = l.counterLocked(c)
			*d = l.found[i].decide(l.last, c.Cost, false)
		}
		out.Allowed = out.Allowed && d.Allowed
	}
	for i := range checks {
		switch d := &out.Checks[i]; {
		case out.Allowed && take:
			*d = l.found[i].decide(l.last, checks[i].Cost, true)
		case d.Allowed && !out.Allowed:
			d.Remaining += checks[i].Cost
		}
	}
	return out
}

// Refund gives back what one Take recorded, as far as it still counts. a is that Take's answer.
// Call it at most once for it.
func (l *Local) Refund(now time.Duration, checks []Check, a Answer) {
	if !a.Allowed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, now)
	for i := range checks {
		c := &checks[i]
		if k := l.index[string(l.nameLocked(c))]; k != nil && k.spec == c.Spec {
			k.refund(l.last, c.Cost, a.Checks[i].Epoch)
		}
	}
}

// Len returns the number of counters.
func (l *Local) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *Local) nameLocked(c *Check) []byte {
	l.name = c.AppendKey(l.name[:0])
	return l.name
}

// counterLocked returns the counter that decides for c, under its Spec.
func (l *Local) counterLocked(c *Check) *counter {
	if k := l.index[string(l.nameLocked(c))]; k != nil {
		k.under(l.last, c.Spec)
		return k
	}
	if o := l.overflow[overflowOf(c)]; o != nil && o.idleAt > l.last {
		return o // a counter of its own now would forget what the newcomer may have used here
	}
	if len(l.all) < l.bound || l.makeRoomLocked() {
		return l.addLocked(c)
	}
	o := newCounter(c.Spec, l.epoch+1)
	l.overflow[overflowOf(c)] = o
	return o
}

// overflow names the counter that newcomers of a policy share: those under one contract, else
// one could live on what accrues for another.
type overflow struct {
	policy string
	spec   Spec
}

func overflowOf(c *Check) overflow { return overflow{c.Policy, c.Spec} }

func (l *Local) addLocked(c *Check) *counter {
	k := newCounter(c.Spec, l.epoch+1)
	k.name = string(l.name)
	l.index[k.name] = k
	l.all = append(l.all, k)
	l.sweepLocked() // each newcomer looks at one other, so what is unused goes
	return k
}

// makeRoomLocked looks at a few counters and reports whether there is room.
func (l *Local) makeRoomLocked() bool {
	for range 4 {
		l.sweepLocked()
	}
	return len(l.all) < l.bound
}

// sweepLocked looks at one counter, in turn, and forgets it if it is unused.
func (l *Local) sweepLocked() {
	if l.hand >= len(l.all) {
		l.hand = 0
	}
	if len(l.all) == 0 {
		return
	}
	k := l.all[l.hand]
	if k.idleAt > l.last {
		l.hand++
		return
	}
	if e := k.base + k.level.Epoch(); int16(e-l.epoch) > 0 {
		l.epoch = e
	}
	delete(l.index, k.name)
	end := len(l.all) - 1
	l.all[l.hand] = l.all[end]
	l.all[end] = nil
	l.all = l.all[:end]
}

func newCounter(s Spec, base uint16) *counter {
	k := &counter{spec: s, base: base, idleAt: math.MaxInt64}
	var err error
	switch s.Algorithm {
	case TokenBucket:
		k.rate, err = s.Rate()
	case FixedWindow:
		k.window, err = limit.NewFixed(s.Limit, s.Window)
	default:
		k.window, err = limit.NewSliding(s.Limit, s.Window, SlidingParts)
	}
	if err != nil {
		panic("admit: a check must be valid: " + err.Error())
	}
	return k
}

// under brings the counter to another Spec of its algorithm: what was used stays used.
func (k *counter) under(now time.Duration, s Spec) {
	if k.spec == s {
		return
	}
	k.spec = s
	var err error
	if k.window != nil {
		err = k.window.Set(now, s.Limit, s.Window)
	} else {
		old := k.rate
		if k.rate, err = s.Rate(); err == nil {
			k.rate.Change(&k.level, now, &old)
		}
	}
	if err != nil {
		panic("admit: a check must be valid: " + err.Error())
	}
}

func (k *counter) decide(now time.Duration, cost int64, take bool) (d limit.Decision) {
	switch {
	case k.window != nil && take:
		d = k.window.Take(now, cost)
	case k.window != nil:
		d = k.window.Peek(now, cost)
	case take:
		d = k.rate.Take(&k.level, now, cost)
	default:
		d = k.rate.Peek(&k.level, now, cost)
	}
	if d.Allowed && k.window == nil {
		d.Epoch += k.base
	}
	k.idleAt = now + d.ResetIn
	return d
}

func (k *counter) refund(now time.Duration, cost int64, epoch uint16) {
	if k.window != nil {
		k.window.Refund(now, cost, epoch)
	} else {
		k.rate.Refund(&k.level, now, cost, epoch-k.base)
	}
}
