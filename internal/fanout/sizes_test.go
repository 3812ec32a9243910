package fanout

import (
	"context"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// What waits counts against the quota as much after a start as before it, large or small: nothing dies, and nothing is
// taken, because nobody knows any more how large it is.
func TestAQuotaIsTheSameOverARestart(t *testing.T) {
	const quota = 64 << 10
	b := start(t, func(o *Options) { o.Tiers["default"] = Tier{Backlog: quota} })
	subs := map[string]string{}
	sizes := map[string]int{"large": 20_000, "small": 10}
	for id := range sizes {
		b.tenant(id)
		subs[id] = b.subscribe(id, id, journal.Limits{Rate: "0"})
	}
	post := func(id string, n int) {
		t.Helper()
		for range n {
			if _, err := b.j.Append(t.Context(), &journal.Trigger{
				Audience: journal.Audience{Tenants: []string{id}}, Topic: "t.x", Accepted: time.Now(), Payload: make([]byte, sizes[id]),
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	parked := func(id string, n uint64) {
		t.Helper()
		b.until(subs[id], "parking", func(s LaneStatus) bool { return s.Counters.Parked == n && s.Counters.Dead == 0 })
	}
	over := func(when string, large, small bool) {
		t.Helper()
		for id, want := range map[string]bool{"large": large, "small": small} {
			if _, is := b.Pressure(id); is != want {
				t.Errorf("%s: %s is over its quota: %v", when, id, is)
			}
		}
	}
	post("large", 4)
	post("small", 100)
	parked("large", 4)
	parked("small", 100)
	over("at first", true, false)
	for name, end := range map[string]func(){
		"after a restart": b.restart,
		"after a crash":   func() { b.checkpoint(); b.keepSizes(context.Background()); b.crash() },
	} {
		end()
		over(name, true, false)
		post("small", 1) // does not die over quota
		for _, tn := range b.Tenants() {
			if tn.TenantID == "large" && tn.Bytes != 80_000 {
				t.Errorf("%s: %d bytes, want 80000", name, tn.Bytes)
			}
		}
	}
	parked("small", 102)
}
