// Package server is the HTTP API: triggers in, tenants and subscriptions, lanes, the ledger
// and metrics.
//
// Every refusal is a problem (RFC 9457) whose code has its status in one table (problem.go),
// and comes before anything is stored. Start wires the whole service and is what both the
// command and the demo run.
package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/httpadmit"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/ui"
)

// Fanout is what the API asks of the fan-out; *fanout.Fanout is one.
type Fanout interface {
	Dead
	PutTenant(context.Context, journal.Tenant) (journal.Tenant, error)
	CheckTenant(t journal.Tenant, tiers map[string]fanout.Tier) error
	DeleteTenant(ctx context.Context, id string) error
	PutSubscription(context.Context, journal.Subscription) (journal.Subscription, error)
	CheckSubscription(s journal.Subscription, t fanout.Tier, b fanout.Beside) error
	DeleteSubscription(ctx context.Context, id string) error
	Lanes() []fanout.LaneStatus
	Lane(subscription string) (fanout.LaneStatus, bool)
	LanesOf(tenant string) []fanout.LaneStatus
	Tenants() []fanout.TenantStatus
	TenantOf(id string) (fanout.TenantStatus, bool)
	Stats() fanout.Stats
	Figures() ([]fanout.LaneFigures, engine.Counters)
	LookNear() error
	ParkedOf(subscription string, after journal.Position, limit int, pass func(engine.Reason) bool) ([]fanout.Parked, error)
	Pressure(tenant string) (retryIn time.Duration, over bool)
	Ready() error
}

// Journal is what the API asks of the log; *journal.Journal is one.
type Journal interface {
	Append(context.Context, *journal.Trigger) (journal.Receipt, error)
	AppendBatch(context.Context, []*journal.Trigger) ([]journal.Receipt, error)
	Deliveries(ctx context.Context, lane engine.LaneID, before uint64, limit int) ([]journal.Record, uint64, error)
	Load(context.Context, journal.Position) (*journal.Trigger, error)
	Starting() error
	Status() journal.Status
}

// Registry is what the API reads of tenants and subscriptions; *journal.Registry is one.
type Registry interface {
	Tenants() []journal.Tenant
	Tenant(id string) (journal.Tenant, bool)
	Subscriptions() []journal.Subscription
	Subscription(id string) (journal.Subscription, bool)
	Named(tenant, name string) (journal.Subscription, bool)
}

// Options of New. Fanout, Journal, Registry and Access are required.
type Options struct {
	Fanout   Fanout
	Journal  Journal
	Registry Registry
	Access   Access
	AdminKey string                 // "": only the keys of Access open anything
	Tiers    map[string]fanout.Tier // that a tenant may have; none: only "default"
	CheckURL func(string) error     // nil: delivery.CheckURL
	MaxBody  int                    // bytes of one trigger's payload; 0 means 1 MiB
	Metrics  *Metrics               // nil: no /metrics
	trace    *tracer                // nil: no spans
	keeper   tierKeeper             // nil: Tiers are the configuration's
	Open     bool                   // /metrics without a key
	Logger   *slog.Logger           // nil discards
	Version  string                 // of the release, for the OpenAPI document; "" means "dev"
	LinkKey  []byte                 // signs links to tenants' pages; nil: one of this process
	Frames   []string               // origins that may show such a page in a frame
}

// Server answers the API. Safe for concurrent use.
type Server struct {
	fanout     Fanout
	journal    Journal
	registry   Registry
	metrics    *Metrics
	trace      *tracer    // nil: no spans
	keeper     tierKeeper // nil: no tier can be changed
	log        *slog.Logger
	access     Access
	configured bool // key is one
	key        [sha256.Size]byte
	tiers      atomic.Pointer[map[string]fanout.Tier]
	checkURL   func(string) error
	door       *door
	maxBody    int
	pace       pace
	mux        *http.ServeMux
	pages      *ui.UI
	document   []byte           // OpenAPI
	changes    *httpadmit.Slots // one slot: who has it reads, changes and writes the registry
	stopping   atomic.Bool
}

