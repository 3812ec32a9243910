package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// role is what a key is for. In a route it is the set of those that may call it.
type role uint8

const (
	admin    role = 1 << iota // everything
	producer                  // posts triggers
	tenant                    // sees and changes what is its own
	anyone   role = 0         // needs no key
)

type roleName struct {
	name string
	role role
}

var roleNames = []roleName{{journal.RoleAdmin, admin}, {journal.RoleProducer, producer}, {journal.RoleTenant, tenant}}

// handler answers, or returns why not. It has written nothing when it returns an error.
type handler func(http.ResponseWriter, *http.Request) error

// route is one row of the API. The mux, the checks of roles and the OpenAPI document are made of it.
type route struct {
	method, path string
	may          role
	status       int      // of success
	takes        []string // parameters of the query and, capitalised, headers
	in           any      // zero value of what it reads: an object; payload for bytes as they are; nil for none
	out          any      // zero value of what it answers; nil for none
	summary      string
	handle       func(*Server, http.ResponseWriter, *http.Request) error
}

// payload stands in a route for a body of any type.
type payload struct{}

// paging are the parameters of every list.
var paging = []string{"after", "limit"}

var pagingByTenant = []string{"after", "limit", "tenant"}

// routes is the whole API. A row is added here, in docs/api.md and in the table of the roles' test.
var routes = []route{
	{"GET", "/healthz", anyone, 200, nil, nil, healthView{}, "Whether the process answers", (*Server).healthz},
	{"GET", "/readyz", anyone, 200, nil, nil, readiness{}, "Whether triggers are taken and delivered", (*Server).readyz},
	{"GET", "/openapi.json", anyone, 200, nil, nil, nil, "This document", (*Server).serveOpenAPI},
	{"GET", "/metrics", admin, 200, nil, nil, nil, "Metrics in Prometheus' text format", (*Server).serveMetrics},

	{"POST", "/v1/triggers", admin | producer | tenant, 202, []string{"Fairlane-Tenant", "Fairlane-Order-Key", "Idempotency-Key"}, payload{}, receiptsView{}, "Take CloudEvents: structured, batched, or binary", (*Server).ingestEvents},
	{"POST", "/v1/triggers/{topic}", admin | producer | tenant, 202, []string{"Fairlane-Tenant", "Fairlane-Order-Key", "Idempotency-Key"}, payload{}, receiptView{}, "Take one trigger", (*Server).ingest},

	{"GET", "/v1/tenants", admin, 200, paging, nil, page[tenantView]{}, "List tenants", (*Server).listTenants},
	{"POST", "/v1/tenants", admin, 201, nil, tenantIn{}, tenantView{}, "Create a tenant", (*Server).createTenant},
	{"GET", "/v1/tenants/{id}", admin | tenant, 200, nil, nil, tenantView{}, "Show a tenant", (*Server).getTenant},
	{"PUT", "/v1/tenants/{id}", admin, 200, nil, tenantIn{}, tenantView{}, "Create or replace a tenant", (*Server).putTenant},
	{"PATCH", "/v1/tenants/{id}", admin, 200, nil, tenantPatch{}, tenantView{}, "Change a tenant", (*Server).patchTenant},
	{"DELETE", "/v1/tenants/{id}", admin, 204, nil, nil, nil, "Remove a tenant without subscriptions", (*Server).deleteTenant},

	{"POST", "/v1/tenants/{id}/links/revoke", admin, 204, nil, nil, nil, "End all signed links of a tenant", (*Server).revokeLinks},

	{"GET", "/v1/tiers", admin, 200, paging, nil, page[tierView]{}, "List tiers", (*Server).listTiers},
	{"GET", "/v1/tiers/{name}", admin, 200, nil, nil, tierView{}, "Show a tier", (*Server).getTier},
	{"PUT", "/v1/tiers/{name}", admin, 200, nil, tierIn{}, tierView{}, "Create or replace a tier that the configuration does not have", (*Server).putTier},
	{"DELETE", "/v1/tiers/{name}", admin, 204, nil, nil, nil, "Remove a tier without tenants", (*Server).deleteTier},

	{"GET", "/v1/subscriptions", admin | tenant, 200, []string{"after", "limit", "tenant", "state"}, nil, page[subscriptionView]{}, "List subscriptions", (*Server).listSubscriptions},
	{"POST", "/v1/subscriptions", admin | tenant, 201, []string{"Idempotency-Key"}, subscriptionIn{}, subscriptionView{}, "Create a subscription", (*Server).createSubscription},
	{"GET", "/v1/subscriptions/{id}", admin | tenant, 200, nil, nil, subscriptionView{}, "Show a subscription", (*Server).getSubscription},
	{"PATCH", "/v1/subscriptions/{id}", admin | tenant, 200, nil, subscriptionPatch{}, subscriptionView{}, "Change a subscription", (*Server).patchSubscription},
	{"DELETE", "/v1/subscriptions/{id}", admin | tenant, 204, nil, nil, nil, "Remove a subscription", (*Server).deleteSubscription},
	{"POST", "/v1/subscriptions/{id}/rotate", admin | tenant, 200, nil, rotateIn{}, subscriptionView{}, "Give a subscription a new secret", (*Server).rotateSecret},
	{"POST", "/v1/subscriptions/{id}/test", admin | tenant, 202, nil, payload{}, receiptView{}, "Send a test trigger to a subscription", (*Server).testSubscription},
	{"GET", "/v1/subscriptions/{id}/parked", admin | tenant, 200, []string{"after", "limit", "reason"}, nil, page[parkedView]{}, "List what waits for a subscription", (*Server).listParked},
	{"GET", "/v1/subscriptions/{id}/deliveries", admin | tenant, 200, []string{"after", "limit", "kind", "reason", "since", "until"}, nil, page[deliveryView]{}, "Read a subscription's ledger", (*Server).listDeliveries},

	{"POST", "/v1/apply", admin, 200, nil, applyIn{}, planView{}, "Create and change tiers and tenants, and create, change and remove subscriptions, all or none", (*Server).apply},

	{"GET", "/v1/dead", admin | tenant, 200, deadQuery, nil, page[deadView]{}, "List dead letters", (*Server).listDead},
	{"POST", "/v1/dead/purge", admin | tenant, 200, nil, purgeIn{}, purgeView{}, "Give up dead letters of a selection", (*Server).purgeDead},
	{"GET", "/v1/subscriptions/{id}/dead", admin | tenant, 200, deadQuery[:5], nil, page[deadView]{}, "List a subscription's dead letters", (*Server).listDeadOf},
	{"GET", "/v1/subscriptions/{id}/dead/{trigger}", admin | tenant, 200, nil, nil, deadLetterView{}, "Show a dead letter", (*Server).getDead},
	{"DELETE", "/v1/subscriptions/{id}/dead/{trigger}", admin | tenant, 204, nil, nil, nil, "Give up a dead letter", (*Server).deleteDead},

	{"GET", "/v1/replays", admin | tenant, 200, pagingByTenant, nil, page[replayView]{}, "List replays", (*Server).listReplays},
	{"POST", "/v1/replays", admin | tenant, 201, nil, replayIn{}, replayView{}, "Replay dead letters, or count them", (*Server).createReplay},
	{"GET", "/v1/replays/{id}", admin | tenant, 200, nil, nil, replayView{}, "Show a replay", (*Server).getReplay},
	{"POST", "/v1/replays/{id}/cancel", admin | tenant, 200, nil, nil, replayView{}, "Cancel a replay", (*Server).cancelReplay},
	{"POST", "/v1/replays/{id}/resume", admin | tenant, 200, nil, nil, replayView{}, "Let a cancelled replay go on", (*Server).resumeReplay},
	{"GET", "/v1/triggers/{id}", admin | tenant, 200, nil, nil, completionView{}, "Show what became of a trigger", (*Server).getTrigger},
	{"POST", "/v1/triggers/{id}/resend", admin | tenant, 202, nil, resendIn{}, resentView{}, "Deliver a trigger once more", (*Server).resend},

	{"GET", "/v1/lanes", admin | tenant, 200, []string{"after", "limit", "tenant", "reason"}, nil, page[laneView]{}, "List lanes", (*Server).listLanes},
	{"GET", "/v1/lanes/{subscription}", admin | tenant, 200, nil, nil, laneView{}, "Show a subscription's lane", (*Server).getLane},
	{"GET", "/v1/keys", admin, 200, paging, nil, page[keyView]{}, "List keys", (*Server).listKeys},
	{"POST", "/v1/keys", admin, 201, nil, keyIn{}, keyView{}, "Create a key; its secret is shown once", (*Server).createKey},
	{"GET", "/v1/keys/{id}", admin, 200, nil, nil, keyView{}, "Show a key", (*Server).getKey},
	{"POST", "/v1/keys/{id}/rotate", admin, 200, nil, overlapIn{}, keyView{}, "Give a key a new secret", (*Server).rotateKey},
	{"DELETE", "/v1/keys/{id}", admin, 204, nil, nil, nil, "Revoke a key at once", (*Server).revokeKey},
	{"GET", "/v1/audit", admin, 200, []string{"after", "limit", "since", "until"}, nil, page[actView]{}, "List what administrators did, newest first", (*Server).listActs},

	{"GET", "/v1/account", admin | tenant, 200, pagingByTenant, nil, accountView{}, "Show the account", (*Server).account},
}

