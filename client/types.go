package client

import (
	"encoding/json"
	"time"
)

// Tenant is a customer of the platform.
type Tenant struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"` // a label
	Tier      string    `json:"tier"`
	Suspended bool      `json:"suspended"` // everything of it waits
	Grants    []string  `json:"grants"`    // topics of broadcasts that it may see
	Created   time.Time `json:"created"`
}

// NewTenant is what a tenant is made of; zero fields have their defaults.
type NewTenant struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	Tier      string `json:"tier,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`

	Grants []string `json:"grants,omitempty"` // topics of broadcasts that it may see: none
}

// Subscription is one endpoint of one tenant. What is zero is the tier's or the platform's default.
type Subscription struct {
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant"`
	Name     string            `json:"name,omitempty"` // what files know it by; unique in the tenant
	URL      string            `json:"url"`
	Topics   []string          `json:"topics"`
	Rate     string            `json:"rate,omitempty"` // "20/s", "unlimited", "0"
	Burst    int64             `json:"burst,omitempty"`
	Cap      *int              `json:"cap,omitempty"`     // requests in flight; 0 is paused
	Timeout  string            `json:"timeout,omitempty"` // of one request, "15s"
	Attempts uint32            `json:"attempts,omitempty"`
	OnLimit  string            `json:"on_limit"`          // "defer", "drop"
	Match    map[string]string `json:"match,omitempty"`   // attributes that a trigger must have
	Lane     string            `json:"lane,omitempty"`    // shared with others of the tenant that name it
	Order    string            `json:"order,omitempty"`   // "subscription", "key"
	OnDead   string            `json:"on_dead,omitempty"` // "continue", "stop": behind a dead letter, where there is an order
	Outcomes map[string]string `json:"outcomes,omitempty"`
	Paused   bool              `json:"paused"`
	Disabled string            `json:"disabled,omitempty"` // why the service disabled it: "gone"
	Created  time.Time         `json:"created"`
	Secret   string            `json:"secret,omitempty"` // once

	Signature         *Signature   `json:"signature,omitempty"`        // nil: the standard profile
	SignatureBeside   *Signature   `json:"signature_beside,omitempty"` // a second one, during a migration
	PublicKeys        []string     `json:"public_keys,omitempty"`      // of key pairs
	OverlapUntil      *time.Time   `json:"overlap_until,omitempty"`    // until then retired secrets sign, too
	HeaderNames       []string     `json:"header_names,omitempty"`     // of custom headers
	OptionalHeaders   []string     `json:"optional_headers,omitempty"` // "ratelimit", "cloudevents", "position"
	Envelope          string       `json:"envelope,omitempty"`
	ClientCertificate *Certificate `json:"client_certificate,omitempty"`
}

// NewSubscription is what a subscription is made of; zero fields have their defaults.
type NewSubscription struct {
	Tenant   string            `json:"tenant,omitempty"` // implied by a tenant's key
	Name     string            `json:"name,omitempty"`   // what files know it by; unique in the tenant, given once
	URL      string            `json:"url"`
	Topics   []string          `json:"topics"`
	Rate     string            `json:"rate,omitempty"`
	Burst    int64             `json:"burst,omitempty"`
	Cap      *int              `json:"cap,omitempty"`
	Timeout  string            `json:"timeout,omitempty"`
	Attempts uint32            `json:"attempts,omitempty"`
	OnLimit  string            `json:"on_limit,omitempty"`
	Match    map[string]string `json:"match,omitempty"`
	Lane     string            `json:"lane,omitempty"`
	Order    string            `json:"order,omitempty"`
	OnDead   string            `json:"on_dead,omitempty"`
	Outcomes map[string]string `json:"outcomes,omitempty"`
	Secrets  []string          `json:"secrets,omitempty"`
	Paused   bool              `json:"paused,omitempty"`

	Signature         json.RawMessage   `json:"signature,omitempty"`          // a Signature
	SignatureBeside   json.RawMessage   `json:"signature_beside,omitempty"`   // a Signature, with secrets of its own or not
	OverlapUntil      *time.Time        `json:"overlap_until,omitempty"`      // null alone, in a patch
	Headers           map[string]string `json:"headers,omitempty"`            // custom ones
	OptionalHeaders   []string          `json:"optional_headers,omitempty"`   //
	Envelope          string            `json:"envelope,omitempty"`           // "raw", "cloudevents", or one of the configuration
	ClientCertificate map[string]string `json:"client_certificate,omitempty"` // certificate and key, PEM
}

