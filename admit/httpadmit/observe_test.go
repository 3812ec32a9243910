package httpadmit

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/fair"
)

// still is a shared store in the process, for which no time passes.
type still struct{ local *admit.Local }

func (s still) Take(_ context.Context, c []admit.Check) (admit.Answer, error) {
	return s.local.Take(0, c), nil
}

func (s still) Peek(_ context.Context, c []admit.Check) (admit.Answer, error) {
	return s.local.Peek(0, c), nil
}

func (s still) Refund(_ context.Context, c []admit.Check, a admit.Answer) error {
	s.local.Refund(0, c, a)
	return nil
}

// What finds no slot does not count for observed policies either: they report what they would have refused of the rest.
func TestNoSlotCountsForNoObservedPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := bucket(1, time.Hour, 5)
		s := settings(t,
			admit.Policy{Name: "try", Key: []admit.Part{admit.ByTenant}, Spec: spec},
			admit.Policy{Name: "try-shared", Key: []admit.Part{admit.ByTenant}, Spec: spec, Shared: true})
		s.Slots, s.Shared = fair.SlotLimits{Slots: 1}, still{admit.NewLocal(10)}
		stay := make(chan struct{})
		d := newDoor(s)
		h := d.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stay }))
		var wg sync.WaitGroup
		wg.Go(func() { get(h, "/", "a") })
		synctest.Wait()
		for range 20 {
			if w := get(h, "/", "a"); w.Code != 503 && w.Code != 429 {
				t.Fatal(w.Code, w.Body)
			}
		}
		close(stay)
		wg.Wait()
		for range 5 { // the sixth that is let in
			get(h, "/", "a")
		}
		for _, r := range d.Report().Policies {
			if r.Policy != SlotsPolicy && r.WouldDeny != 1 {
				t.Errorf("%s would have refused %d of 6 that were let in, want 1", r.Policy, r.WouldDeny)
			}
		}
	})
}
