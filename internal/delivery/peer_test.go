package delivery

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// seen is a request as it was on the wire.
type seen struct {
	line   string   // request line
	fields []string // "Name: value", in order
	body   []byte
}

// get returns the value of the one field of that exact name, "" if it is absent.
func (s *seen) get(name string) string {
	value, n := "", 0
	for _, f := range s.fields {
		if v, ok := strings.CutPrefix(f, name+": "); ok {
			value = v
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%d fields %s", n, name)
	}
	return value
}

func (s *seen) target() string {
	return strings.TrimSuffix(strings.TrimPrefix(s.line, "POST "), " HTTP/1.1")
}

// readHead reads a request line and fields, strictly.
func readHead(br *bufio.Reader) (s seen, length int, err error) {
	length = -1
	for first := true; ; first = false {
		l, err := br.ReadString('\n')
		if err != nil {
			return s, 0, err
		}
		l, ok := strings.CutSuffix(l, "\r\n")
		switch {
		case !ok:
			return s, 0, errors.New("bare line feed")
		case first:
			s.line = l
		case l == "":
			if length < 0 {
				return s, 0, errors.New("no Content-Length")
			}
			return s, length, nil
		default:
			s.fields = append(s.fields, l)
			if v, ok := strings.CutPrefix(l, "Content-Length: "); ok {
				if length, err = strconv.Atoi(v); err != nil {
					return s, 0, err
				}
			}
		}
	}
}

// peer is one accepted connection.
type peer struct {
	net.Conn
	br *bufio.Reader
	n  int // 0 for the first connection that the server accepted
	s  *server
}

// read reads one request and records it; ok is false at the connection's end.
func (p *peer) read() (seen, bool) {
	s, length, err := readHead(p.br)
	if err == nil {
		s.body = make([]byte, length)
		_, err = io.ReadFull(p.br, s.body)
	}
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			p.s.note(err)
		}
		return s, false
	}
	p.s.record(s)
	return s, true
}

func (p *peer) say(text string) { io.WriteString(p, text) }

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// server is an endpoint written by hand: what it says is said octet by octet.
type server struct {
	ln    net.Listener
	wg    sync.WaitGroup
	stop  chan struct{} // closed when the test ends
	mu    sync.Mutex
	conns []net.Conn
	seen  []seen
	notes []error
}

// serve runs handle for each connection, and closes the connection after it.
func serve(t testing.TB, handle func(p *peer)) *server {
	return serveOn(t, "127.0.0.1:0", nil, handle)
}

func serveOn(t testing.TB, addr string, cfg *tls.Config, handle func(p *peer)) *server {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln, stop: make(chan struct{})}
	s.wg.Go(func() { s.accept(cfg, handle) })
	t.Cleanup(s.close)
	return s
}

func (s *server) accept(cfg *tls.Config, handle func(p *peer)) {
	for n := 0; ; n++ {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		if cfg != nil {
			c = tls.Server(c, cfg)
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		p := &peer{Conn: c, br: newReader(c), n: n, s: s}
		s.wg.Go(func() {
			defer c.Close()
			handle(p)
		})
	}
}

func (s *server) close() {
	close(s.stop)
	s.ln.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *server) record(r seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r)
}

func (s *server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, err)
}

// requests returns what has arrived.
func (s *server) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.seen...)
}

// accepted returns how many connections there were.
func (s *server) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *server) addr() string { return s.ln.Addr().String() }

func (s *server) url(path string) string { return "http://" + s.addr() + path }

// answering says the same to every request on every connection.
func answering(text string) func(*peer) {
	return func(p *peer) {
		for {
			if _, ok := p.read(); !ok {
				return
			}
			p.say(text)
		}
	}
}

// hang waits until the test ends.
func (p *peer) hang() { <-p.s.stop }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

var secret = []byte("0123456789abcdefghijklmnopqrstuv")

// post is a request that a test changes where it must.
func post(url string) *Request {
	return &Request{
		ID: "msg_1", URL: url, ContentType: "application/json", Payload: []byte(`{"n":1}`),
		Secrets: [][]byte{secret}, Attempt: 1, Limit: -1,
	}
}

// senders runs a test with the Client and with the independent twin over
// net/http: what is promised of a Sender holds for both.
func senders(t *testing.T, test func(t *testing.T, open func(Options) Sender)) {
	for _, s := range []struct {
		name string
		open func(Options) Sender
	}{
		{"client", func(o Options) Sender { return New(o) }},
		{"nethttp", func(o Options) Sender { return newNetHTTP(o) }},
	} {
		t.Run(s.name, func(t *testing.T) {
			test(t, func(o Options) Sender {
				if o.Allow == nil {
					o.Allow = loopback
				}
				sender := s.open(o)
				t.Cleanup(func() {
					sender.Close()
					if c, ok := sender.(*Client); ok && (len(c.pool.hosts) != 0 || c.pool.idle != 0) {
						t.Errorf("after Close %d hosts and %d idle connections are left", len(c.pool.hosts), c.pool.idle)
					}
				})
				return sender
			})
		})
	}
}

func newReader(c net.Conn) *bufio.Reader { return bufio.NewReader(c) }