// Patterns lists the routes as "METHOD /path".
func Patterns() []string {
	list := make([]string, len(routes))
	for i := range routes {
		list[i] = routes[i].pattern()
	}
	return list
}

func (rt *route) pattern() string { return rt.method + " " + rt.path }

// route makes the mux of the table.
func (s *Server) route(openMetrics bool) {
	for _, rt := range routes {
		if rt.path == "/metrics" {
			if s.metrics == nil {
				continue
			}
			if openMetrics {
				rt.may = anyone
			}
		}
		s.mux.Handle(rt.pattern(), s.answer(s.guarded(&rt)))
	}
	s.mux.Handle("/", s.answer(s.unknown))
}

// caller is who sent a request, by its key.
type caller struct {
	id        string // immutable: it is the producer's in triggers' ids
	role      role
	of        string   // the tenant, of a tenant's key
	tenants   []string // of a producer's: whom it may post for, sorted; none is all
	broadcast bool     // of a producer's: may post for all at once
	fields    []string // that its request named: for the audit
}

type callerKey struct{}

// callerOf is who sent r, a request of a route that needs a key.
func callerOf(r *http.Request) *caller { return r.Context().Value(callerKey{}).(*caller) }

// sees reports whether the caller may know what belongs to a tenant. What it may not know does not
// exist for it: handlers answer then what they answer for an id that was never given.
func (c *caller) sees(tenantID string) bool {
	return c.role == admin || c.role == tenant && c.of == tenantID
}

