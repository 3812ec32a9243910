package fanout

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// PutTenant creates or edits a tenant, and returns when the change is durable and in force.
func (f *Fanout) PutTenant(ctx context.Context, t journal.Tenant) (journal.Tenant, error) {
	f.admin.Lock()
	defer f.admin.Unlock()
	if _, ok := f.opts.Tiers[t.Tier]; t.Tier != "" && !ok {
		return t, fmt.Errorf("%w: tier: %q does not exist", ErrInvalid, t.Tier)
	}
	stored, p, err := f.journal.Registry().PutTenant(ctx, t)
	if err != nil {
		return t, err
	}
	f.mu.Lock()
	err = f.applyTenant(stored)
	f.mu.Unlock()
	if err != nil {
		return t, err
	}
	return stored, f.awaitPosition(ctx, p)
}

// DeleteTenant removes a tenant without subscriptions; its id is never used again.
func (f *Fanout) DeleteTenant(ctx context.Context, id string) error {
	f.admin.Lock()
	defer f.admin.Unlock()
	t, ok := f.journal.Registry().Tenant(id)
	if !ok || t.Deleted {
		return fmt.Errorf("%w: tenant %q", ErrNotFound, id)
	}
	if n := f.liveLanes(id); n > 0 {
		return fmt.Errorf("%w: tenant %q has %d subscriptions; delete them first", ErrInUse, id, n)
	}
	t.Deleted = true
	stored, _, err := f.journal.Registry().PutTenant(ctx, t)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applyTenant(stored)
}

func (f *Fanout) liveLanes(tenant string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if tn := f.index.tenants[tenant]; tn != nil {
		return tn.live()
	}
	return 0
}

// PutSubscription creates (ID "") or edits a subscription, and returns when the change is durable
// and in force. Limits, pause and URL take effect at once, topics from a position on.
func (f *Fanout) PutSubscription(ctx context.Context, s journal.Subscription) (journal.Subscription, error) {
	f.admin.Lock()
	defer f.admin.Unlock()
	if err := f.checkSubscription(s); err != nil {
		return s, err
	}
	if s.ID != "" {
		if old, ok := f.journal.Registry().Subscription(s.ID); !ok || old.Deleted {
			return s, fmt.Errorf("%w: subscription %q", ErrNotFound, s.ID)
		}
	}
	stored, p, err := f.journal.Registry().PutSubscription(ctx, s)
	if err != nil {
		return s, err
	}
	f.mu.Lock()
	err = f.applySubscription(stored, false)
	f.pump(f.clock.now())
	f.mu.Unlock()
	if err != nil {
		return s, err
	}
	return stored, f.awaitPosition(ctx, p)
}

// CheckTenant returns what PutTenant would refuse of t, were these the tiers. It stores nothing.
func (f *Fanout) CheckTenant(t journal.Tenant, tiers map[string]Tier) error {
	if _, ok := tiers[t.Tier]; t.Tier != "" && !ok {
		return fmt.Errorf("%w: tier: %q does not exist", ErrInvalid, t.Tier)
	}
	return f.journal.Registry().CheckTenant(t)
}

// CheckSubscription returns what PutSubscription would refuse of s in a tenant of tier t, neither of which may exist
// yet, once it has b beside it. It stores nothing.
func (f *Fanout) CheckSubscription(s journal.Subscription, t Tier, b Beside) error {
	f.mu.Lock()
	in := &tenant{tier: t.complete()}
	if tn := f.index.tenants[s.Tenant]; tn != nil {
		b.Hosts += tn.hosts
	}
	var p engine.Profile
	err := f.checkBeside(&s, in.tier.Subscriptions, b)
	if err == nil {
		err = contract(&p, in, &s)
	}
	if err == nil {
		_, _, err = f.shape(&s)
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.journal.Registry().CheckSubscription(s)
}

// checkSubscription refuses what the engine would refuse, and one too many, before anything is stored.
func (f *Fanout) checkSubscription(s journal.Subscription) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	tn := f.index.tenants[s.Tenant]
	if tn == nil || tn.Deleted {
		return fmt.Errorf("%w: tenant: %q does not exist", ErrInvalid, s.Tenant)
	}
	b := Beside{Lane: len(f.index.members(&s)), Live: tn.live(), Ever: len(tn.lanes), Hosts: tn.hosts}
	if err := f.checkBeside(&s, tn.tier.Subscriptions, b); err != nil {
		return err
	}
	if _, err := f.profile(tn, s); err != nil {
		return err
	}
	_, _, err := f.shape(&s)
	return err
}

// DeleteSubscription cancels what waits and starts no further send. Deleting again is no error.
func (f *Fanout) DeleteSubscription(ctx context.Context, id string) error {
	f.admin.Lock()
	defer f.admin.Unlock()
	s, ok := f.journal.Registry().Subscription(id)
	if !ok {
		return fmt.Errorf("%w: subscription %q", ErrNotFound, id)
	}
	if s.Deleted {
		return nil
	}
	s.Deleted = true
	stored, p, err := f.journal.Registry().PutSubscription(ctx, s)
	if err != nil {
		return err
	}
	mark, err := f.cancelLane(stored, p)
	if err != nil {
		return err
	}
	return f.journal.WaitFlushed(ctx, mark)
}

func (f *Fanout) cancelLane(s journal.Subscription, p journal.Position) (journal.Mark, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.index.lanes[s.Lane]
	l.sub = s
	mark := f.write(journal.Record{
		Kind: journal.LaneCancelled, Reason: engine.Deleted, Partition: l.part, Lane: l.id, Position: p,
		N: uint32(l.backlog.len()), At: f.clock.wall(f.clock.now()),
	})
	err := f.removeLane(l)
	f.dirty = true
	f.pump(f.clock.now())
	return mark, err
}

// Pressure reports whether a tenant has more parked and dead than it may, or pins a log that is nearly full, and
// when a producer should try again: posts addressed to it are refused before they are stored.
func (f *Fanout) Pressure(tenant string) (retryIn time.Duration, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tn := f.index.tenants[tenant]
	if tn == nil || !f.overQuota(tn) && !tn.slowed {
		return 0, false
	}
	return f.drainTime(tn), true
}

// drainTime estimates how long the tenant's lanes need for a tenth of the quota, between 1 s and 5 min.
func (f *Fanout) drainTime(tn *tenant) time.Duration {
	var perSecond float64
	for _, l := range tn.lanes {
		if v, ok := f.engine.Lane(f.clock.now(), l.id); ok && !l.removed && v.MeanSlot > 0 {
			perSecond += float64(max(v.Cap, 1)) / v.MeanSlot.Seconds()
		}
	}
	if perSecond == 0 {
		return time.Minute
	}
	need := time.Duration(float64(tn.count) / 10 / perSecond * float64(time.Second))
	return min(max(need, time.Second), 5*time.Minute)
}
