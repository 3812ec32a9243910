package server

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

const onDeadContinue = "continue"

// Bounds of a subscription.
const (
	maxTopics   = 64
	maxSecrets  = 8
	maxBurst    = 1_000_000_000
	maxCap      = 100_000
	maxAttempts = 100_000
	minTimeout  = 10 * time.Millisecond
	maxTimeout  = 10 * time.Minute
)

// subscriptionView is a subscription as the API shows it to the admin. What is absent is the
// tier's or the platform's default. Secrets are never shown, but for the one made at creation.
type subscriptionView struct {
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant"`
	Name     string            `json:"name,omitempty"`
	URL      string            `json:"url"`
	Topics   []string          `json:"topics"`
	Rate     string            `json:"rate,omitempty"`
	Burst    int64             `json:"burst,omitempty"`
	Cap      *int              `json:"cap,omitempty"`
	Timeout  string            `json:"timeout,omitempty"`
	Attempts uint32            `json:"attempts,omitempty"`
	OnLimit  string            `json:"on_limit"`
	Match    map[string]string `json:"match,omitempty"`
	Lane     string            `json:"lane,omitempty"`
	Order    string            `json:"order,omitempty" enum:"subscription,key"`
	OnDead   string            `json:"on_dead,omitempty" enum:"continue,stop"`
	Outcomes map[string]string `json:"outcomes,omitempty"`
	Paused   bool              `json:"paused"`
	Disabled string            `json:"disabled,omitempty"`
	Created  time.Time         `json:"created"`
	Secret   string            `json:"secret,omitempty"` // once
	requestsView
}

// subscriptionPatch is what a change of a subscription reads.
type subscriptionPatch struct {
	Name     string            `json:"name,omitempty"` // unique in the tenant; can be given once
	URL      string            `json:"url,omitempty"`
	Topics   []string          `json:"topics,omitempty"`
	Rate     string            `json:"rate,omitempty" null:"default" also:"integer"`
	Burst    int64             `json:"burst,omitempty" null:"default"`
	Cap      int               `json:"cap,omitempty" null:"default"`
	Timeout  string            `json:"timeout,omitempty" null:"default"`
	Attempts uint32            `json:"attempts,omitempty" null:"default"`
	OnLimit  string            `json:"on_limit,omitempty" null:"default"`
	Match    map[string]string `json:"match,omitempty" null:"default"`
	OnDead   string            `json:"on_dead,omitempty" null:"default" enum:"continue,stop"`
	Outcomes map[string]string `json:"outcomes,omitempty" null:"default"`
	Paused   bool              `json:"paused,omitempty" null:"default"`
	requestsIn
}

// subscriptionIn is what creation reads.
type subscriptionIn struct {
	Tenant string   `json:"tenant,omitempty"` // implied by a tenant's key
	URL    string   `json:"url"`
	Topics []string `json:"topics"`
	Lane   string   `json:"lane,omitempty"`
	Order  string   `json:"order,omitempty" enum:"subscription,key"`
	subscriptionPatch
}

func viewSubscription(s *journal.Subscription) subscriptionView {
	v := subscriptionView{
		ID: s.ID, Tenant: s.Tenant, Name: s.Name, URL: s.URL, Topics: s.Topics(),
		Rate: s.Limits.Rate, Burst: s.Limits.Burst, Cap: s.Limits.Cap, Attempts: s.Limits.Attempts,
		Match: s.Match(), Lane: s.Group, Order: s.Order, OnLimit: "defer", Outcomes: s.Outcomes, Paused: s.Paused, Disabled: s.Disabled, Created: s.Created,
		requestsView: viewRequests(&s.Requests),
	}
	if s.Limits.Timeout > 0 {
		v.Timeout = config.FormatDuration(s.Limits.Timeout)
	}
	if s.Limits.Drop {
		v.OnLimit = "drop"
	}
	if s.Order != "" {
		v.OnDead = cmp.Or(s.OnDead, onDeadContinue)
	}
	return v
}

// States of a subscription, for lists.
const (
	stateActive   = "active"
	statePaused   = "paused"
	stateDisabled = "disabled"
)

func stateOf(s *journal.Subscription) string {
	switch {
	case s.Disabled != "":
		return stateDisabled
	case s.Paused:
		return statePaused
	}
	return stateActive
}

func (s *Server) listSubscriptions(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	c := callerOf(r)
	return reply(w, http.StatusOK, pageOf(q, s.registry.Subscriptions(),
		func(s *journal.Subscription) uint64 { return uint64(s.Lane) },
		func(s *journal.Subscription) bool {
			return !s.Deleted && q.of(c, s.Tenant) && q.has("state", stateOf(s))
		},
		viewSubscription))
}

