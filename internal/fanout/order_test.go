package fanout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"pgregory.net/rapid"
)

// ordered adds a subscription to everything under "t." and returns its id.
func (b *bench) ordered(tenant, name, order, onDead string, limits journal.Limits) string {
	b.t.Helper()
	return b.subscribeAs(journal.Subscription{Tenant: tenant, URL: url(name), Order: order, OnDead: onDead, Limits: limits})
}

func (b *bench) subscribeAs(s journal.Subscription) string {
	b.t.Helper()
	s.Secrets = [][]byte{make([]byte, 24)}
	if len(s.Versions) == 0 {
		s.SetMatching([]string{"t.>"}, nil)
	}
	stored, err := b.PutSubscription(context.Background(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return stored.ID
}

// keyed posts n triggers over so many keys, in turn, those of a key one after the other; payloads tell key and
// number.
func (b *bench) keyed(from, n, keys int) {
	b.t.Helper()
	var posts sync.WaitGroup
	for k := range keys {
		posts.Go(func() {
			key := fmt.Sprint("k", k)
			for i := from + k; i < from+n; i += keys {
				b.postKey(key, i)
			}
		})
	}
	posts.Wait()
}

func (b *bench) postKey(key string, i int) {
	_, err := b.j.Append(context.Background(), &journal.Trigger{
		Audience: journal.Audience{Tenants: []string{"acme"}}, Topic: "t.x", Accepted: time.Now(),
		Attributes: []journal.Attribute{{Name: OrderKey, Value: key}}, Payload: fmt.Appendf(nil, "%s %d", key, i),
	})
	if err != nil {
		b.t.Error(err)
	}
}

// successes remembers the payloads that an endpoint took, in order.
type successes struct{ payloads []string }

// flaky answers 500 to a share of the attempts, by chance, and remembers what it took.
func (b *bench) flaky(name string, share float64) *successes {
	s, chance := &successes{}, rand.New(rand.NewPCG(1, 2))
	b.to.answer[url(name)] = func(_ int, r *delivery.Request) delivery.Outcome {
		b.to.mu.Lock()
		defer b.to.mu.Unlock()
		if chance.Float64() < share {
			return failed(500)
		}
		s.payloads = append(s.payloads, string(r.Payload))
		return ok()
	}
	return s
}

// inOrder fails unless every key's deliveries were first taken strictly in order as posted, n in all. After a
// crash what was answered within the last flush may come again.
func (s *successes) inOrder(t *testing.T, n int, repeats bool) {
	t.Helper()
	last, taken := map[string]int{}, map[string]bool{}
	for _, p := range s.payloads {
		var key string
		var i int
		if _, err := fmt.Sscanf(p, "%s %d", &key, &i); err != nil {
			t.Fatal(err)
		}
		if taken[p] && repeats {
			continue
		}
		if before, some := last[key]; some && i <= before {
			t.Fatalf("key %s: %d was taken after %d", key, i, before)
		}
		last[key], taken[p] = i, true
	}
	if len(taken) != n {
		t.Errorf("%d were taken, want %d", len(taken), n)
	}
}

func easyBudget(o *Options) {
	o.Profile.NoBudget, o.Profile.Breaker.Off = true, true
	o.Profile.Schedule.QuickAttempts = 100
}

// Ten thousand over fifty keys, one attempt in ten failing, a stop and two kills between: each key strictly in
// order as received, and the account exact.
//
// Field case 23.
func TestKeysStayInOrderOverFailuresAndKills(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1_000
	}
	b := start(t, nil)
	b.tenant("acme")
	sub := b.ordered("acme", "flaky", journal.OrderKey, "", journal.Limits{})
	took := b.flaky("flaky", 0.1)
	quarter := n / 4
	for i, again := range []func(){b.crash, b.restart, b.crash, func() {}} {
		b.keyed(i*quarter, quarter, 50)
		again()
	}
	b.until(sub, "drain", func(s LaneStatus) bool {
		return s.Counters.Offered == uint64(n) && s.Counters.Parked+s.Counters.InFlight == 0
	})
	took.inOrder(t, n, true)
	if most := b.to.most[url("flaky")]; most > 16 {
		t.Errorf("%d in flight, the cap is 16", most)
	}
}

// Without a kill nobody gets anything twice, and keys do not wait for one another: a key that fails for ever
// leaves the others alone.
func TestAKeyThatBacksOffHoldsItsOwnAlone(t *testing.T) {
	b := start(t, func(o *Options) { easyBudget(o); o.Profile.Schedule.QuickBase = time.Hour })
	b.tenant("acme")
	sub := b.ordered("acme", "picky", journal.OrderKey, "", journal.Limits{})
	b.to.answer[url("picky")] = func(_ int, r *delivery.Request) delivery.Outcome {
		if string(r.Payload[:3]) == "k1 " {
			return failed(500)
		}
		return ok()
	}
	b.keyed(0, 100, 10) // k1 is one of ten: hashes may share a queue
	s := b.until(sub, "the others", func(s LaneStatus) bool {
		return s.Counters.Offered == 100 && s.Counters.Delivered >= 80 && s.Counters.InFlight == 0
	})
	if s.Counters.Parked+s.Counters.Delivered != 100 || s.Counters.Parked < 10 {
		t.Errorf("account %+v: want k1 parked, and little else", s.Counters)
	}
	if n := len(b.to.requests(url("picky"))); n != int(s.Counters.Delivered)+1 {
		t.Errorf("%d requests for %d deliveries and one failure", n, s.Counters.Delivered)
	}
}

// An ordered subscription has one delivery in flight, and a retry keeps its place at the head, over a crash in
// its backoff too.
//
// Field case 23.
func TestAnOrderedSubscriptionWaitsBehindItsHead(t *testing.T) {
	b := start(t, easyBudget)
	b.tenant("acme")
	sub := b.ordered("acme", "strict", journal.OrderAll, "", journal.Limits{})
	took := b.flaky("strict", 0.3)
	for i := range 3 {
		b.keyed(i*60, 60, 1)
		b.until(sub, "some deliveries", func(s LaneStatus) bool { return s.Counters.Delivered > uint64(i)*60+10 })
		b.crash()
	}
	b.until(sub, "drain", delivered(180))
	took.inOrder(t, 180, true)
	if most := b.to.most[url("strict")]; most != 1 {
		t.Errorf("%d in flight at once, want 1", most)
	}
}

// The head that dies is passed, or stops what is behind it until it is purged: the rule is the subscription's.
// A stop holds over a restart and a crash, and for the key alone.
//
// Field case 23.
func TestADeadHeadIsPassedOrStops(t *testing.T) {
	for _, row := range []struct {
		order, onDead string
		delivered     uint64
	}{
		{journal.OrderAll, "", 9},
		{journal.OrderAll, journal.OnDeadStop, 4},
		{journal.OrderKey, "", 9},
		{journal.OrderKey, journal.OnDeadStop, 7},
	} {
		t.Run(row.order+" "+row.onDead, func(t *testing.T) {
			b := start(t, easyBudget)
			b.tenant("acme")
			sub := b.ordered("acme", "refuses", row.order, row.onDead, journal.Limits{})
			b.to.answer[url("refuses")] = func(_ int, r *delivery.Request) delivery.Outcome {
				if string(r.Payload) == "k0 4" {
					return delivery.Outcome{Status: 422, Result: engine.Result{Kind: engine.RejectedR}}
				}
				return ok()
			}
			for i := range 10 {
				b.postKey(fmt.Sprint("k", i%2), i)
			}
			want := func() {
				t.Helper()
				s := b.until(sub, "the end", func(s LaneStatus) bool {
					return s.Counters.Delivered == row.delivered && s.Counters.Dead == 1 && s.Counters.InFlight == 0
				})
				stops := row.onDead == journal.OnDeadStop
				if stops != (s.Counters.Parked > 0) || stops && (s.Blocked != engine.ByOrder || s.Stopped != 1) {
					t.Errorf("%+v, blocked by %v, %d queues stopped", s.Counters, s.Blocked, s.Stopped)
				}
			}
			want()
			b.restart()
			want()
			b.crash()
			want()
			b.purgeOld(b.clock.ms(b.clock.now() + time.Minute))
			b.until(sub, "the rest", func(s LaneStatus) bool { return s.Counters.Delivered == 9 && s.Counters.Cancelled == 1 })
		})
	}
}

// Order and lane are chosen at creation: what waits would have to be sorted anew.
func TestOrderCannotBeChanged(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	sub := b.ordered("acme", "strict", journal.OrderAll, "", journal.Limits{})
	s, _ := b.j.Registry().Subscription(sub)
	s.Order = journal.OrderKey
	if _, err := b.PutSubscription(context.Background(), s); err == nil {
		t.Error("the order was changed")
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.OnDead = journal.OnDeadStop })
}

