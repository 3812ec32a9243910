package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlane-dev/fairlane/engine"
)

// storeRaw stores a message behind the journal's back.
func storeRaw(t *testing.T, j *Journal, subject string, data []byte) uint64 {
	t.Helper()
	seq, err := j.link.store(t.Context(), subject, data)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func records(h header, recs ...Record) []byte {
	e := recordEncoder{most: 1 << 20}
	for i := range recs {
		e.add(&recs[i])
	}
	return e.message(h)
}

// openFails opens and expects damage.
func openFails(t *testing.T, o Options) *Damage {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err == nil {
		closeJournal(t, j)
		t.Fatal("opened a damaged directory")
	}
	var d *Damage
	if !errors.Is(err, ErrDamaged) || !errors.As(err, &d) {
		t.Fatal(err)
	}
	return d
}

// Field case 78.
func TestDamagedPackIsReportedWhereItIsAndTheOthersLoad(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	first := mustAppend(t, j, trigger(1)).Position
	bad := encodePack(header{writer: 1, counter: 1, prev: first.Seq()}, [][]byte{appendTrigger(nil, trigger(2))})
	bad[len(bad)-1] ^= 1
	seq := storeRaw(t, j, triggersSubject, bad)
	last := storeRaw(t, j, triggersSubject, encodePack(header{writer: 1, counter: 2, prev: seq}, [][]byte{appendTrigger(nil, trigger(3))}))
	j.durable.raise(last)

	r, _ := j.Reader(0)
	if p, err := r.Next(t.Context()); err != nil || p.Seq != first.Seq() {
		t.Fatal(p, err)
	}
	var d *Damage
	if _, err := r.Next(t.Context()); !errors.As(err, &d) || d.Stream != triggersStream || d.From != seq || d.To != seq {
		t.Errorf("%v", err)
	}
	if _, err := j.Load(t.Context(), position(seq, 0)); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if tr, err := j.Load(t.Context(), position(last, 0)); err != nil || string(tr.Payload) != `{"n":3}` {
		t.Error(tr, err)
	}
}

// Deleting one by one leaves gaps, placeholders and rewritten blocks, which are no damage.
func TestDeletedMessagesAreNoDamageAfterACrash(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	s, err := j.link.js.Stream(t.Context(), heldStream)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for i := range 40 {
		seqs = append(seqs, storeRaw(t, j, heldSubject, bytes.Repeat([]byte{byte(i)}, 300)))
	}
	for _, seq := range append(seqs[30:], seqs[1], seqs[3], seqs[0]) {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, j, trigger(1))
	crashed := crashCopy(t, base)
	j = open(t, testOptions(crashed))
	next := storeRaw(t, j, heldSubject, []byte("next"))
	if next != seqs[39]+1 {
		t.Errorf("next sequence %d", next)
	}
	closeJournal(t, j)
	open(t, testOptions(crashed))
}

func TestOutcomesThatNameWhatTriggersLostIsDamage(t *testing.T) {
	for _, row := range []struct {
		what string
		rec  Record
		h    func(header) header
	}{
		{"a record's position", rec(Delivered, 1, position(900, 0), 1), nil},
		{"a message's head", rec(Delivered, 1, 256, 1), func(h header) header { h.other = 900; return h }},
	} {
		dir := t.TempDir()
		j := open(t, testOptions(dir))
		mustAppend(t, j, trigger(1))
		h := header{writer: j.writer, counter: 99, prev: j.outcomes.acked.Load(), epoch: j.epoch}
		if row.h != nil {
			h = row.h(h)
		}
		storeRaw(t, j, recordsSubject, records(h, row.rec))
		last := j.last()
		closeJournal(t, j)
		for range 2 { // and stays so: nothing is deleted, nothing accepted
			if d := openFails(t, testOptions(dir)); d.Stream != triggersStream || d.From != last+1 || d.To != 900 {
				t.Errorf("%s: %v", row.what, d)
			}
		}
	}
}

func TestCheckpointAheadOfTriggersIsDamage(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	mustAppend(t, j, trigger(1))
	flush(t, j, j.Checkpoint(&Checkpoint{Cursor: position(500, 0)}))
	closeJournal(t, j)
	if d := openFails(t, testOptions(dir)); d.Stream != triggersStream || d.To != 499 {
		t.Error(d)
	}
}

func TestTriggersThatKnowMoreOutcomesThanThereAreIsDamage(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	storeRaw(t, j, triggersSubject, encodePack(header{writer: 1, counter: 1, other: 900}, [][]byte{appendTrigger(nil, trigger(1))}))
	last := j.outcomes.acked.Load()
	closeJournal(t, j)
	if d := openFails(t, testOptions(dir)); d.Stream != outcomesStream || d.From != last+1 || d.To != 900 {
		t.Error(d)
	}
}

// Sequences that were given out once are given out again when a stream has lost its end.
func TestReusedSequenceIsDamage(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	h := header{writer: 1, counter: 1, prev: j.outcomes.acked.Load() + 5, epoch: j.epoch}
	seq := storeRaw(t, j, recordsSubject, records(h, rec(Delivered, 1, 0, 1)))
	pack := storeRaw(t, j, triggersSubject, encodePack(header{writer: 1, counter: 1, prev: 700}, [][]byte{appendTrigger(nil, trigger(1))}))
	if _, err := j.Load(t.Context(), position(pack, 0)); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	closeJournal(t, j)
	if d := openFails(t, testOptions(dir)); d.Stream != triggersStream && d.From != seq {
		t.Error(d)
	}
}

func TestMessageOfALaterReleaseIsRefusedAtOpen(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	data := records(header{writer: j.writer, counter: 99, prev: j.outcomes.acked.Load(), epoch: j.epoch}, rec(Delivered, 1, 0, 1))
	data[0] = 9
	sealFrame(data)
	storeRaw(t, j, recordsSubject, data)
	closeJournal(t, j)
	if j, err := Open(t.Context(), testOptions(dir)); err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "version 9") {
		t.Error(j, err)
	}
}

