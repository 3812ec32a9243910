package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate makes f n bytes long and takes that room on the disk.
func allocate(f *os.File, n int64) error {
	if unix.Fallocate(int(f.Fd()), 0, 0, n) == nil {
		return nil
	}
	return writeZeros(f, n)
}
