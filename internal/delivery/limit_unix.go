//go:build unix

package delivery

import "syscall"

// descriptors is how many this process may have open, 0 if that is not known or has no bound.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur > 1<<30 {
		return 0
	}
	return int(l.Cur)
}
