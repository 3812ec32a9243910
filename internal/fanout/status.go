package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
)

// Lanes lists every lane that was not removed, by number.
func (f *Fanout) Lanes() []LaneStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]LaneStatus, 0, len(f.index.lanes))
	now := f.clock.now()
	f.eachLane(now, func(l *lane, v engine.LaneView) {
		if !l.removed {
			out = append(out, f.laneStatus(now, l, v))
		}
	})
	return out
}

// LanesOf is Lanes of one tenant, at the cost of its own alone.
func (f *Fanout) LanesOf(tenant string) []LaneStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, now := []LaneStatus{}, f.clock.now()
	f.eachLaneOf(f.index.tenants[tenant], func(l *lane, v engine.LaneView) {
		if !l.removed {
			out = append(out, f.laneStatus(now, l, v))
		}
	})
	slices.SortFunc(out, func(a, b LaneStatus) int { return cmp.Compare(a.Lane, b.Lane) })
	return out
}

// eachLaneOf visits every lane of a tenant, which may be nil, removed ones included.
func (f *Fanout) eachLaneOf(tn *tenant, visit func(*lane, engine.LaneView)) {
	if tn == nil {
		return
	}
	now := f.clock.now()
	for _, l := range tn.lanes {
		if v, ok := f.engine.Lane(now, l.id); ok {
			visit(l, v)
		}
	}
}

// eachLane visits every lane by number, removed ones included: their account goes on.
func (f *Fanout) eachLane(now time.Duration, visit func(*lane, engine.LaneView)) {
	for _, l := range f.index.lanes {
		if l == nil {
			continue
		}
		if v, ok := f.engine.Lane(now, l.id); ok {
			visit(l, v)
		}
	}
}

// Lane returns the lane of one subscription.
func (f *Fanout) Lane(subscription string) (LaneStatus, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.index.bySub[subscription]
	if l == nil {
		return LaneStatus{}, false
	}
	now := f.clock.now()
	v, ok := f.engine.Lane(now, l.id)
	return f.laneStatus(now, l, v), ok
}

func (f *Fanout) laneStatus(now time.Duration, l *lane, v engine.LaneView) LaneStatus {
	s := LaneStatus{LaneView: v, Now: now, Subscription: l.sub.ID, TenantID: l.sub.Tenant, Stopped: l.backlog.stoppedQueues()}
	if l.backlog.ordered != nil && v.Blocked == engine.None && v.Counters.Parked > 0 && v.Waiting.Count == 0 {
		s.Blocked = engine.ByOrder
	}
	if int(v.Host) < len(f.index.names) {
		s.HostName = f.index.names[v.Host]
	}
	s.Rate, s.Burst = l.rate.String(), l.rate.Burst()
	return s
}

// TenantOf is the account of one tenant, as Tenants has it, at the cost of its own lanes alone.
func (f *Fanout) TenantOf(id string) (s TenantStatus, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tn := f.index.tenants[id]
	if tn == nil {
		return s, false
	}
	s.TenantView, ok = f.engine.Tenant(tn.id)
	s.TenantID, s.Bytes, s.Quota, s.Lanes = id, int64(tn.bytes), tn.tier.Backlog, len(tn.lanes)
	f.eachLaneOf(tn, func(_ *lane, v engine.LaneView) { s.Counters = s.Counters.Plus(v.Counters) })
	return s, ok
}

// Tenants lists the account of every tenant, removed lanes included.
func (f *Fanout) Tenants() []TenantStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	byID := make(map[engine.TenantID]*TenantStatus, len(f.index.tenants))
	out := make([]TenantStatus, 0, len(f.index.tenants))
	f.engine.Tenants(func(v engine.TenantView) { out = append(out, TenantStatus{TenantView: v}) })
	for i := range out {
		byID[out[i].Tenant] = &out[i]
	}
	for id, tn := range f.index.tenants {
		if s := byID[tn.id]; s != nil {
			s.TenantID, s.Bytes, s.Quota, s.Lanes = id, int64(tn.bytes), tn.tier.Backlog, len(tn.lanes)
		}
	}
	f.eachLane(f.clock.now(), func(_ *lane, v engine.LaneView) {
		if s := byID[v.Tenant]; s != nil {
			s.Counters = s.Counters.Plus(v.Counters)
		}
	})
	return out
}

// Stats is the platform at this instant.
func (f *Fanout) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.now()
	s := Stats{Stats: f.engine.Stats(now), Waiting: f.waiting, Dead: f.dead, Cursor: f.cursor}
	f.eachLane(now, func(l *lane, v engine.LaneView) {
		if l.removed {
			return
		}
		s.Lanes++
		if v.Cap > 0 && float64(v.Counters.InFlight) > 0.8*float64(v.Cap) {
			s.Saturated++
		}
		s.OldestEligible = max(s.OldestEligible, eligibleFor(now, v))
		s.Near += l.near
		if v.Breaker != breaker.Closed {
			s.Open++
		}
		if v.Disabled {
			s.Disabled++
		}
	})
	s.Ends, s.RejectionGap, s.LeastServed = f.ends.list(), f.ends.gap(&s.Stats), f.leastServed()
	return s
}

// eligibleFor is how long the head of a lane has waited for nothing but its turn.
func eligibleFor(now time.Duration, v engine.LaneView) time.Duration {
	if v.Waiting.Count == 0 || v.Waiting.HeadDue > now {
		return 0
	}
	switch v.Blocked {
	case engine.None, engine.BySlots: // a host's limit protects the host: it is no fault of ours
		return now - v.Waiting.HeadDue
	}
	return 0
}
