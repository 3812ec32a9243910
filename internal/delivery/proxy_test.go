package delivery

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// proxyServer is a CONNECT proxy. refuse, if set, gives the answer instead of a connection; the names
// that it was asked for lead to to.
type proxyServer struct {
	*server
	to     string
	mu     sync.Mutex
	asked  []string // "CONNECT host:port authorization"
	refuse string
}

func newProxy(t *testing.T, to string) *proxyServer {
	p := &proxyServer{to: to}
	p.server = serve(t, p.handle)
	return p
}

func (p *proxyServer) handle(c *peer) {
	r, err := http.ReadRequest(c.br)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, strings.TrimSpace(r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization")))
	refuse := p.refuse
	p.mu.Unlock()
	if refuse != "" {
		if refuse == "hang" {
			c.hang()
		}
		c.say(refuse)
		return
	}
	up, err := net.Dial("tcp", p.to)
	if err != nil {
		c.say("HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer up.Close()
	c.say("HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		io.Copy(up, c.br)
		up.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, up)
}

func (p *proxyServer) answer(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = text
}

func throughProxy(t *testing.T, o Options, p *Proxy) *Client {
	o.Proxy, o.Allow = p, nil // the guard is closed: the proxy is dialled without it
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

func TestEveryConnectionGoesThroughTheProxy(t *testing.T) {
	ca := newAuthority(t)
	plain := serve(t, answering(ok200))
	secure := serveOn(t, "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", nil)}}, answering(ok200))
	for _, c := range []struct {
		url string
		to  *server
		ask string
	}{{"http://h.test/x", plain, "CONNECT h.test:80 Basic eA=="}, {"https://h.test:8443/x", secure, "CONNECT h.test:8443 Basic eA=="}} {
		p := newProxy(t, c.to.addr())
		sender := throughProxy(t, Options{RootCAs: ca.pool, Resolver: resolver(t, hosts(nil, nil)).Resolver}, &Proxy{p.addr(), "Basic eA=="})
		for range 2 {
			want(t, sender.Send(t.Context(), post(c.url)), engine.OK, 200, ReasonStatus)
		}
		if len(p.asked) != 1 || p.asked[0] != c.ask {
			t.Errorf("%s: asked %q, want %q once", c.url, p.asked, c.ask)
		}
		got := c.to.requests()
		if len(got) != 2 || got[0].target() != "/x" || got[0].get("Proxy-Authorization") != "" {
			t.Errorf("%s: the endpoint got %q", c.url, got)
		}
	}
}

// What the proxy says decides whose fault it is.
func TestAnswersOfTheProxy(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	sender := throughProxy(t, Options{ConnectTimeout: 100 * time.Millisecond}, &Proxy{Address: p.addr()})
	for _, c := range []struct {
		answer string
		kind   engine.ResultKind
		reason string
	}{
		{"HTTP/1.1 403 Forbidden\r\n\r\n", engine.NotSent, ReasonGuard},
		{"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", engine.NotSent, ReasonLocal},
		{"HTTP/1.1 429 Too Many Requests\r\n\r\n", engine.NotSent, ReasonLocal},
		{"HTTP/1.1 503 Service Unavailable\r\n\r\n", engine.NotSent, ReasonLocal},
		{"HTTP/1.1 502 Bad Gateway\r\n\r\n", engine.Failed, ReasonDial},
		{"HTTP/1.1 504 Gateway Timeout\r\n\r\n", engine.Failed, ReasonDial},
		{"nonsense\r\n\r\n", engine.NotSent, ReasonLocal},
		{"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", engine.Failed, ReasonDial}, // an answer that nobody asked for
		{"hang", engine.Failed, ReasonDial},
		{"", engine.Failed, ReasonDial}, // really cannot connect
	} {
		p.answer(c.answer)
		o := sender.Send(t.Context(), post("http://h.test/SECRETPATH"))
		want(t, o, c.kind, 0, c.reason)
		if o.Sent || strings.Contains(o.Detail, "SECRET") {
			t.Errorf("%q: %+v", c.answer, o)
		}
	}
	gone := throughProxy(t, Options{}, &Proxy{Address: closedPort(t)})
	want(t, gone.Send(t.Context(), post("http://h.test/")), engine.NotSent, 0, ReasonLocal)
	for _, literal := range []string{"http://169.254.169.254/", "http://[::1]/", "http://10.0.0.1/"} {
		want(t, sender.Send(t.Context(), post(literal)), engine.NotSent, 0, ReasonGuard)
	}
	for _, a := range p.asked {
		if a != "CONNECT h.test:80" {
			t.Errorf("asked for %q", a)
		}
	}
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
