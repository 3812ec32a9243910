package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// fake stands for the parts below the API where a test needs them to fail, or to stand still
// in virtual time. Everything else is tested with the real ones.
type fake struct {
	Dead   // not needed
	append func(context.Context, *journal.Trigger) (journal.Receipt, error)
	ready  error

	starting error // of posts with a key
	write    error // of every change of the registry
	over     map[string]time.Duration
	lanes    []fanout.LaneStatus
	figure   []fanout.LaneFigures
	all      []fanout.TenantStatus
	stats    fanout.Stats

	mu     sync.Mutex
	stored []*journal.Trigger
}

func (f *fake) Append(ctx context.Context, t *journal.Trigger) (journal.Receipt, error) {
	if f.append != nil {
		return f.append(ctx, t)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored = append(f.stored, t)
	return journal.Receipt{ID: "id", Position: journal.Position(len(f.stored))}, nil
}

func (f *fake) AppendBatch(ctx context.Context, ts []*journal.Trigger) ([]journal.Receipt, error) {
	return nil, journal.ErrUnavailable
}

func (f *fake) Deliveries(context.Context, engine.LaneID, uint64, int) ([]journal.Record, uint64, error) {
	return nil, 0, journal.ErrUnavailable
}
func (f *fake) Load(context.Context, journal.Position) (*journal.Trigger, error) {
	return nil, journal.ErrUnavailable
}
func (f *fake) ParkedOf(string, journal.Position, int, func(engine.Reason) bool) ([]fanout.Parked, error) {
	return nil, fanout.ErrNotFound
}
func (f *fake) Starting() error        { return f.starting }
func (f *fake) Status() journal.Status { return journal.Status{} }
func (f *fake) PutTenant(_ context.Context, t journal.Tenant) (journal.Tenant, error) {
	return t, f.write
}
func (f *fake) DeleteTenant(context.Context, string) error { return f.write }
func (f *fake) PutSubscription(_ context.Context, s journal.Subscription) (journal.Subscription, error) {
	return s, f.write
}
func (f *fake) CheckTenant(journal.Tenant, map[string]fanout.Tier) error { return nil }
func (f *fake) CheckSubscription(journal.Subscription, fanout.Tier, fanout.Beside) error {
	return nil
}
func (f *fake) DeleteSubscription(context.Context, string) error { return f.write }
func (f *fake) Lanes() []fanout.LaneStatus                       { return f.lanes }
func (f *fake) Lane(string) (fanout.LaneStatus, bool) {
	panic("a value that quotes https://h.test/SECRETPATH")
}
func (f *fake) LanesOf(string) []fanout.LaneStatus               { return f.lanes }
func (f *fake) TenantOf(string) (s fanout.TenantStatus, ok bool) { return s, false }
func (f *fake) Tenants() []fanout.TenantStatus                   { return f.all }
func (f *fake) Figures() ([]fanout.LaneFigures, engine.Counters) {
	var sum engine.Counters
	for i := range f.figure {
		sum = sum.Plus(f.figure[i].Counters)
	}
	return f.figure, sum
}
func (f *fake) LookNear() error                          { return nil }
func (f *fake) Stats() fanout.Stats                      { return f.stats }
func (f *fake) Pressure(id string) (time.Duration, bool) { d, over := f.over[id]; return d, over }
func (f *fake) Ready() error                             { return f.ready }

// fakeRegistry knows the tenants acme and beta, and one subscription.
type fakeRegistry struct{}

func (fakeRegistry) Tenants() []journal.Tenant { return nil }
func (fakeRegistry) Tenant(id string) (journal.Tenant, bool) {
	return journal.Tenant{ID: id}, id == "acme" || id == "beta"
}
func (fakeRegistry) Subscriptions() []journal.Subscription { return nil }
func (fakeRegistry) Named(string, string) (journal.Subscription, bool) {
	return journal.Subscription{}, false
}
func (fakeRegistry) Subscription(id string) (journal.Subscription, bool) {
	return journal.Subscription{ID: id, Tenant: "acme"}, true
}

// fakeAccess has no keys, and keeps the acts.
type fakeAccess struct {
	acts  []journal.Act
	audit error
}

func (*fakeAccess) Keys() []journal.Key                               { return nil }
func (*fakeAccess) Key(string) (journal.Key, bool)                    { return journal.Key{}, false }
func (*fakeAccess) Find([32]byte, time.Time) (k journal.Key, ok bool) { return k, ok }
func (*fakeAccess) Change(context.Context, string, func(journal.Key) (journal.Key, error)) (journal.Key, error) {
	return journal.Key{}, journal.ErrUnavailable
}
func (f *fakeAccess) Audit(_ context.Context, a journal.Act) error {
	f.acts = append(f.acts, a)
	return f.audit
}
func (f *fakeAccess) Acts(context.Context, uint64, int) ([]journal.Act, error) { return f.acts, nil }

// serveFake answers from f.
func serveFake(t *testing.T, f *fake) (*Server, func(method, path string, headers ...string) answer, *buffer) {
	t.Helper()
	logs := &buffer{}
	s := New(Options{Fanout: f, Journal: f, Registry: fakeRegistry{}, Access: &fakeAccess{}, AdminKey: testKey, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return s, func(method, path string, headers ...string) answer {
		t.Helper()
		return do(t, http.DefaultClient, srv.URL, method, path, nil, headers...)
	}, logs
}
