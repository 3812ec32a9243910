package redisquota

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/quotatest"
)

// server is a redis-server of a test's own.
type server struct {
	t    *testing.T
	port string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
	tool rueidis.Client
}

// serve starts a server with an append-only file, on a free port, in a directory of its own.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: redis-server is missing; scripts/tools installs it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	s := &server{t: t, port: port, args: append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "everysec",
		"--save", "", "--maxmemory-policy", "noeviction",
	}, args...)}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "redis-server answers", func() bool {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + s.port}, DisableCache: true, ForceSingleClient: true})
		if err != nil {
			return false
		}
		if c.Do(context.Background(), c.B().Ping().Build()).Error() != nil {
			c.Close()
			return false
		}
		s.tool = c
		return true
	})
}

// kill ends the server as kill -9 does.
func (s *server) kill() {
	if s.tool != nil {
		s.tool.Close()
		s.tool = nil
	}
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// hang stops the server's process, wake lets it go on.
func (s *server) hang() { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) wake() { s.cmd.Process.Signal(syscall.SIGCONT) }

// do runs a command, given as words, and returns its answer as text.
func (s *server) do(words ...string) string {
	s.t.Helper()
	r := s.tool.Do(context.Background(), s.tool.B().Arbitrary(words...).Build())
	v, err := r.ToAny()
	if err != nil && !rueidis.IsRedisNil(err) {
		s.t.Fatalf("%v: %v", words, err)
	}
	return fmt.Sprint(v)
}

func (s *server) keys() (keys []string) {
	s.t.Helper()
	keys, err := s.tool.Do(context.Background(), s.tool.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}

func (s *server) onlyKey() string {
	s.t.Helper()
	keys := s.keys()
	if len(keys) != 1 {
		s.t.Fatalf("keys %q, want one", keys)
	}
	return keys[0]
}

// open opens a store on the server; a test's deadline is generous unless it is the subject.
func (s *server) open(change ...func(*Config)) *Store {
	s.t.Helper()
	c := Config{URL: "redis://127.0.0.1:" + s.port, Deadline: 5 * time.Second}
	for _, f := range change {
		f(&c)
	}
	st, err := Open(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(st.Close)
	return st
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// pause lets real time pass, which is the server's.
func pause(d time.Duration) { <-time.After(d) }

// steered is a store whose script is told the time by the test.
type steered struct {
	*Store
	t   *testing.T
	now time.Duration
}

func steer(t *testing.T, st *Store) *steered {
	s := &steered{Store: st, t: t, now: quotatest.Start}
	st.clock = func() int64 { return s.now.Microseconds() }
	return s
}

func (s *steered) Take(c []admit.Check) admit.Answer { return s.shared(s.Store.Take(bg, c)) }
func (s *steered) Peek(c []admit.Check) admit.Answer { return s.shared(s.Store.Peek(bg, c)) }
func (s *steered) Advance(d time.Duration)           { s.now += d }

func (s *steered) Refund(c []admit.Check, a admit.Answer) {
	if err := s.Store.Refund(bg, c, a); err != nil {
		s.t.Fatal(err)
	}
}

func (s *steered) shared(a admit.Answer, err error) admit.Answer {
	s.t.Helper()
	if err != nil || a.Away {
		s.t.Fatalf("no answer of the store: %v, away %v, %+v", err, a.Away, s.Stats())
	}
	return a
}

var bg = context.Background()
