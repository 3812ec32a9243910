package server

import (
	"context"
	"fmt"
	"maps"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// tierKeeper changes tiers; *Running is one. Its callers hold the lock of all changes (Server.alone).
type tierKeeper interface {
	configured(name string) bool // reports whether the configuration has the tier: it is changed there
	checkTiers(map[string]fanout.Tier) error
	putTier(context.Context, fanout.Tier) error // returns when it is durable and in force
	dropTier(ctx context.Context, name string) error
}

// allTiers are the configuration's, and of those that the API made the ones that it does not name.
func (r *Running) allTiers(configured map[string]fanout.Tier) map[string]fanout.Tier {
	all := maps.Clone(configured)
	for _, t := range r.journal.Tiers() {
		if _, named := all[t.Name]; !named {
			all[t.Name] = tierOf(t)
		}
	}
	return all
}

func (r *Running) configured(name string) bool {
	r.reload.Lock()
	defer r.reload.Unlock()
	_, ok := r.config.Tiers[name]
	return ok
}

// checkTiers returns what the service would refuse of tiers in place of all there are.
func (r *Running) checkTiers(all map[string]fanout.Tier) error {
	r.reload.Lock()
	defer r.reload.Unlock()
	_, err := r.checked(all)
	return err
}

func (r *Running) checked(all map[string]fanout.Tier) (*admit.Gate, error) {
	gate, err := gateOf(all)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fanout.ErrInvalid, err)
	}
	return gate, r.fanout.CheckSettings(r.config.settings(all))
}

// settings are what the fan-out takes on while it runs, with these tiers.
func (c *Config) settings(all map[string]fanout.Tier) fanout.Settings {
	return fanout.Settings{Slots: c.Engine.Slots, Profile: c.Profile, Tiers: all, KeepDead: c.KeepDead, Envelopes: c.Envelopes}
}

func (r *Running) putTier(ctx context.Context, t fanout.Tier) error {
	r.reload.Lock()
	defer r.reload.Unlock()
	all := r.allTiers(r.config.Tiers)
	all[t.Name] = t
	return r.retier(all, func() error { return r.journal.PutTier(ctx, storedTier(t)) })
}

func (r *Running) dropTier(ctx context.Context, name string) error {
	r.reload.Lock()
	defer r.reload.Unlock()
	all := r.allTiers(r.config.Tiers)
	delete(all, name)
	return r.retier(all, func() error { return r.journal.DeleteTier(ctx, name) })
}

// retier checks, stores, and then puts into force; no bucket is refilled.
func (r *Running) retier(all map[string]fanout.Tier, store func() error) error {
	gate, err := r.checked(all)
	if err != nil {
		return err
	}
	if err := store(); err != nil {
		return err
	}
	if err := r.fanout.Reconfigure(r.config.settings(all)); err != nil {
		return err
	}
	r.server.setTiers(all, gate)
	return nil
}

func tierOf(t journal.Tier) fanout.Tier {
	return fanout.Tier{
		Name: t.Name, Weight: t.Weight, Rate: t.Rate, Burst: t.Burst, Cap: t.Cap, Backlog: t.Backlog, Subscriptions: t.Subscriptions,
		CapAuto: fanout.CapAuto(t.CapAuto), Inbound: fanout.Inbound(t.Inbound),
	}
}

func storedTier(t fanout.Tier) journal.Tier {
	return journal.Tier{
		Name: t.Name, Weight: t.Weight, Rate: t.Rate, Burst: t.Burst, Cap: t.Cap, Backlog: t.Backlog, Subscriptions: t.Subscriptions,
		CapAuto: journal.CapAuto(t.CapAuto), Inbound: journal.Inbound(t.Inbound),
	}
}