// New returns a server that answers from o.
func New(o Options) *Server {
	s := &Server{
		fanout: o.Fanout, journal: o.Journal, registry: o.Registry, metrics: o.Metrics, trace: o.trace, keeper: o.keeper,
		log: o.Logger, access: o.Access, configured: o.AdminKey != "", key: sha256.Sum256([]byte(o.AdminKey)), checkURL: o.CheckURL,
		maxBody: o.MaxBody, pace: defaultPace, mux: http.NewServeMux(), changes: httpadmit.NewSlots(fair.SlotLimits{Slots: 1, Queue: changeQueue, Waiters: handAll}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.checkURL == nil {
		s.checkURL = delivery.CheckURL
	}
	if s.maxBody == 0 {
		s.maxBody = 1 << 20
	}
	if len(o.Tiers) == 0 {
		o.Tiers = map[string]fanout.Tier{"default": {Name: "default"}}
	}
	s.door = newDoor()
	gate, err := gateOf(o.Tiers)
	if err != nil {
		panic("server: Options.Tiers: " + err.Error())
	}
	s.setTiers(o.Tiers, gate)
	s.document = openAPI(cmp.Or(o.Version, "dev"))
	s.route(o.Open)
	s.pages = s.newPages(o)
	return s
}

// setTiers puts tiers and their gate into force.
func (s *Server) setTiers(tiers map[string]fanout.Tier, gate *admit.Gate) {
	s.door.gate.Store(gate)
	s.tiers.Store(&tiers)
}

// Handler is the API, and the pages below /ui.
func (s *Server) Handler() http.Handler {
	pages := s.pages.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// What is left of an unread body is drained by net/http: not for ever.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.pace.grace))
		}
		if unclean(r.URL.Path) {
			s.answer(s.nowhere).ServeHTTP(w, r)
			return
		}
		if forPages(r) {
			pages.ServeHTTP(w, r)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// unclean reports whether the mux would redirect p instead of answering.
func unclean(p string) bool {
	c := path.Clean(p)
	return c != p && c+"/" != p
}

// Stopping ends ingest and live pages: from now on posts are refused and readiness is off.
func (s *Server) Stopping() {
	s.stopping.Store(true)
	s.pages.Close()
}

// answer turns a handler's error, or panic, into a problem.
func (s *Server) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recover(w, r)
		err := h(w, r)
		if err == nil {
			return
		}
		p := problemOf(err)
		if p.code == internal {
			s.log.Error("request failed", "method", r.Method, "route", r.Pattern, "error", p.cause)
		}
		p.write(w)
	})
}

// recover answers a panic. The value may quote anything, so the log gets its type and the stack.
func (s *Server) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
		panic(v)
	}
	s.log.Error("request panicked", "method", r.Method, "route", r.Pattern, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	(&problem{code: internal, detail: "the cause is in the service's log", close: true}).write(w)
}

// mayKnow reports whether r may learn which routes exist: below /v1 only with the key.
func (s *Server) mayKnow(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/v1/") || s.authenticate(r) != nil
}

// nowhere answers a path that no route has.
func (s *Server) nowhere(_ http.ResponseWriter, r *http.Request) error {
	if !s.mayKnow(r) {
		return noKey(r)
	}
	return &problem{code: notFound, detail: "no route has this path"}
}

// unknown answers what no route takes: 405 where another method would do, else 404.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) error {
	allowed := s.allowed(r)
	if allowed == "" || !s.mayKnow(r) {
		return s.nowhere(w, r)
	}
	return &problem{code: methodNotAllowed, detail: "the methods of this path are in Allow", allow: allowed}
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// allowed lists the methods that a route takes for r's path.
func (s *Server) allowed(r *http.Request) string {
	var list []string
	for _, m := range methods {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "/" {
			list = append(list, m)
		}
	}
	return strings.Join(list, ", ")
}

// reply sends v as JSON.
func reply(w http.ResponseWriter, status int, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // topics keep their ">"
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(out.Bytes())
	return nil
}

// healthView is the answer of /healthz.
type healthView struct {
	Status string `json:"status"`
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, healthView{"ok"})
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	err := s.fanout.Ready()
	if err == nil {
		err = s.journal.Starting()
	}
	if s.stopping.Load() {
		err = fanout.ErrStopped
	}
	if err != nil {
		w.Header().Set("Retry-After", "1")
		return reply(w, http.StatusServiceUnavailable, readiness{Reason: publicReason(err)})
	}
	return reply(w, http.StatusOK, readiness{Ready: true})
}

// publicReason is an error without its particulars: /readyz is open to everyone.
func publicReason(err error) string {
	for _, known := range []error{journal.ErrFull, journal.ErrUnavailable, journal.ErrStarting, journal.ErrDamaged,
		journal.ErrLowDisk, journal.ErrTrimmed, fanout.ErrStopped} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if errors.Unwrap(err) == nil {
		return err.Error()
	}
	return "not ready; the cause is in the log"
}
