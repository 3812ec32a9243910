package fanout

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/retry"
)

// Every subscriber gets its own attempts, whatever the others do.
//
// Field case 26.
func TestOneDeadSubscriberDoesNotRepeatTheFanOut(t *testing.T) {
	b := start(t, func(o *Options) { o.Profile.MaxAttempts = 3 })
	b.tenant("acme")
	names := []string{"good", "broken", "hangs", "fine", "refused"}
	subs := map[string]string{}
	for _, n := range names {
		subs[n] = b.subscribe("acme", n, journal.Limits{})
	}
	b.to.answer[url("broken")] = func(int, *delivery.Request) delivery.Outcome { return failed(500) }
	b.to.answer[url("hangs")] = func(int, *delivery.Request) delivery.Outcome {
		return delivery.Outcome{Result: engine.Result{Kind: engine.Failed}, Reason: "timeout"}
	}
	b.to.answer[url("refused")] = func(int, *delivery.Request) delivery.Outcome {
		return delivery.Outcome{Result: engine.Result{Kind: engine.Failed, Refused: true}, Reason: "dial"}
	}
	b.post(1, "acme")
	for _, n := range []string{"good", "fine"} {
		b.until(subs[n], "delivery", delivered(1))
	}
	for _, n := range []string{"broken", "hangs", "refused"} {
		b.until(subs[n], "death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
		if got := len(b.to.requests(url(n))); got != 3 {
			t.Errorf("%s got %d attempts, want its own 3", n, got)
		}
	}
	for _, n := range []string{"good", "fine"} {
		if got := len(b.to.requests(url(n))); got != 1 {
			t.Errorf("%s got %d requests, want 1", n, got)
		}
	}
}

// Attempts are counted with the first, restarts included, and nothing else adds any.
//
// Field case 41.
func TestConfiguredAttemptsAreExact(t *testing.T) {
	b := start(t, func(o *Options) { o.Profile.MaxAttempts = 5; o.Profile.Breaker.Off = true })
	b.tenant("acme")
	sub := b.subscribe("acme", "broken", journal.Limits{})
	b.to.answer[url("broken")] = func(int, *delivery.Request) delivery.Outcome { return failed(500) }
	b.post(1, "acme")
	b.until(sub, "third attempt", func(LaneStatus) bool { return len(b.to.requests(url("broken"))) >= 3 })
	b.restart()
	b.until(sub, "death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
	reqs := b.to.requests(url("broken"))
	if len(reqs) != 5 {
		t.Fatalf("%d attempts, want 5", len(reqs))
	}
	for i, r := range reqs {
		if r.Attempt != i+1 || r.ID != reqs[0].ID {
			t.Errorf("attempt %d carried X-Attempt %d and id %s", i+1, r.Attempt, r.ID)
		}
	}
}

// Waiting by our own decision uses up no attempt.
//
// Field case 36.
func TestDenialsUseNoAttempts(t *testing.T) {
	b := start(t, func(o *Options) { o.Profile.MaxAttempts = 1 })
	b.tenant("acme")
	sub := b.subscribe("acme", "limited", journal.Limits{Rate: "200/s", Burst: 1})
	b.post(50, "acme")
	b.until(sub, "drain", delivered(50))
	for _, r := range b.to.requests(url("limited")) {
		if r.Attempt != 1 {
			t.Fatalf("a delivery that only waited was sent as attempt %d", r.Attempt)
		}
	}
}

// What is parked survives a clean restart, in order, and the bucket is not refilled.
func TestParkedSurvivesARestart(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	one := 1
	sub := b.subscribe("acme", "slow", journal.Limits{Rate: "1/h", Burst: 2, Cap: &one})
	receipts := b.post(10, "acme")
	b.until(sub, "burst", func(s LaneStatus) bool { return s.Counters.Delivered == 2 && s.Counters.Parked == 8 })
	b.restart()
	s := b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Parked == 8 })
	if s.Counters.Delivered != 2 || s.Tokens != 0 {
		t.Fatalf("after the restart: %+v, %d tokens; want 2 delivered and none", s.Counters, s.Tokens)
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "1000/s", 1 })
	b.until(sub, "drain", delivered(10))
	for i, r := range b.to.requests(url("slow")) {
		if r.ID != receipts[i].ID {
			t.Fatalf("delivery %d was %s, want %s: order was lost", i, r.ID, receipts[i].ID)
		}
	}
}

