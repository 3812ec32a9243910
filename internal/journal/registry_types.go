package journal

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"
)

// Tenant is a customer of the platform. ID is chosen by the caller, immutable, never reused.
type Tenant struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"` // a label, changed at will
	Number    uint32    `json:"number"`         // dense, given by the registry
	Tier      string    `json:"tier"`
	Grants    []Grant   `json:"granted,omitempty"` // ascending; the last is in force now
	Suspended bool      `json:"suspended,omitempty"`
	Links     uint32    `json:"links,omitempty"` // generation of its signed links: those of others open nothing
	Created   time.Time `json:"created"`
	Deleted   bool      `json:"deleted,omitempty"` // tombstone
}

// Grant is which broadcasts a tenant may see from a position on. A tenant of a release that knew none has no
// Grant, and sees all.
type Grant struct {
	From   Position `json:"from"` // 0 until its marker is durable
	Topics []string `json:"topics"`
}

// Granted returns the topics of the broadcasts that the tenant may see now. known is false for one that has no
// grant at all: it may see every broadcast.
func (t *Tenant) Granted() (topics []string, known bool) {
	if len(t.Grants) == 0 {
		return nil, false
	}
	return t.Grants[len(t.Grants)-1].Topics, true
}

func (t *Tenant) unsettled() bool { return len(t.Grants) > 0 && t.Grants[len(t.Grants)-1].From == 0 }

// Limits of a subscription; nil or "" means the tier's.
type Limits struct {
	Rate     string        `json:"rate,omitempty"` // "20/s", "unlimited", "0"
	Burst    int64         `json:"burst,omitempty"`
	Cap      *int          `json:"cap,omitempty"`
	Timeout  time.Duration `json:"timeout,omitempty"`
	Attempts uint32        `json:"attempts,omitempty"`
	Drop     bool          `json:"drop,omitempty"`
}

// Subscription is one endpoint of one tenant.
type Subscription struct {
	ID       string            `json:"id"`   // sub_...
	Lane     uint32            `json:"lane"` // dense, given by the registry
	Tenant   string            `json:"tenant"`
	Name     string            `json:"name,omitempty"` // what files know it by: unique in the tenant; once given, cannot be changed
	URL      string            `json:"url"`            // stored encrypted: its path may be a credential
	Limits   Limits            `json:"limits"`
	Order    string            `json:"order,omitempty"`    // OrderAll, OrderKey; "" is none; cannot be changed
	OnDead   string            `json:"on_dead,omitempty"`  // OnDeadStop; "" is to go on
	Group    string            `json:"group,omitempty"`    // the tenant's lane that it shares; cannot be changed
	Secrets  [][]byte          `json:"-"`                  // decoded; stored encrypted
	Requests Requests          `json:"-"`                  // stored encrypted
	Outcomes map[string]string `json:"outcomes,omitempty"` // status -> class, overrides of the table
	Paused   bool              `json:"paused,omitempty"`
	Disabled string            `json:"disabled,omitempty"` // reason, e.g. "gone"
	Created  time.Time         `json:"created"`
	Deleted  bool              `json:"deleted,omitempty"`
	Creation *Creation         `json:"creation,omitempty"` // nil: without an idempotency key
	Versions []Version         `json:"versions"`           // ascending; the last is in force now
	Revision uint64            `json:"-"`                  // KV revision
}

// Creation tells two requests to create a subscription apart: equal keys make one.
type Creation struct {
	Key     string `json:"key"`     // of the caller and its idempotency key
	Request string `json:"request"` // digest of what was asked for
}

// SubscriptionID is the id of the one that is created with a key.
func SubscriptionID(creationKey string) string {
	sum := sha256.Sum256([]byte(creationKey))
	return idOf(subscriptionIDPrefix, sum[:subscriptionIDDigits])
}

// Version is what a subscription matched from a position on.
type Version struct {
	From   Position `json:"from"` // 0 until its marker is durable
	Topics []string `json:"topics"`
	Active bool     `json:"active"` // false from a delete on

	Match map[string]string `json:"match,omitempty"` // attributes that a trigger must have, with these values
}

// Values of Subscription.Order and OnDead.
const (
	OrderAll   = "subscription" // one delivery after the other
	OrderKey   = "key"          // those of one order key one after the other
	OnDeadStop = "stop"         // what is behind a dead letter waits until that is replayed or purged
)

// At returns the version in force at position p. It reports false before the first one.
func (s *Subscription) At(p Position) (Version, bool) {
	for _, v := range slices.Backward(s.Versions) {
		if v.From != 0 && v.From <= p {
			return v, true
		}
	}
	return Version{}, false
}

// Topics returns the topics of the last version, nil when there is none.
func (s *Subscription) Topics() []string {
	if len(s.Versions) == 0 {
		return nil
	}
	return s.Versions[len(s.Versions)-1].Topics
}

// Match returns the attributes that the last version asks for, nil when there are none.
func (s *Subscription) Match() map[string]string {
	if len(s.Versions) == 0 {
		return nil
	}
	return s.Versions[len(s.Versions)-1].Match
}

// SetMatching makes s ask for triggers of these topics and attributes.
func (s *Subscription) SetMatching(topics []string, match map[string]string) {
	s.Versions = []Version{{Topics: topics, Match: match, Active: true}}
}

// unsettled reports whether the last version has no position yet.
func (s *Subscription) unsettled() bool {
	return len(s.Versions) > 0 && s.Versions[len(s.Versions)-1].From == 0
}

func (t *Tenant) clone() Tenant {
	c := *t
	c.Grants = slices.Clone(t.Grants)
	for i := range c.Grants {
		c.Grants[i].Topics = slices.Clone(c.Grants[i].Topics)
	}
	return c
}

func (s *Subscription) clone() Subscription {
	c := *s
	if s.Limits.Cap != nil {
		c.Limits.Cap = new(*s.Limits.Cap)
	}
	c.Secrets = cloneEach(s.Secrets)
	c.Requests = s.Requests.clone()
	c.Outcomes = maps.Clone(s.Outcomes)
	c.Versions = slices.Clone(s.Versions)
	for i := range c.Versions {
		c.Versions[i].Topics = slices.Clone(c.Versions[i].Topics)
		c.Versions[i].Match = maps.Clone(c.Versions[i].Match)
	}
	return c
}

func cloneEach(in [][]byte) [][]byte {
	out := slices.Clone(in)
	for i := range out {
		out[i] = slices.Clone(out[i])
	}
	return out
}
