package config

import (
	"encoding/base64"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/retry"
)

// Engine is the platform as the engine takes it; random source and origin are the driver's.
func (c *Config) Engine() engine.Config { return engine.Config{Slots: c.Slots} }

// Profile is what lanes share unless their tier or subscription says otherwise. Rate and cap
// are the tier's.
func (c *Config) Profile() engine.Profile {
	d := &c.Delivery
	return engine.Profile{
		Timeout: d.Timeout,
		Horizon: d.Horizon,
		Schedule: retry.Schedule{
			QuickAttempts: int(d.QuickAttempts),
			QuickBase:     d.QuickBase,
			Slow:          d.Slow,
		},
		Budget: retry.Budget{Ratio: d.BudgetRatio, HalfLife: d.HalfLife},
		Breaker: breaker.Config{
			Consecutive: uint16(d.Consecutive),
			Open:        d.Open,
			OpenMax:     d.OpenMax,
			ProbeExpiry: d.Timeout,
		},
	}
}

// Key decodes data.secret_key; nil if it is not set.
func (d *Data) Key() []byte { return decodeKey(d.SecretKey) }

// PreviousKeys decodes data.previous_secret_keys.
func (d *Data) PreviousKeys() (keys [][]byte) {
	for _, s := range d.Previous {
		keys = append(keys, decodeKey(s))
	}
	return keys
}

func decodeKey(s Secret) []byte {
	b, err := base64.StdEncoding.DecodeString(s.Value())
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}