func edit(t *testing.T, b *bench, sub string, change func(*journal.Subscription)) {
	t.Helper()
	s, ok := b.j.Registry().Subscription(sub)
	if !ok {
		t.Fatal("no such subscription")
	}
	change(&s)
	if _, err := b.PutSubscription(context.Background(), s); err != nil {
		t.Fatal(err)
	}
}

// After a crash everything acknowledged is delivered, by the attempts that nobody recorded too.
//
// Field case 80.
func TestNothingAcknowledgedIsLostByACrash(t *testing.T) {
	b, sub := startOne(t, nil, "flaky", journal.Limits{})
	limited := b.subscribe("acme", "limited", journal.Limits{Rate: "400/s", Burst: 5})
	b.to.answer[url("flaky")] = func(n int, _ *delivery.Request) delivery.Outcome {
		if n%15 == 0 {
			return failed(503)
		}
		return ok()
	}
	want := map[string]bool{}
	for range 4 {
		for _, r := range b.post(100, "acme") {
			want[r.ID] = true
		}
		b.crash()
	}
	b.until(sub, "all", func(s LaneStatus) bool {
		return s.Counters.Parked+s.Counters.InFlight == 0 && s.Counters.Offered == 400
	})
	b.until(limited, "all", func(s LaneStatus) bool {
		return s.Counters.Parked+s.Counters.InFlight == 0 && s.Counters.Offered == 400
	})
	for _, name := range []string{"flaky", "limited"} {
		got := map[string]bool{}
		for _, r := range b.to.requests(url(name)) {
			got[r.ID] = true
		}
		for id := range want {
			if !got[id] {
				t.Errorf("%s never got %s", name, id)
			}
		}
	}
}

// After an acknowledged delete no request starts; what waits is cancelled and accounted for.
func TestDeleteCancelsWhatWaits(t *testing.T) {
	b, sub := startOne(t, nil, "limited", journal.Limits{Rate: "1/h", Burst: 1})
	other := b.subscribe("acme", "other", journal.Limits{})
	b.post(20, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 19 })
	for range 2 { // deleting again is no error
		if err := b.DeleteSubscription(context.Background(), sub); err != nil {
			t.Fatal(err)
		}
	}
	b.post(5, "acme")
	b.until(other, "neighbour", delivered(25))
	if got := len(b.to.requests(url("limited"))); got != 1 {
		t.Errorf("%d requests, want the one before the delete", got)
	}
	check := func() {
		t.Helper()
		c := b.Tenants()[0].Counters
		if !c.Balanced() || c.Cancelled != 19 || c.Parked != 0 || c.Delivered != 26 {
			t.Errorf("account after the delete: %+v", c)
		}
	}
	check()
	b.restart()
	check()
}

// A subscription gets what was accepted from its creation on, and nothing after its deletion.
func TestAChangeHoldsFromItsPosition(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	b.post(3, "acme")
	sub := b.subscribe("acme", "late", journal.Limits{})
	b.post(4, "acme")
	b.until(sub, "delivery", delivered(4))
	edit(t, b, sub, func(s *journal.Subscription) {
		s.Versions = append(s.Versions, journal.Version{Topics: []string{"other.>"}, Active: true})
	})
	b.post(5, "acme")
	if err := b.DeleteSubscription(context.Background(), sub); err != nil {
		t.Fatal(err)
	}
	if got := len(b.to.requests(url("late"))); got != 4 {
		t.Fatalf("%d requests, want 4", got)
	}
	if err := b.DeleteSubscription(context.Background(), "sub_none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting what never was: %v", err)
	}
}

// A paused lane keeps what comes, and lets it go when it is resumed.
func TestPauseKeepsEverything(t *testing.T) {
	b, sub := startOne(t, nil, "paused", journal.Limits{})
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
	b.post(10, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 10 })
	if n := len(b.to.requests(url("paused"))); n != 0 {
		t.Fatalf("%d requests to a paused lane", n)
	}
	b.restart()
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
	b.until(sub, "drain", delivered(10))
}

