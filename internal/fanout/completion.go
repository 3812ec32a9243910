package fanout

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Completion is what became of a trigger, derived from the ledger.
type Completion struct {
	Trigger *journal.Trigger
	Fates   []Fate // by lane; to a tenant, its own
	Whole   bool   // false: the ledger does not hold all of it any more
}

// Fate is what became of one delivery. Kind is its newest record's, 0 while it has none: its first attempt has not
// ended, or has not begun.
type Fate struct {
	Subscription string
	Tenant       string
	journal.Record
}

// Settled reports whether it does not go on by itself.
func (d *Fate) Settled() bool {
	switch d.Kind {
	case journal.Delivered, journal.Dead, journal.Cancelled, journal.Dropped, journal.Purged:
		return true
	}
	return false
}

// Completion says what became of a trigger, by its id or its position in digits. To a tenant, where one is named, a
// trigger is not there that it may not see: that is known before the ledger is read. Errors: those of Resend.
func (f *Fanout) Completion(ctx context.Context, trigger, tenant string) (c Completion, err error) {
	p, known := f.position(trigger)
	if !known || p.Held() {
		return c, fmt.Errorf("%w: trigger %q", ErrNotFound, trigger)
	}
	if c.Trigger, err = f.journal.Load(ctx, p); err != nil {
		return c, err
	}
	named := c.Trigger.ID == trigger || trigger == fmt.Sprint(uint64(p))
	if !named || tenant != "" && !f.shown(c.Trigger, tenant) {
		return Completion{}, fmt.Errorf("%w: trigger %q", ErrNotFound, trigger)
	}
	if err := f.journal.WaitFlushed(ctx, f.journal.Record()); err != nil {
		return c, err
	}
	last, whole, err := f.journal.Completion(ctx, c.Trigger)
	if err != nil {
		return c, err
	}
	c.Whole = whole
	for _, l := range f.concerned(c.Trigger, last, tenant) {
		c.Fates = append(c.Fates, Fate{Subscription: l.subID, Tenant: l.tenant.name, Record: last[l.id]})
	}
	return c, nil
}

// concerned returns the lanes that a trigger is for, and those that it has records of, by number; to a tenant, its own.
// Everybody waits meanwhile: each lane is looked at once, and none of others for a tenant's sake.
func (f *Fanout) concerned(t *journal.Trigger, last map[engine.LaneID]journal.Record, tenant string) (lanes []*lane) {
	f.mu.Lock()
	if tn := f.index.tenants[tenant]; tn != nil { // which may see it
		for _, l := range tn.lanes {
			if _, recorded := last[l.id]; recorded || l.wants(t) { // resent, or its subscription has changed
				lanes = append(lanes, l)
			}
		}
	} else {
		f.index.match(t, func(l *lane) { lanes = append(lanes, l) })
		for id := range last {
			if l := f.index.lane(id); l != nil {
				lanes = append(lanes, l)
			}
		}
	}
	f.mu.Unlock()
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.id, b.id) })
	return slices.Compact(lanes)
}

// shown reports whether a tenant may see a trigger: one addressed to it, or a broadcast on a topic that it is granted.
func (f *Fanout) shown(t *journal.Trigger, tenant string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	tn := f.index.tenants[tenant]
	return slices.Contains(t.Audience.Tenants, tenant) || t.Audience.Broadcast && tn != nil && tn.granted(t)
}
