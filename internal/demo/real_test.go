package demo

import (
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// The whole demo, shortened: the account must add up whatever the timing was.
func TestDemoOnTheRealServiceAddsUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some 8 s")
	}
	all := []tenant{
		{name: steady, rate: 50, answer: func() receiver.Behaviour { return receiver.OK(20 * time.Millisecond) }},
		{name: failing, rate: 25, answer: func() receiver.Behaviour { return receiver.Failing(500) }},
		{name: "blackhole", rate: 15, answer: receiver.BlackHole},
		{name: "flaky", rate: 25, answer: func() receiver.Behaviour { return receiver.EveryNth(5, 503) }},
		{name: "picky", rate: 25, answer: func() receiver.Behaviour { return receiver.EveryNth(5, 422) }},
		{name: "noisy", rate: 100, contract: 10, burst: 20, answer: func() receiver.Behaviour { return receiver.OK(0) }},
	}
	o, _, progress := short(t)
	o.Load, o.Tail = time.Second, 500*time.Millisecond
	r, err := start(t.Context(), o, launchServer, all)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Balanced || r.Offered != 240 || r.InFlight != 0 || r.Duplicates != 0 {
		t.Errorf("%+v\n%s", r, progress)
	}
	for _, row := range r.Tenants {
		if row.MaxInFlight > row.Cap || row.OverContract > 0 {
			t.Errorf("limits of %s: %+v", row.Tenant, row)
		}
	}
	if picky := r.Tenants[4]; picky.Dead != 5 || picky.Delivered != 20 {
		t.Errorf("every fifth of 25 is rejected and dead: %+v", picky)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
