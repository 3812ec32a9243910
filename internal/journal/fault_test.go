package journal

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limitFiles makes every write beyond size of a file fail, as a full disk would, until undo is called.
func limitFiles(t *testing.T, size uint64) (undo func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	undo = func() { unix.Setrlimit(unix.RLIMIT_FSIZE, &old) }
	t.Cleanup(undo)
	return undo
}

// The embedded server meets a failed write with silence, and stays silent on that stream until it is opened
// anew.
//
// Field case 79.
func TestWritesThatFailAreInDoubtAndEndWithTheFault(t *testing.T) {
	const env = "FAIRLANE_JOURNAL_FAULT"
	if os.Getenv(env) == "" { // the limit is the process's: not this one, which writes a log of its own
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	o := testOptions(dir)
	o.tune.patience = 300 * time.Millisecond
	j := open(t, o)
	waitReady(t, j)
	acked := make(map[Position]bool)
	for i := range 20 {
		p := mustAppend(t, j, trigger(i)).Position
		acked[p] = true
		flush(t, j, j.Record(rec(Delivered, 1, p, 1)))
	}
	st, err := os.Stat(block(t, dir, triggersStream))
	if err != nil {
		t.Fatal(err)
	}
	undo := limitFiles(t, uint64(st.Size())+500)
	big := trigger(1)
	big.Payload = make([]byte, 2000)
	if _, err := j.Append(t.Context(), big); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	if j.Blocked() == nil || j.Status().Err == nil {
		t.Error("ready, and writes fail")
	}
	var last Position
	for p := range acked {
		last = max(last, p)
	}
	m := j.Record(rec(Delivered, 2, last, 1))
	eventually(t, "the server is opened anew", func() bool { return j.link.generation() > 1 })
	undo()
	eventually(t, "triggers are accepted again", func() bool {
		r, err := j.Append(t.Context(), big)
		if err == nil {
			acked[r.Position] = true
		}
		return err == nil && j.Blocked() == nil
	})
	flush(t, j, m)
	closeJournal(t, j)

	j = open(t, testOptions(dir))
	for _, tr := range readAll(t, j, 0) {
		delete(acked, tr.Position)
	}
	if len(acked) > 0 {
		t.Errorf("lost %v", acked)
	}
	if lanes := j.State().Lanes; len(lanes) != 2 || lanes[0].Counters.Delivered != 20 || lanes[1].Counters.Delivered != 1 {
		t.Errorf("%+v", lanes)
	}
}
