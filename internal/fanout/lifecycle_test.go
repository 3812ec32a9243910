package fanout

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// load posts one trigger after the other to a tenant until the function that it returns is called, which tells
// the ids of all that were acknowledged.
func (b *bench) load(tenant string) (stop func() []string) {
	var ids []string
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
			}
			r, err := b.j.Append(context.Background(), &journal.Trigger{
				Audience: journal.Audience{Tenants: []string{tenant}}, Topic: "t.x", Accepted: time.Now(), Payload: []byte("x"),
			})
			if err != nil {
				b.t.Error(err)
				return
			}
			ids = append(ids, r.ID)
		}
	})
	return func() []string {
		close(quit)
		done.Wait()
		return ids
	}
}

func editTenant(t *testing.T, b *bench, id string, change func(*journal.Tenant)) {
	t.Helper()
	tn, ok := b.j.Registry().Tenant(id)
	if !ok {
		t.Fatal("no such tenant")
	}
	change(&tn)
	if _, err := b.PutTenant(context.Background(), tn); err != nil {
		t.Fatal(err)
	}
}

// still waits until more has been parked, and fails if anything was sent to the endpoint meanwhile.
func (b *bench) still(sub, name, why string) {
	b.t.Helper()
	b.until(sub, "the last of what was in flight", func(s LaneStatus) bool { return s.Counters.InFlight == 0 })
	before, _ := b.Lane(sub)
	requests := len(b.to.requests(url(name)))
	b.until(sub, "more to wait", func(s LaneStatus) bool { return s.Counters.Parked > before.Counters.Parked+20 })
	if n := len(b.to.requests(url(name))) - requests; n > 0 {
		b.t.Errorf("%s: %d requests", why, n)
	}
}

// moves waits until more has been delivered.
func (b *bench) moves(sub, why string) {
	b.t.Helper()
	before, _ := b.Lane(sub)
	b.until(sub, why, func(s LaneStatus) bool { return s.Counters.Delivered > before.Counters.Delivered+20 })
}

// Everything that a person may do to a subscription and its tenant, each while triggers flow: what must rest
// rests, what must go on goes on, the account balances at every look (until looks), and in the end everything
// acknowledged was delivered.
func TestEveryActUnderLoadKeepsTheAccount(t *testing.T) {
	b := start(t, func(o *Options) {
		easyBudget(o)
		o.Tiers["pro"] = Tier{Weight: 3, Cap: 4}
	})
	b.tenant("acme")
	b.tenant("neighbour")
	cap8 := 8
	sub := b.subscribe("acme", "hook", journal.Limits{Cap: &cap8})
	other := b.subscribe("neighbour", "other", journal.Limits{})
	var gone atomic.Bool
	b.to.answer[url("hook")] = func(n int, _ *delivery.Request) delivery.Outcome {
		switch {
		case gone.Load():
			return delivery.Outcome{Status: 410, Result: engine.Result{Kind: engine.Gone}}
		case n%10 == 0:
			return failed(500)
		}
		return ok()
	}
	stop, stopOther := b.load("acme"), b.load("neighbour")
	b.moves(sub, "a start")
	for range 2 {
		edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
		b.still(sub, "hook", "paused")
		edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
		b.moves(sub, "resuming")

		editTenant(t, b, "acme", func(tn *journal.Tenant) { tn.Suspended = true })
		b.still(sub, "hook", "suspended")
		editTenant(t, b, "acme", func(tn *journal.Tenant) { tn.Suspended, tn.Name = false, "renamed" })
		b.moves(sub, "the end of the suspension")

		gone.Store(true)
		b.until(sub, "disabling", func(LaneStatus) bool {
			s, _ := b.j.Registry().Subscription(sub)
			return s.Disabled == "gone"
		})
		b.still(sub, "hook", "gone")
		gone.Store(false)
		edit(t, b, sub, func(s *journal.Subscription) { s.Disabled = "" })
		b.moves(sub, "enabling")

		editTenant(t, b, "acme", func(tn *journal.Tenant) { tn.Tier = "pro" })
		b.moves(sub, "the other tier")
		editTenant(t, b, "acme", func(tn *journal.Tenant) { tn.Tier = "default" })
		edit(t, b, sub, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "0", 0 })
		b.still(sub, "hook", "rate 0")
		edit(t, b, sub, func(s *journal.Subscription) { s.Limits.Rate = "" })
		b.moves(sub, "a rate")
	}
	ids, others := stop(), stopOther()
	b.until(sub, "the end", delivered(uint64(len(ids))))
	b.until(other, "the end", delivered(uint64(len(others))))
	got := map[string]int{}
	for _, r := range b.to.requests(url("hook")) {
		got[r.ID]++
	}
	for _, id := range ids {
		if got[id] == 0 {
			t.Errorf("%s was never sent", id)
		}
	}
	if n := len(b.to.requests(url("other"))); n != len(others) {
		t.Errorf("the neighbour got %d requests for %d triggers", n, len(others))
	}
}

