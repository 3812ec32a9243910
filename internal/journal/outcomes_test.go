package journal

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

func TestCheckpointCutInTheMiddleDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.tune.flush, o.tune.patience = 256, 100*time.Millisecond
	left := new(atomic.Int32) // messages of checkpoints that still get through
	left.Store(1 << 20)
	o.tune.intercept = func(to string, _ []byte, store func() (uint64, error)) (uint64, error) {
		if to == checkpointsSubject && left.Add(-1) < 0 {
			return 0, errors.Join(ErrUnavailable, errRefused)
		}
		return store()
	}
	large := func(cursor Position) *Checkpoint { // of several messages
		cp := &Checkpoint{Cursor: cursor}
		lane := LaneState{Lane: 1, Counters: engine.Counters{Offered: 300, Parked: 300}}
		for i := range Position(300) {
			lane.Waiting = append(lane.Waiting, Ref{Position: i, Attempt: uint32(i)})
		}
		cp.Lanes = []LaneState{lane}
		return cp
	}
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	a := mustAppend(t, j, trigger(1)).Position
	b := mustAppend(t, j, trigger(2)).Position
	flush(t, j, j.Checkpoint(large(a)))
	before := j.outcomes.counter
	flush(t, j, j.Record(rec(Delivered, 2, a, 1)))
	left.Store(3)
	m := j.Checkpoint(large(b))
	eventually(t, "the checkpoint is cut off", func() bool { return left.Load() < 0 })
	if j.Flushed(m) || before < 5 {
		t.Fatalf("flushed, or of one message (%d)", before)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := j.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}

	o.tune.intercept = nil
	j = open(t, o)
	st := j.State()
	if st.Cursor != a || len(st.Lanes) != 2 || len(st.Lanes[0].Waiting) != 300 || !st.Crashed {
		t.Fatalf("cursor %d, want %d; %d lanes", st.Cursor, a, len(st.Lanes))
	}
	if _, ok := st.Decided[DeliveryKey{2, a}]; !ok {
		t.Error("the record behind the complete checkpoint is lost")
	}
	// The next one counts, and the cut one is passed over.
	flush(t, j, j.Checkpoint(large(b)))
	closeJournal(t, j)
	j = open(t, o)
	if st := j.State(); st.Cursor != b || !reflect.DeepEqual(st.Lanes, large(b).Lanes) {
		t.Errorf("cursor %d, want %d", st.Cursor, b)
	}
}

// A process may checkpoint while its reader is still behind what the process before has decided.
func TestCheckpointBeforeTheReaderHasCaughtUpForgetsNoDecision(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	var at []Position
	for i := range 4 {
		at = append(at, mustAppend(t, j, trigger(i)).Position)
	}
	flush(t, j, j.Record(rec(Delivered, 1, at[0], 1), rec(Failed, 1, at[1], 1), rec(Delivered, 1, at[2], 1)))
	want := engine.Counters{Offered: 3, Delivered: 2, Parked: 1}
	for n, cursor := range []Position{at[0], at[0], at[1], at[2], at[3]} {
		closeJournal(t, j)
		j = open(t, testOptions(dir))
		st := j.State()
		if st.Lanes[0].Counters != want || len(st.Decided) != []int{3, 3, 3, 2, 1}[n] {
			t.Fatalf("start %d: %+v, decided %v", n, st.Lanes[0].Counters, st.Decided)
		}
		st.Cursor = cursor
		flush(t, j, j.Checkpoint(&st.Checkpoint))
	}
	// What was decided then is still what it was: a resend offers it once more.
	flush(t, j, j.Record(rec(Resent, 1, at[2], 1)))
	closeJournal(t, j)
	j = open(t, testOptions(dir))
	if got := j.State().Lanes[0].Counters; got != (engine.Counters{Offered: 4, Delivered: 2, Parked: 2}) {
		t.Errorf("%+v", got)
	}
}

