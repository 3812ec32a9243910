package httpadmit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// pipes listens in the process: what one end writes waits until the other reads it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours, nil
}

// piped serves h over pipes until the test ends.
func piped(h http.Handler) (p pipes, stop func()) {
	p = make(pipes)
	server := &http.Server{Handler: h}
	go server.Serve(p)
	return p, func() { close(p); server.Close() }
}

// proxied is a client of a door before a service, all over pipes. Call end before the bubble does.
func proxied(d *Door, serve http.HandlerFunc, failed func(*http.Request, error)) (client *http.Transport, end func()) {
	back, stop := piped(serve)
	service := &http.Transport{DialContext: back.dial}
	front, close := piped(d.Middleware(d.Proxy(&url.URL{Scheme: "http", Host: "service"}, service, failed)))
	client = &http.Transport{DialContext: front.dial}
	return client, func() {
		client.CloseIdleConnections()
		close()
		service.CloseIdleConnections()
		stop()
		after(2 * time.Hour) // for servers that linger, and handlers that were cut
	}
}

// slowly sends n bytes, two minutes apart.
func slowly(n int) io.Reader {
	r, w := io.Pipe()
	go func() {
		for range n {
			after(2 * time.Minute)
			w.Write([]byte("x"))
		}
		w.Close()
	}()
	return r
}

// idle lets time pass while the other end is there.
func idle(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// A service that hangs gives the slot back after the time that it has, be it that it does not answer or does not take the
// body; what takes its time for the client's sake, or after the answer began, does not.
func TestAServiceThatHangsIsGivenUp(t *testing.T) {
	large := strings.Repeat("x", 2<<20)
	for name, tc := range map[string]struct {
		serve  http.HandlerFunc
		body   func() io.Reader
		status int
		took   time.Duration
	}{
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { idle(r, time.Hour) }, nil, 504, time.Minute},
		"only hints of one": {func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				idle(r, 25*time.Second)
				w.WriteHeader(http.StatusEarlyHints)
			}
		}, nil, 504, time.Minute},
		"takes no body": {func(_ http.ResponseWriter, r *http.Request) { idle(r, time.Hour) }, func() io.Reader { return strings.NewReader(large) }, 504, time.Minute},
		"stops taking it": {func(_ http.ResponseWriter, r *http.Request) {
			idle(r, 50*time.Second)
			io.CopyN(io.Discard, r.Body, 1<<20)
			idle(r, time.Hour)
		}, func() io.Reader { return strings.NewReader(large) }, 504, 110 * time.Second},
		"late":          {func(_ http.ResponseWriter, r *http.Request) { idle(r, 59*time.Second) }, nil, 200, 59 * time.Second},
		"a slow client": {func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, func() io.Reader { return slowly(5) }, 200, 10 * time.Minute},
		"events": {func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				io.WriteString(w, "x")
				http.NewResponseController(w).Flush()
				idle(r, time.Hour)
			}
		}, nil, 200, 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := settings(t)
				s.Slots, s.Timeout = fair.SlotLimits{Slots: 1}, time.Minute
				d := newDoor(s)
				var told error
				client, end := proxied(d, tc.serve, func(_ *http.Request, err error) { told = err })
				defer end()
				var body io.Reader
				if tc.body != nil {
					body = tc.body()
				}
				r, _ := http.NewRequest("POST", "http://gate/", body)
				r.Header.Set("Authorization", "Bearer a-key")
				began := time.Now()
				resp, err := client.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				if took := time.Since(began); resp.StatusCode != tc.status || took != tc.took || err != nil {
					t.Errorf("%d after %v, %v", resp.StatusCode, took, err)
				}
				if tc.status == 504 && (!strings.Contains(string(text), `"reason":"timeout"`) || !errors.Is(told, errLate)) {
					t.Errorf("%s, told of %v", text, told)
				}
				synctest.Wait()
				if running, _, _ := d.Load(); running != 0 {
					t.Errorf("%d slots are held", running)
				}
			})
		})
	}
}

// A connection that was upgraded may be silent for longer than the service has to answer.
func TestAnUpgradedConnectionMayBeSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t)
		s.Timeout = time.Minute
		client, end := proxied(newDoor(s), func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			io.Copy(conn, rw)
		}, nil)
		defer end()
		conn, _ := client.DialContext(t.Context(), "", "")
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-key\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		after(time.Hour)
		fmt.Fprintln(conn, "still here")
		if line, err := in.ReadString('\n'); line != "still here\n" {
			t.Error(line, err)
		}
	})
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What a transport reads of the body when the service has begun to answer does not bring the time back.
func TestABodyReadAfterTheAnswerCutsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t)
		s.Timeout = time.Minute
		var sent *http.Request
		base := transportFunc(func(r *http.Request) (*http.Response, error) {
			sent = r
			return &http.Response{Body: http.NoBody}, nil
		})
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://service/", strings.NewReader("x"))
		if _, err := (prompt{base, newDoor(s)}).RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, sent.Body)
		after(time.Hour)
		if err := sent.Context().Err(); err != nil {
			t.Error(err)
		}
	})
}