// What is moved into HELD keeps its order, whatever comes back in front of it meanwhile, over a crash too.
func TestOrderHoldsInHeld(t *testing.T) {
	for _, order := range []string{journal.OrderAll, journal.OrderKey} {
		t.Run(order, func(t *testing.T) {
			b := start(t, func(o *Options) { easyBudget(o); o.Profile.Schedule.QuickBase = time.Millisecond })
			b.tenant("acme")
			sub := b.ordered("acme", "slow", order, "", journal.Limits{})
			took := b.flaky("slow", 0)
			fail := true
			answer := b.to.answer[url("slow")]
			b.to.answer[url("slow")] = func(n int, r *delivery.Request) delivery.Outcome {
				b.to.mu.Lock()
				no := fail
				b.to.mu.Unlock()
				if no {
					return failed(500)
				}
				return answer(n, r)
			}
			b.keyed(0, 300, 5)
			b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Offered == 300 && s.Counters.Parked >= 295 })
			for range 3 { // moves while heads are tried: each move may find another one in flight
				b.moveEverything()
			}
			b.crash()
			b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Parked+s.Counters.InFlight == 300 })
			b.to.mu.Lock()
			fail = false
			b.to.mu.Unlock()
			b.until(sub, "drain", delivered(300))
			took.inOrder(t, 300, true)
		})
	}
}