func (s *Server) getSubscription(w http.ResponseWriter, r *http.Request) error {
	sub, err := s.subscription(r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, viewSubscription(&sub))
}

// subscription finds the one of the path, if it is not deleted and r's caller may know of it.
func (s *Server) subscription(r *http.Request) (journal.Subscription, error) {
	sub, ok := s.registry.Subscription(r.PathValue("id"))
	if !ok || sub.Deleted || !callerOf(r).sees(sub.Tenant) {
		return sub, &problem{code: notFound, detail: nothingThere}
	}
	return sub, nil
}

// createSubscription is POST /v1/subscriptions.
func (s *Server) createSubscription(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, false)
	if err != nil {
		return err
	}
	c := callerOf(r)
	sub := journal.Subscription{Tenant: c.of}
	o.read("tenant", nil, parseText(&sub.Tenant, "the id of a tenant", validTenantID))
	s.readSubscription(o, &sub)
	readOrder(o, &sub)
	if c.role != tenant {
		o.require("tenant")
	}
	o.require("url", "topics")
	s.withinTier(o, c, &sub)
	if err := o.err(); err != nil {
		return err
	}
	if sub.Creation, err = creation(r, o); err != nil {
		return err
	}
	made := ""
	if len(sub.Secrets)+len(sub.Requests.Pairs) == 0 {
		key := delivery.NewSecret()
		sub.Secrets, made = [][]byte{key}, delivery.FormatSecret(key)
	}
	return s.alone(w, r, func() (int, any, error) { return s.storeNew(w, r, sub, made) })
}

// creation reads the request's idempotency key; nil is none.
func creation(r *http.Request, o *object) (*journal.Creation, error) {
	key, err := idempotencyKey(r.Header)
	if err != nil || key == "" {
		return nil, err
	}
	return &journal.Creation{Key: callerOf(r).id + " " + key, Request: hex.EncodeToString(o.sum[:])}, nil
}

// created is the answer to a request whose idempotency key has made a subscription before; nil: it has not. The secret
// is not shown again.
func (s *Server) created(w http.ResponseWriter, c *journal.Creation) (v any, err error) {
	if c == nil {
		return nil, nil
	}
	sub, exists := s.registry.Subscription(journal.SubscriptionID(c.Key))
	switch {
	case !exists:
		return nil, nil
	case sub.Deleted:
		return nil, refuse(conflict, "Idempotency-Key", "made a subscription that was removed since")
	case sub.Creation == nil || *sub.Creation != *c:
		return nil, refuse(keyConflict, "Idempotency-Key", "was used before for another subscription")
	}
	w.Header().Set("Location", "/v1/subscriptions/"+sub.ID)
	w.Header().Set("Fairlane-Repeat", "true")
	return viewSubscription(&sub), nil
}

func (s *Server) storeNew(w http.ResponseWriter, r *http.Request, sub journal.Subscription, secret string) (int, any, error) {
	if again, err := s.created(w, sub.Creation); again != nil || err != nil {
		return http.StatusCreated, again, err
	}
	if t, ok := s.registry.Tenant(sub.Tenant); !ok || t.Deleted || !callerOf(r).sees(sub.Tenant) {
		return 0, nil, refuse(unknownTenant, "tenant", "names "+sub.Tenant+", which does not exist")
	}
	stored, err := s.fanout.PutSubscription(r.Context(), sub)
	if err != nil {
		return 0, nil, err
	}
	v := viewSubscription(&stored)
	v.Secret = secret
	w.Header().Set("Location", "/v1/subscriptions/"+stored.ID)
	return http.StatusCreated, v, nil
}

// patchSubscription is PATCH /v1/subscriptions/{id}, a JSON merge patch: what is absent stays,
// null restores the default. The tenant cannot change.
func (s *Server) patchSubscription(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, true)
	if err != nil {
		return err
	}
	return s.alone(w, r, func() (int, any, error) {
		sub, err := s.subscription(r)
		if err != nil {
			return 0, nil, err
		}
		before := sub.URL
		s.readSubscription(o, &sub)
		s.withinTier(o, callerOf(r), &sub)
		if err := o.err(); err != nil {
			return 0, nil, err
		}
		if o.has("paused") && !sub.Paused || sub.URL != before {
			sub.Disabled = "" // resuming, or a new address, is how a 410 is taken back
		}
		stored, err := s.fanout.PutSubscription(r.Context(), sub)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, viewSubscription(&stored), nil
	})
}

