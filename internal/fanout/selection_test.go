package fanout

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// What one tenant lets be counted at once is bounded, and bounds nobody else, nor replays.
func TestATenantsCountsAreBounded(t *testing.T) {
	b := start(t, nil)
	subs := map[string]string{}
	for _, id := range []string{"acme", "beta"} {
		b.tenant(id)
		subs[id] = b.subscribe(id, id, journal.Limits{})
		b.bury(subs[id], id, id, 3)
	}
	dry := func(s Selection) error { _, err := b.Replay(t.Context(), s, "", true); return err }
	purge := func(s Selection) error { _, err := b.PurgeDead(t.Context(), s, true); return err }
	counts := map[string]func(Selection) error{"replay": dry, "purge": purge}
	for what, count := range counts { // each waits for the clock in its place
		var busy atomic.Int64
		for round := 0; busy.Load() == 0; round++ {
			if round == 200 {
				t.Fatalf("%s: none was refused", what)
			}
			var many sync.WaitGroup
			for range 20 * countsOpen {
				many.Go(func() {
					if err := count(Selection{Subscription: subs["acme"]}); errors.Is(err, ErrBusy) {
						busy.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			many.Wait()
		}
	}
	var leave []func()
	for range countsOpen { // every place was given back
		begun, err := b.beginCount("acme")
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, begun)
	}
	for what, count := range counts {
		for _, s := range []Selection{{Subscription: subs["acme"]}, {Tenant: "acme"}} {
			if err := count(s); !errors.Is(err, ErrBusy) {
				t.Errorf("%s of %+v: %v", what, s, err)
			}
		}
		if err := count(Selection{Tenant: "beta"}); err != nil {
			t.Errorf("%s of another tenant: %v", what, err)
		}
	}
	r := b.replay(Selection{Subscription: subs["acme"]})
	b.job(r.ID, "the end", isDone)
	for _, begun := range leave {
		begun()
	}
	for what, count := range counts {
		if err := count(Selection{Tenant: "acme"}); err != nil {
			t.Errorf("%s when they have ended: %v", what, err)
		}
	}
}
