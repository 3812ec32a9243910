package admit

import (
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// Local counts in this process: the store of policies that are not shared, and
// the whole store where there is one process. Safe for concurrent use; a
// decision holds one lock, so that all of its limits are one step.
//
// Each policy has a table of its own of at most a bound of keys, so that no
// policy's callers push out another's. Only a key with nothing used is
// forgotten. When there is no room, newcomers of that policy share one counter
// under the strictest contract of those who use it; one that gets its own after
// that starts with no more than was left there.
//
// Instants are on one monotonic clock. One that goes back counts as the largest
// seen, so it neither grants nor stalls. Windows are aligned to its origin.
type Local struct {
	bound int

	mu     sync.Mutex
	now    time.Duration
	tables map[string]*table
	key    []byte // scratch
	found  []*counter
}

// DefaultKeys is the bound of a policy's keys where none is set.
const DefaultKeys = 100_000

// NewLocal returns an empty store of at most keys counters for each policy; 0 is
// DefaultKeys.
func NewLocal(keys int) *Local {
	if keys <= 0 {
		keys = DefaultKeys
	}
	return &Local{bound: keys, tables: map[string]*table{}}
}

// Decide takes the cost of every check, or of none. Checks are valid, each
// counter occurs once. No checks are allowed.
func (l *Local) Decide(now time.Duration, checks []Check) Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.peekLocked(now, checks)
	if a.Allowed {
		for i := range checks {
			a.Checks[i] = l.found[i].take(l.now, checks[i].Cost)
		}
	}
	return a
}

// Peek decides as Decide would and takes nothing.
func (l *Local) Peek(now time.Duration, checks []Check) Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peekLocked(now, checks)
}

// peekLocked decides and leaves the checks' counters in found; nil for a paused
// limit, which needs none.
func (l *Local) peekLocked(now time.Duration, checks []Check) Answer {
	l.now = max(l.now, now)
	a := Answer{Allowed: true, Checks: make([]limit.Decision, len(checks))}
	l.findLocked(checks)
	for i, c := range l.found {
		a.Checks[i] = limit.Decision{Reason: limit.Paused}
		if c != nil {
			a.Checks[i] = c.peek(l.now, checks[i].Cost)
		}
		a.Allowed = a.Allowed && a.Checks[i].Allowed
	}
	for i := range a.Checks {
		if d := &a.Checks[i]; d.Allowed && !a.Allowed {
			d.Remaining += checks[i].Cost // nothing is taken
		}
	}
	return a
}

// findLocked puts the checks' counters into found. None of them is forgotten
// before all are found.
func (l *Local) findLocked(checks []Check) {
	l.found = l.found[:0]
	for i := range checks {
		var c *counter
		if checks[i].Spec.Limit > 0 {
			c = l.counterLocked(&checks[i])
			c.busy = true
		}
		l.found = append(l.found, c)
	}
	for _, c := range l.found {
		if c != nil {
			c.busy = false
		}
	}
}

// Refund gives back what Decide took for the checks, where that can still be
// given back (see limit.Level). Call it at most once, with its answer.
func (l *Local) Refund(now time.Duration, checks []Check, a Answer) {
	if !a.Allowed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = max(l.now, now)
	l.findLocked(checks)
	for i, c := range l.found {
		if c != nil {
			c.refund(l.now, checks[i].Cost, a.Checks[i].Epoch)
		}
	}
}

// Keep forgets the counters of all policies but the named ones.
func (l *Local) Keep(policies func(name string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.tables {
		if !policies(name) {
			delete(l.tables, name)
		}
	}
}

// Len returns the number of counters of a policy.
func (l *Local) Len(policy string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tables[policy]; t != nil {
		return len(t.held)
	}
	return 0
}

// counterLocked returns the counter of a check under the check's contract.
func (l *Local) counterLocked(c *Check) *counter {
	t := l.tables[c.Policy]
	if t == nil {
		t = &table{bound: l.bound, index: map[string]*counter{}}
		l.tables[c.Policy] = t
	}
	l.key = c.AppendKey(l.key[:0])
	return t.counter(l.now, l.key, c.Spec)
}
