package journal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

var errCut = errors.New("cut")

// noAnswer is what publish returns when no answer came.
func noAnswer() error { return errors.Join(ErrUnavailable, errCut) }

// openIntercepted opens a journal whose server is reached through f, once on is set.
func openIntercepted(t *testing.T, o Options, subject string, f func(store func() (uint64, error)) (uint64, error)) (j *Journal, on *atomic.Bool) {
	t.Helper()
	on = new(atomic.Bool)
	o.tune.intercept = func(to string, _ []byte, store func() (uint64, error)) (uint64, error) {
		if to != subject || !on.Load() {
			return store()
		}
		return f(store)
	}
	return open(t, o), on
}

// eventually waits for what takes a moment; on a cluster, an election.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for !is() {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		pause(ctx, 2*time.Millisecond)
	}
}

func TestLostAckOfAPackIsInDoubtAndTheJournalGoesOn(t *testing.T) {
	o := testOptions(t.TempDir())
	j, on := openIntercepted(t, o, triggersSubject, func(store func() (uint64, error)) (uint64, error) {
		store()
		return 0, noAnswer()
	})
	waitReady(t, j)
	mustAppend(t, j, trigger(1))
	on.Store(true)
	if _, err := j.Append(t.Context(), keyed(2, "k", "A")); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	on.Store(false)
	eventually(t, "writes are accepted again", func() bool { return j.append.trouble.get() == nil })
	// What was in doubt is stored: the same key again is its repeat.
	r, err := j.Append(t.Context(), keyed(3, "k", "A"))
	if err != nil || !r.Repeat {
		t.Fatal(r, err)
	}
	mustAppend(t, j, trigger(4))
	if got := readAll(t, j, 0); len(got) != 3 {
		t.Fatalf("%d triggers", len(got))
	}
	if s := j.Status(); s.Err != nil || s.Sends != nil {
		t.Error(s.Err, s.Sends)
	}
}

func TestPackThatWasNotStoredOpensTheServerAnew(t *testing.T) {
	o := testOptions(t.TempDir())
	o.tune.patience = 100 * time.Millisecond
	j, on := openIntercepted(t, o, triggersSubject, func(func() (uint64, error)) (uint64, error) { return 0, noAnswer() })
	mustAppend(t, j, trigger(1))
	on.Store(true)
	if _, err := j.Append(t.Context(), trigger(2)); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	// Until the doubt has ended posts are refused at once, readiness is red, and nothing is sent.
	if _, err := j.Append(t.Context(), trigger(3)); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	if j.Status().Err == nil || j.Blocked() == nil {
		t.Error("ready while a pack is in doubt")
	}
	on.Store(false)
	eventually(t, "the server is opened anew", func() bool { return j.link.generation() == 2 && j.append.trouble.get() == nil })
	r := mustAppend(t, j, trigger(4))
	got := readAll(t, j, 0)
	if len(got) != 2 || got[1].Position != r.Position {
		t.Fatalf("%+v", got)
	}
	flush(t, j, j.Record(rec(Delivered, 1, r.Position, 1)))
}

