package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// Desired is what Apply makes of tiers, tenants and subscriptions. They are lists of objects in JSON, as
// PUT /v1/tiers/{name}, POST /v1/tenants and POST /v1/subscriptions read them; each tier and subscription has a name.
type Desired struct {
	Tiers         json.RawMessage   `json:"tiers,omitempty"`
	Tenants       json.RawMessage   `json:"tenants,omitempty"`
	Subscriptions json.RawMessage   `json:"subscriptions,omitempty"`
	NewSecrets    map[string]string `json:"new_secrets,omitempty"` // signing secrets, by tenant/name, of subscriptions that are new and name none; nil: the service makes them
	Prune         bool              `json:"prune,omitempty"`       // remove named subscriptions of these tenants that are not listed
	DryRun        bool              `json:"dry_run,omitempty"`     // check and plan, change nothing
}

// Plan is what Apply has done, or in a dry run would do.
type Plan struct {
	DryRun    bool     `json:"dry_run"`
	Changes   []Change `json:"changes"` // in the order of their doing
	Unchanged int      `json:"unchanged"`
}

// Change is one object that changes.
type Change struct {
	Act    string        `json:"act"`  // "create", "change", "remove"
	Kind   string        `json:"kind"` // "tier", "tenant", "subscription"
	Tenant string        `json:"tenant,omitempty"`
	Name   string        `json:"name,omitempty"` // of a tier or a subscription
	ID     string        `json:"id,omitempty"`   // of a subscription that exists
	Fields []FieldChange `json:"fields,omitempty"`
	Secret string        `json:"secret,omitempty"` // of a new subscription that named none; once
}

// FieldChange is a field of a Change. Of what is never shown it has the name alone.
type FieldChange struct {
	Field string `json:"field"`
	From  any    `json:"from,omitempty"`
	To    any    `json:"to,omitempty"`
}

// Apply makes tiers, tenants and subscriptions what d says: all of it, or, if one object breaks a rule, nothing. An error
// of the transport, or a *Problem of status 500 and above, may leave some of them done: the same call again does
// the rest. It takes as long as the writes do: c.HTTP must give it the time.
func (c *Client) Apply(ctx context.Context, d Desired) (Plan, error) {
	return one[Plan](ctx, c, http.MethodPost, "/v1/apply", d)
}