func (s *Server) deleteSubscription(w http.ResponseWriter, r *http.Request) error {
	return s.alone(w, r, func() (int, any, error) {
		sub, err := s.subscription(r)
		if err != nil {
			return 0, nil, err
		}
		if err := s.fanout.DeleteSubscription(r.Context(), sub.ID); err != nil {
			return 0, nil, err
		}
		return http.StatusNoContent, nil, nil
	})
}

// readSubscription reads the fields that creation and patch share into sub.
func (s *Server) readSubscription(o *object, sub *journal.Subscription) {
	l := &sub.Limits
	o.read("name", nil, parseText(&sub.Name, tenantIDRule, validTenantID))
	o.read("url", nil, s.parseURL(&sub.URL))
	readMatching(o, sub)
	o.read("rate", func() { l.Rate, l.Burst = "", 0 }, parseRate(&l.Rate))
	o.read("burst", func() { l.Burst = 0 }, parseWhole(1, maxBurst, func(n int64) { l.Burst = n }))
	o.read("cap", func() { l.Cap = nil }, parseWhole(0, maxCap, func(n int64) { l.Cap = new(int(n)) }))
	o.read("timeout", func() { l.Timeout = 0 }, parseTimeout(&l.Timeout))
	o.read("attempts", func() { l.Attempts = 0 }, parseWhole(1, maxAttempts, func(n int64) { l.Attempts = uint32(n) }))
	o.read("on_limit", func() { l.Drop = false }, parseOnLimit(&l.Drop))
	o.read("on_dead", func() { sub.OnDead = "" }, parseOnDead(&sub.OnDead))
	o.read("outcomes", func() { sub.Outcomes = nil }, parseOutcomes(o, sub))
	readRequests(o, sub)
	o.read("paused", func() { sub.Paused = false }, parseBool(&sub.Paused))
	settleBurst(o, &l.Rate, &l.Burst)
}

// settleBurst gives a rate without a burst one second's worth, and holds both against the
// bucket's ranges.
func settleBurst(o *object, rate *string, burst *int64) {
	if !o.has("rate") && !o.has("burst") {
		return
	}
	r, err := limit.ParseRate(*rate, 1)
	if *rate == "" || err != nil || r.IsUnlimited() || r.IsPaused() {
		if o.has("burst") && *burst != 0 {
			o.bad("burst", "needs a rate that is a number")
		}
		*burst = 0
		return
	}
	if *burst == 0 {
		*burst = r.OneSecond()
	}
	if _, err := limit.ParseRate(*rate, *burst); err != nil {
		o.bad("rate", "does not fit its burst: "+err.Error())
	}
}

func (s *Server) parseURL(to *string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		u, is := text(raw)
		if !is {
			return "text"
		}
		if err := s.checkURL(u); err != nil {
			return "a URL that may be sent to: " + strings.TrimPrefix(err.Error(), "url: ")
		}
		*to = u
		return ""
	}
}

// parseRate takes "20/s", "unlimited", and 0 or "0" for paused.
func parseRate(to *string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		s, is := text(raw)
		if string(raw) == "0" {
			s, is = "0", true
		}
		if _, err := limit.ParseRate(s, 1); !is || err != nil {
			return `text such as "20/s" or "10/m", "unlimited", or 0 for paused`
		}
		*to = s
		return ""
	}
}

func parseTimeout(to *time.Duration) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		s, is := text(raw)
		d, err := config.ParseDuration(s)
		if !is || err != nil || d < minTimeout || d > maxTimeout {
			return `a duration with a unit, from "10ms" to "10m"`
		}
		*to = d
		return ""
	}
}

func parseOnLimit(drop *bool) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		s, _ := text(raw)
		*drop = s == "drop"
		if s != "drop" && s != "defer" {
			return "defer or drop"
		}
		return ""
	}
}

func parseOnDead(to *string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		s, _ := text(raw)
		switch s {
		case journal.OnDeadStop:
			*to = s
		case onDeadContinue:
			*to = ""
		default:
			return "continue or stop"
		}
		return ""
	}
}

func parseOutcomes(o *object, sub *journal.Subscription) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		const rule = `an object from statuses ("404", "4xx") to classes (delivered, rejected, gone, throttled, slow, retry)`
		inner, bad := parseObject(raw, "outcomes.")
		if bad != "" {
			return rule
		}
		o.problems = append(o.problems, inner.problems...)
		m := map[string]string{}
		for _, status := range inner.order {
			class, is := text(inner.fields[status])
			if !is {
				return rule
			}
			m[status] = class
		}
		if delivery.CheckOutcomes(m) != nil {
			return rule
		}
		sub.Outcomes = m
		return ""
	}
}