// Field case 81.
func TestOutcomesOutliveAServerThatIsOpenedAnew(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.tune.patience = 200 * time.Millisecond
	j := open(t, o)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var acked sync.Map
	var count atomic.Int64
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if r, err := j.Append(t.Context(), trigger(n)); err == nil {
				acked.Store(r.Position, true)
				count.Add(1)
				j.Record(rec(Delivered, 1, r.Position, 1))
			} else if !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		}
	})
	for i := range int64(3) {
		eventually(t, "triggers are accepted", func() bool { return count.Load() > 5*i })
		j.link.mu.Lock()
		j.link.next = time.Time{}
		j.link.mu.Unlock()
		if err := j.link.reopen(j.link.generation()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	flush(t, j, Mark(j.outcomes.total()))
	closeJournal(t, j)

	j = open(t, testOptions(dir))
	there := make(map[Position]bool)
	for _, tr := range readAll(t, j, 0) {
		there[tr.Position] = true
	}
	st := j.State()
	acked.Range(func(p, _ any) bool {
		if !there[p.(Position)] {
			t.Errorf("position %d is lost", p)
		}
		if _, ok := st.Decided[DeliveryKey{1, p.(Position)}]; !ok {
			t.Errorf("the record of %d is lost", p)
		}
		return true
	})
	if c := st.Lanes[0].Counters; c.Offered != uint64(len(st.Decided)) {
		t.Errorf("%+v, %d decided", c, len(st.Decided))
	}
}

// Field case 81.
func TestLostAckOfOutcomesCountsOnce(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	var lose atomic.Int32
	j, on := openIntercepted(t, o, recordsSubject, func(store func() (uint64, error)) (uint64, error) {
		seq, err := store()
		if lose.Add(-1) >= 0 {
			return 0, noAnswer()
		}
		return seq, err
	})
	p := mustAppend(t, j, trigger(1)).Position
	lose.Store(2)
	on.Store(true)
	flush(t, j, j.Record(rec(Delivered, 1, p, 1), rec(Failed, 2, p, 1)))
	flush(t, j, j.Record(rec(Dropped, 3, p, 0)))
	recs, _, err := j.Deliveries(t.Context(), 2, 0, 10)
	if err != nil || len(recs) != 1 {
		t.Errorf("the ledger shows %+v, %v", recs, err)
	}
	closeJournal(t, j)

	st := open(t, testOptions(dir)).State()
	want := []engine.Counters{{Offered: 1, Delivered: 1}, {Offered: 1, Parked: 1}, {Offered: 1, Dropped: 1}}
	for i, l := range st.Lanes {
		if l.Counters != want[i] {
			t.Errorf("lane %d: %+v", l.Lane, l.Counters)
		}
	}
}

func TestLostAckOfACheckpointsMessagesChangesNothing(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.tune.flush = 256
	var n atomic.Int32
	j, on := openIntercepted(t, o, checkpointsSubject, func(store func() (uint64, error)) (uint64, error) {
		seq, err := store()
		if n.Add(1)%2 == 1 { // each is stored twice
			return 0, noAnswer()
		}
		return seq, err
	})
	p := mustAppend(t, j, trigger(1)).Position
	want := &Checkpoint{Cursor: p, Lanes: []LaneState{{Lane: 1, Counters: engine.Counters{Offered: 300, Parked: 300}}}}
	for i := range Position(300) {
		want.Lanes[0].Waiting = append(want.Lanes[0].Waiting, Ref{Position: i})
	}
	on.Store(true)
	flush(t, j, j.Checkpoint(want))
	flush(t, j, j.Record(rec(Delivered, 2, p, 1)))
	if n.Load() < 8 {
		t.Fatalf("%d messages", n.Load())
	}
	closeJournal(t, j)
	st := open(t, testOptions(dir)).State()
	if st.Cursor != p || len(st.Lanes) != 2 || !slices.Equal(st.Lanes[0].Waiting, want.Lanes[0].Waiting) {
		t.Errorf("%+v", st)
	}
}

// Field case 81.
func TestNoSendStartsWhileOutcomesAreNotWritten(t *testing.T) {
	j, on := openIntercepted(t, testOptions(t.TempDir()), recordsSubject, func(func() (uint64, error)) (uint64, error) {
		return 0, errors.Join(ErrUnavailable, errRefused)
	})
	p := mustAppend(t, j, trigger(1)).Position
	if err := j.Blocked(); err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	m := j.Record(rec(Delivered, 1, p, 1))
	eventually(t, "sends are blocked", func() bool { return j.Blocked() != nil })
	if j.Flushed(m) {
		t.Error("flushed, but not written")
	}
	if s := j.Status(); s.Unflushed != 1 || s.UnflushedFor <= 0 || s.Err == nil {
		t.Errorf("%+v", s)
	}
	on.Store(false)
	flush(t, j, m)
	if err := j.Blocked(); err != nil {
		t.Error(err)
	}
}

func TestTooManyUnflushedOutcomesBlockSends(t *testing.T) {
	release := make(chan struct{})
	j, on := openIntercepted(t, testOptions(t.TempDir()), recordsSubject, func(store func() (uint64, error)) (uint64, error) {
		<-release
		return store()
	})
	on.Store(true)
	var m Mark
	for i := range unflushedMost {
		m = j.Record(rec(Dropped, 1, Position(i), 0))
	}
	if err := j.Blocked(); err == nil {
		t.Error("not blocked")
	}
	close(release)
	flush(t, j, m)
	if err := j.Blocked(); err != nil {
		t.Error(err)
	}
}

// Field case 79.
func TestFullStreamRefusesAndRecovers(t *testing.T) {
	o := testOptions(t.TempDir())
	o.History, o.tune.kept, o.MaxBody = 1, 1, 6<<20
	j := open(t, o)
	big := trigger(1)
	big.Payload = make([]byte, 6<<20)
	var last Receipt
	for n := 0; ; n++ {
		r, err := j.Append(t.Context(), big)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || n > 100 {
			t.Fatal(n, err)
		}
		last = r
	}
	if s := j.Status(); s.Err != nil {
		t.Errorf("a full stream is no fault: %v", s.Err)
	}
	if _, err := j.Append(t.Context(), big); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	flush(t, j, j.Record(rec(Delivered, 1, last.Position, 1))) // outcomes have their own room
	j.SetFloor(last.Position)
	eventually(t, "there is room again", func() bool {
		_, err := j.Append(t.Context(), big)
		return err == nil
	})
	if _, err := j.Load(t.Context(), 256); !errors.Is(err, ErrTrimmed) {
		t.Error(err)
	}
}

// Field case 79.
func TestLowDiskRefusesTriggersThenSends(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	o := testOptions(t.TempDir())
	o.MinFree = func() (int64, int64) { return 1 << 40, free.Load() }
	j := open(t, o)
	at := mustAppend(t, j, trigger(1)).Position
	changes := func(when, id string) { // a subscription that is resumed, or removed, makes room
		t.Helper()
		if _, p, err := j.Registry().PutTenant(t.Context(), Tenant{ID: id}); err != nil || p <= at {
			t.Errorf("a change of the registry when %s are refused: position %d, %v", when, p, err)
		}
	}
	free.Store(1<<30 + 1<<29)
	eventually(t, "triggers are refused", func() bool {
		_, err := j.Append(t.Context(), trigger(2))
		return errors.Is(err, ErrFull) && errors.Is(err, ErrLowDisk)
	})
	if err := j.Blocked(); err != nil {
		t.Error(err)
	}
	if s := j.Status(); !errors.Is(s.Ingest, ErrLowDisk) || s.Err != nil {
		t.Errorf("triggers are refused, and the status is %v, %v", s.Ingest, s.Err)
	}
	changes("triggers", "acme")
	free.Store(1 << 29)
	eventually(t, "sends are refused", func() bool { return errors.Is(j.Blocked(), ErrLowDisk) })
	changes("sends", "beta")
	flush(t, j, j.Record(rec(Delivered, 1, at, 1)))
	free.Store(1 << 40)
	eventually(t, "all is well", func() bool {
		_, err := j.Append(t.Context(), trigger(3))
		return err == nil && j.Blocked() == nil && j.Status().Ingest == nil
	})
}

func TestPostsAfterCloseAndContextsThatEnd(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Append(ctx, trigger(1)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r, err := j.Reader(0)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() { _, err := r.Next(t.Context()); waits <- err }()
	closeJournal(t, j)
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := j.Append(t.Context(), trigger(2)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := j.WaitFlushed(t.Context(), j.Record(rec(Delivered, 1, 256, 1))+1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	closeJournal(t, j)
}

func TestTooLargeIsRefused(t *testing.T) {
	o := testOptions(t.TempDir())
	o.MaxBody = 6 << 20
	j := open(t, o)
	tr := trigger(1)
	tr.Payload = make([]byte, 6<<20+1)
	if _, err := j.Append(t.Context(), tr); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	tr.Payload = tr.Payload[:6<<20]
	p := mustAppend(t, j, tr).Position
	if got, err := j.Load(t.Context(), p); err != nil || len(got.Payload) != 6<<20 {
		t.Error(err)
	}
	for range 400_000 {
		tr.Audience.Tenants = append(tr.Audience.Tenants, "tenant")
	}
	if _, err := j.Append(t.Context(), tr); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func TestAnswersOfTheServer(t *testing.T) {
	for _, row := range []struct {
		answer string
		seq    uint64
		is     []error
		not    error
	}{
		{`{"stream":"TRIGGERS","seq":7}`, 7, nil, ErrUnavailable},
		{`{"stream":"TRIGGERS"}`, 0, []error{ErrUnavailable}, errRefused},
		{`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, 0, []error{ErrFull, errRefused}, ErrUnavailable},
		{`{"error":{"code":503,"err_code":10077,"description":"no space left on device"}}`, 0, []error{ErrUnavailable}, errRefused},
		{`{"error":{"code":429,"err_code":10167,"description":"too many requests"}}`, 0, []error{ErrUnavailable, errRefused}, ErrFull},
		{`nonsense`, 0, []error{ErrUnavailable}, errRefused},
	} {
		seq, err := parseAck([]byte(row.answer))
		if seq != row.seq || errors.Is(err, row.not) || (err == nil) != (row.is == nil) {
			t.Errorf("%s: %d, %v", row.answer, seq, err)
		}
		for _, want := range row.is {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not %v", row.answer, err, want)
			}
		}
	}
}
