package delivery

import (
	"crypto/rand"
	"crypto/tls"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Field case 69. No stream is refused where none is opened: an endpoint that takes HTTP/2 alone is told
// apart, and nothing is repeated for it.
func TestAnEndpointOfHTTP2AloneIsToldApart(t *testing.T) {
	ca := newAuthority(t)
	// crypto/tls lets a client of http/1.1 pass where a server has h2 alone; another name gets what RFC 7301 says.
	s := serveOn(t, "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", nil)}, NextProtos: []string{"h2-alone"}}, answering(ok200))
	c := New(Options{Allow: loopback, RootCAs: ca.pool})
	t.Cleanup(c.Close)
	o := c.Send(t.Context(), post("https://"+s.addr()+"/"))
	want(t, o, engine.Failed, 0, ReasonTLS)
	if o.Detail != "refused: no application protocol" || o.Sent || s.accepted() != 1 {
		t.Errorf("%+v, %d connections", o, s.accepted())
	}
}

// Field case 70. A peer that speaks nonsense behind the handshake costs its own attempt until its own
// deadline, and leaves nothing behind.
func TestNonsenseAfterTLSCostsOneAttempt(t *testing.T) {
	ca := newAuthority(t)
	frames := []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b") // SETTINGS, GOAWAY(ENHANCE_YOUR_CALM)
	junk := make([]byte, 64<<10)
	rand.Read(junk)
	junk[0] = 0xff
	for name, c := range map[string]struct {
		handle func(*peer)
		reason string
	}{
		"frames of HTTP/2": {func(p *peer) { p.read(); p.Write(frames); p.hang() }, ReasonTimeout},
		"random bytes":     {func(p *peer) { p.read(); p.Write(junk); p.hang() }, ReasonProtocol},
		"reads nothing":    {func(p *peer) { p.Conn.(*tls.Conn).Handshake(); p.hang() }, ReasonTimeout},
	} {
		s := serveOn(t, "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", nil)}}, c.handle)
		client := New(Options{Allow: loopback, RootCAs: ca.pool})
		r := post("https://" + s.addr() + "/")
		r.Timeout, r.Payload = 200*time.Millisecond, make([]byte, 8<<20)
		if name != "reads nothing" {
			r.Payload = r.Payload[:100]
		}
		o := client.Send(t.Context(), r)
		if o.Result.Kind != engine.Failed || o.Reason != c.reason && o.Reason != ReasonProtocol {
			t.Errorf("%s: %+v", name, o)
		}
		client.Close()
		s.ln.Close()
		for _, cn := range s.conns {
			cn.(*tls.Conn).NetConn().Close()
		}
	}
}

// Field case 70. After a silent drop the next attempt makes a connection of its own.
func TestAConnectionThatTimedOutIsNotUsedAgain(t *testing.T) {
	var mute atomic.Bool
	s := serve(t, func(p *peer) {
		for {
			if _, ok := p.read(); !ok {
				return
			}
			if mute.Load() {
				p.hang()
			}
			p.say(ok200)
		}
	})
	c := New(Options{Allow: loopback})
	t.Cleanup(c.Close)
	r := post(s.url("/"))
	want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	mute.Store(true)
	r.Timeout = 100 * time.Millisecond
	want(t, c.Send(t.Context(), r), engine.Failed, 0, ReasonTimeout)
	mute.Store(false)
	for range 3 {
		want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	}
	if n := s.accepted(); n != 2 {
		t.Errorf("%d connections, want the one that fell silent and one new", n)
	}
}

// A connection carries one identity; one that was refused for having none says so.
func TestClientCertificateIsTheSubscriptionsAlone(t *testing.T) {
	ca := newAuthority(t)
	shown := make(chan string, 10)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", nil)}, ClientAuth: tls.RequireAnyClientCert}
	s := serveOn(t, "127.0.0.1:0", cfg, func(p *peer) {
		for {
			if _, ok := p.read(); !ok {
				return
			}
			shown <- p.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
			p.say(ok200)
		}
	})
	c := New(Options{Allow: loopback, RootCAs: ca.pool})
	t.Cleanup(c.Close)
	one, two := ca.leaf(t, "one", nil), ca.leaf(t, "two", nil)
	a, b := shape(t, Spec{Secrets: [][]byte{secret}}), shape(t, Spec{Secrets: [][]byte{secret}})
	a.cert, b.cert = &one, &two
	r := post("https://" + s.addr() + "/")
	serials := map[string]bool{}
	for _, sh := range []*Shape{a, b, a, b} {
		r.Shape = sh
		want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
		serials[<-shown] = true
	}
	if len(serials) != 2 || s.accepted() != 2 {
		t.Errorf("%d identities on %d connections", len(serials), s.accepted())
	}
	r.Shape = nil
	if o := c.Send(t.Context(), r); o.Reason != ReasonTLS || o.Detail != "refused: certificate required" {
		t.Errorf("without one: %+v", o)
	}
}

// Addresses that are no longer allowed are not reached over connections of before.
func TestConnectionsOfAnEarlierAllowAreNotUsed(t *testing.T) {
	s := serve(t, answering(ok200))
	c := New(Options{Allow: loopback})
	t.Cleanup(c.Close)
	r := post(s.url("/"))
	want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	c.Allow(loopback) // the same: the connection stays
	want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	r.Start = func() bool { c.Allow(nil); return true } // while one is in use
	want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	r.Start = nil
	want(t, c.Send(t.Context(), r), engine.NotSent, 0, ReasonGuard)
	if n := s.accepted(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
