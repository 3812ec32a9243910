package redisquota

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/quotatest"
	"github.com/fairlane-dev/fairlane/limit"
)

// nowhere opens a store whose server does not exist.
func nowhere(t *testing.T, replicas int64) *Store {
	t.Helper()
	st, err := Open(Config{URL: "redis://127.0.0.1:1", Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

func mode(c admit.Check, m admit.Away) admit.Check {
	c.Away = m
	return c
}

// Row B12: each policy says what holds while the store is away; the strictest of a decision wins.
//
// Limiter case L45.
func TestAwayIsDecidedByEachPolicysMode(t *testing.T) {
	c := quotatest.Fixed("day", 30, admit.Day)
	local := quotatest.Bucket("local", 1, admit.Day, 30)
	for _, row := range []struct {
		name   string
		checks []admit.Check
		pass   int
	}{
		{"closed", []admit.Check{mode(c, admit.AwayClosed)}, 0},
		{"the zero value is closed", []admit.Check{c}, 0},
		{"local", []admit.Check{mode(c, admit.AwayLocal)}, 10},
		{"local bucket", []admit.Check{mode(local, admit.AwayLocal)}, 10},
		{"open", []admit.Check{mode(c, admit.AwayOpen)}, 100},
		{"open and local", []admit.Check{mode(c, admit.AwayOpen), mode(local, admit.AwayLocal)}, 10},
		{"local and closed", []admit.Check{mode(c, admit.AwayLocal), mode(local, admit.AwayClosed)}, 0},
		{"open and paused", []admit.Check{mode(c, admit.AwayOpen), mode(quotatest.Fixed("p", 0, time.Second), admit.AwayOpen)}, 0},
		{"local, less than a share", []admit.Check{mode(quotatest.Fixed("two", 2, admit.Day), admit.AwayLocal)}, 0},
	} {
		st, passed := nowhere(t, 3), 0
		for range 100 {
			a, err := st.Take(bg, row.checks)
			if err != nil || !a.Away {
				t.Fatalf("%s: %+v, %v", row.name, a, err)
			}
			if a.Allowed {
				passed++
				if d := a.Checks[a.Strictest()]; row.name == "open and local" && d.Remaining != int64(row.pass-passed) {
					t.Fatalf("%s: the caller is told %+v, want what the local share has left", row.name, d)
				}
				continue
			}
			d := a.Checks[a.Strictest()]
			if d.Allowed || d.Reason == limit.Never || d.Reason == limit.Later && d.RetryIn <= 0 {
				t.Fatalf("%s: denied by %+v", row.name, d)
			}
		}
		if passed != row.pass {
			t.Errorf("%s: %d of 100 passed, want %d", row.name, passed, row.pass)
		}
	}
}

// A decision that another check refuses takes nothing of the local share.
func TestLocalShareIsAllOrNothingToo(t *testing.T) {
	st := nowhere(t, 1)
	c := mode(quotatest.Fixed("day", 5, admit.Day), admit.AwayLocal)
	for range 20 {
		st.Take(bg, []admit.Check{c, mode(quotatest.PerMonth, admit.AwayClosed)})
	}
	a, err := st.Take(bg, []admit.Check{c})
	if err != nil || !a.Allowed || a.Checks[0].Remaining != 4 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := st.Refund(bg, []admit.Check{c}, a); err != nil {
		t.Error(err)
	}
	if a, _ := st.Peek(bg, []admit.Check{c}); a.Checks[0].Remaining != 4 {
		t.Errorf("after the refund: %+v", a)
	}
}

// Whatever the limit, all replicas' shares together are at most it.
func TestSharesSumToAtMostTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 500).Draw(t, "replicas")
		c := drawCheck(t, "p")
		s := (&Store{config: Config{Replicas: n}}).share(c).Spec
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if s.Most()*n > c.Spec.Most() || s.Limit > 0 && float64(s.Limit*n)/float64(s.Window) > float64(c.Spec.Limit)/float64(c.Spec.Window)*1.0000001 {
			t.Fatalf("%d shares %+v of %+v", n, s, c.Spec)
		}
	})
}

