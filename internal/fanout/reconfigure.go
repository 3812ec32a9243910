package fanout

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/envelope"
)

// Settings are what can change while a Fanout runs. Their zero values are those of Options.
type Settings struct {
	Slots     int
	Profile   engine.Profile
	Tiers     map[string]Tier
	KeepDead  time.Duration
	Envelopes map[string]*envelope.Envelope
}

// Reconfigure puts s into force for every lane at once, as if each had been edited: no bucket is
// refilled, nothing that waits is lost. All of it is checked before any is changed. Errors are
// ErrInvalid and name the field.
//
// Lanes are changed under the one lock: some 100 ms for 50,000 of them.
func (f *Fanout) Reconfigure(s Settings) error {
	f.admin.Lock()
	defer f.admin.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.settings()
	f.set(s)
	err := f.checkAll()
	if err == nil {
		err = f.applyAll()
	}
	if err != nil {
		f.set(before)
		return errors.Join(err, f.applyAll())
	}
	f.pump(f.clock.now())
	return nil
}

// CheckSettings returns what Reconfigure would refuse of s. It changes nothing.
func (f *Fanout) CheckSettings(s Settings) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, setting := f.settings(), f.setting
	f.set(s)
	err := f.checkAll()
	f.set(before)
	f.setting = setting
	return err
}

func (f *Fanout) settings() Settings {
	return Settings{f.opts.Engine.Slots, f.opts.Profile, f.opts.Tiers, f.opts.KeepDead, f.opts.Envelopes}
}

func (f *Fanout) set(s Settings) {
	f.opts.Engine.Slots, f.opts.Profile, f.opts.Tiers, f.opts.Envelopes = s.Slots, s.Profile, s.Tiers, s.Envelopes
	f.opts.KeepDead = cmp.Or(s.KeepDead, 30*24*time.Hour)
	f.setting++
}

// checkAll holds every tenant and subscription against the settings.
func (f *Fanout) checkAll() error {
	for _, tn := range f.index.tenants {
		if _, ok := f.opts.Tiers[tn.Tier]; tn.Tier != "" && !tn.Deleted && !ok {
			return fmt.Errorf("%w: tiers: %q is gone, and tenant %q is in it", ErrInvalid, tn.Tier, tn.name)
		}
	}
	for _, l := range f.index.lanes {
		if l == nil || l.removed {
			continue
		}
		tn := *l.tenant
		tn.tier = f.tier(tn.Tier)
		if _, err := f.profile(&tn, l.sub); err != nil {
			return fmt.Errorf("subscription %s: %w", l.subID, err)
		}
		if _, err := f.envelope(l.sub.Requests.Envelope); err != nil {
			return fmt.Errorf("%w: subscription %s: %w", ErrInvalid, l.subID, err)
		}
	}
	return nil
}

func (f *Fanout) applyAll() error {
	errs := []error{f.engine.Apply(f.clock.now(), engine.SetSlots{Slots: cmp.Or(f.opts.Engine.Slots, 1200)})}
	for _, tn := range f.index.tenants {
		errs = append(errs, f.applyTenant(tn.Tenant))
	}
	return errors.Join(errs...)
}