// A tenant that changes its tier gets the new limits at once and no token with them, up and down and up again.
func TestATierChangeRefillsNothing(t *testing.T) {
	b := start(t, func(o *Options) {
		o.Tiers["default"] = Tier{Rate: "1/h", Burst: 5}
		o.Tiers["pro"] = Tier{Rate: "2/h", Burst: 50}
		o.Tiers["fast"] = Tier{Rate: "1000/s", Burst: 10}
	})
	b.tenant("acme")
	sub := b.subscribe("acme", "hook", journal.Limits{})
	stop := b.load("acme")
	for _, tier := range []string{"default", "pro", "default", "pro"} {
		editTenant(t, b, "acme", func(tn *journal.Tenant) { tn.Tier = tier })
		b.until(sub, "more to wait", func(s LaneStatus) bool { return s.Counters.Parked > 20 })
		b.still(sub, "hook", tier)
	}
	if n := len(b.to.requests(url("hook"))); n != 5 {
		t.Errorf("%d requests over four changes of tier, the burst was 5", n)
	}
	n := uint64(len(stop()))
	editTenant(t, b, "acme", func(tn *journal.Tenant) { tn.Tier = "fast" })
	b.until(sub, "drain", delivered(n))
}

// While a secret is rotated the new one and the old one both sign, and deliveries go on; the old one alone signed
// before, the new one alone signs after.
func TestSecretsOverlapWhileTheyAreRotated(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	sub := b.subscribe("acme", "hook", journal.Limits{})
	old, fresh := make([]byte, 24), bytes.Repeat([]byte{7}, 32)
	stop := b.load("acme")
	b.moves(sub, "a start")
	edit(t, b, sub, func(s *journal.Subscription) { s.Secrets = [][]byte{fresh, old} })
	b.moves(sub, "the overlap")
	edit(t, b, sub, func(s *journal.Subscription) { s.Secrets = [][]byte{fresh} })
	b.moves(sub, "the new secret")
	b.until(sub, "the end", delivered(uint64(len(stop()))))
	stages := map[string]int{}
	var last string
	for _, r := range b.to.requests(url("hook")) {
		stage := fmt.Sprint(len(r.Secrets), bytes.Equal(r.Secrets[0], fresh))
		if stages[stage]++; stage != last && stages[stage] > 20 {
			t.Errorf("%s again, after %s", stage, last)
		}
		last = stage
	}
	for _, stage := range []string{"1 false", "2 true", "1 true"} {
		if stages[stage] == 0 {
			t.Errorf("no request of stage %s: %v", stage, stages)
		}
	}
}

// After an acknowledged delete no request for the subscription begins: what waits is cancelled, what is in flight
// ends and is recorded, what is dead is purged, its secrets are gone. A delete that failed may be repeated, and one
// that succeeded. Whoever else sends to the same address gets each trigger once, at once.
//
// Field case 46.
// Field case 95.
func TestDeleteWithEverythingGoingOn(t *testing.T) {
	b := start(t, easyBudget)
	b.tenant("acme")
	three := 3
	sub := b.subscribe("acme", "hook", journal.Limits{Cap: &three})
	release, blocked := make(chan delivery.Outcome), atomic.Bool{}
	b.to.answer[url("hook")] = func(_ int, r *delivery.Request) delivery.Outcome {
		switch {
		case r.Secrets[0][0] == 9: // the other subscription
			return ok()
		case !blocked.Load():
			return delivery.Outcome{Status: 400, Result: engine.Result{Kind: engine.RejectedR}}
		}
		return <-release
	}
	b.post(10, "acme")
	b.until(sub, "deaths", func(s LaneStatus) bool { return s.Counters.Dead == 10 })
	blocked.Store(true)
	s := journal.Subscription{Tenant: "acme", URL: url("hook"), Secrets: [][]byte{bytes.Repeat([]byte{9}, 24)}}
	s.SetMatching([]string{"t.>"}, nil)
	twin, err := b.PutSubscription(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	b.post(103, "acme")
	b.until(sub, "waiting", func(s LaneStatus) bool { return s.Counters.Parked == 100 && s.Counters.InFlight == 3 })
	b.until(twin.ID, "the twin's", delivered(103))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.DeleteSubscription(cancelled, sub); err == nil {
		t.Log("the first delete was through before its caller had gone")
	}
	for range 2 {
		if err := b.DeleteSubscription(context.Background(), sub); err != nil {
			t.Fatal(err)
		}
	}
	requests := len(b.to.requests(url("hook")))
	release <- ok()
	release <- failed(500)
	release <- delivery.Outcome{Status: 410, Result: engine.Result{Kind: engine.Gone}}
	b.post(1, "acme")
	b.until(twin.ID, "the twin's", delivered(104))
	l, _ := b.Lane(sub)
	for l.Counters.InFlight > 0 {
		l = b.until(sub, "the last", func(s LaneStatus) bool { return s.Counters.InFlight == 0 })
	}
	want := engine.Counters{Offered: 113, Delivered: 1, Cancelled: 112}
	if l.Counters != want {
		t.Errorf("account %+v, want %+v", l.Counters, want)
	}
	if n := len(b.to.requests(url("hook"))) - requests; n != 1 {
		t.Errorf("%d requests after the delete, want the twin's one", n)
	}
	stored, _ := b.j.Registry().Subscription(sub)
	if len(stored.Secrets) > 0 || len(b.index.lanes[l.Lane].sub.Secrets) > 0 {
		t.Error("the secrets are still there")
	}
	b.crash()
	b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters == want })
	b.until(twin.ID, "recovery", delivered(104))
}