// block returns the path of the newest block file of a stream.
func block(t *testing.T, dir, stream string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "streams", "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return slices.Max(all)
}

// crashCopy copies the directory as a crash would leave it.
func crashCopy(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := errors.Join(os.CopyFS(to, os.DirFS(dir)), os.Chmod(filepath.Join(to, secretKeyFile), 0o600)); err != nil {
		t.Fatal(err)
	}
	return to
}

// Field case 77.
func TestTornTailIsCutAndWhatIsWrittenBehindItStays(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	a := mustAppend(t, j, trigger(1))
	file := block(t, base, triggersStream)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	// B is written, and its acknowledgement never comes.
	storeRaw(t, j, triggersSubject, encodePack(header{writer: j.writer, counter: 9, prev: a.Position.Seq()}, [][]byte{appendTrigger(nil, trigger(2))}))
	after, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := crashCopy(t, base) // the server still runs: no clean stop
	size := int(after.Size() - before.Size())
	offsets := []int{0, 1, 3, 4, 5, size / 2, size - 1}
	if *torture {
		offsets = offsets[:0]
		for n := range size {
			offsets = append(offsets, n)
		}
	}
	for _, n := range offsets {
		dir := crashCopy(t, snapshot)
		if err := os.Truncate(block(t, dir, triggersStream), before.Size()+int64(n)); err != nil {
			t.Fatal(err)
		}
		j := open(t, testOptions(dir))
		c, d := mustAppend(t, j, trigger(3)), mustAppend(t, j, trigger(4))
		crashed := crashCopy(t, dir)
		closeJournal(t, j)
		j = open(t, testOptions(crashed))
		var got []Position
		for _, tr := range readAll(t, j, 0) {
			got = append(got, tr.Position)
		}
		if !slices.Equal(got, []Position{a.Position, c.Position, d.Position}) {
			t.Fatalf("cut %d bytes into B: %v", n, got)
		}
		closeJournal(t, j)
	}
}

