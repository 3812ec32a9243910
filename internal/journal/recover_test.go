package journal

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"pgregory.net/rapid"
)

// twin is a driver in small that keeps the truth by hand: what each delivery is, and each lane's lists in
// order. Everything it does is written to a log as the service would write it.
type twin struct {
	lanes  int
	cursor Position
	is     map[DeliveryKey]string // flying, waiting, dead, delivered, cancelled, dropped
	made   map[DeliveryKey]uint32 // attempts
	wait   map[engine.LaneID][]Ref
	dead   map[engine.LaneID][]Ref
	count  map[engine.LaneID]engine.Counters // Offered, Delivered, Cancelled, Dropped: counted when it happens
	silent map[DeliveryKey]bool              // in the first attempt, of which the log says nothing: no record, no checkpoint
	carry  []DeliveryKey                     // decided before the last crash, at or beyond the cursor then
	clock  int64
	log    []logged
	truth  []*twin // the truth behind each item of the log
}

type logged struct {
	rec *Record
	cp  *Checkpoint
}

func newTwin(lanes int) *twin {
	return &twin{lanes: lanes, cursor: 256, is: make(map[DeliveryKey]string), made: make(map[DeliveryKey]uint32), wait: make(map[engine.LaneID][]Ref),
		dead: make(map[engine.LaneID][]Ref), count: make(map[engine.LaneID]engine.Counters), silent: make(map[DeliveryKey]bool), clock: 1_800_000_000_000}
}

func (w *twin) clone() *twin {
	c := *w
	c.is, c.made, c.count, c.silent = maps.Clone(w.is), maps.Clone(w.made), maps.Clone(w.count), maps.Clone(w.silent)
	c.wait, c.dead = make(map[engine.LaneID][]Ref), make(map[engine.LaneID][]Ref)
	for l, refs := range w.wait {
		c.wait[l] = slices.Clone(refs)
	}
	for l, refs := range w.dead {
		c.dead[l] = slices.Clone(refs)
	}
	c.log, c.truth = nil, nil
	return &c
}

func (w *twin) write(l logged) {
	w.log = append(w.log, l)
	w.truth = append(w.truth, w.clone())
}

// note changes the truth by one record's worth, and logs it.
func (w *twin) note(kind Kind, k DeliveryKey, becomes string, reason engine.Reason, due bool) {
	w.clock++
	r := &Record{Kind: kind, Partition: 3, Lane: k.Lane, Position: k.Position, Reason: reason, At: time.UnixMilli(w.clock).UTC(), Attempt: w.made[k]}
	ref := Ref{Position: k.Position, Stamp: w.clock, Attempt: w.made[k], Reason: reason, Due: due}
	if kind == Claimed {
		r.Attempt++ // the attempt that begins
	}
	if due {
		r.Due = time.UnixMilli(w.clock + 60_000).UTC()
		ref.Stamp = w.clock + 60_000
	}
	drop := func(r Ref) bool { return r.Position == k.Position }
	w.wait[k.Lane] = slices.DeleteFunc(w.wait[k.Lane], drop)
	w.dead[k.Lane] = slices.DeleteFunc(w.dead[k.Lane], drop)
	switch becomes {
	case "waiting":
		w.wait[k.Lane] = append(w.wait[k.Lane], ref)
	case "dead":
		w.dead[k.Lane] = append(w.dead[k.Lane], ref)
	}
	delete(w.silent, k)
	w.settle(k, becomes)
	w.write(logged{rec: r})
}

func (w *twin) settle(k DeliveryKey, becomes string) {
	w.is[k] = becomes
	c := w.count[k.Lane]
	switch becomes {
	case "delivered":
		c.Delivered++
	case "cancelled":
		c.Cancelled++
	case "dropped":
		c.Dropped++
	}
	w.count[k.Lane] = c
}

func (w *twin) offered(l engine.LaneID) {
	c := w.count[l]
	c.Offered++
	w.count[l] = c
}

// offer takes the next position to every lane.
func (w *twin) offer(t *rapid.T) {
	for l := range w.lanes {
		k := DeliveryKey{engine.LaneID(l), w.cursor}
		if w.is[k] != "" { // decided before a crash
			continue
		}
		w.offered(k.Lane)
		switch rapid.IntRange(0, 5).Draw(t, "offer") {
		case 0:
			w.note(Parked, k, "waiting", engine.ByRate, false)
		case 1:
			w.note(Dropped, k, "dropped", engine.ByRate, false)
		case 2:
			w.note(Dead, k, "dead", engine.OverQuota, false)
		default: // the first attempt leaves no record
			w.is[k], w.silent[k] = "flying", true
		}
	}
	w.cursor++
}