// Names are labels: two tenants swap theirs while both are loaded; limits, backlog, dead letters and what is
// delivered stay with the ids.
//
// Field case 97.
func TestNamesAreSwappedUnderLoad(t *testing.T) {
	b := start(t, easyBudget)
	subs := map[string]string{}
	for _, id := range []string{"a", "b"} {
		if _, err := b.PutTenant(context.Background(), journal.Tenant{ID: id, Name: id}); err != nil {
			t.Fatal(err)
		}
		subs[id] = b.subscribe(id, "hook-"+id, journal.Limits{Rate: "2000/s", Burst: 7})
		b.to.answer[url("hook-"+id)] = func(n int, _ *delivery.Request) delivery.Outcome {
			if n <= 3 {
				return delivery.Outcome{Status: 400, Result: engine.Result{Kind: engine.RejectedR}}
			}
			return ok()
		}
	}
	stopA, stopB := b.load("a"), b.load("b")
	for _, names := range [][2]string{{"b", "b"}, {"b", "a"}, {"x", "y"}, {"y", "x"}} {
		editTenant(t, b, "a", func(tn *journal.Tenant) { tn.Name = names[0] })
		editTenant(t, b, "b", func(tn *journal.Tenant) { tn.Name = names[1] })
		b.moves(subs["a"], "a renamed")
		b.moves(subs["b"], "b renamed")
	}
	for id, ids := range map[string][]string{"a": stopA(), "b": stopB()} {
		s := b.until(subs[id], "the end", func(s LaneStatus) bool { return s.Counters.Delivered+s.Counters.Dead == uint64(len(ids)) })
		if s.Counters.Dead != 3 || s.Burst != 7 || s.TenantID != id {
			t.Errorf("%s: %+v, burst %d, of %s", id, s.Counters, s.Burst, s.TenantID)
		}
		mine := map[string]bool{}
		for _, x := range ids {
			mine[x] = true
		}
		for _, r := range b.to.requests(url("hook-" + id)) {
			if !mine[r.ID] {
				t.Fatalf("%s got %s of the other", id, r.ID)
			}
		}
	}
}

// More attempts at once than goroutines that rest: all end, so many rest, and the next attempts find them.
func TestAttemptsShareGoroutines(t *testing.T) {
	const half = restMost/2 + 20
	most := 2 * half
	b := start(t, func(o *Options) { o.Engine.Slots, o.Engine.HostLimit = most, -1 })
	b.tenant("acme")
	sub := b.subscribe("acme", "hangs", journal.Limits{Cap: &most})
	hang := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	b.to.answer[url("hangs")] = func(n int, _ *delivery.Request) delivery.Outcome {
		select {
		case <-hang[(n-1)/most]:
		case <-t.Context().Done():
		}
		return ok()
	}
	for round := range hang {
		for range 2 {
			pack := make([]*journal.Trigger, half)
			for i := range pack {
				pack[i] = &journal.Trigger{Audience: journal.Audience{Tenants: []string{"acme"}}, Topic: "t.x", Accepted: time.Now()}
			}
			if _, err := b.j.AppendBatch(t.Context(), pack); err != nil {
				t.Fatal(err)
			}
		}
		b.until(sub, "all sent", func(LaneStatus) bool { return len(b.to.requests(url("hangs"))) == (round+1)*most })
		if n := b.resting.Load(); n != 0 {
			t.Errorf("%d goroutines rest while %d attempts are in flight", n, most)
		}
		close(hang[round])
		b.until(sub, "all delivered", delivered(uint64((round+1)*most)))
		b.until(sub, "rest", func(LaneStatus) bool { return b.resting.Load() == restMost })
	}
}
