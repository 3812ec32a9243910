package client

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Trigger is one event to be delivered.
type Trigger struct {
	Topic       string
	Tenants     []string // whom it is for; none with a tenant's own key
	Broadcast   bool     // instead of Tenants: all
	ContentType string   // passed on; "" sends none
	Key         string   // idempotency key; "" is none
	Payload     []byte   // at most the service's server.max_body; never changed
}

// Receipt says where a trigger stands. Repeat says that its key was used before by the same post, whose
// ID and Position these are.
type Receipt struct {
	ID       string `json:"id"`
	Position uint64 `json:"position"`
	Repeat   bool   `json:"repeat,omitempty"`
}

// Post returns when the trigger is durable.
func (c *Client) Post(ctx context.Context, t Trigger) (Receipt, error) {
	h := http.Header{}
	switch {
	case t.Broadcast:
		h.Set("Fairlane-Tenant", "*")
	case len(t.Tenants) > 0:
		h.Set("Fairlane-Tenant", strings.Join(t.Tenants, ","))
	}
	if t.ContentType != "" {
		h.Set("Content-Type", t.ContentType)
	}
	if t.Key != "" {
		h.Set("Idempotency-Key", t.Key)
	}
	var r Receipt
	header, err := c.send(ctx, http.MethodPost, at("triggers", t.Topic), h, t.Payload, &r)
	if err == nil {
		r.Repeat = header.Get("Fairlane-Repeat") == "true"
	}
	return r, err
}

// Tenants lists all, the oldest first.
func (c *Client) Tenants(ctx context.Context) iter.Seq2[Tenant, error] {
	return List[Tenant](ctx, c, "/v1/tenants", nil)
}

// Tenant returns one.
func (c *Client) Tenant(ctx context.Context, id string) (Tenant, error) {
	return one[Tenant](ctx, c, http.MethodGet, at("tenants", id), nil)
}

// CreateTenant creates one with a new id.
func (c *Client) CreateTenant(ctx context.Context, t NewTenant) (Tenant, error) {
	return one[Tenant](ctx, c, http.MethodPost, "/v1/tenants", t)
}

// PutTenant creates or replaces one: what is absent has its default.
func (c *Client) PutTenant(ctx context.Context, t NewTenant) (Tenant, error) {
	return one[Tenant](ctx, c, http.MethodPut, at("tenants", t.ID), t)
}

// DeleteTenant removes one that has no subscriptions; its id is never given again.
func (c *Client) DeleteTenant(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodDelete, at("tenants", id), nil, nil)
}

// RevokeLinks ends all signed links of a tenant; those made afterwards are good.
func (c *Client) RevokeLinks(ctx context.Context, tenant string) error {
	return c.Do(ctx, http.MethodPost, at("tenants", tenant)+"/links/revoke", nil, nil)
}

// Subscriptions lists those of a tenant, or all with "".
func (c *Client) Subscriptions(ctx context.Context, tenant string) iter.Seq2[Subscription, error] {
	return List[Subscription](ctx, c, "/v1/subscriptions", ofTenant(tenant))
}

// Subscription returns one.
func (c *Client) Subscription(ctx context.Context, id string) (Subscription, error) {
	return one[Subscription](ctx, c, http.MethodGet, at("subscriptions", id), nil)
}

// CreateSubscription creates one. Its Secret is shown now and never again, unless it was given.
func (c *Client) CreateSubscription(ctx context.Context, s NewSubscription) (Subscription, error) {
	return one[Subscription](ctx, c, http.MethodPost, "/v1/subscriptions", s)
}

// PatchSubscription changes the fields that patch names, by their names in JSON; nil restores a default.
func (c *Client) PatchSubscription(ctx context.Context, id string, patch map[string]any) (Subscription, error) {
	return one[Subscription](ctx, c, http.MethodPatch, at("subscriptions", id), patch)
}

