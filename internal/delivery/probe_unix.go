//go:build unix

package delivery

import (
	"errors"
	"io"
	"syscall"
)

var errUnasked = errors.New("bytes that were not asked for")

// probe returns nil if the socket is open and has nothing to read. The socket
// does not block. A byte that is read is lost, and the connection with it.
func probe(fd uintptr) error {
	var b [1]byte
	for {
		n, err := syscall.Read(int(fd), b[:])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return nil
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			return errUnasked
		}
	}
}
