package fanout

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Tenants are hostile to each other. What one may ask again and again holds everybody's lock no longer than it takes to
// pass over its references a few times.
func TestATenantsQuestionsHoldTheLockForAGlanceAtEachReference(t *testing.T) {
	const n = 400_000
	f := newFanout(Options{Journal: nil})
	l := &lane{id: 1, subID: "s", tenant: &tenant{name: "acme"}}
	f.index.tenants["acme"] = l.tenant
	f.index.add(l)
	f.index.bySub["s"] = l
	in := &inRange{some: map[journal.Position]*[messageEntries / 64]uint64{}}
	for i := range n {
		p := journal.HeldPosition(uint64(i/messageEntries+1), i%messageEntries)
		in.add(p)
		l.dead = append(l.dead, newRef(p, int64(i), 1, engine.Rejected, flagRecorded))
		l.backlog.push(newRef(journal.Position((i+1)*messageEntries), int64(i), 0, engine.ByPause, flagRecorded))
	}
	best := func(ask func(i int)) time.Duration {
		least := time.Hour
		for i := range 10 {
			begin := time.Now()
			ask(i)
			least = min(least, time.Since(begin))
		}
		return least
	}
	var seen journal.Position
	glance := best(func(int) {
		for _, r := range l.dead {
			seen = max(seen, r.pos())
		}
		l.backlog.each(func(r ref) { seen = max(seen, r.pos()) })
	})
	all := func(engine.Reason) bool { return true }
	for name, row := range map[string]struct {
		glances time.Duration
		ask     func(int)
	}{
		"one is purged": {2, func(i int) {
			r := l.dead[n/2+i]
			if one := l.takeOne(r.pos()); len(one) != 1 || one[0] != r {
				t.Fatalf("took %v, want %v", one, r)
			}
		}},
		"a replay is counted": {15, func(int) {
			if left := f.left(map[*lane]*part{l: {job: &job{}, in: in}}); int(left) != len(l.dead) {
				t.Fatalf("%d are left of %d", left, len(l.dead))
			}
		}},
		"what waits is listed": {4, func(int) {
			if page, err := f.ParkedOf("s", 0, 10, all); err != nil || len(page) != 10 || page[9].Position != 10*messageEntries {
				t.Fatalf("%+v, %v", page, err)
			}
		}},
	} {
		if took := best(row.ask); took > row.glances*glance {
			t.Errorf("%s: %v under the lock, a glance at each takes %v", name, took, glance)
		}
	}
}

// A list of dead letters tells the size of payloads, and holds none of them: a page has room for a thousand.
func TestAListOfDeadLettersHoldsNoPayloads(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	sub := b.subscribe("acme", "bad", journal.Limits{})
	b.answers("bad", func(int, *delivery.Request) delivery.Outcome { return rejected() })
	b.post(3, "acme")
	b.until(sub, "deaths", func(s LaneStatus) bool { return s.Counters.Dead == 3 })
	list, _, err := b.DeadLetters(t.Context(), Selection{Tenant: "acme"}, DeadCursor{}, 10)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, d := range list {
		if d.Trigger.Payload != nil || d.Bytes != len(`{"n":0}`) {
			t.Errorf("of %d bytes: %q", d.Bytes, d.Trigger.Payload)
		}
	}
	one, _, _, err := b.DeadLetter(t.Context(), sub, list[1].Trigger.ID)
	if err != nil || string(one.Trigger.Payload) == "" || one.Bytes != len(one.Trigger.Payload) {
		t.Errorf("one by itself: %+v, %v", one, err)
	}
}

// One of a run in HELD is given up: the others stay, in their order.
func TestOneOfARunIsPurged(t *testing.T) {
	l := &lane{dead: []ref{newRef(5, 1, 1, engine.Rejected, flagRecorded), newRef(journal.HeldPosition(7, 0), 2, 5, engine.Expired, flagRecorded|flagRun)}}
	for _, i := range []int{2, 0, 4} {
		if one := l.takeOne(journal.HeldPosition(7, i)); len(one) != 1 || one[0].pos() != journal.HeldPosition(7, i) {
			t.Fatalf("%d: took %v", i, one)
		}
	}
	var left []journal.Position
	for _, r := range l.dead {
		for ; r.count() > 0; r = r.next() {
			left = append(left, r.pos())
		}
	}
	if want := []journal.Position{5, journal.HeldPosition(7, 1), journal.HeldPosition(7, 3)}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if one := l.takeOne(99); one != nil {
		t.Errorf("of one that is not there: %v", one)
	}
}

// A tenant's list of replays costs nobody a look at another's: each may have a thousand lanes.
func TestAListOfReplaysIsOfThoseThatAreShown(t *testing.T) {
	b := start(t, nil)
	for _, tenant := range []string{"acme", "gamma"} {
		b.tenant(tenant)
		sub := b.subscribe(tenant, tenant, journal.Limits{})
		b.answers(tenant, func(int, *delivery.Request) delivery.Outcome { return rejected() })
		b.post(1, tenant)
		b.until(sub, "death", func(s LaneStatus) bool { return s.Counters.Dead == 1 })
		b.replay(Selection{Tenant: tenant})
	}
	var asked []string
	own := b.Replays(func(tenant string) bool {
		asked = append(asked, tenant)
		return tenant == "gamma"
	})
	if len(own) != 1 || own[0].Tenant != "gamma" || len(asked) != 2 {
		t.Errorf("asked of %v: %+v", asked, own)
	}
}
