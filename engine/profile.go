package engine

import (
	"encoding/binary"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
)

const (
	defaultHorizon = 72 * time.Hour
	defaultTimeout = 15 * time.Second
)

// profile is an interned Profile without its cap, which the lane holds itself:
// caps are many, the rest is a tier's.
type profile struct {
	Profile
	burst int64 // the limit as tenants see it; -1: no rate
	lanes int   // that use it; 0: free
	key   profileKey
}

// profileKey is a Profile as a comparable value.
type profileKey struct {
	rate        limit.Rate
	breaker     breaker.Config
	budget      retry.Budget
	quick       int
	quickBase   time.Duration
	jitter      float64
	spread      retry.Jitter
	slow        string
	horizon     time.Duration
	timeout     time.Duration
	maxAttempts uint32
	group       GroupID
	noBudget    bool
	drop        bool
}

// profiles interns: equal profiles are stored once.
type profiles struct {
	all   []*profile
	free  []uint32
	index map[profileKey]uint32
}

func (p *profiles) at(i uint32) *profile { return p.all[i] }

// hold returns the index of a profile equal to q and counts one lane more on it.
func (p *profiles) hold(q Profile) uint32 {
	q = filled(q)
	key := keyOf(&q)
	i, ok := p.index[key]
	if !ok {
		i = p.place(&profile{Profile: q, burst: visibleLimit(&q.Rate), key: key})
	}
	p.all[i].lanes++
	return i
}

func (p *profiles) place(q *profile) uint32 {
	if p.index == nil {
		p.index = make(map[profileKey]uint32)
	}
	i := uint32(len(p.all))
	if n := len(p.free); n > 0 {
		i, p.free = p.free[n-1], p.free[:n-1]
		p.all[i] = q
	} else {
		p.all = append(p.all, q)
	}
	p.index[q.key] = i
	return i
}

// release counts one lane less; the last one frees the place.
func (p *profiles) release(i uint32) {
	q := p.all[i]
	q.lanes--
	if q.lanes > 0 {
		return
	}
	delete(p.index, q.key)
	p.free = append(p.free, i)
}

// filled resolves what the engine itself reads; the rest has its zero value's
// meaning in its own package.
func filled(q Profile) Profile {
	q.Cap = 0
	if q.Horizon <= 0 {
		q.Horizon = defaultHorizon
	}
	if q.Timeout <= 0 {
		q.Timeout = defaultTimeout
	}
	if q.Breaker.ProbeExpiry <= 0 {
		q.Breaker.ProbeExpiry = q.Timeout
	}
	return q
}

func keyOf(q *Profile) profileKey {
	var slow []byte
	for _, d := range q.Schedule.Slow {
		slow = binary.LittleEndian.AppendUint64(slow, uint64(d))
	}
	return profileKey{
		rate: q.Rate, breaker: q.Breaker, budget: q.Budget,
		quick: q.Schedule.QuickAttempts, quickBase: q.Schedule.QuickBase,
		jitter: q.Schedule.SlowJitter, spread: q.Schedule.Jitter, slow: string(slow),
		horizon: q.Horizon, timeout: q.Timeout, maxAttempts: q.MaxAttempts, group: q.Group,
		noBudget: q.NoBudget, drop: q.Drop,
	}
}

// visibleLimit is the burst, the most that Remaining can be.
func visibleLimit(r *limit.Rate) int64 {
	if r.IsUnlimited() {
		return -1
	}
	return r.Burst()
}