// Rotation says what replaces a subscription's secrets.
type Rotation struct {
	Kind    string `json:"kind,omitempty"`    // "v1", a shared secret, or "v1a", a key pair; "" is v1
	Overlap string `json:"overlap,omitempty"` // how long the old ones sign, too, "48h", at most 30 days; "" is 24h, "0s" not at all
}

// Delivery is one record of a subscription's ledger.
type Delivery struct {
	Position uint64     `json:"position"` // of the trigger
	Kind     string     `json:"kind"`
	Attempt  uint32     `json:"attempt"`          // attempts made
	Status   uint16     `json:"status,omitempty"` // of the endpoint's answer
	Reason   string     `json:"reason,omitempty"`
	TookMS   float64    `json:"took_ms,omitempty"`
	At       time.Time  `json:"at"`
	Due      *time.Time `json:"due,omitempty"`
	Count    uint32     `json:"count,omitempty"` // of a record about several
	Detail   string     `json:"detail,omitempty"`
}

// Terms are an account: Offered is the sum of the others, and Balanced says whether it is.
type Terms struct {
	Offered   uint64 `json:"offered"`
	Delivered uint64 `json:"delivered"`
	Parked    uint64 `json:"parked"`
	Dead      uint64 `json:"dead"`
	InFlight  uint64 `json:"in_flight"`
	Cancelled uint64 `json:"cancelled"`
	Dropped   uint64 `json:"dropped"`
	Balanced  bool   `json:"balanced"`
}

// Lane is the live state of a subscription.
type Lane struct {
	Subscription string  `json:"subscription"`
	Tenant       string  `json:"tenant"`
	Host         string  `json:"host"`
	Rate         string  `json:"rate"`
	Burst        int64   `json:"burst,omitempty"`
	Remaining    int64   `json:"remaining"` // tokens; -1 where there is no rate
	Cap          int     `json:"cap"`
	Account      Terms   `json:"account"`
	Breaker      string  `json:"breaker"`           // "closed", "open", "half-open"
	Blocked      string  `json:"blocked,omitempty"` // why the next one does not go now
	Paused       bool    `json:"paused"`
	Disabled     bool    `json:"disabled"`
	PausedFor    string  `json:"paused_for,omitempty"`
	Ramp         int     `json:"ramp,omitempty"`
	Stopped      int     `json:"stopped,omitempty"` // queues of an ordered lane behind a dead letter
	MeanSlotMS   float64 `json:"mean_slot_ms"`
	P99MS        float64 `json:"p99_ms"`

	RecommendedCap       int    `json:"recommended_cap,omitempty"` // by Little's law; 0: too little was measured
	RecommendedCapReason string `json:"recommended_cap_reason"`
}

// Account is an account and those of its tenants.
type Account struct {
	Terms
	Tenants Page[TenantAccount] `json:"tenants"`
}

// TenantAccount is the account of one tenant.
type TenantAccount struct {
	Tenant string `json:"tenant"`
	Terms
	BacklogBytes int64 `json:"backlog_bytes"` // parked and dead
	BacklogQuota int64 `json:"backlog_quota"`
}

// Key opens the API. Role is "admin", "producer" or "tenant".
type Key struct {
	ID        string      `json:"id"`
	Name      string      `json:"name,omitempty"`
	Role      string      `json:"role"`
	Tenants   []string    `json:"tenants,omitempty"`
	Broadcast bool        `json:"broadcast,omitempty"`
	Secrets   []KeySecret `json:"secrets"` // newest first
	Created   time.Time   `json:"created"`
	Revoked   *time.Time  `json:"revoked,omitempty"`
	Secret    string      `json:"secret,omitempty"` // once
}

