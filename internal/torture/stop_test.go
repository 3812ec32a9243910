package torture

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Field case 98. The second process on a data directory ends with a message that names it; the first
// one goes on.
func TestSecondProcessOnADataDirectoryIsRefused(t *testing.T) {
	s := newService(t)
	s.startReady()
	s.putTenant("ant")
	e := listen(t, "ant", "", always(200, 0))
	s.subscribe("ant", e.url, "orders.>", nil)

	config := filepath.Join(s.dir, "second.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, freeAddr(t), s.data()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	second := exec.Command(binary, "serve", "--config", config)
	second.Env = append(os.Environ(), "FAIRLANE_ADMIN_KEY="+adminKey)
	second.Stdout, second.Stderr = &out, &out
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	timeout := time.AfterFunc(startLimit, func() { second.Process.Kill() })
	err := second.Wait()
	if !timeout.Stop() {
		t.Fatalf("the second process did not end; its output:\n%s", out.String())
	}
	if err == nil || !strings.Contains(out.String(), s.data()) {
		t.Errorf("second process: %v, output %q; want an error that names %s", err, out.String(), s.data())
	}
	l := startLoad(t, s, 10*time.Millisecond, []string{"ant"})
	if !poll(10*time.Second, func() bool { return len(e.requests()) > 0 }) {
		t.Error("the first process does not deliver any more")
	}
	l.stop()
	l.outcome(t)
}

// Field case 98. What can finish within the grace does; what is cut is sent again once; nothing is lost.
func TestStopFinishesWhatItCanAndRepeatsOnlyWhatItCut(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *service) (kills []kill){
		"within the grace": func(t *testing.T, s *service) []kill {
			if !s.awaitExit(20 * time.Second) {
				t.Error("no end after SIGTERM")
			}
			return nil // nothing excuses a duplicate
		},
		"killed within the grace": func(t *testing.T, s *service) []kill {
			poll(time.Second, func() bool { return inFlight.Load() <= stuckAtStop })
			return []kill{s.kill()}
		},
		"signalled twice": func(t *testing.T, s *service) []kill {
			poll(10*time.Second, func() bool { // the first signal is being obeyed
				resp, err := s.client.Get("http://" + s.addr + "/readyz")
				if err != nil {
					return true
				}
				resp.Body.Close()
				return resp.StatusCode != http.StatusOK
			})
			k := kill{from: now()}
			s.signal(syscall.SIGTERM)
			if !s.awaitExit(20 * time.Second) {
				t.Error("no end after a second SIGTERM")
			}
			k.to = now()
			return []kill{k}
		},
	} {
		t.Run(name, func(t *testing.T) { stopUnderLoad(t, end) })
	}
}

const stuckAtStop = 16 // one lane's cap

func stopUnderLoad(t *testing.T, end func(*testing.T, *service) []kill) {
	s := newService(t)
	s.startReady()
	s.putTenant("ant")
	all := []*member{
		{endpoint: listen(t, "quick", "", between(20*time.Millisecond, 500*time.Millisecond)), tenant: "ant"},
		{endpoint: listen(t, "stuck", "", always(200, 4*time.Second)), tenant: "ant"}, // longer than the grace
		{endpoint: listen(t, "quicker", "", between(time.Millisecond, 50*time.Millisecond)), tenant: "ant"},
	}
	for _, m := range all {
		m.subscription = s.subscribe("ant", m.url, "orders.>", nil)
	}
	l := startLoad(t, s, 20*time.Millisecond, []string{"ant"}, []string{"ant"})
	if !poll(20*time.Second, func() bool { return inFlight.Load() >= stuckAtStop+8 }) {
		t.Fatalf("only %d in flight", inFlight.Load())
	}
	stopped := now()
	s.signal(syscall.SIGTERM)
	kills := end(t, s)
	ended := now()
	t.Logf("ended %v after SIGTERM", ended-stopped)

	cut := 0
	for _, m := range all {
		for _, r := range m.requests() {
			if r.status == 0 {
				cut++
				if m.name != "stuck" && ended-stopped > time.Second {
					t.Errorf("%s: a request that needs at most 500 ms was cut: %+v", m.name, r)
				}
			}
		}
		m.become(always(200, 0))
	}
	s.startReady()
	s.checkAccounts("after the restart")
	l.stop()
	acked, inDoubt := l.outcome(t)
	drain(t, s, all)
	judge(t, s, all, acked, inDoubt, kills)
	repeated := 0
	for _, m := range all {
		for _, rs := range m.byID() {
			repeated += len(rs) - 1
		}
	}
	t.Logf("%d requests cut, %d repeated", cut, repeated)
	if cut == 0 {
		t.Error("nothing was in flight at the end: the test shows nothing")
	}
}

