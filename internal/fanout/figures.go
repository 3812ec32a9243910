package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/topic"
)

// LaneFigures is what metrics and events look at of a lane, every few seconds.
type LaneFigures struct {
	engine.LaneView
	Subscription string
	TenantID     string
	Why          string        // disabled: "gone"; else ""
	NextProbe    time.Time     // while the breaker is open
	Denied       uint64        // fresh deliveries that were not sent at once, since the process started
	Eligible     time.Duration // age of the oldest delivery that waits for nothing but its turn
	Reports      bool          // it takes events of the service itself
	Near         int           // waiting in the last tenth of the horizon, as of the last LookNear
}

// Figures returns every lane that was not removed, and the account of all lanes, removed ones included, at one
// instant.
func (f *Fanout) Figures() (all []LaneFigures, total engine.Counters) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.now()
	all = make([]LaneFigures, 0, len(f.index.lanes))
	f.eachLane(now, func(l *lane, v engine.LaneView) {
		if !l.removed {
			all = append(all, LaneFigures{
				LaneView: v, Subscription: l.subID, TenantID: l.tenant.name, Why: l.sub.Disabled,
				Denied: l.denied, Eligible: eligibleFor(now, v), Near: l.near, Reports: l.reports(), NextProbe: f.clock.wall(v.Probe).UTC(),
			})
		}
	})
	return all, f.engine.Stats(now).Counters
}

// reports tells whether the lane takes events of the service itself, by its newest topics.
func (l *lane) reports() bool {
	n := len(l.sub.Versions)
	return n > 0 && slices.ContainsFunc(l.sub.Versions[n-1].Topics, topic.Own)
}

// LookNear counts, for every lane, what waits in the last tenth of the horizon.
func (f *Fanout) LookNear() error {
	f.mu.Lock()
	old := f.horizon() - f.horizon()/10
	f.mu.Unlock()
	before, err := f.journal.PositionAt(f.ctx, f.clock.wall(f.clock.now()-old))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	parked := f.clock.ms(f.clock.now() - old)
	for _, l := range f.index.lanes {
		if l != nil {
			l.near = 0
			l.backlog.each(func(r ref) {
				if l.old(r, before, parked) {
					l.near += r.count()
				}
			})
		}
	}
	return nil
}

// old reports whether a waiting delivery was accepted before a position, or, when that does not tell, lives or
// waits since before an anchored millisecond.
func (l *lane) old(r ref, before journal.Position, parked int64) bool {
	if p, again := l.past[r.pos()]; again {
		return p.Revived < parked
	}
	return r.pos() < before || r.pos().Held() && !r.due() && r.stamp() < parked
}

// leastServed is the least served/entitled of the last round, 1 when nobody is entitled; the caller holds the lock.
func (f *Fanout) leastServed() float64 {
	least := 1.0
	f.engine.Tenants(func(v engine.TenantView) {
		if !math.IsNaN(v.Served) {
			least = min(least, v.Served)
		}
	})
	return least
}
