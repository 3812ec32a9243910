package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

func rejected() delivery.Outcome {
	return delivery.Outcome{Result: engine.Result{Kind: engine.RejectedR}, Status: 422, Reason: "status"}
}

// answers sets what an endpoint says from now on; nil is 200.
func (b *bench) answers(name string, f func(n int, r *delivery.Request) delivery.Outcome) {
	b.to.mu.Lock()
	defer b.to.mu.Unlock()
	b.to.answer[url(name)] = f
}

// bury makes n dead letters of a subscription, and returns their triggers.
func (b *bench) bury(sub, name, tenant string, n int) []journal.Receipt {
	b.t.Helper()
	before, _ := b.Lane(sub)
	b.answers(name, func(int, *delivery.Request) delivery.Outcome { return rejected() })
	receipts := b.post(n, tenant)
	b.until(sub, "death", func(s LaneStatus) bool { return s.Counters.Dead == before.Counters.Dead+uint64(n) })
	b.answers(name, nil)
	return receipts
}

func (b *bench) replay(s Selection) ReplayStatus {
	b.t.Helper()
	r, err := b.Replay(b.t.Context(), s, "", false)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// job waits for a condition on a replay, whose numbers add up at any instant.
func (b *bench) job(id, what string, holds func(ReplayStatus) bool) ReplayStatus {
	b.t.Helper()
	return await(b.t, what, func() (ReplayStatus, bool) {
		s, err := b.ReplayOf(id)
		if err != nil {
			b.t.Fatal(err)
		}
		if s.Count.Taken+s.Left+s.Skipped != s.Selected {
			b.t.Fatalf("%d selected = %d taken + %d left + %d skipped does not add up", s.Selected, s.Count.Taken, s.Left, s.Skipped)
		}
		return s, holds(s)
	})
}

func isDone(s ReplayStatus) bool { return s.State == journal.JobDone }

// times counts how often each id was sent.
func (b *bench) times(name string) map[string]int {
	n := map[string]int{}
	for _, r := range b.to.requests(url(name)) {
		n[r.ID]++
	}
	return n
}

// A replay takes what is dead and selected, says in advance how many that is, and delivers each once, with the id
// it had. Numbers add up over a restart.
//
// Field case 48.
func TestReplayTakesTheDeadAlone(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	good := b.post(60, "acme")
	b.until(sub, "delivery", delivered(60))
	dead := b.bury(sub, "hook", "acme", 20)
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
	waiting := b.post(10, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 10 })
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
	b.until(sub, "the rest", delivered(70))

	dry, err := b.Replay(t.Context(), Selection{Subscription: sub}, "", true)
	if err != nil || dry.Selected != 20 || dry.ID != "" || len(b.Replays(func(string) bool { return true })) != 0 {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if s, _ := b.Lane(sub); s.Counters.Dead != 20 {
		t.Fatalf("a dry run changed the account: %+v", s.Counters)
	}
	r := b.replay(Selection{Subscription: sub})
	done := b.job(r.ID, "the end", isDone)
	if done.Selected != 20 || done.Count.Taken != 20 || done.Count.Delivered != 20 || done.Skipped != 0 {
		t.Errorf("replay: %+v", done)
	}
	b.until(sub, "delivery", delivered(90))
	times := b.times("hook")
	for _, g := range slices.Concat(good, waiting) {
		if times[g.ID] != 1 {
			t.Errorf("delivered before, sent %d times: %s", times[g.ID], g.ID)
		}
	}
	for _, d := range dead {
		if times[d.ID] != 2 {
			t.Errorf("a dead letter was sent %d times, want once before and once after: %s", times[d.ID], d.ID)
		}
	}
	b.restart()
	if again, err := b.ReplayOf(r.ID); err != nil || again.Count != done.Count || again.State != journal.JobDone {
		t.Errorf("after a restart: %+v, %v", again, err)
	}
}

// The record of a dead letter keeps the first cause and the last, and counts deaths, replays and attempts over
// all lives; none of them decreases, also over restarts and in HELD.
//
// Field case 44.
func TestADeadLetterKeepsItsFirstAndLastCause(t *testing.T) {
	b := start(t, func(o *Options) {
		o.Profile.MaxAttempts, o.Profile.NoBudget, o.Profile.Breaker.Off = 2, true, true
	})
	b.tenant("acme")
	sub := b.subscribe("acme", "hook", journal.Limits{})
	b.answers("hook", func(int, *delivery.Request) delivery.Outcome { return failed(500) })
	receipt := b.post(1, "acme")[0]
	b.until(sub, "the first death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
	first, _, _, err := b.DeadLetter(t.Context(), sub, receipt.ID)
	if err != nil || first.Reason != engine.Exhausted || first.Deaths != 1 || first.Attempts != 2 || first.Replays != 0 {
		t.Fatalf("the first death: %+v, %v", first, err)
	}
	b.answers("hook", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	b.replay(Selection{Subscription: sub})
	b.until(sub, "the second death", func(s LaneStatus) bool { return s.Counters.Dead == 1 && len(b.to.requests(url("hook"))) == 3 })
	check := func(when string) {
		t.Helper()
		d, history, whole, err := b.DeadLetter(t.Context(), sub, fmt.Sprint(uint64(receipt.Position)))
		if err != nil || d.Reason != engine.Rejected || d.First != engine.Exhausted || d.Deaths != 2 || d.Replays != 1 || d.Attempts != 3 {
			t.Fatalf("%s: %+v, %v", when, d, err)
		}
		if !d.FirstDied.Equal(first.Died) || d.Died.Before(d.FirstDied) || d.Trigger.ID != receipt.ID {
			t.Errorf("%s: first died %v, want %v; died %v", when, d.FirstDied, first.Died, d.Died)
		}
		var kinds []journal.Kind
		for _, h := range slices.Backward(history) {
			kinds = append(kinds, h.Kind)
		}
		want := []journal.Kind{journal.Failed, journal.Claimed, journal.Dead, journal.Revived, journal.Claimed, journal.Dead}
		if !whole || !slices.Equal(kinds, want) {
			t.Errorf("%s: history %v, whole %v, want %v", when, kinds, whole, want)
		}
	}
	check("at once")
	b.crash()
	check("after a crash")
	b.moveEverything()
	check("in HELD")
	b.restart()
	check("after a restart")
	if reqs := b.to.requests(url("hook")); reqs[2].Attempt != 3 {
		t.Errorf("the replay's attempt is numbered %d, want 3", reqs[2].Attempt)
	}
	b.answers("hook", nil)
	r := b.replay(Selection{Subscription: sub})
	b.job(r.ID, "the end", isDone)
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.index.bySub[sub]; len(l.past) != 0 {
		t.Errorf("a delivered one is remembered: %v", l.past)
	}
}

// Two replays of the same at once, one of them cancelled in the middle, a crash in between: each message is
// taken by one, each is delivered once, nothing is in limbo.
//
// Field case 49.
func TestOverlappingReplaysTakeEachOnce(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{Rate: "2000/s", Burst: 2000})
	dead := b.bury(sub, "hook", "acme", 1500)
	b.moveEverything() // HELD too
	dead = append(dead, b.bury(sub, "hook", "acme", 500)...)
	one, two := b.replay(Selection{Subscription: sub}), b.replay(Selection{Tenant: "acme"})
	b.job(one.ID, "a third", func(s ReplayStatus) bool { return s.Count.Taken >= 600 })
	if _, err := b.CancelReplay(t.Context(), one.ID); err != nil {
		t.Fatal(err)
	}
	cancelled := b.job(one.ID, "cancelling", func(s ReplayStatus) bool { return s.State == journal.JobCancelled })
	b.crash()
	now, err := b.ReplayOf(one.ID)
	if err != nil || now.State != journal.JobCancelled || now.Count.Taken != cancelled.Count.Taken {
		t.Errorf("after the crash: %+v, %v; before %+v", now, err, cancelled)
	}
	b.job(two.ID, "the end", isDone)
	b.until(sub, "delivery", delivered(2000))
	one, _ = b.ReplayOf(one.ID)
	two, _ = b.ReplayOf(two.ID)
	if one.Count.Delivered+two.Count.Delivered != 2000 || one.Count.Delivered != one.Count.Taken || two.Skipped == 0 {
		t.Errorf("first %+v\nsecond %+v", one, two)
	}
	again := 0
	times := b.times("hook")
	for _, d := range dead {
		if times[d.ID] < 2 {
			t.Fatalf("%s was not replayed", d.ID)
		}
		again += times[d.ID] - 2
	}
	if again > 16 { // what was in flight at the crash
		t.Errorf("%d were sent twice", again)
	}
	if s, err := b.ResumeReplay(t.Context(), one.ID); err != nil || s.Left != 0 {
		t.Errorf("resuming with nothing left: %+v, %v", s, err)
	}
	b.job(one.ID, "the end", isDone)
	if _, err := b.CancelReplay(t.Context(), one.ID); !errors.Is(err, ErrConflict) {
		t.Errorf("cancelling one that is done: %v", err)
	}
}

// A cancelled replay leaves the rest dead, and takes them when it is resumed, after a crash too.
func TestACancelledReplayIsResumed(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held %v", held), func(t *testing.T) {
			b, sub := startOne(t, nil, "hook", journal.Limits{Rate: "500/s", Burst: 5})
			b.bury(sub, "hook", "acme", 300)
			if held {
				b.moveEverything()
			}
			r := b.replay(Selection{Subscription: sub})
			b.job(r.ID, "some", func(s ReplayStatus) bool { return s.Count.Delivered > 50 })
			s, err := b.CancelReplay(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			b.until(sub, "rest", func(l LaneStatus) bool {
				return l.Counters.Parked+l.Counters.InFlight == 0 && l.Counters.Dead == 300-s.Count.Taken
			})
			b.crash()
			if s, err = b.ResumeReplay(t.Context(), r.ID); err != nil || s.Left == 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			b.job(r.ID, "some more", func(s ReplayStatus) bool { return s.Count.Delivered > 100 })
			b.crash()
			done := b.job(r.ID, "the end", isDone)
			if done.Count.Delivered != 300 || done.Count.Taken != 300 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// What dies again is counted, and not taken again by the same replay.
func TestASecondDeathIsCounted(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	b.bury(sub, "hook", "acme", 40)
	b.answers("hook", func(n int, r *delivery.Request) delivery.Outcome {
		if n%4 == 0 {
			return rejected()
		}
		return ok()
	})
	r := b.replay(Selection{Subscription: sub})
	done := b.job(r.ID, "the end", isDone)
	if done.Count.Delivered != 30 || done.Count.Dead != 10 {
		t.Errorf("%+v", done)
	}
	b.until(sub, "rest", func(s LaneStatus) bool { return s.Counters.Dead == 10 && s.Counters.Delivered == 30 })
	b.crash()
	b.until(sub, "rest", func(s LaneStatus) bool { return s.Counters.Dead == 10 && s.Counters.Delivered == 30 })
}

// Fresh deliveries do not queue behind a replay: it takes the tokens that they leave.
//
// Field case 50.
func TestLiveDeliveriesGoBeforeAReplay(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{Rate: "400/s", Burst: 50})
	b.bury(sub, "hook", "acme", 400)
	r := b.replay(Selection{Subscription: sub})
	b.job(r.ID, "some", func(s ReplayStatus) bool { return s.Count.Delivered > 20 })
	var before []int // how many of the replay came between a live one's receipt and its arrival
	for range 31 {
		if s, _ := b.ReplayOf(r.ID); s.Left < 100 { // a slow machine takes that long
			break
		}
		id := b.post(1, "acme")[0].ID
		sent := len(b.to.requests(url("hook")))
		at := func() int {
			return slices.IndexFunc(b.to.requests(url("hook")), func(q delivery.Request) bool { return q.ID == id })
		}
		b.until(sub, "the live one", func(LaneStatus) bool { return at() >= 0 })
		before = append(before, at()-sent)
	}
	if len(before) < 5 {
		t.Fatalf("only %d live ones came before the replay was nearly through", len(before))
	}
	slices.Sort(before)
	if median := before[len(before)/2]; median > 8 {
		t.Errorf("a fresh delivery lets %d of the replay pass; all: %v", median, before)
	}
	b.job(r.ID, "the end", isDone)
}

// A replay does not take a full bucket at once: what came by any instant is what the rate has brought since the
// beginning, and not the burst.
//
// Field case 50.
func TestAReplayLeavesTheBurst(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	b.bury(sub, "hook", "acme", 120)
	edit(t, b, sub, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "200/s", 200 })
	var came []time.Duration
	begin := time.Now()
	b.answers("hook", func(int, *delivery.Request) delivery.Outcome {
		b.to.mu.Lock()
		defer b.to.mu.Unlock()
		came = append(came, time.Since(begin))
		return ok()
	})
	r := b.replay(Selection{Subscription: sub})
	b.job(r.ID, "the end", isDone)
	for i, at := range came {
		if most := 4 + 200*at.Seconds(); float64(i+1) > most+0.01 { // a fiftieth of a second at once
			t.Fatalf("%d had come after %v, want at most %.1f", i+1, at, most)
		}
	}
}

// An endpoint that cannot keep up slows the replay down, and nothing dies for it.
//
// Field case 50.
func TestAReplaySlowsDownAndKillsNothing(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	b.bury(sub, "hook", "acme", 200)
	b.answers("hook", func(n int, _ *delivery.Request) delivery.Outcome {
		if n%15 == 0 {
			return failed(503)
		}
		return ok()
	})
	r := b.replay(Selection{Subscription: sub})
	done := b.job(r.ID, "the end", isDone)
	if done.Count.Delivered != 200 || done.Count.Dead != 0 {
		t.Errorf("%+v", done)
	}
}

// A replay to a disabled subscription is refused, one to a deleted finds nothing; one to a paused is accepted and
// waits; nothing is sent after a pause was acknowledged.
//
// Field case 51.
func TestReplayToOneThatIsNotThere(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{Rate: "500/s", Burst: 1})
	b.bury(sub, "hook", "acme", 100)
	edit(t, b, sub, func(s *journal.Subscription) { s.Disabled = "gone" })
	if _, err := b.Replay(t.Context(), Selection{Subscription: sub}, "", false); !errors.Is(err, ErrConflict) {
		t.Errorf("replay to a disabled one: %v", err)
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.Disabled, s.Paused = "", true })
	r := b.replay(Selection{Subscription: sub})
	sent := len(b.to.requests(url("hook")))
	s := b.job(r.ID, "the reason", func(s ReplayStatus) bool { return s.Blocked == engine.ByPause })
	if s.State != journal.JobRunning || s.Left != 100 || len(b.to.requests(url("hook"))) != sent {
		t.Errorf("while it is paused: %+v", s)
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
	b.job(r.ID, "some", func(s ReplayStatus) bool { return s.Count.Delivered > 10 })
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
	b.until(sub, "quiet", func(s LaneStatus) bool { return s.Counters.InFlight == 0 })
	sent = len(b.to.requests(url("hook")))
	if err := b.DeleteSubscription(context.Background(), sub); err != nil {
		t.Fatal(err)
	}
	if n := len(b.to.requests(url("hook"))); n != sent {
		t.Errorf("%d were sent after the pause", n-sent)
	}
	done := b.job(r.ID, "the end", isDone)
	if done.Count.Waiting() != 0 || done.Count.Delivered+done.Count.Cancelled != done.Count.Taken {
		t.Errorf("after the delete: %+v", done)
	}
	if c := b.Tenants()[0].Counters; !c.Balanced() || c.Parked+c.Dead != 0 {
		t.Errorf("account: %+v", c)
	}
	if _, err := b.Replay(t.Context(), Selection{Subscription: sub}, "", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("replay to a deleted one: %v", err)
	}
}

// Bounds are exact: accepted at or after since, before until; of what is in HELD too.
//
// Field case 52.
func TestReplayOfATimeRangeIsExact(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held %v", held), func(t *testing.T) {
			b, sub := startOne(t, nil, "hook", journal.Limits{})
			receipts := b.bury(sub, "hook", "acme", 30)
			if held {
				b.moveEverything()
			}
			letters, next, err := b.DeadLetters(t.Context(), Selection{Subscription: sub}, DeadCursor{}, 100)
			if err != nil || next != nil || len(letters) != 30 {
				t.Fatal(len(letters), next, err)
			}
			accepted := map[string]time.Time{}
			for _, l := range letters {
				accepted[l.Trigger.ID] = l.Trigger.Accepted
			}
			at := func(i int) time.Time { return accepted[receipts[i].ID] }
			for _, row := range []struct {
				what string
				s    Selection
				want uint64
			}{
				{"from the tenth to before the twentieth", Selection{Since: at(10), Until: at(20)}, 10},
				{"until the first", Selection{Until: at(0)}, 0},
				{"from the last", Selection{Since: at(29)}, 1},
				{"from a microsecond after the tenth", Selection{Since: at(10).Add(time.Microsecond), Until: at(20)}, 9},
				{"nothing", Selection{Since: at(10), Until: at(10)}, 0},
				{"another reason", Selection{Reasons: []engine.Reason{engine.Expired}}, 0},
				{"this reason", Selection{Reasons: []engine.Reason{engine.Rejected, engine.Expired}}, 30},
			} {
				row.s.Subscription = sub
				dry, err := b.Replay(t.Context(), row.s, "", true)
				if err != nil || dry.Selected != row.want {
					t.Errorf("%s: %d, %v, want %d", row.what, dry.Selected, err, row.want)
				}
			}
			if _, err := b.Replay(t.Context(), Selection{Subscription: sub, Since: at(10), Until: at(9)}, "", true); !errors.Is(err, ErrInvalid) {
				t.Errorf("until before since: %v", err)
			}
			r := b.replay(Selection{Subscription: sub, Since: at(10), Until: at(20)})
			done := b.job(r.ID, "the end", isDone)
			times := b.times("hook")
			for i, receipt := range receipts {
				want := 1
				if i >= 10 && i < 20 {
					want = 2
				}
				if times[receipt.ID] != want {
					t.Errorf("trigger %d was sent %d times, want %d", i, times[receipt.ID], want)
				}
			}
			if done.Count.Delivered != 10 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// A replay with a rate of its own keeps it.
func TestAReplayKeepsItsOwnRate(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	b.bury(sub, "hook", "acme", 60)
	if _, err := b.Replay(t.Context(), Selection{Subscription: sub}, "15", false); !errors.Is(err, ErrInvalid) {
		t.Errorf("a rate without a unit: %v", err)
	}
	begin := time.Now()
	r, err := b.Replay(t.Context(), Selection{Subscription: sub}, "100/s", false)
	if err != nil {
		t.Fatal(err)
	}
	b.job(r.ID, "the end", isDone)
	if took := time.Since(begin); took < 570*time.Millisecond {
		t.Errorf("60 at 100/s took %v", took)
	}
}

// Purged dead letters are cancelled, of a selection or one by one, and stay so.
func TestPurgedIsCancelled(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	first := b.bury(sub, "hook", "acme", 300)
	b.moveEverything()
	b.bury(sub, "hook", "acme", 10)
	if n, err := b.PurgeDead(t.Context(), Selection{Subscription: sub}, true); n != 310 || err != nil {
		t.Fatalf("dry: %d, %v", n, err)
	}
	for _, name := range []string{first[7].ID, fmt.Sprint(uint64(first[8].Position))} {
		if err := b.PurgeOne(t.Context(), sub, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.PurgeOne(t.Context(), sub, name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s again: %v", name, err)
		}
	}
	check := func(dead, cancelled uint64) {
		t.Helper()
		s, _ := b.Lane(sub)
		if s.Counters.Dead != dead || s.Counters.Cancelled != cancelled || !s.Counters.Balanced() {
			t.Errorf("%+v, want %d dead and %d cancelled", s.Counters, dead, cancelled)
		}
	}
	check(308, 2)
	b.crash()
	check(308, 2)
	if n, err := b.PurgeDead(t.Context(), Selection{Tenant: "acme", Reasons: []engine.Reason{engine.Rejected}}, false); n != 308 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	check(0, 310)
	b.crash()
	check(0, 310)
	b.dropSpent()
	if n, held := b.references(); n != 0 || held != 0 {
		t.Errorf("%d references, %d messages of HELD are left", n, held)
	}
}

// Pages hold every dead letter once, whatever moves meanwhile.
func TestPagesOfDeadLettersAreWhole(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	b.tenant("beta")
	sub := b.subscribe("acme", "hook", journal.Limits{})
	other := b.subscribe("beta", "other", journal.Limits{})
	b.bury(sub, "hook", "acme", 70)
	b.bury(other, "other", "beta", 5)
	got := map[string]int{}
	cursor := &DeadCursor{}
	for cursor != nil {
		page, next, err := b.DeadLetters(t.Context(), Selection{}, *cursor, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			got[d.Subscription+d.Trigger.ID]++
		}
		b.moveEverything()
		cursor = next
	}
	if len(got) != 75 {
		t.Errorf("%d dead letters listed, want 75", len(got))
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s is listed %d times", id, n)
		}
	}
	page, _, err := b.DeadLetters(t.Context(), Selection{Tenant: "beta"}, DeadCursor{}, 100)
	if err != nil || len(page) != 5 || page[0].Tenant != "beta" {
		t.Errorf("%d of beta, %v", len(page), err)
	}
}

// A resend reaches the endpoint each time, with the same id, as a delivery of its own in the account. It is for
// those alone that the trigger is addressed to, and for what is settled.
//
// Field case 53.
func TestAResendIsADeliveryOfItsOwn(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	b.tenant("beta")
	sub := b.subscribe("acme", "hook", journal.Limits{})
	other := b.subscribe("beta", "other", journal.Limits{})
	receipt := b.post(1, "acme")[0]
	b.until(sub, "delivery", delivered(1))
	for n := uint64(2); n <= 4; n++ {
		if p, err := b.Resend(t.Context(), receipt.ID, []string{sub}); err != nil || p != receipt.Position {
			t.Fatal(p, err)
		}
		b.until(sub, "delivery", delivered(n))
	}
	reqs := b.to.requests(url("hook"))
	for _, r := range reqs {
		if r.ID != receipt.ID {
			t.Errorf("resent as %s", r.ID)
		}
	}
	if _, err := b.Resend(t.Context(), receipt.ID, []string{sub, other}); !errors.Is(err, ErrNotFound) {
		t.Errorf("to a tenant that it is not for: %v", err)
	}
	if _, err := b.Resend(t.Context(), "99999999", []string{sub}); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("beyond the log: %v", err)
	}
	dead := b.bury(sub, "hook", "acme", 1)[0]
	if _, err := b.Resend(t.Context(), dead.ID, []string{sub}); !errors.Is(err, ErrConflict) {
		t.Errorf("of a dead letter: %v", err)
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
	if _, err := b.Resend(t.Context(), receipt.ID, []string{sub}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Resend(t.Context(), receipt.ID, []string{sub}); !errors.Is(err, ErrConflict) {
		t.Errorf("while one waits: %v", err)
	}
	b.expire(b.cursor + 1) // it is older than the horizon, its resend is not
	want := func(s LaneStatus) bool {
		return s.Counters.Offered == 6 && s.Counters.Parked == 1 && s.Counters.Delivered == 4 && s.Counters.Dead == 1
	}
	b.until(sub, "the account", want)
	b.crash()
	b.until(sub, "the account", want)
	b.expire(b.cursor + 1)
	b.until(sub, "the account", want)
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
	b.until(sub, "delivery", delivered(5))
	if n := len(b.to.requests(url("other"))); n != 0 {
		t.Errorf("another tenant got %d", n)
	}
}

// A dead letter is a small record that refers to its trigger: there is no second copy of the payload.
//
// Field case 42.
func TestADeadLetterIsNoSecondCopy(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	b.answers("hook", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	before := b.j.Status()
	for range 50 {
		_, err := b.j.Append(t.Context(), &journal.Trigger{
			Audience: journal.Audience{Tenants: []string{"acme"}}, Topic: "t.x", Accepted: time.Now(), Payload: make([]byte, 20_000),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.until(sub, "death", func(s LaneStatus) bool { return s.Counters.Dead == 50 })
	if err := b.j.WaitFlushed(t.Context(), b.j.Record()); err != nil {
		t.Fatal(err)
	}
	after := b.j.Status()
	if n := after.OutcomesBytes - before.OutcomesBytes; n > 50*300 || after.HeldBytes != 0 {
		t.Errorf("50 dead letters of 20 KB took %d bytes of OUTCOMES and %d of HELD", n, after.HeldBytes)
	}
}

// Every reason of death has a class, so that a tenant's mistakes can be told from ours.
//
// Field case 45.
func TestEveryDeathHasAClass(t *testing.T) {
	want := map[engine.Reason]string{
		engine.Rejected: "endpoint", engine.Exhausted: "endpoint", engine.Expired: "deferred", engine.OverQuota: "policy", engine.TooCostly: "policy",
		engine.ByLocal: "internal",
	}
	for r, class := range want {
		if got := Class(r); got != class {
			t.Errorf("%v is %q, want %q", r, got, class)
		}
	}
	for _, r := range Deadly {
		if Class(r) == "internal" {
			t.Errorf("%v has no class", r)
		}
		if back, ok := ReasonOf(r.String()); !ok || back != r {
			t.Errorf("%v is not found by its name", r)
		}
	}
}

// Retention counts from the last death, however old the trigger is.
//
// Field case 47.
func TestRetentionCountsFromTheLastDeath(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	b.bury(sub, "hook", "acme", 2)
	between := b.clock.ms(b.clock.now()) + 1
	b.answers("hook", func(n int, _ *delivery.Request) delivery.Outcome { return rejected() })
	r := b.replay(Selection{Subscription: sub})
	b.job(r.ID, "the second death", func(s ReplayStatus) bool { return s.Count.Dead == 2 })
	b.purgeOld(between) // as long after the first death as is kept
	if s, _ := b.Lane(sub); s.Counters.Dead != 2 {
		t.Errorf("%+v: purged by the first death", s.Counters)
	}
	b.purgeOld(b.clock.ms(b.clock.now()) + 1)
	if s, _ := b.Lane(sub); s.Counters.Dead != 0 || s.Counters.Cancelled != 2 {
		t.Errorf("%+v: not purged by the last", s.Counters)
	}
}

// On an ordered lane that stops at a dead letter, its replay goes before what waits behind it, over a crash too.
func TestAReplayKeepsTheOrder(t *testing.T) {
	for _, order := range []string{journal.OrderAll, journal.OrderKey} {
		t.Run(order, func(t *testing.T) {
			b := start(t, easyBudget)
			b.tenant("acme")
			sub := b.ordered("acme", "hook", order, journal.OnDeadStop, journal.Limits{})
			b.answers("hook", func(int, *delivery.Request) delivery.Outcome { return rejected() })
			want := b.post(1, "acme")
			b.until(sub, "death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
			want = append(want, b.post(20, "acme")...)
			b.until(sub, "waiting", func(s LaneStatus) bool { return s.Counters.Parked == 20 })
			b.answers("hook", nil)
			b.crash()
			r := b.replay(Selection{Subscription: sub})
			b.job(r.ID, "the end", isDone)
			b.until(sub, "delivery", delivered(21))
			reqs := b.to.requests(url("hook"))[1:]
			if len(reqs) != 21 {
				t.Fatalf("%d requests, want 21", len(reqs))
			}
			for i, q := range reqs {
				if q.ID != want[i].ID {
					t.Fatalf("delivery %d is %s, want %s", i, q.ID, want[i].ID)
				}
			}
		})
	}
}

// What one tenant lets run is bounded, and bounds nobody else. A cancelled replay does not count until it is resumed;
// of those, the latest are kept.
func TestATenantsRunningReplaysAreBounded(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"acme", "beta"} {
		b.tenant(id)
	}
	subs := map[string]string{"acme": b.subscribe("acme", "hook", journal.Limits{}), "beta": b.subscribe("beta", "else", journal.Limits{})}
	b.bury(subs["acme"], "hook", "acme", 1)
	b.bury(subs["beta"], "else", "beta", 1)
	edit(t, b, subs["acme"], func(s *journal.Subscription) { s.Paused = true })
	fill := func() (all []ReplayStatus) {
		t.Helper()
		var mu sync.Mutex
		one := func() error {
			r, err := b.Replay(t.Context(), Selection{Subscription: subs["acme"]}, "", false)
			if mu.Lock(); err == nil {
				all = append(all, r)
			}
			mu.Unlock()
			return err
		}
		var many sync.WaitGroup
		for range jobsOpen + 20 { // at once
			many.Go(func() { _ = one() })
		}
		many.Wait()
		var err error
		for err == nil && len(all) <= jobsOpen {
			err = one()
		}
		if !errors.Is(err, ErrConflict) || len(all) != jobsOpen {
			t.Fatalf("%d run, then %v", len(all), err)
		}
		slices.SortFunc(all, func(a, b ReplayStatus) int { return int(a.Number) - int(b.Number) })
		return all
	}
	first := fill()
	if _, err := b.Replay(t.Context(), Selection{Tenant: "acme"}, "", true); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	b.replay(Selection{Subscription: subs["beta"]})
	b.until(subs["beta"], "delivery", delivered(1))
	for _, r := range first {
		if _, err := b.CancelReplay(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	last := first[len(first)-1].ID
	if _, err := b.ResumeReplay(t.Context(), last); !errors.Is(err, ErrConflict) {
		t.Errorf("resuming beside %d that run: %v", jobsOpen, err)
	}
	done := b.job(first[jobsOpen-cancelledMost-1].ID, "the end of what was cancelled first", isDone)
	if done.Left != 0 || done.Skipped != 1 {
		t.Errorf("%+v", done)
	}
	if s, err := b.ReplayOf(first[jobsOpen-cancelledMost].ID); err != nil || s.State != journal.JobCancelled {
		t.Errorf("of the latest: %+v, %v", s, err)
	}
}

// Changing a replay, and ending one, waits for nobody who reads for another, however long that takes.
func TestAReplayWaitsForNoOther(t *testing.T) {
	b := start(t, nil)
	subs := map[string]string{}
	for _, id := range []string{"acme", "beta", "gamma"} {
		b.tenant(id)
		subs[id] = b.subscribe(id, id, journal.Limits{})
		b.bury(subs[id], id, id, 3)
	}
	for _, id := range []string{"acme", "gamma"} {
		edit(t, b, subs[id], func(s *journal.Subscription) { s.Paused = true })
	}
	slow, other := b.replay(Selection{Tenant: "acme"}), b.replay(Selection{Tenant: "gamma"})
	turn := b.openJob(slow.Number).turn
	turn <- struct{}{} // as one that reads a time range
	quick := b.replay(Selection{Tenant: "beta"})
	b.job(quick.ID, "the end", isDone)
	if s, err := b.CancelReplay(t.Context(), other.ID); err != nil || s.State != journal.JobCancelled {
		t.Errorf("%+v, %v", s, err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := b.CancelReplay(gone, slow.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for the answer any more: %v", err)
	}
	<-turn
	if s, err := b.CancelReplay(t.Context(), slow.ID); err != nil || s.State != journal.JobCancelled {
		t.Errorf("%+v, %v", s, err)
	}
}

// What waits is not sent twice by a resend, also when it is so old that it has moved.
//
// Field case 53.
func TestAResendOfWhatWaitsIsRefused(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	before := b.post(1, "acme")[0]
	b.until(sub, "delivery", delivered(1))
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
	waits := b.post(5, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 5 })
	for _, what := range []string{"parked", "moved"} {
		for _, r := range waits {
			if _, err := b.Resend(t.Context(), r.ID, []string{sub}); !errors.Is(err, ErrConflict) {
				t.Errorf("%s: %v", what, err)
			}
		}
		b.moveEverything()
	}
	if _, err := b.Resend(t.Context(), before.ID, []string{sub}); err != nil {
		t.Errorf("what was delivered: %v", err)
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
	b.until(sub, "the end", delivered(7))
	for id, n := range b.times("hook") {
		if n != 1 && id != before.ID {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

// Whoever uses what a range has holds off the moves into HELD, which give its letters other names.
func TestARangeKeepsItsLettersWhileTheyMove(t *testing.T) {
	b, sub := startOne(t, nil, "hook", journal.Limits{})
	s := Selection{Subscription: sub, Since: time.Now()}
	b.bury(sub, "hook", "acme", 100)
	s.Bound = b.awaitBound()
	count := func(in *inRange) int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.countDead(b.index.bySub[sub], &s, in)
	}
	b.moving.RLock()
	in, err := b.within(t.Context(), b.index.bySub[sub], &s)
	if err != nil {
		t.Fatal(err)
	}
	moved := make(chan struct{})
	go func() {
		b.moveEverything()
		close(moved)
	}()
	b.until(sub, "a message in HELD", func(LaneStatus) bool { return b.j.Status().HeldBytes > 0 })
	for range 10_000 { // the names would change at once
		if n := count(in); n != 100 {
			t.Fatalf("%d of 100 letters are in the range", n)
		}
	}
	b.moving.RUnlock()
	<-moved
	if n := count(in); n != 0 {
		t.Errorf("nothing has moved: %d have their old names", n)
	}
	if r := b.replay(s); r.Selected != 100 {
		t.Errorf("%d selected afterwards", r.Selected)
	}
}