// Field case 78.
func TestOneWrongBitInABlockIsNeverASilentStart(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	const n = 20
	for i := range n {
		p := mustAppend(t, j, trigger(i)).Position
		flush(t, j, j.Record(rec(Delivered, 1, p, 1)))
	}
	crashed := crashCopy(t, base)
	closeJournal(t, j)
	for name, from := range map[string]string{"after a crash": crashed, "after a clean stop": base} {
		good, err := os.ReadFile(block(t, from, triggersStream))
		if err != nil {
			t.Fatal(err)
		}
		for _, bit := range bits(t, good) {
			dir := crashCopy(t, from)
			bad := bytes.Clone(good)
			bad[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(block(t, dir, triggersStream), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := Open(t.Context(), testOptions(dir))
			if errors.Is(err, ErrDamaged) {
				continue
			}
			if err != nil {
				t.Fatalf("%s, bit %d: %v", name, bit, err)
			}
			readToDamage(t, j, n, bit)
			closeJournal(t, j)
		}
	}
}

// bits returns which bits of a block to turn: all of the head of one record with -torture, or some of
// them and some others.
func bits(t *testing.T, block []byte) (out []int) {
	t.Helper()
	at := cutRecord(block)
	for range 9 {
		at += cutRecord(block[at:])
	}
	if *torture {
		for b := range (recordHead + len(triggersSubject) + 10) * 8 {
			out = append(out, at*8+b)
		}
		return out
	}
	for b := range recordHead {
		out = append(out, (at+b)*8+rand.IntN(8))
	}
	for range 4 {
		out = append(out, rand.IntN(len(block)*8))
	}
	return out
}

// Field case 78.
func TestDamageInABlockLeavesEverythingAsItIs(t *testing.T) {
	base := t.TempDir()
	j := open(t, testOptions(base))
	for i := range 10 {
		p := mustAppend(t, j, trigger(i)).Position
		flush(t, j, j.Record(rec(Delivered, 1, p, 1)))
	}
	dir := crashCopy(t, base)
	for _, row := range []struct {
		what     string
		spoil    func([]byte) []byte
		from, to uint64
	}{
		{"inside", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, 5, 6},
		{"length of 2^31", func(b []byte) []byte { b[3] ^= 0x80 | 0x7f; return b }, 1, 1},
		{"an end that was acknowledged", func(b []byte) []byte { return b[:len(b)-1] }, 10, 10},
	} {
		file := block(t, dir, triggersStream)
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bad := row.spoil(bytes.Clone(good))
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		d := openFails(t, testOptions(dir))
		if d.Stream != triggersStream || d.From < row.from || d.To > row.to || d.To < d.From {
			t.Errorf("%s: %v", row.what, d)
		}
		if left, err := os.ReadFile(file); err != nil || !bytes.Equal(left, bad) {
			t.Errorf("%s: the file was changed", row.what)
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j = open(t, testOptions(dir)) // put right, it goes on
	if got := len(readAll(t, j, 0)); got != 10 {
		t.Errorf("%d triggers", got)
	}
}

// readToDamage reads everything: either all n are there, or damage is reported.
func readToDamage(t *testing.T, j *Journal, n, at int) {
	t.Helper()
	r, _ := j.Reader(0)
	got := 0
	for got < n {
		p, err := r.Next(t.Context())
		if errors.Is(err, ErrDamaged) {
			return
		}
		if err != nil {
			t.Fatalf("byte %d, behind %d triggers: %v", at, got, err)
		}
		for _, e := range p.Entries {
			if e.Trigger == nil || !bytes.HasPrefix(e.Trigger.Payload, []byte(`{"n":`)) {
				t.Fatalf("byte %d: %+v", at, e)
			}
			got++
		}
	}
}

func TestEpochRecordEndsTheEarlierWriter(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	p := mustAppend(t, j, trigger(1)).Position
	old := header{writer: j.writer, counter: 50, epoch: j.epoch}
	flush(t, j, j.Record(rec(Failed, 1, p, 1)))
	closeJournal(t, j)

	j = open(t, testOptions(dir))
	old.prev = j.outcomes.acked.Load()
	storeRaw(t, j, recordsSubject, records(old, rec(Delivered, 1, p, 2)))                  // a stale owner's
	flush(t, j, j.Record(rec(Claimed, 1, p, 2)))                                           // the owner's
	equal := header{writer: 77, counter: 1, prev: j.outcomes.acked.Load(), epoch: j.epoch} // chose the same number, later
	storeRaw(t, j, epochsSubject, epochRecord{header: equal, partitions: allPartitions}.encode())
	equal.counter++
	storeRaw(t, j, recordsSubject, records(equal, rec(Dead, 1, p, 2)))
	flush(t, j, j.Record(rec(Parked, 1, p, 2)))
	recs, _, err := j.Deliveries(t.Context(), 1, 0, 10)
	var kinds []Kind
	for _, r := range recs {
		kinds = append(kinds, r.Kind)
	}
	if err != nil || !slices.Equal(kinds, []Kind{Parked, Claimed, Failed}) {
		t.Errorf("the ledger shows %v, %v", kinds, err)
	}
	closeJournal(t, j)

	st := open(t, testOptions(dir)).State()
	if c := st.Lanes[0].Counters; c != (engine.Counters{Offered: 1, Parked: 1}) || st.Epoch != 3 {
		t.Errorf("%+v, epoch %d", c, st.Epoch)
	}
}

// A part of the partitions changes hands; the others keep their owner.
func TestEpochCountsForItsPartitions(t *testing.T) {
	var e epochs
	e.add(epochRecord{header: header{writer: 1, epoch: 1}, seq: 1, partitions: allPartitions})
	e.add(epochRecord{header: header{writer: 2, epoch: 2}, seq: 10, partitions: 1 << 5})
	if e.add(epochRecord{header: header{writer: 3, epoch: 2}, seq: 11, partitions: 1<<5 | 1<<6}) {
		t.Error("an epoch that is not higher is valid")
	}
	for _, row := range []struct {
		writer, epoch, seq uint64
		partition          uint8
		valid              bool
	}{
		{1, 1, 5, 5, true}, {1, 1, 11, 5, false}, {1, 1, 11, 6, true}, {2, 2, 11, 5, true}, {2, 2, 11, 6, false}, {3, 2, 12, 5, false},
	} {
		if got := e.valid(header{writer: row.writer, epoch: row.epoch}, row.seq, row.partition); got != row.valid {
			t.Errorf("%+v: %v", row, got)
		}
	}
}

func TestGapIsDamageFromWhereItBeginsToWhereItEnds(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	s, err := j.link.js.Stream(t.Context(), heldStream) // the only one in which a test can make a gap
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		storeRaw(t, j, heldSubject, []byte("x"))
	}
	for _, seq := range []uint64{3, 4} {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	for from := range uint64(4) {
		n := 0
		err := j.link.each(t.Context(), heldStream, from+1, 6, func(message) error { n++; return nil })
		var d *Damage
		if !errors.As(err, &d) || d.From != max(from+1, 3) || d.To != 4 || n != int(d.From-from-1) {
			t.Errorf("from %d: %v behind %d messages", from+1, err, n)
		}
	}
	if err := j.link.each(t.Context(), heldStream, 5, 6, func(message) error { return nil }); err != nil {
		t.Error(err)
	}
	if _, err := j.link.whole(t.Context(), heldStream); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}
