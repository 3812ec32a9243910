package journal

import (
	"testing"
)

func TestWhatWasAppendedAndRecordedIsThereAfterReopening(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	r := mustAppend(t, j, trigger(1))
	s := mustAppend(t, j, trigger(2))
	if r.ID == s.ID || s.Position <= r.Position {
		t.Fatalf("receipts %+v, %+v", r, s)
	}
	flush(t, j, j.Record(rec(Delivered, 3, r.Position, 1), rec(Failed, 3, s.Position, 1)))
	got := readAll(t, j, 0)
	if len(got) != 2 || string(got[1].Payload) != `{"n":2}` || got[1].ID != s.ID {
		t.Fatalf("read %+v", got)
	}
	closeJournal(t, j)

	j = open(t, testOptions(dir))
	st := j.State()
	if !st.Crashed || st.Epoch != 2 || len(st.Lanes) != 1 {
		t.Fatalf("state %+v", st)
	}
	if c := st.Lanes[0].Counters; c.Offered != 2 || c.Delivered != 1 || c.Parked != 1 || !c.Balanced() {
		t.Fatalf("counters %+v", c)
	}
	flush(t, j, j.Checkpoint(&Checkpoint{Cursor: s.Position + 1, Clean: true, Lanes: st.Lanes}))
	tr, err := j.Load(t.Context(), r.Position)
	if err != nil || tr.ID != r.ID {
		t.Fatal(tr, err)
	}
	recs, next, err := j.Deliveries(t.Context(), 3, 0, 10)
	if err != nil || len(recs) != 2 || recs[0].Kind != Failed || next != 0 {
		t.Fatal(recs, next, err)
	}
	t.Logf("%+v", j.Status())
	closeJournal(t, j)

	j = open(t, testOptions(dir))
	if st := j.State(); st.Crashed || len(st.Lanes[0].Waiting) != 1 {
		t.Fatalf("state %+v", st)
	}
}
