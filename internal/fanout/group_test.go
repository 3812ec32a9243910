package fanout

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

func (b *bench) grouped(name, lane string, limits journal.Limits) string {
	b.t.Helper()
	return b.subscribeAs(journal.Subscription{Tenant: "acme", URL: url(name), Group: lane, Limits: limits})
}

// Twenty consumers of the operator's own tenant share a lane: one cap holds over all of them, each gets
// everything, and each has an account of its own. A dead one leaves the others alone.
func TestConsumersShareOneCap(t *testing.T) {
	b := start(t, easyBudget)
	b.tenant("acme")
	three := 3
	var subs []string
	var mu sync.Mutex
	now, most := 0, 0
	for i := range 20 {
		name := fmt.Sprint("consumer", i)
		subs = append(subs, b.grouped(name, "internal", journal.Limits{Cap: &three}))
		b.to.answer[url(name)] = func(int, *delivery.Request) delivery.Outcome {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			for range 100 {
				runtime.Gosched() // requests overlap
			}
			mu.Lock()
			now--
			mu.Unlock()
			return ok()
		}
	}
	dead := b.grouped("dead", "internal", journal.Limits{Attempts: 2})
	b.to.answer[url("dead")] = func(int, *delivery.Request) delivery.Outcome { return failed(500) }
	other := b.grouped("other", "elsewhere", journal.Limits{})
	b.post(50, "acme")
	for _, sub := range subs {
		b.until(sub, "its deliveries", delivered(50))
	}
	b.until(dead, "deaths", func(s LaneStatus) bool { return s.Counters.Dead == 50 })
	b.until(other, "the neighbour", delivered(50))
	if most > 3 || most < 2 {
		t.Errorf("%d in flight over the lane, its cap is 3", most)
	}
	if s, _ := b.Lane(dead); s.Cap != 3 {
		t.Errorf("the cap in force is %d", s.Cap)
	}
}

// One bucket holds over all that share it, over edits, restarts and crashes: no change refills it.
func TestConsumersShareOneBucket(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	x := b.grouped("x", "backend", journal.Limits{Rate: "1/h", Burst: 6})
	y := b.grouped("y", "backend", journal.Limits{})
	b.post(10, "acme")
	sent := func() uint64 {
		s, _ := b.Lane(x)
		u, _ := b.Lane(y)
		return s.Counters.Delivered + u.Counters.Delivered
	}
	settled := func(offered uint64) {
		t.Helper()
		for _, sub := range []string{x, y} {
			b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Offered == offered && s.Counters.InFlight == 0 })
		}
	}
	settled(10)
	if n := sent(); n != 6 {
		t.Fatalf("%d sent, the burst is 6", n)
	}
	z := b.grouped("z", "backend", journal.Limits{Rate: "2/h", Burst: 100})
	b.restart()
	b.crash()
	edit(t, b, y, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "3/h", 50 })
	b.post(1, "acme")
	settled(11)
	if s, _ := b.Lane(z); s.Rate != "1/h" || s.Burst != 6 {
		t.Errorf("in force: %s, burst %d; the strictest is 1/h and 6", s.Rate, s.Burst)
	}
	if n := sent(); n != 6 {
		t.Fatalf("%d sent after edits and restarts, want still 6", n)
	}
	// the strictest goes: the next strictest holds
	if err := b.DeleteSubscription(context.Background(), x); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.Lane(z); s.Rate != "1/30m" || s.Burst != 50 || s.Tokens > 0 {
		t.Errorf("in force: %s, burst %d, %d left; want 1/30m, 50 and none", s.Rate, s.Burst, s.Tokens)
	}
	edit(t, b, y, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "1000/s", 10 })
	edit(t, b, z, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "1000/s", 10 })
	b.until(y, "drain", delivered(11))
	b.until(z, "drain", delivered(1))
}

func TestALaneIsOfItsTenantAndBounded(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	b.tenant("other")
	for i := range groupMost {
		b.grouped(fmt.Sprint("c", i), "internal", journal.Limits{})
	}
	s := journal.Subscription{Tenant: "acme", URL: url("more"), Group: "internal", Secrets: [][]byte{make([]byte, 24)}}
	s.SetMatching([]string{"t.>"}, nil)
	var wrong *journal.FieldError
	if _, err := b.PutSubscription(context.Background(), s); !errors.As(err, &wrong) || wrong.Field != "lane" {
		t.Errorf("one more than may share: %v", err)
	}
	s.Tenant = "other" // another lane, of the same name
	if _, err := b.PutSubscription(context.Background(), s); err != nil {
		t.Error(err)
	}
}

func TestTheStricterOfTwoContracts(t *testing.T) {
	rate := func(text string, burst int64) limit.Rate {
		r, err := limit.ParseRate(text, burst)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, row := range []struct{ x, y, want limit.Rate }{
		{rate("10/s", 5), rate("20/s", 3), rate("10/s", 3)},
		{rate("10/s", 5), limit.Unlimited(), rate("10/s", 5)},
		{rate("10/s", 5), rate("0", 1), rate("0", 1)},
		{rate("1/h", 2), rate("1/m", 9), rate("1/h", 2)},
		{limit.Unlimited(), limit.Unlimited(), limit.Unlimited()},
	} {
		for _, got := range []limit.Rate{stricter(row.x, row.y), stricter(row.y, row.x)} {
			if got != row.want {
				t.Errorf("of %v and %v: %v", row.x.String(), row.y.String(), got.String())
			}
		}
	}
}