func (b *bench) cursorNow() journal.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursor
}

// Against plain lists: of each queue one at a time, its front first, whatever is put back.
func TestOrderedBacklogAgainstNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := backlog{ordered: make([]queue, 3)}
		var lists [3][]ref
		var out [3]*ref
		next, n := journal.Position(1), 0
		best := func() (at int) {
			at = -1
			for i, list := range lists {
				if len(list) > 0 && out[i] == nil && (at < 0 || earlier(list[0], lists[at][0])) {
					at = i
				}
			}
			return at
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				q := rapid.IntRange(0, 2).Draw(t, "queue")
				r := newRef(next, rapid.Int64Range(0, 20).Draw(t, "ms"), 0, engine.ByOrder, flagRecorded).in(uint8(q))
				next++
				n++
				b.push(r)
				lists[q] = append(lists[q], r)
			},
			"pop": func(t *rapid.T) {
				if at := best(); at >= 0 {
					got, _ := b.pop()
					if got != lists[at][0] {
						t.Fatalf("popped %v, want %v", got, lists[at][0])
					}
					out[at], lists[at] = &got, lists[at][1:]
					n--
				}
			},
			"claim": func(t *rapid.T) { // as claimAhead does
				q := b.of(uint8(rapid.IntRange(0, 2).Draw(t, "queue")))
				if q.ready.n > 0 {
					q.claimed = append(q.claimed, claim{q.ready.popFront(), 7})
				}
			},
			"back": func(t *rapid.T) {
				q := rapid.IntRange(0, 2).Draw(t, "queue")
				if out[q] == nil {
					return
				}
				b.vacate(uint8(q))
				if rapid.Bool().Draw(t, "again") {
					r := newRef(out[q].pos(), rapid.Int64Range(0, 40).Draw(t, "due"), 1, engine.ByRetry, flagRecorded|flagDue).in(uint8(q))
					b.putBack(r)
					lists[q] = slices.Insert(lists[q], 0, r)
					n++
				}
				out[q] = nil
			},
			"": func(t *rapid.T) {
				got, ok := b.head()
				at := best()
				if ok != (at >= 0) || ok && got != lists[at][0] {
					t.Fatalf("head %v %v, want of %d", got, ok, at)
				}
				if b.len() != n {
					t.Fatalf("%d wait, want %d", b.len(), n)
				}
			},
		})
	})
}

// stopped has an ordered lane with ten triggers of one key whose fifth died, and stops what is behind it.
func stoppedAtFifth(b *bench) (sub string, took *successes) {
	b.tenant("acme")
	sub = b.ordered("acme", "stops", journal.OrderKey, journal.OnDeadStop, journal.Limits{})
	took = &successes{}
	b.answers("stops", func(_ int, r *delivery.Request) delivery.Outcome {
		b.to.mu.Lock()
		defer b.to.mu.Unlock()
		if string(r.Payload) == "k0 4" {
			return rejected()
		}
		took.payloads = append(took.payloads, string(r.Payload))
		return ok()
	})
	b.keyed(0, 10, 1)
	b.until(sub, "the stop", func(s LaneStatus) bool { return s.Counters.Dead == 1 && s.Counters.Parked == 5 })
	b.answers("stops", func(_ int, r *delivery.Request) delivery.Outcome {
		b.to.mu.Lock()
		defer b.to.mu.Unlock()
		took.payloads = append(took.payloads, string(r.Payload))
		return ok()
	})
	return sub, took
}

