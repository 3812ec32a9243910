package delivery

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Field case 72. Connections are reused while an endpoint is busy, bounded over all hosts, and gone with
// their descriptors when it is not.
func TestDescriptorsFollowWhatIsInFlight(t *testing.T) {
	s := serveOn(t, "0.0.0.0:0", nil, answering(ok200))
	_, port, _ := net.SplitHostPort(s.addr())
	before := openFiles(t)
	const most = 20
	c := New(Options{Allow: loopback, MaxConns: most, IdleTimeout: 50 * time.Millisecond})
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for range 100 {
				want(t, c.Send(t.Context(), post("http://127.0.0.1:"+port+"/")), engine.OK, 200, ReasonStatus)
			}
		})
	}
	senders.Wait()
	if n := s.accepted(); n > 8 {
		t.Errorf("800 deliveries, 8 at a time, over %d connections", n)
	}
	for i := range 200 { // hosts once each
		want(t, c.Send(t.Context(), post(fmt.Sprintf("http://127.0.1.%d:%s/", i+1, port))), engine.OK, 200, ReasonStatus)
		if n := c.pool.size(); n > most {
			t.Fatalf("%d connections, may be %d", n, most)
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for c.pool.size() > 0 || openFiles(t) > before {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d connections stay, %d descriptors of before %d", c.pool.size(), openFiles(t), before)
		}
	}
	c.Close()
}

// Field case 72. With all in use, what comes is ours to hold: no attempt, no endpoint's fault.
func TestNoConnectionLeftIsOurs(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(p *peer) {
		for {
			if _, ok := p.read(); !ok {
				return
			}
			<-release
			p.say(ok200)
		}
	})
	other := serve(t, answering(ok200))
	c := New(Options{Allow: loopback, MaxConns: 1})
	t.Cleanup(c.Close)
	done := make(chan Outcome)
	go func() { done <- c.Send(t.Context(), post(s.url("/"))) }()
	for c.pool.size() == 0 || len(s.requests()) == 0 {
		<-time.After(time.Millisecond)
	}
	want(t, c.Send(t.Context(), post(other.url("/"))), engine.NotSent, 0, ReasonLocal)
	close(release)
	want(t, <-done, engine.OK, 200, ReasonStatus)
	want(t, c.Send(t.Context(), post(other.url("/"))), engine.OK, 200, ReasonStatus)
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Field case 63. With the guard on, what is inside answers nothing: open, closed and absent are one.
func TestRefusalTellsNothingOfWhatIsInside(t *testing.T) {
	open := serve(t, answering("HTTP/1.1 200 OK\r\nSet-Cookie: a=SECRET\r\nContent-Length: 6\r\n\r\nSECRET"))
	c := New(Options{})
	t.Cleanup(c.Close)
	var first Outcome
	for i, address := range []string{open.addr(), closedPort(t), "10.255.255.1:80", "169.254.169.254:80"} {
		o := c.Send(t.Context(), post("http://"+address+"/"))
		if i == 0 {
			first = o
		}
		if fmt.Sprintf("%+v", o) != fmt.Sprintf("%+v", first) {
			t.Errorf("%s: %+v\nwant    %+v", address, o, first)
		}
	}
	want(t, first, engine.NotSent, 0, ReasonGuard)
	if open.accepted() != 0 {
		t.Error("it was dialled")
	}
}
