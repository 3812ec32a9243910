package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

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