// KeySecret says since when a secret is good, and until when; nil is for ever.
type KeySecret struct {
	Created time.Time  `json:"created"`
	Until   *time.Time `json:"until,omitempty"`
}

// NewKey is what a key is made of. Tenants are whom a producer may post for, none is all; a tenant's key
// names its one.
type NewKey struct {
	ID        string   `json:"id"`
	Name      string   `json:"name,omitempty"`
	Role      string   `json:"role"`
	Tenants   []string `json:"tenants,omitempty"`
	Broadcast bool     `json:"broadcast,omitempty"`
}

// Act is what an administrator did.
type Act struct {
	At     time.Time `json:"at"`
	Key    string    `json:"key"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Fields []string  `json:"fields,omitempty"` // that were named; no values
	Status int       `json:"status"`           // 500 and above: whether it was done is not known
}

// Tier is a set of defaults for the tenants in it.
type Tier struct {
	Name    string   `json:"name"`
	Weight  int      `json:"weight"`
	Rate    string   `json:"rate"` // "unlimited" where there is none
	Burst   int64    `json:"burst,omitempty"`
	Cap     int      `json:"cap"`
	CapAuto *CapAuto `json:"cap_auto,omitempty"` // nil: the service sets no caps by itself
	Backlog int64    `json:"backlog"`            // bytes that a tenant may have parked and dead
	Inbound *Inbound `json:"inbound,omitempty"`  // nil: unlimited

	Subscriptions int  `json:"subscriptions"` // that a tenant may have
	Configured    bool `json:"configured"`    // by the service's configuration: it is changed there
}

// NewTier is what a tier is made of; zero fields have their defaults.
type NewTier struct {
	Name    string   `json:"name"`
	Weight  int      `json:"weight,omitempty"`
	Rate    string   `json:"rate,omitempty"` // "20/s", "unlimited", "0"
	Burst   int64    `json:"burst,omitempty"`
	Cap     int      `json:"cap,omitempty"`
	CapAuto *CapAuto `json:"cap_auto,omitempty"`
	Backlog int64    `json:"backlog,omitempty"` // bytes
	Inbound *Inbound `json:"inbound,omitempty"`

	Subscriptions int `json:"subscriptions,omitempty"`
}

// CapAuto bounds the caps that the service sets by what it measures.
type CapAuto struct {
	Min int `json:"min,omitempty"`
	Max int `json:"max"`
}

// Inbound is what a tenant may post with its own keys; Share is its part of the hand-over to the log.
type Inbound struct {
	Rate  string `json:"rate,omitempty"`
	Burst int64  `json:"burst,omitempty"`
	Share int    `json:"share,omitempty"`
}

// Parked is one delivery that waits and comes back by itself.
type Parked struct {
	Position uint64     `json:"position"` // of the trigger; 0 if its payload cannot be read
	Attempt  uint32     `json:"attempt"`  // attempts made
	Reason   string     `json:"reason"`
	Since    *time.Time `json:"since,omitempty"`
	Due      *time.Time `json:"due,omitempty"` // in place of Since: it has a time of its own
}

// Signature is a signature profile: "standard", "svix" or "template", to which all but Profile belong.
type Signature struct {
	Profile         string `json:"profile"`
	Header          string `json:"header,omitempty"`
	Content         string `json:"content,omitempty"`
	Value           string `json:"value,omitempty"`
	Separator       string `json:"separator,omitempty"`
	Algorithm       string `json:"algorithm,omitempty"`
	Encoding        string `json:"encoding,omitempty"`
	IDHeader        string `json:"id_header,omitempty"`
	TimestampHeader string `json:"timestamp_header,omitempty"`
}

// Certificate is what is shown of a client certificate.
type Certificate struct {
	SHA256   string    `json:"sha256"` // of the leaf
	NotAfter time.Time `json:"not_after"`
}