func TestOrderIsKeptAcrossRecordsAndCheckpoints(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.tune.flush = 600
	j := open(t, o)
	p := mustAppend(t, j, trigger(1)).Position
	var marks []Mark
	want := 0
	for i := range 200 {
		if rand.IntN(10) == 0 {
			marks = append(marks, j.Checkpoint(&Checkpoint{Lanes: []LaneState{{Lane: 1, Tokens: int64(i)}}}))
			continue
		}
		marks = append(marks, j.Record(Record{Kind: Failed, Lane: 9, Position: p, Attempt: uint32(i), At: time.UnixMilli(int64(i))}))
		want = i
	}
	if !slices.IsSorted(marks) {
		t.Error("marks do not rise")
	}
	flush(t, j, marks[len(marks)-1])
	last := uint32(1 << 30)
	for before := uint64(0); ; {
		recs, next, err := j.Deliveries(t.Context(), 9, before, 7)
		if err != nil || len(recs) > 7 {
			t.Fatal(recs, err)
		}
		for _, r := range recs {
			if r.Attempt >= last {
				t.Fatalf("attempt %d behind %d", r.Attempt, last)
			}
			if last == 1<<30 && int(r.Attempt) != want {
				t.Fatalf("the newest is %d, want %d", r.Attempt, want)
			}
			last = r.Attempt
		}
		if before = next; next == 0 {
			break
		}
	}
	if last > 20 {
		t.Errorf("the ledger ends at %d", last)
	}
}

