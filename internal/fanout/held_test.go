package fanout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// moveEverything moves all that waits or is dead into HELD.
func (b *bench) moveEverything() {
	b.t.Helper()
	if err := b.moveStretch(b.cursorNow()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) references() (n, held int) {
	if cursor := b.cursorNow(); b.lowest(cursor) != cursor {
		b.t.Errorf("position %d still pins the log", b.lowest(cursor))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting + b.dead, len(b.held)
}

// A backlog that has moved into HELD pins nothing, takes one reference a message, survives a clean
// stop and a crash, and is delivered in order, with the same ids and bytes.
func TestHeldBacklogIsDeliveredInOrder(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	one := 1
	sub := b.subscribe("acme", "limited", journal.Limits{Rate: "1/h", Burst: 1, Cap: &one})
	receipts := b.post(600, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 599 })
	b.moveEverything()
	if n, held := b.references(); n != 3 || held != 3 {
		t.Errorf("%d references to %d messages, want 3 to 3", n, held)
	}
	b.restart()
	b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Parked == 599 })
	b.crash()
	b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Parked == 599 })
	b.to.answer[url("limited")] = func(n int, _ *delivery.Request) delivery.Outcome {
		if n == 300 {
			b.until(sub, "the answer before", func(s LaneStatus) bool { return s.Counters.Delivered > 200 })
		}
		return ok()
	}
	edit(t, b, sub, func(s *journal.Subscription) { s.Limits.Rate = "unlimited" })
	b.until(sub, "drain", delivered(600))
	for i, r := range b.to.requests(url("limited")) {
		if r.ID != receipts[i].ID {
			t.Fatalf("delivery %d is %s, want %s", i, r.ID, receipts[i].ID)
		}
		if i > 0 && string(r.Payload) != string(b.to.requests(url("limited"))[i].Payload) {
			t.Fatalf("payload of %d changed", i)
		}
	}
	b.dropSpent()
	if n, held := b.references(); n != 0 || held != 0 {
		t.Errorf("%d references, %d messages of HELD are left", n, held)
	}
	b.ledgerNames(sub, receipts)
	if bytes := b.j.Status().HeldBytes; bytes != 0 {
		t.Errorf("%d bytes are left in HELD", bytes)
	}
}

// ledgerNames checks that the ledger speaks of triggers by their positions, moved or not.
// Where many lanes wait side by side, what has to move is read once, however little of the log is kept in memory: a
// pack for each lane in it would be read as often as it has deliveries. One lane that stays behind keeps its own
// messages, and nobody else's.
func TestNeighboursInTheLogMoveTogether(t *testing.T) {
	const tenants, packs = 20, 30
	b := start(t, nil)
	b.close()
	b.cache = 1 // the newest pack alone
	b.open()
	subs := make([]string, tenants)
	for i := range subs {
		name := fmt.Sprintf("t%d", i)
		b.tenant(name)
		subs[i] = b.subscribe(name, name, journal.Limits{})
		edit(t, b, subs[i], func(s *journal.Subscription) { s.Paused = true })
	}
	for n := range packs {
		var pack []*journal.Trigger
		for i := range subs {
			pack = append(pack, &journal.Trigger{
				Audience: journal.Audience{Tenants: []string{fmt.Sprintf("t%d", i)}}, Topic: "t.x", Accepted: time.Now(), Payload: fmt.Appendf(nil, "%d of %d", n, i),
			})
		}
		if _, err := b.j.AppendBatch(t.Context(), pack); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range subs {
		b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == packs })
	}
	before := b.j.Status().Reads
	b.moveEverything()
	if reads := b.j.Status().Reads - before; reads > packs {
		t.Errorf("%d packs were read %d times", packs, reads)
	}
	if n, held := b.references(); n != tenants || held != tenants {
		t.Errorf("%d references to %d messages, want one of each lane", n, held)
	}
	stays := 7 // neither the first nor the last message
	for i, sub := range subs {
		if i != stays {
			edit(t, b, sub, func(s *journal.Subscription) { s.Paused = false })
		}
	}
	for i, sub := range subs {
		if i != stays {
			b.until(sub, "drain", delivered(packs))
		}
	}
	b.dropSpent()
	if n, held := b.references(); n != 1 || held != 1 {
		t.Errorf("%d references to %d messages are left, want those of the lane that stays", n, held)
	}
	edit(t, b, subs[stays], func(s *journal.Subscription) { s.Paused = false })
	b.until(subs[stays], "drain", delivered(packs))
	b.dropSpent()
	if bytes := b.j.Status().HeldBytes; bytes != 0 {
		t.Errorf("%d bytes are left in HELD", bytes)
	}
	for i := range subs {
		got := map[string]bool{}
		for _, r := range b.to.requests(url(fmt.Sprintf("t%d", i))) {
			got[string(r.Payload)] = true
		}
		for n := range packs {
			if !got[fmt.Sprintf("%d of %d", n, i)] {
				t.Errorf("tenant %d did not get the %d-th", i, n)
			}
		}
	}
}

