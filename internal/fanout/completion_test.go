package fanout

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Row C13. What became of a trigger is derived from the ledger, for each subscription, wherever its delivery has
// moved; it is complete when nothing goes on by itself.
func TestCompletionIsDerivedFromTheLedger(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	good, bad := b.subscribe("acme", "good", journal.Limits{}), b.subscribe("acme", "bad", journal.Limits{})
	waits := b.subscribe("acme", "waits", journal.Limits{Rate: "0"})
	b.answers("bad", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	receipt := b.post(1, "acme")[0]
	b.until(good, "delivery", delivered(1))
	b.until(bad, "death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
	b.until(waits, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 1 })
	fates := func(when string, complete bool, want map[string]journal.Kind) {
		t.Helper()
		c := await(t, when, func() (Completion, bool) {
			c, err := b.Completion(t.Context(), receipt.ID, "")
			if err != nil {
				t.Fatal(err)
			}
			return c, same(c.Fates, want)
		})
		all := true
		for i := range c.Fates {
			all = all && c.Fates[i].Settled()
		}
		if all != complete || !c.Whole || c.Trigger.Position != receipt.Position {
			t.Errorf("%s: %+v, complete %v", when, c.Fates, all)
		}
	}
	fates("at once", false, map[string]journal.Kind{good: journal.Delivered, bad: journal.Dead, waits: journal.Parked})
	b.moveEverything()
	b.crash()
	b.answers("bad", nil)
	b.replay(Selection{Subscription: bad})
	b.until(bad, "delivery", delivered(1))
	fates("after a replay from HELD", false, map[string]journal.Kind{good: journal.Delivered, bad: journal.Delivered, waits: journal.Parked})
	if err := b.DeleteSubscription(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	fates("after a delete", true, map[string]journal.Kind{good: journal.Delivered, bad: journal.Delivered, waits: journal.Cancelled})
	if _, err := b.Completion(t.Context(), "msg_pnothing", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
}

// Whether a tenant may see a trigger is known before the ledger is read, or waited for: another's costs what one that
// never was costs. Here nothing can be read any more but what is in memory.
func TestCompletionAsksFirstWhoMaySee(t *testing.T) {
	b := start(t, nil)
	for id, topics := range map[string]string{"acme": "t.>", "gamma": "other.>"} {
		if _, err := b.PutTenant(t.Context(), journal.Tenant{ID: id, Grants: []journal.Grant{{Topics: []string{topics}}}}); err != nil {
			t.Fatal(err)
		}
	}
	sub := b.subscribe("acme", "hook", journal.Limits{})
	own := b.post(1, "acme")[0]
	all, err := b.j.Append(t.Context(), &journal.Trigger{Audience: journal.Audience{Broadcast: true}, Topic: "t.x", Accepted: time.Now(), Payload: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	b.until(sub, "delivery", delivered(2))
	for _, id := range []string{own.ID, all.ID} { // read, and in memory from now on
		if c, err := b.Completion(t.Context(), id, "acme"); err != nil || len(c.Fates) != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	b.close()
	for _, id := range []string{own.ID, fmt.Sprint(uint64(own.Position)), all.ID, "msg_pnothing"} {
		if c, err := b.Completion(t.Context(), id, "gamma"); !errors.Is(err, ErrNotFound) || c.Trigger != nil {
			t.Errorf("another's %s: %+v, %v", id, c, err)
		}
	}
	if _, err := b.Completion(t.Context(), own.ID, "acme"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("its own, from a log that is closed: %v", err)
	}
}

func same(fates []Fate, want map[string]journal.Kind) bool {
	if len(fates) != len(want) {
		return false
	}
	for _, d := range fates {
		if want[d.Subscription] != d.Kind {
			return false
		}
	}
	return true
}

// A broadcast is for lanes of everybody. A tenant is told of its own alone: its question costs nobody else the lock.
func TestABroadcastsCompletionIsATenantsOwnLanes(t *testing.T) {
	b := start(t, nil)
	own := map[string][]string{}
	for _, id := range []string{"acme", "gamma"} {
		if _, err := b.PutTenant(t.Context(), journal.Tenant{ID: id, Grants: []journal.Grant{{Topics: []string{"t.>"}}}}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			own[id] = append(own[id], b.subscribe(id, fmt.Sprint(id, i), journal.Limits{}))
		}
	}
	all, err := b.j.Append(t.Context(), &journal.Trigger{Audience: journal.Audience{Broadcast: true}, Topic: "t.x", Accepted: time.Now(), Payload: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	for _, ids := range own {
		for _, id := range ids {
			b.until(id, "delivery", delivered(1))
		}
	}
	own[""] = append(append(own[""], own["acme"]...), own["gamma"]...) // an administrator's
	for tenant, want := range own {
		c, err := b.Completion(t.Context(), all.ID, tenant)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range c.Fates {
			got = append(got, c.Fates[i].Subscription)
			if c.Fates[i].Kind != journal.Delivered {
				t.Errorf("to %q: %+v", tenant, c.Fates[i])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is told of %v, want %v", tenant, got, want)
		}
	}
}
