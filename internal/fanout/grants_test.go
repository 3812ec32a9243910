package fanout

import (
	"context"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

func (b *bench) grant(tenant string, topics ...string) {
	b.t.Helper()
	t, ok := b.j.Registry().Tenant(tenant)
	if !ok {
		t = journal.Tenant{ID: tenant}
	}
	t.Grants = []journal.Grant{{Topics: topics}}
	if _, err := b.PutTenant(context.Background(), t); err != nil {
		b.t.Fatal(err)
	}
}

// broadcast posts one trigger for all.
func (b *bench) broadcast(topic string, attributes ...journal.Attribute) {
	b.t.Helper()
	_, err := b.j.Append(context.Background(), &journal.Trigger{
		Audience: journal.Audience{Broadcast: true}, Topic: topic, Attributes: attributes, Accepted: time.Now(), Payload: []byte("x"),
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// A tenant sees the broadcasts on topics that it is granted, from the position of the grant on and until that of
// its end, over restarts and crashes; what is addressed to it needs no grant.
func TestBroadcastsReachWhoIsGranted(t *testing.T) {
	b := start(t, nil)
	b.tenant("none")
	b.grant("orders", "t.orders.>")
	b.grant("all", ">")
	subs := map[string]string{}
	for _, name := range []string{"none", "orders", "all"} {
		subs[name] = b.subscribe(name, name, journal.Limits{})
	}
	want := func(none, orders, all uint64) {
		t.Helper()
		b.until(subs["all"], "broadcasts", delivered(all))
		b.until(subs["orders"], "broadcasts", delivered(orders))
		b.until(subs["none"], "broadcasts", delivered(none))
	}
	b.broadcast("t.orders.new")
	b.broadcast("t.secret")
	b.broadcast("elsewhere") // nobody subscribes to it
	b.post(1, "none", "orders", "all")
	want(1, 2, 3)
	b.crash()
	b.grant("orders", "t.secret")
	b.grant("all")
	b.broadcast("t.orders.new")
	b.broadcast("t.secret")
	b.post(1, "none", "orders", "all")
	want(2, 4, 4)
	b.restart()
	b.tenant("none") // an edit that says nothing of grants leaves them
	b.tenant("orders")
	b.broadcast("t.secret")
	b.post(1, "none", "orders", "all")
	want(3, 6, 5)
}

// A change of grants holds for what is posted behind it, although the reader is late; read again after a crash,
// each trigger is matched by the grant of its time.
func TestAGrantHoldsFromItsPosition(t *testing.T) {
	b := start(t, nil)
	b.grant("acme", ">")
	sub := b.subscribe("acme", "hook", journal.Limits{})
	for range 10 {
		b.broadcast("t.x")
	}
	b.grant("acme")
	for range 5 {
		b.broadcast("t.x")
	}
	b.crash() // nothing of it stands in a checkpoint: all is read again
	b.post(1, "acme")
	s := b.until(sub, "all", func(s LaneStatus) bool { return s.Counters.Offered >= 11 && s.Counters.InFlight+s.Counters.Parked == 0 })
	if s.Counters.Offered != 11 {
		t.Errorf("%d offered, want the ten before and the one addressed", s.Counters.Offered)
	}
}

// A filter lets through what has all its attributes with equal values, from its position on.
func TestAttributesFilter(t *testing.T) {
	b := start(t, nil)
	b.grant("acme", ">")
	s := journal.Subscription{Tenant: "acme", URL: url("eu")}
	s.SetMatching([]string{"t.>"}, map[string]string{"region": "eu", "kind": "a"})
	sub := b.subscribeAs(s)
	all := b.subscribe("acme", "all", journal.Limits{})
	region := func(v string) journal.Attribute { return journal.Attribute{Name: "region", Value: v} }
	kind := func(v string) journal.Attribute { return journal.Attribute{Name: "kind", Value: v} }
	post := func() {
		b.broadcast("t.x", kind("a"), region("eu")) // the one
		b.broadcast("t.x", kind("a"), region("us"))
		b.broadcast("t.x", kind("a"))
		b.broadcast("t.x", region("EU"), kind("a"))
		b.broadcast("t.x")
		b.broadcast("other", kind("a"), region("eu"))
	}
	post()
	b.until(all, "all", delivered(5))
	b.until(sub, "one", delivered(1))
	edit(t, b, sub, func(s *journal.Subscription) { s.SetMatching(s.Topics(), map[string]string{"region": "us"}) })
	post()
	b.until(all, "all", delivered(10))
	b.until(sub, "another", delivered(2))
	b.crash()
	edit(t, b, sub, func(s *journal.Subscription) { s.SetMatching(s.Topics(), nil) })
	post()
	b.until(all, "all", func(s LaneStatus) bool { return s.Counters.Offered == 15 })
	b.until(sub, "all five", func(s LaneStatus) bool { return s.Counters.Offered == 7 })
}
