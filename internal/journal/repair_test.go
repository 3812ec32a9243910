package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// damaged is a data directory as a crash leaves it, with triggers 0 to 11 in packs of their own: 0 to 3
// delivered, 4 and 5 waiting, 6 dead, 7 delivered behind a checkpoint, the others not decided; 5 is named by
// what waits, 12 and 13 wait in HELD alone.
type damagedLog struct {
	dir string
	at  []Position
	of  uint64 // message of HELD
}

func newDamagedLog(t *testing.T) damagedLog {
	t.Helper()
	base := t.TempDir()
	j := open(t, testOptions(base))
	var at []Position
	for i := range 12 {
		at = append(at, mustAppend(t, j, trigger(i)).Position)
	}
	for i := range 4 {
		flush(t, j, j.Record(rec(Delivered, 1, at[i], 1)))
	}
	held := []*Trigger{trigger(12), trigger(13)}
	held[0].Position, held[1].Position = 1, 2
	of, err := j.PutHeld(t.Context(), 1, held)
	if err != nil {
		t.Fatal(err)
	}
	cp := &Checkpoint{Cursor: at[7], Lanes: []LaneState{{
		Lane: 1, Counters: engine.Counters{Offered: 9, Delivered: 4, Parked: 4, Dead: 1},
		Waiting: []Ref{{Position: HeldPosition(of, 0), Run: 2}, {Position: at[4], Attempt: 1}, {Position: at[5], Attempt: 1}},
		Dead:    []Ref{{Position: at[6], Attempt: 1}},
	}}}
	flush(t, j, j.Checkpoint(cp))
	flush(t, j, j.Record(rec(Delivered, 1, at[7], 1)))
	dir := crashCopy(t, base)
	closeJournal(t, j)
	return damagedLog{dir: dir, at: at, of: of}
}

// record returns where the n-th record of a stream's newest block begins, and its length.
func (d damagedLog) record(t *testing.T, stream string, n int) (file string, data []byte, at, size int) {
	t.Helper()
	file = block(t, d.dir, stream)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		size = cutRecord(data[at:])
		if size == 0 {
			t.Fatalf("%s has no record %d", stream, n)
		}
		if n--; n < 0 {
			return file, data, at, size
		}
		at += size
	}
}

