package fanout

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/retry"
)

// endpoints answers attempts by the host of the URL, in place of the network.
type endpoints struct {
	mu      sync.Mutex
	answer  map[string]func(n int, r *delivery.Request) delivery.Outcome // n counts from 1
	seen    map[string][]delivery.Request
	now     map[string]int // in flight
	most    map[string]int
	changed chan struct{}
}

func newEndpoints() *endpoints {
	return &endpoints{
		answer: map[string]func(int, *delivery.Request) delivery.Outcome{},
		seen:   map[string][]delivery.Request{}, now: map[string]int{}, most: map[string]int{},
		changed: make(chan struct{}, 1),
	}
}

func (e *endpoints) Send(ctx context.Context, r *delivery.Request) delivery.Outcome {
	if !r.Start() {
		return *notSent("removed", "")
	}
	e.mu.Lock()
	e.seen[r.URL] = append(e.seen[r.URL], *r)
	n := len(e.seen[r.URL])
	e.now[r.URL]++
	e.most[r.URL] = max(e.most[r.URL], e.now[r.URL])
	answer := e.answer[r.URL]
	e.mu.Unlock()
	out := ok()
	if answer != nil {
		out = answer(n, r)
	}
	e.mu.Lock()
	e.now[r.URL]--
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
	return out
}

func (e *endpoints) Close() {}

func (e *endpoints) requests(url string) []delivery.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]delivery.Request(nil), e.seen[url]...)
}

func ok() delivery.Outcome {
	return delivery.Outcome{Result: engine.Result{Kind: engine.OK}, Status: 200}
}

func failed(status int) delivery.Outcome {
	return delivery.Outcome{Result: engine.Result{Kind: engine.Failed}, Status: status, Reason: "status"}
}

// bench is one process under test: a journal on disk, and the fan-out over it.
type bench struct {
	*Fanout
	t    *testing.T
	dir  string
	j    *journal.Journal
	to   *endpoints
	opts Options

	cache int64 // of packs; 0: the journal's own
}

func start(t *testing.T, edit func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), to: newEndpoints()}
	b.opts = Options{
		Engine:  engine.Config{Slots: 100},
		Profile: engine.Profile{Schedule: retry.Schedule{QuickBase: 4 * time.Millisecond, Slow: []time.Duration{50 * time.Millisecond}}},
		Tiers:   map[string]Tier{"default": {}},
	}
	if edit != nil {
		edit(&b.opts)
	}
	b.open()
	t.Cleanup(b.close)
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	ctx := context.Background()
	if b.j, err = journal.Open(ctx, journal.Options{Dir: b.dir, MaxBytes: 1 << 30, Cache: b.cache}); err != nil {
		b.t.Fatal(err)
	}
	b.opts.Journal, b.opts.Sender = b.j, b.to
	if b.Fanout, err = Start(ctx, b.opts); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) close() {
	if b.j == nil {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), 2*time.Second)
	defer done()
	if err := b.Stop(ctx); err != nil {
		b.t.Error(err)
	}
	if err := b.j.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
	b.j = nil
}

// restart stops cleanly and opens the same directory again.
func (b *bench) restart() {
	b.t.Helper()
	b.close()
	b.open()
}

// crash closes the journal under the fan-out's feet, without a checkpoint, and opens it again.
func (b *bench) crash() {
	b.t.Helper()
	b.StopSends()
	b.cancel()
	b.cut()
	b.loops.Wait()
	if err := b.j.Close(context.Background()); err != nil {
		b.t.Log("close at the crash:", err)
	}
	b.open()
}

func (b *bench) tenant(id string) {
	b.t.Helper()
	if _, err := b.PutTenant(context.Background(), journal.Tenant{ID: id}); err != nil {
		b.t.Fatal(err)
	}
}

// subscribe adds a subscription to everything under "t." and returns its id; the URL's host is its name.
func (b *bench) subscribe(tenant, name string, limits journal.Limits) string {
	b.t.Helper()
	s, err := b.PutSubscription(context.Background(), journal.Subscription{
		Tenant: tenant, URL: url(name), Limits: limits, Secrets: [][]byte{make([]byte, 24)},
		Versions: []journal.Version{{Topics: []string{"t.>"}, Active: true}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return s.ID
}

func url(name string) string { return "http://" + name + ".test/hook" }

func (b *bench) post(n int, tenants ...string) []journal.Receipt {
	b.t.Helper()
	out := make([]journal.Receipt, n)
	for i := range n {
		r, err := b.j.Append(context.Background(), &journal.Trigger{
			Audience: journal.Audience{Tenants: tenants}, Topic: "t.x", Accepted: time.Now(),
			ContentType: "application/json", Payload: fmt.Appendf(nil, `{"n":%d}`, i),
		})
		if err != nil {
			b.t.Fatal(err)
		}
		out[i] = r
	}
	return out
}

// until waits for a condition on the account of a subscription.
func (b *bench) until(sub, what string, holds func(LaneStatus) bool) LaneStatus {
	b.t.Helper()
	return await(b.t, sub+": "+what, func() (LaneStatus, bool) {
		s, found := b.Lane(sub)
		if found && !s.Counters.Balanced() {
			b.t.Fatalf("the account of %s is out of balance: %+v", sub, s.Counters)
		}
		return s, found && holds(s)
	})
}

// await waits until look says yes, and returns what it saw then.
func await[T any](t *testing.T, what string, look func() (T, bool)) T {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, yes := look()
		if yes {
			return seen
		}
		select {
		case <-deadline:
			t.Fatalf("%s never came: %+v", what, seen)
		case <-tick.C:
		}
	}
}

func delivered(n uint64) func(LaneStatus) bool {
	return func(s LaneStatus) bool { return s.Counters.Delivered == n }
}