// What a dead letter has stopped waits for its replay, in which it goes first again, over a restart and a crash.
//
// Field case 23.
func TestTheRevivedHeadGoesFirst(t *testing.T) {
	for name, end := range map[string]func(*bench){"": func(*bench) {}, "restart": (*bench).restart, "crash": (*bench).crash} {
		t.Run(name, func(t *testing.T) {
			b := start(t, easyBudget)
			sub, took := stoppedAtFifth(b)
			end(b)
			r := b.replay(Selection{Subscription: sub})
			b.until(sub, "the rest", delivered(10))
			took.inOrder(t, 10, name == "crash")
			b.job(r.ID, "the end", isDone)
		})
	}
}

// Given up, a dead letter lets go what it has stopped, one by one and by a selection.
//
// Field case 23.
func TestAPurgeLetsGoWhatIsStopped(t *testing.T) {
	for name, purge := range map[string]func(*bench, string) error{
		"one": func(b *bench, sub string) error {
			list, _, err := b.DeadLetters(b.t.Context(), Selection{Subscription: sub}, DeadCursor{}, 1)
			if err != nil {
				return err
			}
			return b.PurgeOne(b.t.Context(), sub, list[0].Trigger.ID)
		},
		"selection": func(b *bench, sub string) error {
			_, err := b.PurgeDead(b.t.Context(), Selection{Subscription: sub}, false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, easyBudget)
			sub, took := stoppedAtFifth(b)
			if err := purge(b, sub); err != nil {
				t.Fatal(err)
			}
			b.until(sub, "the rest", func(s LaneStatus) bool { return s.Counters.Delivered == 9 && s.Counters.Cancelled == 1 })
			took.inOrder(t, 9, false)
		})
	}
}

// What died over quota is replayed in its place: behind what was parked before it, in front of what came after, wherever
// these are.
//
// Field case 23.
func TestOverQuotaIsReplayedInItsPlace(t *testing.T) {
	for _, row := range []struct {
		order, onDead string
		held          bool
		end           func(*bench)
	}{
		{journal.OrderAll, "", false, nil},
		{journal.OrderAll, "", true, nil},
		{journal.OrderAll, journal.OnDeadStop, false, (*bench).crash},
		{journal.OrderAll, journal.OnDeadStop, true, nil},
		{journal.OrderKey, "", true, (*bench).crash},
		{journal.OrderKey, journal.OnDeadStop, false, nil},
		{journal.OrderKey, journal.OnDeadStop, true, nil},
	} {
		t.Run(fmt.Sprint(row.order, row.onDead, row.held, row.end != nil), func(t *testing.T) {
			b := start(t, func(o *Options) { easyBudget(o); o.Tiers["default"] = Tier{Backlog: 40} })
			b.tenant("acme")
			sub := b.ordered("acme", "late", row.order, row.onDead, journal.Limits{})
			took := b.flaky("late", 0)
			edit(t, b, sub, func(s *journal.Subscription) { s.Paused = true })
			keys := 1
			if row.order == journal.OrderKey {
				keys = 2
			}
			post := func(from, to int) {
				for i := from; i < to; i++ {
					b.postKey(fmt.Sprint("k", i%keys), i)
				}
			}
			quota := func(bytes int64) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.index.tenants["acme"].tier.Backlog = bytes
			}
			post(10, 18) // five bytes each
			b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 8 })
			post(18, 24)
			b.until(sub, "deaths", func(s LaneStatus) bool { return s.Counters.Dead == 6 })
			quota(1 << 20)
			post(24, 30)
			b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 14 })
			if row.held {
				b.moveEverything()
			}
			if row.end != nil {
				b.opts.Tiers = map[string]Tier{"default": {}}
				row.end(b)
				b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Parked == 14 && s.Counters.Dead == 6 })
			}
			b.replay(Selection{Subscription: sub})
			b.mu.Lock() // all at once: else what is not taken yet is passed, unless it stops its queue
			b.take(b.clock.now(), b.index.bySub[sub], 20)
			b.mu.Unlock()
			edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
			b.until(sub, "all", delivered(20))
			took.inOrder(t, 20, false)
		})
	}
}

// Several dead letters of one key are replayed in the order in which they were posted, whichever of them fails
// again for a while.
//
// Field case 23.
func TestAReplayKeepsTheOrderOfAKey(t *testing.T) {
	b := start(t, func(o *Options) {
		easyBudget(o)
		o.Profile.Schedule.QuickBase = 300 * time.Millisecond
	})
	b.tenant("acme")
	sub := b.ordered("acme", "again", journal.OrderKey, "", journal.Limits{})
	b.answers("again", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	b.keyed(0, 20, 2)
	b.until(sub, "death", func(s LaneStatus) bool { return s.Counters.Dead == 20 })
	took := b.flaky("again", 0.3)
	b.replay(Selection{Subscription: sub})
	b.until(sub, "the end", delivered(20))
	took.inOrder(t, 20, false)
}