// flip turns a bit in the middle of the n-th record of a stream.
func (d damagedLog) flip(t *testing.T, stream string, n int) {
	t.Helper()
	file, data, at, size := d.record(t, stream, n)
	data[at+size-12] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// cut ends a stream's newest block some bytes into its n-th record.
func (d damagedLog) cut(t *testing.T, stream string, n, into int) {
	t.Helper()
	file, _, at, _ := d.record(t, stream, n)
	if err := os.Truncate(file, int64(at+into)); err != nil {
		t.Fatal(err)
	}
}

func repair(t *testing.T, dir string, apply bool) *RepairReport {
	t.Helper()
	r, err := Repair(t.Context(), RepairOptions{Dir: dir, Apply: apply})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contents are all files but the lock.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Field case 78.
func TestRepairLosesWhatIsDamagedAndNothingElse(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*testing.T, damagedLog)
		opens bool  // without repair
		lost  []int // triggers
		state string
		// or of what was not decided yet
		undecided []int
		repeated  bool // outcomes are lost
	}{
		{name: "a bit of a pack that waits", spoil: func(t *testing.T, d damagedLog) { d.flip(t, triggersStream, 5) }, lost: []int{5}, state: "waiting"},
		{name: "a bit of a dead one", spoil: func(t *testing.T, d damagedLog) { d.flip(t, triggersStream, 6) }, lost: []int{6}, state: "dead"},
		{name: "a bit of a delivered one", spoil: func(t *testing.T, d damagedLog) { d.flip(t, triggersStream, 2) }},
		{name: "a bit of one not decided", spoil: func(t *testing.T, d damagedLog) { d.flip(t, triggersStream, 9) }, undecided: []int{9}},
		{name: "two places", spoil: func(t *testing.T, d damagedLog) { d.flip(t, triggersStream, 4); d.flip(t, triggersStream, 10) }, lost: []int{4}, state: "waiting", undecided: []int{10}},
		{name: "an end that OUTCOMES knows", spoil: func(t *testing.T, d damagedLog) { d.cut(t, triggersStream, 11, 40) }, undecided: []int{11}},
		{name: "OUTCOMES ahead by five", spoil: func(t *testing.T, d damagedLog) { d.cut(t, triggersStream, 7, 0) }, undecided: []int{8, 9, 10, 11}},
		{name: "nothing left of TRIGGERS", spoil: func(t *testing.T, d damagedLog) { d.cut(t, triggersStream, 0, 3) }, lost: []int{4, 5, 6}, state: "waiting, dead", undecided: []int{8, 9, 10, 11}},
		{name: "the epoch's record", spoil: func(t *testing.T, d damagedLog) { d.flip(t, outcomesStream, 0) }},
		{name: "an outcome", spoil: func(t *testing.T, d damagedLog) { d.flip(t, outcomesStream, 2) }, repeated: true},
		{name: "the checkpoint", spoil: func(t *testing.T, d damagedLog) { d.flip(t, outcomesStream, 5) }, repeated: true},
		{name: "a bit of HELD", spoil: func(t *testing.T, d damagedLog) { d.flip(t, heldStream, 0) }, lost: []int{12, 13}, state: "waiting"},
		{name: "the end of HELD", spoil: func(t *testing.T, d damagedLog) { d.cut(t, heldStream, 0, 50) }, lost: []int{12, 13}, state: "waiting"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDamagedLog(t)
			row.spoil(t, d)
			before := contents(t, filepath.Join(d.dir, streamsDir))
			dry := repair(t, d.dir, false)
			if after := contents(t, filepath.Join(d.dir, streamsDir)); !mapsEqual(before, after) {
				t.Fatal("a dry run changed something")
			}
			done := repair(t, d.dir, true)
			if len(dry.Damage) == 0 || len(dry.Damage) != len(done.Damage) || len(dry.Lost) != len(done.Lost) || dry.Applied || !done.Applied {
				t.Errorf("dry run %+v, then %+v", dry, done)
			}
			if kept := contents(t, done.Copy); len(kept) != len(before) {
				t.Errorf("%d files kept of %d", len(kept), len(before))
			}
			d.check(t, done, row.lost, row.undecided, row.repeated)
			states := map[string]bool{}
			for _, l := range done.Lost {
				states[l.State] = true
			}
			for s := range states {
				if !strings.Contains(row.state, s) {
					t.Errorf("lost: %+v", done.Lost)
				}
			}
			if again := repair(t, d.dir, true); len(again.Damage) > 0 || again.Applied {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// check opens the directory and looks for every trigger: it is delivered, it waits or is dead and can be read,
// the reader comes to it, or it is among those lost.
func (d damagedLog) check(t *testing.T, r *RepairReport, lost, undecided []int, repeated bool) {
	t.Helper()
	j := open(t, testOptions(d.dir))
	defer closeJournal(t, j)
	st := j.State()
	reached := map[string]bool{}
	for _, l := range st.Lanes {
		if !l.Counters.Balanced() {
			t.Errorf("lane %d: %+v", l.Lane, l.Counters)
		}
		if got := l.Counters.Dropped; got != uint64(len(lost)) || len(r.Lost) != len(lost) {
			t.Errorf("%d dropped, %+v reported, want %v", got, r.Lost, lost)
		}
		for _, ref := range expanded(slices.Concat(l.Waiting, l.Dead)) {
			tr, err := j.Load(t.Context(), ref.Position)
			if err != nil {
				t.Fatalf("%d waits and cannot be read: %v", ref.Position, err)
			}
			reached[string(tr.Payload)] = true
		}
	}
	for _, tr := range readAll(t, j, st.Cursor) {
		if _, decided := st.Decided[DeliveryKey{1, tr.Position}]; !decided {
			reached[string(tr.Payload)] = true
		}
	}
	for i := range 14 {
		gone := slices.Contains(lost, i) || slices.Contains(undecided, i)
		due := i >= 4 && i != 7
		if got := reached[string(trigger(i).Payload)]; due && got == gone || !due && got && !repeated {
			t.Errorf("trigger %d: reached %v, lost %v", i, got, gone)
		}
	}
	for _, i := range undecided {
		if p := uint64(d.at[i]); !slices.ContainsFunc(r.Undecided, func(u LostPositions) bool { return u.From <= p && p <= u.To }) {
			t.Errorf("position %d of %d is not named: %+v", p, i, r.Undecided)
		}
	}
	if repeated != (len(r.Outcomes) > 0) {
		t.Errorf("lost outcomes: %+v", r.Outcomes)
	}
	if p := mustAppend(t, j, trigger(99)).Position; p <= d.at[11] {
		t.Errorf("position %d is given out a second time", p)
	}
	if of, err := j.PutHeld(t.Context(), 1, []*Trigger{trigger(1)}); err != nil || of <= d.of {
		t.Errorf("message %d of HELD is given out a second time, %v", of, err)
	}
	flush(t, j, j.Record(rec(Delivered, 1, mustAppend(t, j, trigger(98)).Position, 1)))
	if _, _, err := j.Deliveries(t.Context(), 1, 0, 100); err != nil {
		t.Error(err)
	}
}

// A whole block file is gone, in the middle and at the beginning.
//
// Field case 78.
func TestRepairWithoutABlockFile(t *testing.T) {
	for _, gone := range []string{"1.blk", "2.blk"} {
		base := t.TempDir()
		j := open(t, testOptions(base))
		var at []Position
		big := trigger(1)
		big.Payload = make([]byte, 1<<20)
		for range 20 {
			at = append(at, mustAppend(t, j, big).Position)
		}
		flush(t, j, j.Record(rec(Failed, 1, at[0], 1), rec(Failed, 1, at[19], 1)))
		closeJournal(t, j)
		file := filepath.Join(filepath.Dir(block(t, base, triggersStream)), gone)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if gone == "2.blk" {
			openFails(t, testOptions(base))
		}
		r := repair(t, base, true)
		j = open(t, testOptions(base))
		got := len(readAll(t, j, j.State().Cursor))
		if gone == "2.blk" && (len(r.Lost) != 0 || len(r.Undecided) != 1 || got < 10) {
			t.Errorf("%+v, %d left", r, got)
		}
		if gone == "1.blk" && (len(r.Lost) != 1 || r.Lost[0].Position != uint64(at[0]) || got < 10) {
			t.Errorf("%+v, %d left", r, got)
		}
		if _, err := j.Load(t.Context(), at[19]); err != nil {
			t.Error(err)
		}
		closeJournal(t, j)
	}
}

// What was moved to HELD is found there when the record that said so is lost.
func TestRepairFindsInHeldWhatTheLogHasLost(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	tr := trigger(1)
	at := mustAppend(t, j, tr).Position
	mustAppend(t, j, trigger(2))
	flush(t, j, j.Record(rec(Failed, 1, at, 1)))
	tr.Position, tr.ID = at, "id"
	of, err := j.PutHeld(t.Context(), 1, []*Trigger{tr})
	if err != nil {
		t.Fatal(err)
	}
	flush(t, j, j.Record(Record{Kind: Held, Partition: 7, Lane: 1, Ref: of, N: 1, Positions: []Position{at}, At: time.Now()}))
	flush(t, j, j.Record(rec(Dropped, 2, at, 0)))
	d := damagedLog{dir: crashCopy(t, base)}
	closeJournal(t, j)
	d.flip(t, outcomesStream, 2)
	d.flip(t, triggersStream, 0)
	r := repair(t, d.dir, true)
	if r.Found != 1 || len(r.Lost) != 0 {
		t.Fatalf("%+v", r)
	}
	j = open(t, testOptions(d.dir))
	refs := j.State().Lanes[0].Waiting
	if len(refs) != 1 {
		t.Fatal(refs)
	}
	if got, err := j.Load(t.Context(), refs[0].Position); err != nil || got.ID != "id" || !bytes.Equal(got.Payload, tr.Payload) {
		t.Error(got, err)
	}
}

// Without the record that begins an epoch, everything that its process wrote would be void.
func TestRepairWritesALostEpochAnew(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	at := mustAppend(t, j, trigger(1)).Position
	flush(t, j, j.Record(rec(Failed, 1, at, 1)))
	closeJournal(t, j)
	j = open(t, testOptions(base))
	flush(t, j, j.Record(rec(Delivered, 1, at, 2)))
	d := damagedLog{dir: crashCopy(t, base)}
	closeJournal(t, j)
	d.flip(t, outcomesStream, 2)
	repair(t, d.dir, true)
	j = open(t, testOptions(d.dir))
	if c := j.State().Lanes[0].Counters; c != (engine.Counters{Offered: 1, Delivered: 1}) {
		t.Errorf("%+v", c)
	}
	if j.epoch != 4 { // the repair had the third
		t.Errorf("epoch %d", j.epoch)
	}
}

func TestRepairOfASoundDirectoryDoesNothing(t *testing.T) {
	d := newDamagedLog(t)
	before := contents(t, d.dir)
	if r := repair(t, d.dir, true); len(r.Damage)+len(r.Lost) > 0 || r.Applied || r.Copy != "" {
		t.Errorf("%+v", r)
	}
	if !mapsEqual(before, contents(t, d.dir)) {
		t.Error("something was changed")
	}
}

// What a record of the registry said cannot be found out; an older one of the same record does not matter.
func TestRepairNeedsTheRegistry(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	for _, id := range []string{"a", "b"} {
		if _, _, err := j.Registry().PutTenant(t.Context(), Tenant{ID: id, Tier: "default"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := j.Registry().PutTenant(t.Context(), Tenant{ID: "a", Name: "new", Tier: "default"}); err != nil {
		t.Fatal(err)
	}
	flush(t, j, j.Record(rec(Dropped, 1, mustAppend(t, j, trigger(1)).Position, 0)))
	crashed := crashCopy(t, base)
	closeJournal(t, j)
	const bucket = "KV_" + registryBucket
	n, mended := 0, 0
	_, data, _, _ := damagedLog{dir: crashed}.record(t, bucket, 0)
	for at := 0; at < len(data); at += cutRecord(data[at:]) {
		n++
	}
	for i := range n {
		d := damagedLog{dir: crashCopy(t, crashed)}
		d.flip(t, bucket, i)
		if i < n-1 { // the last one may have been cut by the crash
			openFails(t, testOptions(d.dir))
		}
		_, err := Repair(t.Context(), RepairOptions{Dir: d.dir, Apply: true})
		if err == nil {
			mended++
			j := open(t, testOptions(d.dir))
			if a, ok := j.Registry().Tenant("a"); !ok || a.Name != "new" || len(j.Registry().Tenants()) != 2 {
				t.Errorf("record %d of %d: %+v", i, n, j.Registry().Tenants())
			}
			closeJournal(t, j)
		} else if !errors.Is(err, ErrBeyondRepair) {
			t.Errorf("record %d of %d: %v", i, n, err)
		}
		t.Logf("record %d of %d: %v", i, n, err)
		if i == n-1 && err == nil {
			t.Error("the newest record is lost, and nobody noticed")
		}
	}
	if mended == 0 || mended == n {
		t.Errorf("%d of %d mended", mended, n)
	}
}

func TestRepairIsRefused(t *testing.T) {
	d := newDamagedLog(t)
	j := open(t, testOptions(d.dir))
	if _, err := Repair(t.Context(), RepairOptions{Dir: d.dir}); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	closeJournal(t, j)
	nowhere := filepath.Join(d.dir, "nowhere")
	if _, err := Repair(t.Context(), RepairOptions{Dir: nowhere}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(nowhere); err == nil {
		t.Error("a directory was made")
	}
}

// A crash between the two renames leaves no streams: the next start, or the next repair, completes it.
func TestRepairCutOffInTheExchangeIsCompleted(t *testing.T) {
	d := newDamagedLog(t)
	in := func(name string) string { return filepath.Join(d.dir, name) }
	if err := errors.Join(os.Mkdir(in(mendedDir), 0o700), os.CopyFS(filepath.Join(in(mendedDir), streamsDir), os.DirFS(in(streamsDir))), os.Rename(in(streamsDir), in("damaged-1"))); err != nil {
		t.Fatal(err)
	}
	j := open(t, testOptions(d.dir))
	if got := len(readAll(t, j, 0)); got != 12 {
		t.Errorf("%d triggers", got)
	}
	if _, err := os.Stat(in(mendedDir)); err == nil {
		t.Error("still there")
	}
}

// Names that HELD has lost are not given out again.
func TestOutcomesThatNameWhatHeldLostIsDamage(t *testing.T) {
	d := newDamagedLog(t)
	d.cut(t, heldStream, 0, 0)
	if got := openFails(t, testOptions(d.dir)); got.Stream != heldStream || got.To != d.of {
		t.Error(got)
	}
}
