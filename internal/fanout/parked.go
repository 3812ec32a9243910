package fanout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Parked is one delivery that waits by our decision, and comes back by itself.
type Parked struct {
	Position journal.Position // its name now: of what was moved to HELD, not its trigger's
	Attempt  uint32           // attempts made
	Reason   engine.Reason    // why it was parked
	At       time.Time        // when it is due if Due, else since when it waits
	Due      bool             // it has a time of its own
}

// ParkedOf lists what waits on a subscription's lane by position, above after, at most limit; pass chooses by
// reason. What is in HELD is older than the rest, and comes behind it. Error: ErrNotFound.
func (f *Fanout) ParkedOf(subscription string, after journal.Position, limit int, pass func(engine.Reason) bool) ([]Parked, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.index.bySub[subscription]
	if l == nil || l.removed {
		return nil, fmt.Errorf("%w: subscription %q", ErrNotFound, subscription)
	}
	var lowest []Parked
	var passes [64]bool // by reason: a reference has 6 bits of it
	for r := range passes {
		passes[r] = pass(engine.Reason(r))
	}
	highest := journal.Position(math.MaxUint64) // of the page, once it is full: a million may wait, under the lock
	l.backlog.each(func(r ref) {
		if !passes[r.reason()] || r.pos() >= highest {
			return
		}
		for i := range min(r.count(), limit+int(after-min(after, r.pos()))) {
			if p := r.pos() + journal.Position(i); p > after {
				lowest = append(lowest, Parked{p, r.attempt(), r.reason(), time.UnixMilli(r.stamp()).UTC(), r.due()})
			}
		}
		if len(lowest) >= 4*limit {
			lowest = lowestOf(lowest, limit)
			highest = lowest[limit-1].Position
		}
	})
	return lowestOf(lowest, limit), nil
}

// lowestOf keeps the n with the lowest positions, in order.
func lowestOf(all []Parked, n int) []Parked {
	slices.SortFunc(all, func(a, b Parked) int { return cmp.Compare(a.Position, b.Position) })
	return all[:min(n, len(all))]
}
