package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// put creates, or with an id edits, a subscription; it returns its id and the field that was refused.
func (b *bench) put(tenant, id, host string) (made, refused string) {
	s := journal.Subscription{ID: id, Tenant: tenant, URL: url(host), Secrets: [][]byte{make([]byte, 24)}}
	s.SetMatching([]string{"t.>"}, nil)
	stored, err := b.PutSubscription(context.Background(), s)
	if wrong := new(journal.FieldError); errors.As(err, &wrong) {
		return "", wrong.Field
	}
	if err != nil {
		b.t.Error(err)
	}
	return stored.ID, ""
}

// A tenant has as many subscriptions as its tier allows, however many ask at once.
func TestATenantsSubscriptionsAreBounded(t *testing.T) {
	b := start(t, func(o *Options) { o.Tiers = map[string]Tier{"default": {Subscriptions: 3}, "pro": {Subscriptions: 4}} })
	b.tenant("acme")
	b.tenant("other")
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if id, _ := b.put("acme", "", fmt.Sprint("h", i)); id != "" {
				made.Add(1)
			} else {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 3 || refused.Load() != 9 {
		t.Fatalf("%d made, %d refused; want 3 and 9", made.Load(), refused.Load())
	}
	if id, _ := b.put("other", "", "h"); id == "" {
		t.Error("another tenant's bound is its own")
	}
	b.restart()
	id := b.LanesOf("acme")[0].Subscription
	if _, field := b.put("acme", "", "h"); field != "tenant" {
		t.Errorf("after a restart: refused for %q", field)
	}
	if _, field := b.put("acme", id, "h0"); field != "" {
		t.Errorf("an edit is no new one: refused for %q", field)
	}
	if _, err := b.PutTenant(context.Background(), journal.Tenant{ID: "acme", Tier: "pro"}); err != nil {
		t.Fatal(err)
	}
	if id, field := b.put("acme", "", "h"); id == "" {
		t.Errorf("its new tier allows four: refused for %q", field)
	}
}

// What is removed stays in the registry, and a host's state in memory: both are bounded, too.
func TestWhatATenantLeavesBehindIsBounded(t *testing.T) {
	b := start(t, func(o *Options) { o.Tiers = map[string]Tier{"default": {Subscriptions: 1}} })
	b.tenant("acme")
	b.tenant("other")
	if id, _ := b.put("other", "", "known"); id == "" {
		t.Fatal("other")
	}
	for i := range lifeMost {
		id, field := b.put("acme", "", "h")
		if id == "" {
			t.Fatalf("subscription %d: refused for %q", i, field)
		}
		if i < lifeMost-1 {
			if err := b.DeleteSubscription(context.Background(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	id := b.LanesOf("acme")[0].Subscription
	for i := range lifeMost - 1 { // h is the first
		if _, field := b.put("acme", id, fmt.Sprint("h", i)); field != "" {
			t.Fatalf("host %d: refused for %q", i, field)
		}
	}
	for host, want := range map[string]string{"new": "url", "known": "", "h3": ""} {
		if _, field := b.put("acme", id, host); field != want {
			t.Errorf("host %s: refused for %q, want %q", host, field, want)
		}
	}
	if err := b.DeleteSubscription(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	b.restart()
	if _, field := b.put("acme", "", "h"); field != "tenant" {
		t.Errorf("more than ten times in its life: refused for %q", field)
	}
}

// What is dead never comes back by itself, so it must not stop the reader; and what one tenant has waiting must not,
// however much of it there is.
func TestOneTenantsReferencesStopNobody(t *testing.T) {
	const most = 200
	b := start(t, func(o *Options) { o.MaxWaiting = most })
	for _, tn := range []string{"rejects", "waits", "quiet"} {
		b.tenant(tn)
	}
	dead := b.subscribe("rejects", "rejects", journal.Limits{})
	b.answers("rejects", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	b.post(3*most+50, "rejects")
	b.until(dead, "death", func(s LaneStatus) bool { return s.Counters.Dead == 3*most+50 })

	waits := b.subscribe("waits", "waits", journal.Limits{Rate: "1/h", Burst: 1})
	b.post(2*most, "waits")
	quiet := b.subscribe("quiet", "quiet", journal.Limits{})
	b.post(20, "quiet")
	b.until(quiet, "delivery beside them", delivered(20))

	s := b.until(waits, "the end of offers", func(s LaneStatus) bool { return s.Counters.Offered == 2*most })
	if s.Counters.Parked < most/2 || s.Counters.Parked+s.Counters.Dead != 2*most-1 {
		t.Errorf("of one that may not be sent: %+v", s.Counters)
	}
	if _, over := b.Pressure("rejects"); !over {
		t.Error("more references than all may have, and no post is refused")
	}
	if _, over := b.Pressure("quiet"); over {
		t.Error("a quiet tenant is refused")
	}
	b.crash()
	b.post(20, "quiet")
	b.until(quiet, "delivery after a crash", delivered(40))
}

// Of a tenant that has more dead letters than are kept, the oldest end, and the account says so. Another's stay.
func TestTheOldestDeadLettersOfWhoHasMostEnd(t *testing.T) {
	b := start(t, func(o *Options) { o.MaxWaiting = 25 })
	b.tenant("ant")
	b.tenant("bee")
	ant := b.subscribe("ant", "ant", journal.Limits{})
	bee := b.subscribe("bee", "bee", journal.Limits{})
	b.bury(bee, "bee", "bee", 10)
	receipts := b.bury(ant, "ant", "ant", 60)
	b.answers("ant", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	b.post(90, "ant")
	s := b.until(ant, "the end of the oldest", func(s LaneStatus) bool { return s.Counters.Dead == 90 && s.Counters.Cancelled == 60 })
	letters, _, err := b.DeadLetters(t.Context(), Selection{Subscription: ant}, DeadCursor{}, 100)
	if err != nil || len(letters) != 90 {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	for _, r := range receipts {
		for _, d := range letters {
			if d.Trigger != nil && d.Trigger.Position == r.Position {
				t.Errorf("%d, of the oldest, is kept", r.Position)
			}
		}
	}
	b.crash()
	b.until(ant, "recovery", func(after LaneStatus) bool { return after.Counters == s.Counters })
	b.until(bee, "recovery", func(s LaneStatus) bool { return s.Counters.Dead == 10 && s.Counters.Cancelled == 0 })
}

// A broadcast is refused for nobody, so what an endpoint rejects may come to more than its tenant's quota: it is
// kept up to twice that, or what all may have.
func TestDeadLettersFarBeyondTheQuotaEnd(t *testing.T) {
	b := start(t, func(o *Options) { o.Tiers = map[string]Tier{"default": {Backlog: 1 << 20, Subscriptions: 9}} })
	b.tenant("ant")
	ant := b.subscribe("ant", "ant", journal.Limits{})
	b.bury(ant, "ant", "ant", 10)
	weighs := func(bytes float64) {
		b.mu.Lock()
		b.index.tenants["ant"].bytes = bytes
		b.mu.Unlock()
	}
	weighs(deadRoom)
	b.boundDead()
	if s, _ := b.Lane(ant); s.Counters.Dead != 10 {
		t.Fatalf("within what all may have: %+v", s.Counters)
	}
	weighs(2 * deadRoom)
	b.until(ant, "the end of half of it", func(s LaneStatus) bool { return s.Counters.Dead == 5 && s.Counters.Cancelled == 5 })
}