func (b *bench) ledgerNames(sub string, receipts []journal.Receipt) {
	b.t.Helper()
	s, _ := b.Lane(sub)
	got := map[journal.Position]bool{}
	for before := uint64(0); ; {
		recs, next, err := b.j.Deliveries(b.t.Context(), s.Lane, before, 500)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range recs {
			if r.Kind == journal.Delivered {
				got[r.Position] = true
			}
		}
		if before = next; next == 0 {
			break
		}
	}
	for i, r := range receipts {
		if !got[r.Position] {
			b.t.Fatalf("the ledger has no delivery of trigger %d at %d", i, r.Position)
		}
	}
	if len(got) != len(receipts) {
		b.t.Errorf("the ledger names %d positions, want %d", len(got), len(receipts))
	}
}

// What fails, dies or expires after it has moved is accounted for as ever, over crashes.
func TestHeldDeliveriesFailAndDieAccountedFor(t *testing.T) {
	b := start(t, func(o *Options) { o.Profile.MaxAttempts = 2; o.Profile.Breaker.Off = true; o.Profile.NoBudget = true })
	b.tenant("acme")
	one := 1
	sub := b.subscribe("acme", "broken", journal.Limits{Rate: "1/h", Burst: 1, Cap: &one})
	b.post(50, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 49 })
	b.moveEverything()
	b.to.mu.Lock()
	b.to.answer[url("broken")] = func(n int, r *delivery.Request) delivery.Outcome {
		if n%2 == 0 {
			return failed(500)
		}
		return ok()
	}
	b.to.mu.Unlock()
	edit(t, b, sub, func(s *journal.Subscription) { s.Limits.Rate, s.Limits.Burst = "300/s", 1 })
	b.until(sub, "some", func(s LaneStatus) bool { return s.Counters.Delivered > 10 })
	b.crash()
	s := b.until(sub, "the end", func(s LaneStatus) bool { return s.Counters.Parked+s.Counters.InFlight == 0 })
	if s.Counters.Delivered+s.Counters.Dead != 50 || s.Counters.Offered != 50 {
		t.Errorf("account: %+v", s.Counters)
	}
	b.moveEverything() // the dead move too
	b.crash()
	b.until(sub, "recovery", func(got LaneStatus) bool { return got.Counters.Dead == s.Counters.Dead })
	if n, _ := b.references(); n != int(s.Counters.Dead) {
		t.Errorf("%d references, want one each of %d dead", n, s.Counters.Dead)
	}
	b.purgeOld(1 << 41)
	got := b.until(sub, "purge", func(s LaneStatus) bool { return s.Counters.Dead == 0 })
	if got.Counters.Cancelled != s.Counters.Dead {
		t.Errorf("account after the purge: %+v", got.Counters)
	}
	b.crash()
	b.until(sub, "recovery", func(s LaneStatus) bool { return s.Counters.Cancelled == got.Counters.Cancelled && s.Counters.Dead == 0 })
}

// A run that expires is buried and purged as one record, and counted as many.
func TestHeldRunExpiresAsOne(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	sub := b.subscribe("acme", "limited", journal.Limits{Rate: "1/h", Burst: 1})
	b.post(100, "acme")
	b.until(sub, "parking", func(s LaneStatus) bool { return s.Counters.Parked == 99 })
	b.moveEverything()
	b.opts.Profile.Horizon = 1 // everything is older
	b.Fanout.opts.Profile.Horizon = 1
	b.expire(0)
	check := func(what string) {
		t.Helper()
		s := b.until(sub, what, func(s LaneStatus) bool { return s.Counters.Dead == 99 })
		if n, held := b.references(); n > 99 || held != 1 || s.Counters.Parked != 0 {
			t.Errorf("%s: %d references, %d messages, %+v", what, n, held, s.Counters)
		}
	}
	check("expiry")
	b.crash()
	check("recovery")
	b.purgeOld(1 << 41)
	b.dropSpent()
	if n, held := b.references(); n != 0 || held != 0 {
		t.Errorf("%d references, %d messages are left after the purge", n, held)
	}
}

// While the log is crowded, those who pin it are slowed, and nobody else.
func TestPinnersOfACrowdedLogAreSlowed(t *testing.T) {
	b := start(t, nil)
	for _, id := range []string{"pins", "little", "nothing"} {
		b.tenant(id)
		b.subscribe(id, id, journal.Limits{Rate: "1/h", Burst: 1})
	}
	b.post(40, "pins")
	b.post(2, "little")
	b.post(1, "nothing")
	b.until(b.j.Registry().Subscriptions()[2].ID, "delivery", delivered(1))
	slowed := func() (ids []string) {
		for _, id := range []string{"pins", "little", "nothing"} {
			if _, over := b.Pressure(id); over {
				ids = append(ids, id)
			}
		}
		return ids
	}
	b.slowPinners(true)
	if got := slowed(); !slices.Equal(got, []string{"pins"}) {
		t.Errorf("slowed: %v", got)
	}
	b.slowPinners(false)
	if got := slowed(); got != nil {
		t.Errorf("slowed with room: %v", got)
	}
}
