package admit

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// Local decides in this process, as the shared store does in Redis: all checks of a decision
// pass and are recorded, or none is. It is safe for concurrent use.
//
// It keeps at most a bound of counters of each policy, so that no flood of keys under one (of
// addresses, say) takes the room of another. Forgetting never grants anything: only a counter that
// is unused (a full bucket, an empty window) is forgotten. When a policy has no room, its newcomers
// share one counter for each contract, until that is unused.
//
// now is the monotonic time since an origin; fixed windows are aligned to the origin, so whoever
// wants days of the wall clock hands in the Unix time at the start and goes on monotonically.
type Local struct {
	bound int

	mu       sync.Mutex
	last     time.Duration
	policies []*counters
	turn     int    // the next of policies to look at
	epoch    uint16 // none that was forgotten is later

	name  []byte // scratch
	found [MaxChecks]*counter
}

// counters are those of one policy.
type counters struct {
	policy string
	index  map[string]*counter
	all    []*counter // those of index
	hand   int        // the next of all to look at
	shared map[Spec]*counter
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

// NewLocal returns an empty store of at most bound counters of each policy, 1 or more, and one more
// for each of its contracts.
func NewLocal(bound int) *Local {
	if bound < 1 {
		panic("admit: the bound of a Local must be at least 1")
	}
	return &Local{bound: bound}
}

// Take decides and, if all checks pass, records. Checks that Validate refuses panic.
func (l *Local) Take(now time.Duration, checks []Check) (a Answer) {
	l.TakeInto(&a, now, checks)
	return a
}

// TakeInto is Take that uses the memory of an earlier answer.
func (l *Local) TakeInto(a *Answer, now time.Duration, checks []Check) {
	l.decide(a, now, checks, true)
}

// Peek decides as Take would and records nothing.
func (l *Local) Peek(now time.Duration, checks []Check) (a Answer) {
	l.decide(&a, now, checks, false)
	return a
}

func (l *Local) decide(out *Answer, now time.Duration, checks []Check, take bool) {
	*out = Answer{Allowed: true, Checks: slices.Grow(out.Checks[:0], len(checks))[:len(checks)]}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, now)
	for i := range checks {
		c := &checks[i]
		d := &out.Checks[i]
		*d = limit.Decision{Reason: limit.Paused}
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
		p := l.policyLocked(c.Policy)
		if p == nil {
			continue
		}
		if k := p.index[string(l.nameLocked(c))]; k != nil && k.spec == c.Spec {
			k.refund(l.last, c.Cost, a.Checks[i].Epoch)
		}
	}
}

// Len returns the number of counters, those that newcomers share left out.
func (l *Local) Len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.policies {
		n += len(p.all)
	}
	return n
}

// policyLocked returns a policy's counters, nil if it has none. Policies are few.
func (l *Local) policyLocked(name string) *counters {
	for _, p := range l.policies {
		if p.policy == name {
			return p
		}
	}
	return nil
}

func (l *Local) nameLocked(c *Check) []byte {
	l.name = c.appendKey(append(l.name[:0], c.Spec.Algorithm.String()[0]))
	return l.name
}

// counterLocked returns the counter that decides for c, under its Spec.
func (l *Local) counterLocked(c *Check) *counter {
	p := l.policyLocked(c.Policy)
	if p == nil {
		p = &counters{policy: c.Policy, index: map[string]*counter{}, shared: map[Spec]*counter{}}
		l.policies = append(l.policies, p)
	}
	if k := p.index[string(l.nameLocked(c))]; k != nil {
		k.under(l.last, c.Spec)
		return k
	}
	if o := p.shared[c.Spec]; o != nil {
		if o.idleAt > l.last {
			return o // a counter of its own now would forget what the newcomer may have used here
		}
		l.pastLocked(o)
	}
	if len(p.all) < l.bound || l.makeRoomLocked(p) {
		return l.addLocked(p, c.Spec)
	}
	o := newCounter(c.Spec, l.epoch+1)
	p.shared[c.Spec] = o // of one contract, else one could live on what accrues for another
	return o
}

// addLocked adds the counter of l.name. Each newcomer looks at one other of its policy and at one
// of another, so what is unused goes, also of a policy that is no more.
func (l *Local) addLocked(p *counters, s Spec) *counter {
	k := newCounter(s, l.epoch+1)
	k.name = string(l.name)
	p.index[k.name] = k
	p.all = append(p.all, k)
	l.sweepLocked(p)
	l.turn = (l.turn + 1) % len(l.policies)
	l.sweepLocked(l.policies[l.turn])
	if len(l.policies[l.turn].all) == 0 {
		l.dropLocked(l.turn)
	}
	return k
}

// dropLocked forgets a policy that has no counters, if what newcomers shared is unused too.
func (l *Local) dropLocked(i int) {
	for _, o := range l.policies[i].shared {
		if o.idleAt > l.last {
			return
		}
	}
	for _, o := range l.policies[i].shared {
		l.pastLocked(o)
	}
	l.policies = slices.Delete(l.policies, i, i+1)
}

// makeRoomLocked looks at a few counters and reports whether there is room.
func (l *Local) makeRoomLocked(p *counters) bool {
	for range 4 {
		l.sweepLocked(p)
	}
	return len(p.all) < l.bound
}

// sweepLocked looks at one counter, in turn, and forgets it if it is unused.
func (l *Local) sweepLocked(p *counters) {
	if p.hand >= len(p.all) {
		p.hand = 0
	}
	if len(p.all) == 0 {
		return
	}
	k := p.all[p.hand]
	if k.idleAt > l.last {
		p.hand++
		return
	}
	l.pastLocked(k)
	delete(p.index, k.name)
	end := len(p.all) - 1
	p.all[p.hand] = p.all[end]
	p.all[end] = nil
	p.all = p.all[:end]
}

// pastLocked notes the epoch of a counter, which wraps around: what comes after has later ones.
func (l *Local) pastLocked(k *counter) {
	if e := k.base + k.level.Epoch(); int16(e-l.epoch) > 0 {
		l.epoch = e
	}
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