// 410 disables the subscription over restarts; its deliveries stay parked.
//
// Field case 96.
func TestGoneDisablesAndKeeps(t *testing.T) {
	b, sub := startOne(t, nil, "gone", journal.Limits{})
	b.to.answer[url("gone")] = func(int, *delivery.Request) delivery.Outcome {
		return delivery.Outcome{Result: engine.Result{Kind: engine.Gone}, Status: 410}
	}
	b.post(3, "acme")
	b.until(sub, "disabling", func(s LaneStatus) bool {
		stored, _ := b.j.Registry().Subscription(sub)
		return s.Counters.Parked == 3 && stored.Disabled == "gone"
	})
	n := len(b.to.requests(url("gone")))
	b.restart()
	b.post(2, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 5 })
	if got := len(b.to.requests(url("gone"))); got != n {
		t.Errorf("%d more requests after 410", got-n)
	}
	b.to.mu.Lock()
	delete(b.to.answer, url("gone"))
	b.to.mu.Unlock()
	edit(t, b, sub, func(s *journal.Subscription) { s.Disabled = "" })
	b.until(sub, "drain", delivered(5))
}

// A tenant over its backlog quota pays alone: a list or a broadcast makes its delivery dead, and
// posts to it are slowed.
func TestQuotaIsTheTenantsOwn(t *testing.T) {
	b := start(t, func(o *Options) { o.Tiers["default"] = Tier{Backlog: 40} })
	b.tenant("full")
	b.tenant("fine")
	full := b.subscribe("full", "limited", journal.Limits{Rate: "1/h", Burst: 1})
	fine := b.subscribe("fine", "fine", journal.Limits{})
	b.post(20, "full", "fine")
	b.until(fine, "delivery", delivered(20))
	s := b.until(full, "quota", func(s LaneStatus) bool { return s.Counters.Dead > 0 && s.Counters.Offered == 20 })
	if s.Counters.Parked == 0 || s.Counters.Dead+s.Counters.Parked != 19 {
		t.Errorf("account over quota: %+v", s.Counters)
	}
	if _, over := b.Pressure("fine"); over {
		t.Error("the neighbour is slowed")
	}
	if retryIn, over := b.Pressure("full"); !over || retryIn < time.Second {
		t.Errorf("posts to a tenant over its quota are let in: %v %v", retryIn, over)
	}
}

// A cut attempt is recorded as unknown and tried again after the start.
func TestStopCutsAndRemembers(t *testing.T) {
	b, sub := startOne(t, nil, "hangs", journal.Limits{})
	hang := make(chan struct{})
	b.to.answer[url("hangs")] = func(n int, _ *delivery.Request) delivery.Outcome {
		if n == 1 {
			<-hang
			return delivery.Outcome{Result: engine.Result{Kind: engine.Unknown}, Reason: "cut"}
		}
		return ok()
	}
	b.post(1, "acme")
	b.until(sub, "start", func(s LaneStatus) bool { return s.Counters.InFlight == 1 })
	time.AfterFunc(50*time.Millisecond, func() { close(hang) })
	ctx, done := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer done()
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.j.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.until(sub, "second attempt", delivered(1))
	if reqs := b.to.requests(url("hangs")); len(reqs) != 2 || reqs[1].Attempt != 2 {
		t.Errorf("requests after the cut: %d, the last as attempt %d", len(reqs), reqs[len(reqs)-1].Attempt)
	}
}

// The budget alone keeps a failing endpoint from being hammered; without it each delivery costs
// its four quick attempts.
func TestBudgetBoundsAttemptsWithoutABreaker(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of real time: not in -short")
	}
	for _, row := range []struct {
		name     string
		noBudget bool
		within   func(perDelivery float64) bool
	}{
		{"with the budget at most 1.1", false, func(x float64) bool { return x <= 1.1 }},
		{"without it above 3", true, func(x float64) bool { return x > 3 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(o *Options) {
				o.Engine.Slots = 1200
				o.Profile = engine.Profile{NoBudget: row.noBudget, Schedule: retry.Schedule{}}
				o.Profile.Breaker.Off = true
				o.Tiers["default"] = Tier{Cap: -1}
			})
			b.tenant("acme")
			sub := b.subscribe("acme", "failing", journal.Limits{})
			b.to.answer[url("failing")] = func(int, *delivery.Request) delivery.Outcome { return failed(500) }
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for range 200 * 60 {
				<-tick.C
				b.post(1, "acme")
			}
			s := b.until(sub, "the end", func(s LaneStatus) bool { return s.Counters.InFlight == 0 })
			per := float64(len(b.to.requests(url("failing")))) / float64(s.Counters.Offered)
			t.Logf("%d offered, %.3f attempts each", s.Counters.Offered, per)
			if !row.within(per) {
				t.Errorf("%.3f attempts per delivery", per)
			}
		})
	}
}