// Field case 26. A kill in the middle of one trigger's fan-out leads to all five deliveries, with at most
// one more request to those that were in flight; each of the five has its own fate.
func TestKillInTheMiddleOfAFanOut(t *testing.T) {
	s := newService(t)
	s.startReady()
	s.putTenant("ant")
	closed := freeAddr(t)
	names := []string{"good", "failing", "silent", "better", "refusing"}
	replies := []reply{always(200, 0), always(500, 0), always(200, time.Minute), always(200, 0)}
	eps := make([]*endpoint, len(replies))
	for i, r := range replies {
		eps[i] = listen(t, names[i], "", r)
		s.subscribe("ant", eps[i].url, "orders.>", map[string]any{"timeout": "300ms"})
	}
	s.subscribe("ant", "http://"+closed+"/refusing", "orders.>", nil)

	const rounds = 5
	var kills []kill
	l := newLoad(s)
	for n := range rounds {
		before := arrivals.Load()
		if !l.post([]string{"ant"}, 0, n, "") {
			t.Fatalf("not acknowledged: %v", l.problems)
		}
		if !poll(10*time.Second, func() bool { return arrivals.Load() > before }) {
			t.Fatalf("round %d: nothing is delivered; lanes %+v", n, s.lanes())
		}
		kills = append(kills, s.kill())
		s.startReady()
		s.checkAccounts(fmt.Sprintf("round %d", n))
		for _, e := range []*endpoint{eps[0], eps[3]} {
			if !poll(10*time.Second, func() bool { return len(e.byID()) == n+1 }) {
				t.Fatalf("round %d: %s waits for the others' sake; lanes %+v", n, e.name, s.lanes())
			}
			e.awaitQuiet()
		}
	}
	for _, e := range eps {
		e.become(always(200, 0))
	}
	eps = append(eps, listen(t, names[4], closed, always(200, 0)))
	acked, _ := l.outcome(t)
	settled := poll(time.Minute, func() bool {
		return !slices.ContainsFunc(eps, func(e *endpoint) bool { return acceptedIDs(e) < rounds })
	})
	if !settled {
		t.Errorf("not all delivered after a minute; lanes %+v", s.lanes())
	}
	for _, e := range eps {
		judgeDelivered(t, e, acked, func(string) bool { return false })
		judgeDuplicates(t, e, kills)
	}
	for _, e := range []*endpoint{eps[0], eps[3]} {
		for id, rs := range e.byID() {
			if len(rs) > 2 {
				t.Errorf("%s: %s came %d times", e.name, id, len(rs))
			}
		}
	}
	poll(10*time.Second, func() bool { return settledLanes(s) })
	for _, l := range s.checkAccounts("at the end") {
		if l.Account.Delivered != rounds || l.Account.Offered != rounds {
			t.Errorf("account of %s: %+v, want %d delivered", l.Subscription, l.Account, rounds)
		}
	}
}

func acceptedIDs(e *endpoint) (n int) {
	for _, rs := range e.byID() {
		if slices.ContainsFunc(rs, func(r request) bool { return r.accepted() }) {
			n++
		}
	}
	return n
}

func settledLanes(s *service) bool {
	for _, l := range s.lanes() {
		if l.Account.Parked+l.Account.InFlight > 0 {
			return false
		}
	}
	return true
}

// Field case 81. A kill right behind an answer, good or bad, repeats that request at most, with the same id.
func TestKillRightBehindAnAnswer(t *testing.T) {
	s := newService(t)
	s.startReady()
	s.putTenant("ant")
	good, bad := listen(t, "good", "", always(200, 0)), listen(t, "bad", "", nil)
	var mu sync.Mutex
	first := make(map[string]bool)
	bad.become(func(n int, id string) (int, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if first[id] {
			return 200, 0
		}
		first[id] = true
		return 500, 0
	})
	good.finished, bad.finished = make(chan *request, 64), make(chan *request, 64)
	s.subscribe("ant", good.url, "orders.>", nil)
	s.subscribe("ant", bad.url, "orders.>", map[string]any{"cap": 1})

	const rounds = 6
	var kills []kill
	l := newLoad(s)
	for n := range rounds {
		if !l.post([]string{"ant"}, 0, n, "") {
			t.Fatalf("not acknowledged: %v", l.problems)
		}
		watched := good.finished
		if n%2 == 1 {
			watched = bad.finished
		}
		select {
		case <-watched:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: nothing is delivered; lanes %+v", n, s.lanes())
		}
		kills = append(kills, s.kill())
		s.startReady()
		s.checkAccounts(fmt.Sprintf("round %d", n))
		if !poll(30*time.Second, func() bool { return settledLanes(s) && acceptedIDs(good) > n && acceptedIDs(bad) > n }) {
			t.Fatalf("round %d: not delivered; lanes %+v", n, s.lanes())
		}
		for _, e := range []*endpoint{good, bad} {
			e.awaitQuiet()
			empty(e.finished)
		}
	}
	acked, _ := l.outcome(t)
	repeated := 0
	for _, e := range []*endpoint{good, bad} {
		judgeDelivered(t, e, acked, func(string) bool { return false })
		repeated += judgeDuplicates(t, e, kills).duplicates
	}
	for id, rs := range good.byID() {
		if len(rs) > 2 {
			t.Errorf("%s came %d times", id, len(rs))
		}
	}
	t.Logf("%d kills right behind an answer: %d accepted requests were repeated", rounds, repeated)
}

func empty(c chan *request) {
	for len(c) > 0 {
		<-c
	}
}
