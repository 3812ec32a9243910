package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Tier is a tier that was made by the API; those of the configuration file are not here. Its values are the
// caller's to check; zero ones are its defaults.
type Tier struct {
	Format        int     `json:"v"`
	Name          string  `json:"name"` // a-z, 0-9, _ and -
	Weight        int     `json:"weight,omitempty"`
	Rate          string  `json:"rate,omitempty"`
	Burst         int64   `json:"burst,omitempty"`
	Cap           int     `json:"cap,omitempty"`
	CapAuto       CapAuto `json:"cap_auto,omitzero"`
	Backlog       int64   `json:"backlog,omitempty"`
	Subscriptions int     `json:"subscriptions,omitempty"`
	Inbound       Inbound `json:"inbound,omitzero"`
}

// CapAuto bounds the caps that the service sets by itself.
type CapAuto struct {
	Min int `json:"min,omitempty"`
	Max int `json:"max,omitempty"`
}

// Inbound is what a tenant may post.
type Inbound struct {
	Rate  string `json:"rate,omitempty"`
	Burst int64  `json:"burst,omitempty"`
	Share int    `json:"share,omitempty"`
}

const tiersBucket = "TIERS"

// tiers keeps them in a bucket of their own. Safe for concurrent use.
type tiers struct {
	bucket *lazyBucket

	mu     sync.Mutex
	byName map[string]Tier
}

func openTiers(ctx context.Context, l *link) (s *tiers, err error) {
	s = &tiers{byName: map[string]Tier{}}
	s.bucket, err = openLazy(ctx, l, tiersBucket, func(e jetstream.KeyValueEntry) error {
		var t Tier
		switch err := json.Unmarshal(e.Value(), &t); {
		case err != nil || t.Name != e.Key():
			return fmt.Errorf("%w: record %s of a tier", ErrDamaged, e.Key())
		case t.Format != recordFormat:
			return fmt.Errorf("tier %s has format %d, this release reads %d", t.Name, t.Format, recordFormat)
		}
		s.byName[t.Name] = t
		return nil
	})
	return s, err
}

// Tiers returns the tiers that the API made, by name.
func (j *Journal) Tiers() []Tier {
	s := j.tiers
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byName), func(a, b Tier) int { return strings.Compare(a.Name, b.Name) })
}

// PutTier stores a tier, new or changed, and returns when that is durable. ErrUnavailable is in doubt: the next
// Open shows it if it was stored.
func (j *Journal) PutTier(ctx context.Context, t Tier) error {
	s := j.tiers
	ctx, leave, err := s.bucket.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	t.Format = recordFormat
	value, err := json.Marshal(&t)
	if err != nil {
		return err
	}
	if err := s.bucket.put(ctx, t.Name, value); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[t.Name] = t
	return nil
}

// DeleteTier removes a tier, and returns when that is durable. Errors: ErrNotFound, ErrUnavailable in doubt.
func (j *Journal) DeleteTier(ctx context.Context, name string) error {
	s := j.tiers
	ctx, leave, err := s.bucket.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s.mu.Lock()
	_, exists := s.byName[name]
	s.mu.Unlock()
	if !exists {
		return fmt.Errorf("%w: tier %q", ErrNotFound, name)
	}
	if err := s.bucket.remove(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
	return nil
}
