package fanout

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Completion is what became of a trigger, derived from the ledger.
type Completion struct {
	Trigger *journal.Trigger
	Fates   []Fate // by lane
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
	f.mu.Lock()
	defer f.mu.Unlock()
	var lanes []*lane
	f.index.match(c.Trigger, func(l *lane) { lanes = append(lanes, l) })
	for id := range last {
		if l := f.index.lane(id); l != nil && !slices.Contains(lanes, l) { // resent, or its subscription has changed
			lanes = append(lanes, l)
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return int(a.id) - int(b.id) })
	for _, l := range lanes {
		c.Fates = append(c.Fates, Fate{Subscription: l.subID, Tenant: l.tenant.name, Record: last[l.id]})
	}
	return c, nil
}

// shown reports whether a tenant may see a trigger: one addressed to it, or a broadcast on a topic that it is granted.
func (f *Fanout) shown(t *journal.Trigger, tenant string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	tn := f.index.tenants[tenant]
	return slices.Contains(t.Audience.Tenants, tenant) || t.Audience.Broadcast && tn != nil && tn.granted(t)
}
