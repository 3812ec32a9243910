package delivery

import (
	"net"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlane-dev/fairlane/engine"
)

// settle waits until the other side's kernel has everything that c wrote, its
// end included.
func settle(t *testing.T, c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	for left := 1; left > 0; runtime.Gosched() {
		raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// Field case 71.
// Field case 68.
func TestWhatNobodyAskedForIsNotTheNextAnswer(t *testing.T) {
	for name, stray := range map[string]string{
		"408":        "HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\n",
		"200":        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"line break": "\r\n",
		"one byte":   "H",
		"the end":    "",
	} {
		for _, closes := range []bool{true, false} {
			if stray == "" && !closes {
				continue
			}
			t.Run(name, func(t *testing.T) {
				goOn, gone := make(chan struct{}), make(chan struct{})
				s := serve(t, func(p *peer) {
					if p.n > 0 {
						p.read()
						p.say("HTTP/1.1 201 Second\r\nContent-Length: 0\r\n\r\n")
						return
					}
					p.read()
					p.say(ok200)
					<-goOn
					p.say(stray)
					if closes {
						p.Conn.(*net.TCPConn).CloseWrite()
					}
					settle(t, p.Conn)
					close(gone)
					p.hang()
				})
				c := New(Options{Allow: loopback})
				defer c.Close()
				want(t, c.Send(t.Context(), post(s.url("/"))), engine.OK, 200, ReasonStatus)
				close(goOn)
				<-gone
				want(t, c.Send(t.Context(), post(s.url("/"))), engine.OK, 201, ReasonStatus)
				if n := len(s.requests()); n != 2 {
					t.Errorf("%d requests for 2 attempts", n)
				}
			})
		}
	}
}

// Field case 72.
func TestNoDescriptorIsOurOwnFaultAndFreesIdleOnes(t *testing.T) {
	busy := serve(t, answering(ok200))
	s := serve(t, answering(ok200))
	c := New(Options{Allow: loopback})
	defer c.Close()
	want(t, c.Send(t.Context(), post(busy.url("/"))), engine.OK, 200, ReasonStatus)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	o := c.Send(t.Context(), post(s.url("/")))
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	want(t, o, engine.NotSent, 0, ReasonLocal)
	if c.pool.idle != 0 {
		t.Errorf("%d idle connections kept their descriptors", c.pool.idle)
	}
	want(t, c.Send(t.Context(), post(s.url("/"))), engine.OK, 200, ReasonStatus)
}
