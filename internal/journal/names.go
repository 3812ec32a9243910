package journal

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// names makes the names of the embedded server's files durable. The server syncs what it writes, but not
// the directory in which it begins a new block; where a file system does not do that by itself, an
// acknowledged message would be in a file without a name after a loss of power. So before an
// acknowledgement counts, each stream's directory that has changed is synced: a stat costs a
// microsecond, and blocks begin rarely. Safe for concurrent use.
type names struct {
	dir string // the journal's

	mu     sync.Mutex
	synced map[string]time.Time // directory of blocks: its time of change when it was synced
}

// A change as young as this may be followed by another one with the same time.
const clockGrain = 50 * time.Millisecond

// syncAll makes every directory durable, and finds those of the streams.
func (n *names) syncAll() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.synced = make(map[string]time.Time)
	err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if filepath.Base(path) == "msgs" {
			n.synced[path] = time.Time{}
		}
		return syncDir(path)
	})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_ = syncDir(filepath.Dir(n.dir)) // where the directory's own name stands; not always ours to open
	return nil
}

// sync makes durable what has changed.
func (n *names) sync() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for dir, done := range n.synced {
		st, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		if changed := st.ModTime(); !changed.Equal(done) || time.Since(changed) < clockGrain {
			if err := syncDir(dir); err != nil {
				return fmt.Errorf("journal: %w", err)
			}
			n.synced[dir] = changed
		}
	}
	return nil
}