// A store that hangs costs its first callers the deadline; then the breaker spares the others.
//
// Limiter case L44.
// Limiter case L46.
// Limiter case L48.
func TestAHungStoreCostsADeadlineAndThenNothing(t *testing.T) {
	srv := serve(t)
	st := srv.open(func(c *Config) { c.Deadline = 25 * time.Millisecond; c.Replicas = 2 })
	local := []admit.Check{mode(quotatest.Fixed("day", 40, admit.Day), admit.AwayLocal)}
	until(t, "the store answers", func() bool { a, _ := st.Peek(bg, local); return !a.Away })
	before := st.Stats()
	srv.hang()
	defer srv.wake()
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 100 {
				a, err := st.Take(bg, local)
				if err != nil || !a.Away {
					t.Errorf("%+v, %v", a, err)
				}
				if a.Allowed {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	now := st.Stats()
	if late := now.Late - before.Late; late < 5 || late > 100 {
		t.Errorf("%d of 1,000 waited for a store that hangs", late)
	}
	if n := passed.Load(); n != 20 {
		t.Errorf("%d passed, want the share of 20: an attacker who makes the store slow gets no more", n)
	}
}

// A decision that was recorded after its caller had been refused is given back, once; one whose
// caller was let through stays, once.
//
// Limiter case L47.
func TestADecisionInDoubtIsSettledByItsLateAnswer(t *testing.T) {
	for _, row := range []struct {
		mode           admit.Away
		used, returned int64
	}{{admit.AwayClosed, 0, 1}, {admit.AwayLocal, 1, 0}, {admit.AwayOpen, 1, 0}} {
		srv := serve(t)
		st := srv.open(func(c *Config) { c.Deadline = 100 * time.Millisecond })
		c := mode(quotatest.Fixed("month", 10, admit.Month), row.mode)
		until(t, "the store answers", func() bool { a, _ := st.Peek(bg, []admit.Check{c}); return !a.Away })
		srv.hang()
		a, err := st.Take(bg, []admit.Check{c})
		if err != nil || !a.Away || a.Allowed != (row.mode != admit.AwayClosed) {
			t.Errorf("%v: %+v, %v", row.mode, a, err)
		}
		srv.wake()
		until(t, "the late answer is settled", func() bool { s := st.Stats(); return s.Returned+s.Kept == 1 })
		if s := st.Stats(); s.Returned != row.returned || s.Doubt != 0 {
			t.Errorf("%v: %+v", row.mode, s)
		}
		if used, err := srv.open().Usage(bg, c); used != row.used || err != nil {
			t.Errorf("%v: the store has %d, want %d (%v)", row.mode, used, row.used, err)
		}
	}
}

// A caller who goes away says nothing about the store, and takes nothing with him.
func TestACancelledCallerCountsNeitherWay(t *testing.T) {
	srv := serve(t)
	st := srv.open()
	c := quotatest.Fixed("month", 10, admit.Month)
	until(t, "the store answers", func() bool { a, _ := st.Peek(bg, []admit.Check{c}); return !a.Away })
	srv.hang()
	for range 8 {
		ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
		if _, err := st.Take(ctx, []admit.Check{c}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	srv.wake()
	until(t, "what was recorded is given back", func() bool { return st.Stats().Returned == 8 })
	if used, err := st.Usage(bg, c); used != 0 || err != nil {
		t.Errorf("%d used, %v: eight cancellations opened the breaker, or were recorded", used, err)
	}
}

// cutter passes requests on to a server, and ends the connection instead of passing an answer on
// once it is told to.
type cutter struct {
	addr  string
	cut   atomic.Bool // from the next decision on
	asked atomic.Bool // that decision is with the server
}

// Write sees what goes to the server.
func (c *cutter) Write(b []byte) (int, error) {
	if c.cut.Load() && bytes.Contains(b, []byte("EVAL")) {
		c.asked.Store(true)
	}
	return len(b), nil
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &cutter{addr: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go func() { io.Copy(io.MultiWriter(server, c), client); server.Close() }()
			go func() {
				defer client.Close()
				for b := make([]byte, 4096); ; {
					n, err := server.Read(b)
					if err != nil || c.asked.Load() {
						return
					}
					client.Write(b[:n])
				}
			}()
		}
	}()
	return c
}

// Where the connection ends between request and answer nobody knows: the unit is counted as in
// doubt. The store may have it and never lacks one.
func TestALostAnswerIsCountedAsDoubt(t *testing.T) {
	srv := serve(t)
	wire := newCutter(t, "127.0.0.1:"+srv.port)
	st := srv.open(func(c *Config) { c.URL, c.Deadline = "redis://"+wire.addr, 10*time.Second }) // it is the connection that ends
	c := quotatest.Fixed("month", 10, admit.Month)
	if a, err := st.Take(bg, []admit.Check{c}); err != nil || a.Away {
		t.Fatalf("%+v, %v", a, err)
	}
	wire.cut.Store(true)
	if a, err := st.Take(bg, []admit.Check{c}); err != nil || !a.Away || a.Allowed {
		t.Errorf("%+v, %v", a, err)
	}
	if s := st.Stats(); s.Doubt != 1 {
		t.Errorf("%+v, want one in doubt", s)
	}
	direct := srv.open() // on a busy machine the request may still be on its way
	until(t, "the store has the one admitted and the one in doubt", func() bool { used, err := direct.Usage(bg, c); return used == 2 && err == nil })
	wire.cut.Store(false)
	wire.asked.Store(false)
	until(t, "the store is back", func() bool { a, _ := st.Peek(bg, []admit.Check{c}); return !a.Away })
}