// reaches reports whether the caller may post for a tenant.
func (c *caller) reaches(tenantID string) bool {
	if c.role != producer {
		return c.sees(tenantID)
	}
	_, listed := slices.BinarySearch(c.tenants, tenantID)
	return listed || len(c.tenants) == 0
}

// guarded lets in whom the row lets in, before anything else of the request is looked at.
func (s *Server) guarded(rt *route) handler {
	h := func(w http.ResponseWriter, r *http.Request) error {
		if err := rt.checkQuery(r); err != nil {
			return err
		}
		return rt.handle(s, w, r)
	}
	if rt.may == anyone {
		return h
	}
	if rt.method != http.MethodGet && rt.in != any(payload{}) {
		h = s.audited(h)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		c := s.authenticate(r)
		switch {
		case c == nil:
			return noKey(r)
		case c.role&rt.may == 0:
			return refused(c, r)
		}
		return h(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	}
}

// refused answers a role that may not call the route. A tenant's key learns the same of every id that is
// not its own: that there is no such thing.
func refused(c *caller, r *http.Request) *problem {
	p := &problem{code: forbidden, detail: "this key's role may not do this", close: r.ContentLength != 0}
	if _, named := pathID(r); named && c.role == tenant && r.PathValue("id") != c.of {
		p.code, p.detail = notFound, nothingThere
	}
	return p
}

// nothingThere is what every path with an id says that names nothing the caller may know of.
const nothingThere = "there is nothing of this id"

func pathID(r *http.Request) (string, bool) {
	_, rest, named := strings.Cut(r.Pattern, "{")
	name, _, _ := strings.Cut(rest, "}")
	return r.PathValue(name), named
}

// checkQuery refuses parameters that the row does not take.
func (rt *route) checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(badRequest, "query", "must be well-formed")
	}
	for name, v := range values {
		switch {
		case !slices.Contains(rt.takes, name):
			return rt.unknownParameter(name)
		case len(v) > 1:
			return refuse(badRequest, name, "must stand once")
		}
	}
	return nil
}

func (rt *route) unknownParameter(name string) *problem {
	if !slices.Contains(rt.takes, "limit") {
		return refuse(badRequest, "query", "must be empty")
	}
	return refuse(badRequest, clip(name), "is an unknown parameter")
}
