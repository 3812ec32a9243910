package journal

import (
	"errors"
	"testing"
	"time"
)

// Reading a ledger leaves a clean stop clean, and follows a delivery to HELD and on.
func TestALedgerIsReadWithoutATrace(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	a, b := mustAppend(t, j, trigger(1)).Position, mustAppend(t, j, trigger(2)).Position
	waits, moved := rec(Parked, 3, a, 0), rec(Held, 3, 0, 0)
	flush(t, j, j.Record(waits, rec(Delivered, 3, b, 1)))
	first, err := j.Load(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := j.PutHeld(t.Context(), 3, []*Trigger{first})
	if err != nil {
		t.Fatal(err)
	}
	moved.Ref, moved.N, moved.Positions = seq, 1, []Position{a}
	flush(t, j, j.Record(moved, rec(Delivered, 3, HeldPosition(seq, 0), 1)))
	flush(t, j, j.Checkpoint(&Checkpoint{Cursor: b + 1, Clean: true}))
	if _, err := OpenLedger(t.Context(), dir); !errors.Is(err, ErrLocked) {
		t.Errorf("while a journal is open: %v", err)
	}
	closeJournal(t, j)

	l, err := OpenLedger(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []Record
	if err := l.Records(t.Context(), func(r *Record) { got = append(got, *r) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Position != a || got[1].Position != b || got[2].Kind != Delivered || got[2].Position != a {
		t.Errorf("records %+v", got)
	}
	sizes := map[Position]int{}
	if err := l.Triggers(t.Context(), func(at Position, _ time.Time, size int) { sizes[at] = size }); err != nil || sizes[a] != 7 || len(sizes) != 2 {
		t.Errorf("triggers %v, %v", sizes, err)
	}
	l.Close()

	j = open(t, testOptions(dir))
	if st := j.State(); st.Crashed || st.Epoch != 2 {
		t.Errorf("after reading: crashed %t, epoch %d", st.Crashed, st.Epoch)
	}
}
