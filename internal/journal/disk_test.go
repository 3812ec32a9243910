package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Field case 98.
func TestSecondHolderOfADataDirectoryIsRefusedByName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	release, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("second holder: %v, want ErrLocked naming %s", err, dir)
	}
	release()
	again, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	again()
}

func TestLockOfAnUnusableDirectoryIsNotErrLocked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(file); err == nil || errors.Is(err, ErrLocked) {
		t.Fatalf("a file as data directory: %v", err)
	}
}

func TestDiskLimitsAreTheSmallerOfShareAndAmount(t *testing.T) {
	const g = int64(1) << 30
	for _, c := range []struct {
		name          string
		total, free   int64
		ingest, sends bool
	}{
		{"plenty", 1000 * g, 500 * g, false, false},
		{"large disk: 2 GiB is enough", 1000 * g, 2 * g, false, false},
		{"large disk: one byte less", 1000 * g, 2*g - 1, true, false},
		{"large disk: 1 GiB for sends", 1000 * g, g, true, false},
		{"large disk: one byte less", 1000 * g, g - 1, true, true},
		{"small disk: a tenth is enough", 10 * g, g, false, false},
		{"small disk: one byte less", 10 * g, g - 1, true, false},
		{"small disk: a twentieth for sends", 10 * g, g / 2, true, false},
		{"small disk: one byte less", 10 * g, g/2 - 1, true, true},
		{"full", 10 * g, 0, true, true},
		{"unknown", 0, 0, true, true},
	} {
		w, err := newDiskWatch(t.TempDir(), func() (int64, int64) { return c.total, c.free }, 0)
		if err != nil {
			t.Fatal(err)
		}
		if ingest, sends := w.Low(); ingest != c.ingest || sends != c.sends {
			t.Errorf("%s: low for ingest %v, sends %v; want %v, %v", c.name, ingest, sends, c.ingest, c.sends)
		}
	}
}

func TestDiskIsMeasuredAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w, err := newDiskWatch(t.TempDir(), func() (int64, int64) { calls++; return 100, 100 }, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			<-time.After(500 * time.Millisecond) // 0.5 s to 2.5 s
			for range 100 {
				w.Low()
			}
		}
		if calls != 3 {
			t.Fatalf("%d measurements in 2.5 s, want 3", calls)
		}
	})
}

func TestRealDiskHasRoomAndASize(t *testing.T) {
	w, err := newDiskWatch(t.TempDir(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if total, free := w.Usage(); total <= 0 || free <= 0 || free > total {
		t.Fatalf("total %d, free %d", total, free)
	}
}

// The ballast gives the streams room when nothing is sent any more, changes no limit by going,
// and comes back when triggers are accepted again.
func TestBallastGoesWhenSendsAreLowAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, ballast = 10_000, 100
		dir := t.TempDir()
		path := filepath.Join(dir, ballastFile)
		used := int64(2_000) // by others
		free := func() (int64, int64) {
			if st, err := os.Stat(path); err == nil {
				return total, total - used - st.Size()
			}
			return total, total - used
		}
		w, err := newDiskWatch(dir, free, ballast)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			used                int64
			ingest, sends, laid bool
		}{
			{2_000, false, false, true},
			{total - 550 - ballast, true, false, true}, // between the limits: stays
			{total - 400 - ballast, true, true, false},
			{total - 400 - ballast, true, true, false}, // its going made no room to send
			{total - 600 - ballast, true, false, false},
			{2_000, false, false, true},
		} {
			used = c.used
			<-time.After(2 * time.Second)
			ingest, sends := w.Low()
			_, err := os.Stat(path)
			if laid := err == nil; ingest != c.ingest || sends != c.sends || laid != c.laid {
				t.Errorf("step %d: low for ingest %v, sends %v, ballast %v; want %v", i, ingest, sends, laid, c)
			}
		}
	})
}

func TestBallastOfTheProcessBeforeIsAdopted(t *testing.T) {
	dir := t.TempDir()
	plenty := func() (int64, int64) { return 1 << 40, 1 << 39 }
	for _, size := range []int64{4096, 4096, 8192, 0} {
		if _, err := newDiskWatch(dir, plenty, size); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(dir, ballastFile))
		if size == 0 && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("ballast 0: %v, %v", st, err)
		}
		if size > 0 && (err != nil || st.Size() != size) {
			t.Fatalf("ballast %d: %v, %v", size, st, err)
		}
	}
}

func TestBallastIsNotLaidOnADiskThatIsLow(t *testing.T) {
	dir := t.TempDir()
	if _, err := newDiskWatch(dir, func() (int64, int64) { return 1000, 60 }, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ballastFile)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("ballast: %v", err)
	}
}

func TestBallastTakesRoom(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := writeZeros(f, 12_345); err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != 12_345 {
		t.Fatalf("%v, %v", st, err)
	}
}
