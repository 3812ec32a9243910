package httpadmit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/identity"
)

// Transport holds calls that are made for a tenant to that tenant's outbound
// limits. The tenant is the one that the request's context carries. Safe for
// concurrent use; not to be copied.
type Transport struct {
	Base   http.RoundTripper // nil: http.DefaultTransport
	Gate   *admit.Gate       // policies by tenant, user or route; the routes are those of the calls; none is shared
	Local  *admit.Local
	TierOf func(tenant string) (tier string, ok bool) // for tenants whose credential names no tier
	Wait   time.Duration                              // longest wait for a limit; 0: none

	begin  sync.Once
	origin time.Time // of the limits' instants: the first call
}

// ErrNoTenant is the error of a call whose context carries no identity.
var ErrNoTenant = errors.New("httpadmit: the context of an outbound call carries no tenant")

// Limited is the error of a call that a limit refused. Nothing was sent.
type Limited struct {
	Policy  string
	RetryIn time.Duration // 0: it never passes
}

func (e *Limited) Error() string {
	if e.RetryIn == 0 {
		return fmt.Sprintf("httpadmit: policy %s never lets this call through", e.Policy)
	}
	return fmt.Sprintf("httpadmit: policy %s refuses this call for %s", e.Policy, e.RetryIn)
}

// RoundTrip sends the request when the tenant's limits allow.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.admit(r); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(r)
}

func (t *Transport) admit(r *http.Request) error {
	id, ok := identity.From(r.Context())
	if !ok {
		return ErrNoTenant
	}
	if id.Tier == "" && t.TierOf != nil {
		id.Tier, _ = t.TierOf(id.Tenant)
	}
	if _, ok := t.Gate.Tier(id.Tier); !ok {
		return fmt.Errorf("httpadmit: outbound call of tenant %q: it has no tier", id.Tenant)
	}
	route, ok := t.Gate.Route(r.Method, r.URL.EscapedPath())
	if !ok {
		return fmt.Errorf("httpadmit: outbound call of tenant %q: its path is another route's by how it is read", id.Tenant)
	}
	t.begin.Do(func() { t.origin = time.Now() })
	plan := t.Gate.Plan(&admit.Request{Tenant: id.Tenant, User: id.User, Tier: id.Tier, Route: route})
	for until := time.Now().Add(t.Wait); ; {
		v := plan.Verdict(&admit.Outcome{Local: t.Local.Take(time.Since(t.origin), plan.Local)})
		if v.Allowed {
			return nil
		}
		hit, _ := v.Limit()
		refusal := &Limited{hit.Policy, hit.Decision.RetryIn}
		if refusal.RetryIn == 0 || time.Now().Add(refusal.RetryIn).After(until) {
			return refusal
		}
		if err := pause(r.Context(), refusal.RetryIn); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