// DeleteSubscription removes one; what waits for it is cancelled.
func (c *Client) DeleteSubscription(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodDelete, at("subscriptions", id), nil, nil)
}

// RotateSecret gives a subscription a new signing secret, shown now and never again; of a key pair PublicKeys shows
// the public half.
func (c *Client) RotateSecret(ctx context.Context, subscription string, r Rotation) (Subscription, error) {
	return one[Subscription](ctx, c, http.MethodPost, at("subscriptions", subscription, "rotate"), r)
}

// TestSubscription sends a test trigger to one subscription, whatever its topics.
func (c *Client) TestSubscription(ctx context.Context, id string) (Receipt, error) {
	return one[Receipt](ctx, c, http.MethodPost, at("subscriptions", id, "test"), nil)
}

// Parked lists what waits for a subscription, in the order of acceptance.
func (c *Client) Parked(ctx context.Context, subscription string) iter.Seq2[Parked, error] {
	return List[Parked](ctx, c, at("subscriptions", subscription, "parked"), nil)
}

// Tiers lists all.
func (c *Client) Tiers(ctx context.Context) iter.Seq2[Tier, error] {
	return List[Tier](ctx, c, "/v1/tiers", nil)
}

// Tier returns one.
func (c *Client) Tier(ctx context.Context, name string) (Tier, error) {
	return one[Tier](ctx, c, http.MethodGet, at("tiers", name), nil)
}

// PutTier creates or replaces one that the configuration does not have: what is absent has its default. It is in
// force at once for all tenants in it, and refills nothing.
func (c *Client) PutTier(ctx context.Context, t NewTier) (Tier, error) {
	return one[Tier](ctx, c, http.MethodPut, at("tiers", t.Name), t)
}

// DeleteTier removes one that no tenant is in.
func (c *Client) DeleteTier(ctx context.Context, name string) error {
	return c.Do(ctx, http.MethodDelete, at("tiers", name), nil, nil)
}

// Deliveries reads the ledger of a subscription, the newest first.
func (c *Client) Deliveries(ctx context.Context, subscription string) iter.Seq2[Delivery, error] {
	return List[Delivery](ctx, c, at("subscriptions", subscription, "deliveries"), nil)
}

// Lanes lists the live state of a tenant's subscriptions, or of all with "".
func (c *Client) Lanes(ctx context.Context, tenant string) iter.Seq2[Lane, error] {
	return List[Lane](ctx, c, "/v1/lanes", ofTenant(tenant))
}

// Lane returns the live state of one subscription.
func (c *Client) Lane(ctx context.Context, subscription string) (Lane, error) {
	return one[Lane](ctx, c, http.MethodGet, at("lanes", subscription), nil)
}

// Account returns the account of the platform or, with a tenant's key, of the tenant, with the first page
// of the tenants'.
func (c *Client) Account(ctx context.Context) (Account, error) {
	return one[Account](ctx, c, http.MethodGet, "/v1/account", nil)
}

// Keys lists all, revoked ones included, the oldest first.
func (c *Client) Keys(ctx context.Context) iter.Seq2[Key, error] {
	return List[Key](ctx, c, "/v1/keys", nil)
}

// CreateKey creates one. Its Secret is shown now and never again.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (Key, error) {
	return one[Key](ctx, c, http.MethodPost, "/v1/keys", k)
}

// RotateKey gives a key a new Secret, which is shown now and never again. The one before opens as long as
// overlap says, at most 30 days.
func (c *Client) RotateKey(ctx context.Context, id string, overlap time.Duration) (Key, error) {
	return one[Key](ctx, c, http.MethodPost, at("keys", id, "rotate"), map[string]string{"overlap": overlap.String()})
}

// RevokeKey lets a key open nothing from now on.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodDelete, at("keys", id), nil, nil)
}

// Acts lists what administrators did, the newest first.
func (c *Client) Acts(ctx context.Context) iter.Seq2[Act, error] {
	return List[Act](ctx, c, "/v1/audit", nil)
}
