package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockFile    = "lock"
	ballastFile = "ballast"

	// Below the smaller of a share of the disk and an amount nothing more is accepted, and
	// later nothing more is sent: an outcome that cannot be written would be a duplicate.
	ingestShare, ingestFree = 10, 2 << 30 // a tenth, 2 GiB
	sendsShare, sendsFree   = 20, 1 << 30 // a twentieth, 1 GiB

	diskCheckEvery = time.Second
)

// lockDir creates dir where it is missing and holds it for this process alone, until release
// is called or the process ends, however it ends. Another holder is ErrLocked.
func lockDir(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: lock of the data directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: data directory %s (stop it first, or choose another one)", ErrLocked, dir)
	}
	return nil, fmt.Errorf("journal: lock of %s: %w", dir, err)
}

// diskWatch knows whether the data directory has room. It has no goroutine: whoever asks
// causes a check, at most one a second. Safe for concurrent use.
type diskWatch struct {
	dir     string
	measure func() (total, free int64)
	ballast int64

	mu            sync.Mutex
	checked       time.Time
	total, free   int64 // free is without the ballast, whether that lies there or not
	ingest, sends bool  // low
	laid          bool  // the ballast is in place
}

// newDiskWatch watches the file system of dir. measure gives its size and what is free of it
// in bytes (nil: statfs; a size of 0 means unknown, and counts as low). ballast is the size of a
// file that is kept there and removed when space runs out, so that the streams never meet a
// full disk (0: none); it is laid only where it leaves enough free.
func newDiskWatch(dir string, measure func() (total, free int64), ballast int64) (*diskWatch, error) {
	if measure == nil {
		measure = func() (int64, int64) { return statfs(dir) }
	}
	w := &diskWatch{dir: dir, measure: measure, ballast: ballast}
	if err := w.adopt(); err != nil {
		return nil, fmt.Errorf("journal: ballast: %w", err)
	}
	w.Low()
	return w, nil
}

// Low reports whether triggers must be refused, and whether no request may be started.
func (w *diskWatch) Low() (ingest, sends bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshLocked()
	return w.ingest, w.sends
}

// Usage returns the size of the file system and what is free of it, in bytes, as of the last check.
// Space that the ballast takes, or will take again, is not free.
func (w *diskWatch) Usage() (total, free int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshLocked()
	return w.total, w.free
}

func (w *diskWatch) refreshLocked() {
	now := time.Now()
	if !w.checked.IsZero() && now.Sub(w.checked) < diskCheckEvery {
		return
	}
	w.checked = now
	w.total, w.free = w.measure()
	if !w.laid {
		w.free -= w.ballast
	}
	w.ingest = w.total <= 0 || w.free < min(w.total/ingestShare, ingestFree)
	w.sends = w.total <= 0 || w.free < min(w.total/sendsShare, sendsFree)
	w.shiftBallastLocked()
}

// shiftBallastLocked removes the ballast when sends are low and lays it again when triggers are
// accepted again. Its failing leaves things as they are: the limits hold without it.
func (w *diskWatch) shiftBallastLocked() {
	switch {
	case w.laid && w.sends:
		w.laid = w.drop() != nil
	case !w.laid && w.ballast > 0 && !w.ingest:
		w.laid = w.lay() == nil
	}
}

// adopt takes over a ballast of the right size from the process before, and removes any other.
func (w *diskWatch) adopt() error {
	st, err := os.Stat(w.ballastPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.laid = w.ballast > 0 && st.Size() == w.ballast; w.laid {
		return nil
	}
	return w.drop()
}

func (w *diskWatch) lay() error {
	f, err := os.OpenFile(w.ballastPath(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(allocate(f, w.ballast), f.Close())
	if err != nil {
		return errors.Join(err, w.drop())
	}
	return nil
}

func (w *diskWatch) drop() error         { return os.Remove(w.ballastPath()) }
func (w *diskWatch) ballastPath() string { return filepath.Join(w.dir, ballastFile) }

// statfs returns 0, 0 where the file system does not say.
func statfs(dir string) (total, free int64) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0
	}
	size := int64(st.Bsize) //nolint:unconvert // narrower on other systems
	return int64(st.Blocks) * size, int64(st.Bavail) * size
}

// writeZeros gives f n bytes that take room on the disk, where the file system cannot reserve them.
func writeZeros(f *os.File, n int64) error {
	_, err := io.CopyN(f, zeros{}, n)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
