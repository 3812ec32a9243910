package delivery

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// piped is a Client in virtual time: each connection is a pipe to handle, made
// after wait.
func piped(t *testing.T, wait time.Duration, handle func(p *peer)) (*Client, *server) {
	s := &server{stop: make(chan struct{})}
	c := New(Options{})
	c.dial = func(ctx context.Context, _ endpoint) (net.Conn, error) {
		pass(wait)
		near, far := net.Pipe()
		s.mu.Lock()
		s.conns = append(s.conns, far)
		s.mu.Unlock()
		p := &peer{Conn: far, br: newReader(far), n: s.accepted() - 1, s: s}
		s.wg.Go(func() {
			defer far.Close()
			handle(p)
		})
		return near, nil
	}
	t.Cleanup(func() {
		c.Close()
		close(s.stop)
		s.wg.Wait()
	})
	return c, s
}

func TestTimestampIsTakenWhenTheConnectionStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := piped(t, 9*time.Second, answering(ok200))
		before := time.Now()
		want(t, c.Send(t.Context(), post("http://h.test/")), engine.OK, 200, ReasonStatus)
		got := s.requests()[0].get("webhook-timestamp")
		if at := before.Add(9 * time.Second).Unix(); got != strconv.FormatInt(at, 10) {
			t.Errorf("signed for %s, sent at %d", got, at)
		}
	})
}

func TestAttemptEndsAtItsDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		wait   time.Duration
		handle func(p *peer)
		status int
	}{
		"no answer":                  {0, func(p *peer) { p.read(); p.hang() }, 0},
		"slow to connect, no answer": {4 * time.Second, func(p *peer) { p.read(); p.hang() }, 0},
		"nothing read":               {0, (*peer).hang, 0},
		"head that trickles": {0, func(p *peer) {
			p.read()
			p.say("HTTP/1.1 200 OK\r\nX: ")
			for {
				pass(time.Second)
				if _, err := io.WriteString(p, "x"); err != nil {
					return
				}
			}
		}, 0},
		"head at the last moment": {0, func(p *peer) {
			p.read()
			pass(15*time.Second - time.Millisecond)
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
			p.hang()
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, _ := piped(t, c.wait, c.handle)
				begun := time.Now()
				o := client.Send(t.Context(), post("http://h.test/"))
				if took := time.Since(begun); took != defaultTimeout {
					t.Errorf("ended after %v, want %v", took, defaultTimeout)
				}
				if c.status == 0 {
					want(t, o, engine.Failed, 0, ReasonTimeout)
				} else {
					want(t, o, engine.OK, c.status, ReasonStatus)
				}
			})
		})
	}
}

func TestRestOfTheBodyIsNotWrittenAfterARefusal(t *testing.T) {
	for status, took := range map[string]time.Duration{
		"413 Too Large": 0,
		"200 OK":        5 * time.Second, // it may still be reading, and here it is
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := piped(t, 0, func(p *peer) {
				readHead(p.br)
				p.say("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n")
				pass(5 * time.Second)
				io.Copy(io.Discard, p)
			})
			r := post("http://h.test/")
			r.Payload = make([]byte, 1<<20)
			begun := time.Now()
			if o := c.Send(t.Context(), r); o.Status == 0 {
				t.Errorf("%+v", o)
			}
			if got := time.Since(begun); got != took {
				t.Errorf("%s: ended after %v, want %v", status, got, took)
			}
		})
	}
}

func TestTLSEndpointThatReadsNothingEndsAtTheDeadlineToo(t *testing.T) {
	ca := newAuthority(t)
	cert, real := ca.leaf(t, "h.test", nil), time.Now()
	clock := func() time.Time { return real } // a bubble's begins in 2000
	synctest.Test(t, func(t *testing.T) {
		c, _ := piped(t, 0, func(p *peer) {
			server := tls.Server(p, &tls.Config{Certificates: []tls.Certificate{cert}, Time: clock})
			server.Handshake()
			p.hang()
		})
		plain, d := c.dial, newDialer(&Options{RootCAs: ca.pool, HandshakeTimeout: time.Second})
		d.tls.Time = clock
		c.dial = func(ctx context.Context, e endpoint) (net.Conn, error) {
			raw, err := plain(ctx, e)
			if err != nil {
				return nil, err
			}
			return d.secure(ctx, raw, e)
		}
		begun := time.Now()
		o := c.Send(t.Context(), post("https://h.test/"))
		if took := time.Since(begun); took != defaultTimeout {
			t.Errorf("ended after %v, want %v", took, defaultTimeout)
		}
		want(t, o, engine.Failed, 0, ReasonTimeout)
	})
}

func TestCutEndsTheAttemptAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		handle  func(p *peer)
		payload int
		kind    engine.ResultKind
	}{
		"waiting for the answer":   {func(p *peer) { p.read(); p.hang() }, 10, engine.Unknown},
		"nothing could be written": {(*peer).hang, 10, engine.NotSent},
		"writing a big payload":    {(*peer).hang, 1 << 20, engine.Unknown},
		"reading the body": {func(p *peer) {
			p.read()
			pass(cutAt - bodyTime/2)
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
			p.hang()
		}, 10, engine.OK},
		"as the head arrives": {func(p *peer) {
			p.read()
			pass(cutAt)
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
			p.hang()
		}, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, s := piped(t, 0, c.handle)
				ctx, cancel := context.WithTimeout(t.Context(), cutAt)
				defer cancel()
				r := post("http://h.test/")
				r.Payload = make([]byte, c.payload)
				begun := time.Now()
				o := client.Send(ctx, r)
				if took := time.Since(begun); took != cutAt {
					t.Errorf("ended after %v, cut after %v", took, cutAt)
				}
				if c.kind != 0 && o.Result.Kind != c.kind {
					t.Errorf("%+v", o)
				}
				if len(client.pool.hosts) != 0 || s.accepted() != 1 {
					t.Errorf("the connection was kept")
				}
			})
		})
	}
}

// Field case 66.
func TestTricklingBodyHoldsTheSlotForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := piped(t, 0, func(p *peer) {
			p.read()
			p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for {
				if _, err := io.WriteString(p, "1\r\nx\r\n"); err != nil {
					return
				}
				pass(10 * time.Millisecond)
			}
		})
		begun := time.Now()
		o := c.Send(t.Context(), post("http://h.test/"))
		want(t, o, engine.OK, 200, ReasonStatus)
		if took := time.Since(begun); took != bodyTime || !o.Incomplete || o.Took > 10*time.Millisecond {
			t.Errorf("ended after %v, head after %v, incomplete %v", took, o.Took, o.Incomplete)
		}
		c.Send(t.Context(), post("http://h.test/"))
		if n := s.accepted(); n != 2 {
			t.Errorf("a connection with an unread body was used again")
		}
	})
}

// Field case 68.
func TestIdleConnectionIsClosedBeforeTheServerWould(t *testing.T) {
	for name, c := range map[string]struct {
		field string
		limit time.Duration
	}{
		"by our own bound":       {"", 5 * time.Second},
		"by the server's hint":   {"Keep-Alive: timeout=3, max=100\r\n", 3 * time.Second},
		"hint too short to use":  {"Keep-Alive: timeout=1\r\n", 0},
		"hint longer than ours":  {"Keep-Alive: max=5, timeout=75\r\n", 5 * time.Second},
		"hint that is no number": {"Keep-Alive: timeout=soon\r\n", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended time.Time
				client, _ := piped(t, 0, func(p *peer) {
					p.read()
					p.say("HTTP/1.1 200 OK\r\n" + c.field + "Content-Length: 0\r\n\r\n")
					p.Read(make([]byte, 1))
					ended = time.Now()
				})
				begun := time.Now()
				client.Send(t.Context(), post("http://h.test/"))
				pass(time.Minute)
				synctest.Wait()
				idle := ended.Sub(begun)
				if ended.IsZero() || idle > c.limit || c.limit > 0 && idle < c.limit/2 {
					t.Errorf("closed after %v idle (zero: %v), limit %v", idle, ended.IsZero(), c.limit)
				}
			})
		})
	}
}

func TestConnectionIsReusedWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := piped(t, 0, answering(ok200))
		for range 100 {
			want(t, c.Send(t.Context(), post("http://h.test/")), engine.OK, 200, ReasonStatus)
			pass(3 * time.Second)
		}
		if n := s.accepted(); n != 1 {
			t.Errorf("%d connections for 100 deliveries 3 s apart", n)
		}
	})
}

// A doubt about where one answer ends must not reach the next delivery.
func TestDoubtfulAnswerEndsTheConnection(t *testing.T) {
	for name, text := range map[string]string{
		"close":                   "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"other connection option": "HTTP/1.1 200 OK\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0":                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
		"length twice":            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nok",
		"length as a list":        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
		"length with a sign":      "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
		"length and chunks":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"chunked twice":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"other coding":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"folded field":            "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
		"blank before the colon":  "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
		"two lengths, one odd":    "HTTP/1.1 200 OK\r\nContent-Length : 9\r\nContent-Length: 2\r\n\r\nok",
		"folded like a field":     "HTTP/1.1 200 OK\r\nX: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nok",
		"no colon":                "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 2\r\n\r\nok",
		"bare line feeds":         "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"more than announced":     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
		"204 with chunks":         "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
		"switching protocols":     "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
		"very long field":         "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 9000) + "\r\nContent-Length: 2\r\n\r\nok",
		"doubt in an interim one": "HTTP/1.1 103 Hints\r\nbad\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"no length":               "HTTP/1.1 200 OK\r\n\r\n",
		"long body":               "HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat("x", 70000),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := piped(t, 0, answering(text))
				for n := range 2 {
					o := c.Send(t.Context(), post("http://h.test/"))
					if o.Sent != true || o.Status/100 != 2 && o.Status != 101 {
						t.Errorf("%+v", o)
					}
					if s.accepted() != n+1 {
						t.Errorf("%d connections after %d deliveries", s.accepted(), n+1)
					}
				}
			})
		})
	}
}

func TestStartIsAskedOnceAfterConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := piped(t, time.Second, answering(ok200))
		begun, asked := time.Now(), 0
		r := post("http://h.test/")
		r.Start = func() bool {
			asked++
			if time.Since(begun) != time.Second {
				t.Errorf("asked after %v, before the connection stood", time.Since(begun))
			}
			return asked > 1
		}
		want(t, c.Send(t.Context(), r), engine.NotSent, 0, ReasonCut)
		want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
		if asked != 2 || s.accepted() != 1 || len(s.requests()) != 1 {
			t.Errorf("asked %d times, %d connections, %d requests", asked, s.accepted(), len(s.requests()))
		}
	})
}

func TestConnectionsToAHostAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := piped(t, 0, func(p *peer) { p.read(); p.hang() })
		c.pool.maxHost = 3
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Outcome)
		for range 3 {
			go func() { done <- c.Send(ctx, post("http://h.test/")) }()
		}
		synctest.Wait()
		want(t, c.Send(ctx, post("http://h.test/")), engine.NotSent, 0, ReasonLocal)
		if s.accepted() != 3 {
			t.Errorf("%d connections", s.accepted())
		}
		cancel()
		for range 3 {
			want(t, <-done, engine.Unknown, 0, ReasonCut)
		}
		if len(c.pool.hosts) != 0 {
			t.Errorf("pool remembers %d hosts with nothing open", len(c.pool.hosts))
		}
	})
}

func TestCloseEndsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		s := &server{stop: make(chan struct{})}
		c := New(Options{})
		c.dial = func(context.Context, endpoint) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				answering(ok200)(&peer{Conn: far, br: newReader(far), s: s})
				close(ended)
			}()
			return near, nil
		}
		c.Send(t.Context(), post("http://h.test/"))
		c.Close()
		<-ended
		if len(c.pool.hosts) != 0 || c.pool.idle != 0 {
			t.Errorf("pool holds %d hosts, %d idle", len(c.pool.hosts), c.pool.idle)
		}
	})
}

// cutAt is when a test's context ends.
const cutAt = 3 * time.Second

// pass lets virtual time pass, inside a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