// What has waited beyond the horizon is dead, and what has been dead beyond its time is purged; both
// stay in the account, over a restart too.
func TestExpiryAndRetentionAreAccountedFor(t *testing.T) {
	b, sub := startOne(t, nil, "limited", journal.Limits{Rate: "1/h", Burst: 1})
	receipts := b.post(10, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 9 })
	b.expire(receipts[5].Position)
	s := b.until(sub, "expiry", func(s LaneStatus) bool { return s.Counters.Dead > 0 })
	if s.Counters.Dead != 4 || s.Counters.Parked != 5 {
		t.Fatalf("after the horizon passed: %+v, want 4 dead and 5 parked", s.Counters)
	}
	b.crash()
	b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Dead == 4 && s.Counters.Parked == 5 })
	b.purgeOld(b.clock.ms(b.clock.now() + time.Minute))
	s = b.until(sub, "purge", func(s LaneStatus) bool { return s.Counters.Dead == 0 })
	if s.Counters.Cancelled != 4 || s.Counters.Parked != 5 {
		t.Fatalf("after the purge: %+v, want 4 cancelled", s.Counters)
	}
	b.restart()
	b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Cancelled == 4 && s.Counters.Parked == 5 })
}

// A pause that the endpoint asked for holds over restarts, for the whole lane, and uses no attempt.
//
// Field case 40.
func TestRetryAfterHoldsOverRestarts(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	one := 1
	sub := b.subscribe("acme", "throttling", journal.Limits{Cap: &one})
	b.to.answer[url("throttling")] = func(int, *delivery.Request) delivery.Outcome {
		return delivery.Outcome{Status: 429, Result: engine.Result{Kind: engine.Throttled, RetryAfter: time.Hour}}
	}
	b.post(3, "acme")
	b.until(sub, "pause", func(s LaneStatus) bool { return s.Counters.Parked == 3 && s.PausedFor > 0 })
	n := len(b.to.requests(url("throttling")))
	for _, again := range []func(){b.restart, b.crash, b.restart} {
		again()
		s := b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Parked == 3 })
		if s.PausedFor < 59*time.Minute || s.Blocked != engine.ByEndpoint {
			t.Errorf("after a restart the lane is paused for %v, blocked %v", s.PausedFor, s.Blocked)
		}
	}
	b.post(1, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 4 })
	reqs := b.to.requests(url("throttling"))
	if len(reqs) != n || n != 1 || reqs[0].Attempt != 1 {
		t.Errorf("%d requests, %d before the restarts; want the one", len(reqs), n)
	}
}

// What one tenant asks about its own is what the whole list says of it, and does not cost what the others have.
func TestATenantsOwnStatusCostsItsOwnLanes(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	b.tenant("beta")
	b.subscribe("beta", "other", journal.Limits{})
	sub := b.subscribe("acme", "hook", journal.Limits{Rate: "5/s", Burst: 9})
	b.post(3, "acme", "beta")
	b.until(sub, "delivery", delivered(3))
	all := b.Tenants()
	for _, want := range all {
		if got, ok := b.TenantOf(want.TenantID); !ok || got.Counters != want.Counters || got.Tenant != want.Tenant || got.Quota != want.Quota || got.Lanes != want.Lanes {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if own := b.LanesOf("acme"); len(own) != 1 || own[0].Subscription != sub || own[0].Rate != "5/s" || own[0].Burst != 9 {
		t.Errorf("%+v", own)
	}
	if _, ok := b.TenantOf("nobody"); ok || len(b.LanesOf("nobody")) != 0 {
		t.Error("nobody has something")
	}
	one := testing.AllocsPerRun(20, func() { b.LanesOf("acme"); b.TenantOf("acme") })
	for range 50 {
		b.subscribe("beta", "other", journal.Limits{})
	}
	if many := testing.AllocsPerRun(20, func() { b.LanesOf("acme"); b.TenantOf("acme") }); many > one+2 {
		t.Errorf("%v allocations beside fifty lanes of another, %v alone", many, one)
	}
}