// change moves one delivery on.
func (w *twin) change(t *rapid.T) {
	keys := slices.SortedFunc(maps.Keys(w.is), func(a, b DeliveryKey) int {
		return int(a.Lane) - int(b.Lane) + 1000*(int(a.Position)-int(b.Position))
	})
	if len(keys) == 0 {
		return
	}
	k := rapid.SampledFrom(keys).Draw(t, "delivery")
	n := rapid.IntRange(0, 5).Draw(t, "how")
	switch w.is[k] {
	case "flying":
		w.made[k]++
		switch n {
		case 0:
			w.note(Failed, k, "waiting", engine.ByRetry, true)
		case 1:
			w.note(Dead, k, "dead", engine.Rejected, false)
		case 2:
			w.made[k]--
			w.note(Parked, k, "waiting", engine.ByShutdown, false)
		case 3:
			w.note(Cancelled, k, "cancelled", engine.Deleted, false)
		default:
			w.note(Delivered, k, "delivered", engine.None, false)
		}
	case "waiting":
		switch n {
		case 0:
			w.note(Dead, k, "dead", engine.Expired, false)
		case 1:
			w.note(Cancelled, k, "cancelled", engine.Deleted, false)
		default:
			w.note(Claimed, k, "flying", engine.None, false)
		}
	case "dead":
		if n < 4 {
			w.note(Revived, k, "waiting", engine.None, false)
		} else {
			w.note(Purged, k, "cancelled", engine.None, false)
		}
	default:
		if n == 0 {
			w.offered(k.Lane)
			w.note(Resent, k, "waiting", engine.None, false)
		}
	}
}

// cancel cancels what waits in a lane up to a position.
func (w *twin) cancel(t *rapid.T) {
	lane := engine.LaneID(rapid.IntRange(0, w.lanes-1).Draw(t, "lane"))
	to := Position(rapid.Uint64Range(256, uint64(w.cursor)).Draw(t, "to"))
	var rest []Ref
	n := uint32(0)
	for _, r := range w.wait[lane] {
		if r.Position > to {
			rest = append(rest, r)
			continue
		}
		n++
		w.settle(DeliveryKey{lane, r.Position}, "cancelled")
	}
	w.wait[lane] = rest
	w.write(logged{rec: &Record{Kind: LaneCancelled, Partition: 3, Lane: lane, Position: to, N: n, At: time.UnixMilli(w.clock).UTC()}})
}

// checkpoint states everything at this instant.
func (w *twin) checkpoint() {
	clear(w.silent)
	cp := &Checkpoint{Cursor: w.cursor, At: time.UnixMilli(w.clock).UTC()}
	for l := range engine.LaneID(w.lanes) {
		cp.Lanes = append(cp.Lanes, LaneState{Lane: l, Counters: w.counters(l), Tokens: int64(l), Waiting: slices.Clone(w.wait[l]), Dead: slices.Clone(w.dead[l])})
	}
	for k, is := range w.is {
		if is == "flying" {
			cp.Open = append(cp.Open, OpenAttempt{Lane: k.Lane, Position: k.Position, Attempt: w.made[k]})
		}
	}
	cp.decided = slices.DeleteFunc(slices.Clone(w.carry), func(k DeliveryKey) bool { return k.Position < cp.Cursor })
	w.write(logged{cp: cp})
}

// restart is a crash: what the log does not say is forgotten, and the reader begins at the last
// checkpoint's cursor.
func (w *twin) restart() {
	w.cursor = 256
	for _, l := range w.log {
		if l.cp != nil {
			w.cursor = l.cp.Cursor
		}
	}
	for k := range w.silent {
		delete(w.is, k)
		c := w.count[k.Lane]
		c.Offered--
		w.count[k.Lane] = c
	}
	clear(w.silent)
	w.carry = nil
	for k := range w.is {
		if k.Position >= w.cursor {
			w.carry = append(w.carry, k)
		}
	}
}

// counters is the lane's account as the log can know it: without silent deliveries.
func (w *twin) counters(l engine.LaneID) engine.Counters {
	c := w.count[l]
	c.Parked, c.Dead = uint64(len(w.wait[l])), uint64(len(w.dead[l]))
	for k, is := range w.is {
		if k.Lane != l {
			continue
		}
		if w.silent[k] {
			c.Offered--
		} else if is == "flying" {
			c.InFlight++
		}
	}
	return c
}

// check compares the truth with what the log gives when it ends behind item i.
func (w *twin) check(t *rapid.T, log []logged, i int) {
	t.Helper()
	newest := -1
	for n := range i + 1 {
		if log[n].cp != nil {
			newest = n
		}
	}
	var cp *Checkpoint
	if newest >= 0 {
		c := *log[newest].cp
		c.Lanes = slices.Clone(c.Lanes)
		for n := range c.Lanes { // the fold owns what it is given
			c.Lanes[n].Waiting, c.Lanes[n].Dead = slices.Clone(c.Lanes[n].Waiting), slices.Clone(c.Lanes[n].Dead)
		}
		cp = &c
	}
	f := newFold(cp)
	for _, item := range log[newest+1 : i+1] {
		f.apply(item.rec)
	}
	if f.odd != 0 {
		t.Fatalf("%d records did not fit", f.odd)
	}
	w.same(t, f.state())
}

