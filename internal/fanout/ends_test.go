package fanout

import (
	"context"
	"maps"
	"testing"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// One delivery with five failed attempts, a restart between them, sweeps over what is dead, and a replay: the ledger
// and the account say each thing once, and the counters say the same of what this process did.
//
// Field case 87.
func TestOneLossIsCountedOnce(t *testing.T) {
	b, sub := startOne(t, easyBudget, "hook", journal.Limits{Attempts: 5})
	restarted := make(chan struct{})
	b.to.answer[url("hook")] = func(n int, _ *delivery.Request) delivery.Outcome {
		switch {
		case n == 3:
			<-restarted // the first process stops while this one is out
			return failed(500)
		case n <= 5:
			return failed(500)
		}
		return ok()
	}
	b.post(1, "acme")
	b.until(sub, "the third attempt", func(s LaneStatus) bool { return s.Counters.InFlight == 1 && len(b.to.requests(url("hook"))) == 3 })
	close(restarted)
	b.restart()
	b.until(sub, "the death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
	for range 3 {
		b.expireOld()
		b.moveOld()
	}
	ends := func() map[string]uint64 {
		m := map[string]uint64{}
		for _, e := range b.Stats().Ends {
			m[e.Result+" "+e.Reason.String()] = e.N
		}
		return m
	}
	if got, want := ends(), map[string]uint64{"dead exhausted": 1}; !maps.Equal(got, want) {
		t.Errorf("after the death: %v, want %v", got, want)
	}
	b.replay(Selection{Subscription: sub})
	s := b.until(sub, "delivery", delivered(1))
	if want := (engine.Counters{Offered: 1, Delivered: 1}); s.Counters != want {
		t.Errorf("account %+v", s.Counters)
	}
	if got, want := ends(), map[string]uint64{"dead exhausted": 1, "revived none": 1, "delivered none": 1}; !maps.Equal(got, want) {
		t.Errorf("in the end: %v, want %v", got, want)
	}
	if gap := b.Stats().RejectionGap; gap != 0 {
		t.Errorf("denials and admissions differ by %d", gap)
	}
	if err := b.j.WaitFlushed(t.Context(), b.j.Record()); err != nil {
		t.Fatal(err)
	}
	recs, _, err := b.j.Deliveries(context.Background(), s.Lane, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[journal.Kind]int{}
	for _, r := range recs {
		kinds[r.Kind]++
	}
	if kinds[journal.Failed] != 4 || kinds[journal.Dead] != 1 || kinds[journal.Revived] != 1 || kinds[journal.Delivered] != 1 {
		t.Errorf("ledger %v", kinds)
	}
	if n := len(b.to.requests(url("hook"))); n != 6 {
		t.Errorf("%d requests", n)
	}
}