func TestMarksOfTheSameFlushAreReachedTogether(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	m := j.Record()
	if !j.Flushed(m) {
		t.Error("nothing waits, and is not flushed")
	}
	p := mustAppend(t, j, trigger(1)).Position
	a, b := j.Record(rec(Delivered, 1, p, 1)), j.Record(rec(Delivered, 2, p, 1))
	if j.Flushed(b) && !j.Flushed(a) {
		t.Error("the later mark was reached first")
	}
	flush(t, j, b)
	if !j.Flushed(a) || !j.Flushed(b) {
		t.Error("waited, and not flushed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.WaitFlushed(ctx, b+1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Field case 40.
func TestDueTimesSurviveRestartsWithoutBeingRepeated(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	p := mustAppend(t, j, trigger(1)).Position
	due := time.UnixMilli(1_800_000_000_000 + 6*3600_000).UTC()
	r := rec(Parked, 1, p, 0)
	r.Due, r.Reason = due, engine.ByEndpoint
	flush(t, j, j.Record(r))
	for range 3 {
		closeJournal(t, j)
		j = open(t, testOptions(dir))
		st := j.State()
		want := []Ref{{Position: p, Stamp: due.UnixMilli(), Reason: engine.ByEndpoint, Due: true}}
		if !reflect.DeepEqual(st.Lanes[0].Waiting, want) || st.Lanes[0].Counters != (engine.Counters{Offered: 1, Parked: 1}) {
			t.Fatalf("%+v", st.Lanes[0])
		}
		flush(t, j, j.Checkpoint(&st.Checkpoint))
	}
}

func TestLedgerShowsItsLaneOnlyNewestFirst(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	p := mustAppend(t, j, trigger(1)).Position
	var want []uint32
	for i := range uint32(300) {
		r := rec(Failed, engine.LaneID(i%3), p, i)
		r.Detail = "status"
		m := j.Record(r)
		if i%3 == 1 {
			want = append([]uint32{i}, want...)
		}
		if i%50 == 0 {
			flush(t, j, m)
		}
	}
	flush(t, j, Mark(j.outcomes.total()))
	var got []uint32
	pages := 0
	for before := uint64(0); ; pages++ {
		recs, next, err := j.Deliveries(t.Context(), 1, before, 30)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			got = append(got, r.Attempt)
		}
		if before = next; next == 0 {
			break
		}
	}
	if !slices.Equal(got, want) || pages < 3 {
		t.Errorf("%d pages: %v", pages, got)
	}
	if recs, next, err := j.Deliveries(t.Context(), 77, 0, 30); len(recs) != 0 || next != 0 || err != nil {
		t.Error(recs, next, err)
	}
}

// Field case 82.
func TestStreamsAreTrimmedToWhatIsNeeded(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.History, o.tune.kept, o.tune.trim = 1, 1, time.Hour
	j := open(t, o)
	waitReady(t, j)
	var at []Position
	for i := range 20 {
		at = append(at, mustAppend(t, j, keyed(i, string(rune('a'+i)), "A")).Position)
		flush(t, j, j.Record(rec(Parked, 1, at[i], 0)))
	}
	firsts := func() (uint64, uint64) {
		a, err := j.link.span(t.Context(), triggersStream)
		b, err2 := j.link.span(t.Context(), outcomesStream)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return a.first, b.first
	}
	trim := func() {
		if err := j.trim.trim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	trim()
	if a, b := firsts(); a != 1 || b != 1 {
		t.Fatalf("trimmed without a floor: %d, %d", a, b)
	}
	j.SetFloor(at[10])
	j.SetFloor(at[5]) // it only rises
	trim()
	if a, b := firsts(); a != at[10].Seq() || b != 1 {
		t.Fatalf("first trigger %d, want %d; first outcome %d without a checkpoint", a, at[10].Seq(), b)
	}
	if _, err := j.Load(t.Context(), at[9]); !errors.Is(err, ErrTrimmed) {
		t.Error(err)
	}
	if _, err := j.Load(t.Context(), at[10]); err != nil {
		t.Error(err)
	}
	if r := mustAppend(t, j, keyed(99, "b", "B")); r.Repeat { // its log is gone, so the key is new
		t.Error("a key outlives its log")
	}
	var firstParts []uint64
	for range 3 {
		flush(t, j, j.Checkpoint(&Checkpoint{Cursor: at[10]}))
		firstParts = append(firstParts, j.outcomes.before)
		trim()
	}
	if _, b := firsts(); b != firstParts[1] {
		t.Errorf("first outcome %d, want the last but one checkpoint at %d of %v", b, firstParts[1], firstParts)
	}
	recs, next, err := j.Deliveries(t.Context(), 1, 0, 100)
	if err != nil || len(recs) != 0 || next != 0 {
		t.Error(recs, next, err)
	}
	closeJournal(t, j)
	j = open(t, o)
	if st := j.State(); st.Cursor != at[10] || st.Epoch != 2 { // its epoch record was trimmed
		t.Errorf("%+v", st)
	}
}

func TestNearlyFullOutcomesGiveUpTheOlderCheckpoint(t *testing.T) {
	tr := &trimmer{}
	tr.checkpointed(10, 20)
	if _, to := tr.limits(span{bytes: 80, max: 100}); to != 10 {
		t.Errorf("purged up to %d", to)
	}
	if _, to := tr.limits(span{bytes: 95, max: 100}); to != 20 {
		t.Errorf("purged up to %d when nearly full", to)
	}
}

func TestHistoryIsKeptUntilTheStreamIsHalfFull(t *testing.T) {
	j := open(t, func() Options { o := testOptions(t.TempDir()); o.tune.trim = time.Hour; return o }())
	s := span{first: 1, last: 1000, bytes: 100, max: 1000}
	if got := s.half(900); got != 1 {
		t.Errorf("a stream with room gives up history to %d", got)
	}
	s.bytes = 750
	if got := s.half(900); got < 330 || got > 340 { // a third of what is there
		t.Errorf("gives up to %d", got)
	}
	if got := s.half(100); got != 100 { // only history
		t.Errorf("gives up to %d, the floor is 100", got)
	}
	for i := range 10 {
		mustAppend(t, j, trigger(i))
	}
	// What is younger than the key window's least goes only from three quarters on.
	for bytes, want := range map[int64]uint64{70: 1, 80: 6} {
		to, err := j.trim.yield(t.Context(), triggersStream, span{first: 1, last: 10, bytes: bytes, max: 100}, time.Now(), 1, 6)
		if err != nil || to > want || to == 1 && want > 1 {
			t.Errorf("%d %% full: gives up to %d, %v", bytes, to, err)
		}
	}
	j.SetFloor(position(8, 0))
	if err := j.trim.trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(readAll(t, j, 0)); got != 10 {
		t.Errorf("%d triggers left", got)
	}
}

func TestReopenAdoptsALargerSizeAndRefusesOneThatWouldDelete(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.MaxBytes, o.MaxBody = 2*leastMaxBytes, 6<<20
	j := open(t, o)
	big := trigger(1)
	big.Payload = make([]byte, 6<<20)
	for range 6 {
		mustAppend(t, j, big)
	}
	closeJournal(t, j)
	o.MaxBytes = leastMaxBytes
	if j, err := Open(t.Context(), o); err == nil {
		closeJournal(t, j)
		t.Fatal("shrunk below what is stored")
	}
	o.MaxBytes = 3 * leastMaxBytes
	j = open(t, o)
	if s := j.Status(); s.Err != nil || len(readAll(t, j, 0)) != 6 {
		t.Error(s.Err)
	}
	if sp, err := j.link.span(t.Context(), triggersStream); err != nil || sp.max != o.MaxBytes/2 {
		t.Error(sp, err)
	}
}