func (w *twin) same(t *rapid.T, s *State) {
	t.Helper()
	lanes := make(map[engine.LaneID]LaneState)
	for _, l := range s.Lanes {
		lanes[l.Lane] = l
	}
	for l := range engine.LaneID(w.lanes) {
		got := lanes[l]
		if want := w.counters(l); got.Counters != want || !got.Counters.Balanced() {
			t.Fatalf("lane %d: account %+v, want %+v", l, got.Counters, want)
		}
		if !slices.Equal(got.Waiting, w.wait[l]) || !slices.Equal(got.Dead, w.dead[l]) {
			t.Fatalf("lane %d: waiting %+v\nwant %+v\ndead %+v\nwant %+v", l, got.Waiting, w.wait[l], got.Dead, w.dead[l])
		}
	}
	open, decided := make(map[OpenAttempt]bool), make(map[DeliveryKey]struct{})
	var last Position
	for k, is := range w.is {
		if w.silent[k] {
			continue
		}
		if is == "flying" {
			open[OpenAttempt{k.Lane, k.Position, w.made[k]}] = true
		}
		if k.Position >= s.Cursor {
			decided[k] = struct{}{}
			last = max(last, k.Position)
		}
	}
	for _, o := range s.Open {
		if !open[o] {
			t.Fatalf("open %+v, want %+v", o, open)
		}
	}
	if len(s.Open) != len(open) || !maps.Equal(s.Decided, decided) || s.Last != last {
		t.Fatalf("open %+v, want %+v\ndecided %+v, want %+v, last %d, want %d", s.Open, open, s.Decided, decided, s.Last, last)
	}
}

// Field case 43.
func TestCrashAtAnyRecordRecoversTheAccountAndWhatWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(rapid.IntRange(1, 3).Draw(t, "lanes"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch n := rapid.IntRange(0, 19).Draw(t, "step"); {
			case n < 5:
				w.offer(t)
			case n < 17:
				w.change(t)
			case n < 18:
				w.cancel(t)
			case n < 19:
				w.restart()
			default:
				w.checkpoint()
			}
		}
		for i := range w.log {
			w.truth[i].check(t, w.log, i)
		}
	})
}

func TestRecordThatDoesNotFitChangesNothing(t *testing.T) {
	cp := &Checkpoint{Cursor: 1000, Lanes: []LaneState{{Lane: 1, Counters: engine.Counters{Offered: 2, Parked: 1, Dead: 1},
		Waiting: []Ref{{Position: 500}}, Dead: []Ref{{Position: 501}}}}, decided: []DeliveryKey{{1, 1000}}}
	before := newFold(cp).state()
	for _, r := range []Record{
		rec(Delivered, 1, 400, 1),  // settled long ago
		rec(Delivered, 1, 1000, 1), // settled before the checkpoint, beyond its cursor
		rec(Revived, 1, 500, 1),    // not dead
		rec(Revived, 1, 1001, 1),   // not even offered
		rec(Purged, 1, 500, 1),
		rec(Resent, 1, 500, 1), // waits already
		rec(Resent, 1, 501, 1), // dead: that is a replay's
	} {
		f := newFold(cp)
		if f.apply(&r); f.odd != 1 {
			t.Errorf("%+v: odd %d", r, f.odd)
		}
		if got := f.state(); !reflect.DeepEqual(got, before) {
			t.Errorf("%+v: %+v", r, got)
		}
	}
}

func TestDeliveriesOfTheCheckpointBeyondItsCursorAreNotOfferedAgain(t *testing.T) {
	cp := &Checkpoint{Cursor: 500, Lanes: []LaneState{{Lane: 1, Counters: engine.Counters{Offered: 1, Parked: 1}, Waiting: []Ref{{Position: 500}}}}}
	s := newFold(cp).state()
	if _, ok := s.Decided[DeliveryKey{1, 500}]; !ok || s.Last != 500 {
		t.Errorf("decided %v, last %d", s.Decided, s.Last)
	}
}

func BenchmarkRecoverAMillionParked(b *testing.B) {
	cp := &Checkpoint{Cursor: 1}
	for l := range engine.LaneID(10_000) {
		lane := LaneState{Lane: l, Counters: engine.Counters{Offered: 100, Parked: 100}}
		for i := range Position(100) {
			lane.Waiting = append(lane.Waiting, Ref{Position: i})
		}
		cp.Lanes = append(cp.Lanes, lane)
	}
	var body []byte
	encodeCheckpoint(cp, 1<<30, func(p []byte, _ bool) error { body = p; return nil })
	b.ReportAllocs()
	b.ReportMetric(float64(len(body)), "bytes")
	for b.Loop() {
		cp, err := decodeCheckpoint(body)
		if err != nil {
			b.Fatal(err)
		}
		newFold(cp).state()
	}
}
