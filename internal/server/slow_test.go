package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// pipes is a listener whose connections are pipes in memory, so that virtual time rules them.
type pipes struct {
	conns chan net.Conn // dial -> Accept
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// drip sends a head and then one octet every gap, until the answer comes; it returns the status
// (0: closed without one) and how long that took.
func drip(c net.Conn, head string, gap time.Duration) (int, time.Duration) {
	start := time.Now()
	answered := make(chan int, 1)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			answered <- 0
			return
		}
		answered <- resp.StatusCode
	}()
	io.WriteString(c, head)
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for {
		select {
		case status := <-answered:
			c.Close()
			return status, time.Since(start)
		case <-tick.C:
			go c.Write([]byte{'x'}) // a pipe's write waits for its reader
		}
	}
}

// Field case 5.
func TestADrippingProducerIsCutAndNobodyNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := New(Options{Fanout: f, Journal: f, Registry: fakeRegistry{}, Access: &fakeAccess{}, AdminKey: testKey})
		srv, l := newHTTP(s.Handler(), slog.New(slog.DiscardHandler)), newPipes()
		go srv.Serve(l)
		var slow sync.WaitGroup
		for i := range 200 {
			slow.Go(func() {
				c := []struct {
					key, tenant, length string
					want                int
					within              time.Duration
				}{
					{testKey, "acme", "1000000", 408, 11 * time.Second},
					{testKey, "acme", "100000", 408, 11 * time.Second},
					{"wrong", "acme", "1000000", 401, time.Second},
					{"wrong", "acme", "100000", 401, time.Second},
					{testKey, "nobody", "100000", 422, 11 * time.Second},
				}[i%5]
				head := "POST /v1/triggers/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + c.key +
					"\r\nFairlane-Tenant: " + c.tenant + "\r\nContent-Length: " + c.length + "\r\n\r\n"
				status, took := drip(l.dial(), head, 5*time.Second)
				if status != c.want || took > c.within {
					t.Errorf("%+v: status %d after %v", c, status, took)
				}
			})
		}
		quick := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}}
		tick := time.NewTicker(20 * time.Millisecond)
		for range 50 * 20 {
			<-tick.C
			start := time.Now()
			a := do(t, &quick, "http://x", "POST", "/v1/triggers/a", strings.NewReader("hello"), "Fairlane-Tenant: beta")
			if a.status != 202 || time.Since(start) > 50*time.Millisecond {
				t.Errorf("beside drippers: %d after %v", a.status, time.Since(start))
			}
		}
		tick.Stop()
		slow.Wait()
		if len(f.stored) != 1000 {
			t.Errorf("%d stored", len(f.stored))
		}
		quick.CloseIdleConnections()
		srv.Close()
		<-time.After(time.Second) // virtual: net/http lingers on a refused connection
	})
}

// Field case 5.
func TestASteadyLargeUploadPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			rate int // bytes per second
			want int
		}{{12_000, 202}, {6_000, 408}} {
			f := &fake{}
			s := New(Options{Fanout: f, Journal: f, Registry: fakeRegistry{}, Access: &fakeAccess{}, AdminKey: testKey})
			s.pace = pace{grace: 5 * time.Second, rate: 10_000, ceiling: 2 * time.Minute}
			srv, l := newHTTP(s.Handler(), slog.New(slog.DiscardHandler)), newPipes()
			go srv.Serve(l)
			conn := l.dial()
			fmt.Fprintf(conn, "%sContent-Length: 600000\r\n\r\n", strings.TrimSuffix(head(""), "\r\n"))
			go func() {
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for range 600000 / c.rate {
					<-tick.C
					if _, err := conn.Write(bytes.Repeat([]byte{'x'}, c.rate)); err != nil {
						return
					}
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != c.want {
				t.Errorf("%d bytes/s: %v, %v", c.rate, resp, err)
			}
			conn.Close()
			srv.Close()
			<-time.After(time.Second) // virtual: net/http lingers on a refused connection
		}
	})
}

// The bounds of a body end with the body: an answer may take its time.
func TestASlowLogDoesNotEndTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{append: func(ctx context.Context, _ *journal.Trigger) (journal.Receipt, error) {
			select {
			case <-ctx.Done():
				return journal.Receipt{}, ctx.Err()
			case <-time.After(time.Minute):
				return journal.Receipt{ID: "id"}, nil
			}
		}}
		s := New(Options{Fanout: f, Journal: f, Registry: fakeRegistry{}, Access: &fakeAccess{}, AdminKey: testKey})
		srv, l := newHTTP(s.Handler(), slog.New(slog.DiscardHandler)), newPipes()
		go srv.Serve(l)
		for _, body := range []string{"Content-Length: 5\r\n\r\nhello", "Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
			conn := l.dial()
			go io.WriteString(conn, strings.TrimSuffix(head(""), "\r\n")+body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != 202 {
				t.Errorf("%q: %v, %v", body, resp, err)
			}
			conn.Close()
		}
		srv.Close()
		<-time.After(time.Second) // virtual
	})
}

func TestAllowedTimeGrowsToTheCeiling(t *testing.T) {
	p := pace{grace: 10 * time.Second, rate: 1000, ceiling: time.Minute}
	for received, want := range map[int]time.Duration{0: 10 * time.Second, 1000: 11 * time.Second, 50_000: time.Minute, 6 << 20: time.Minute} {
		if got := p.allowed(received); got != want {
			t.Errorf("%d bytes: %v, want %v", received, got, want)
		}
	}
}
