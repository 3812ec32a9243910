package delivery

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/fairlane-dev/fairlane/engine"
)

// names is a resolver under the test's control.
type names struct {
	*net.Resolver
	mu     sync.Mutex
	answer func(name string, v6 bool) (dnsmessage.RCode, []string)
}

const silence = dnsmessage.RCode(0xfff) // no answer at all

func resolver(t testing.TB, answer func(name string, v6 bool) (dnsmessage.RCode, []string)) *names {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{answer: answer}
	n.Resolver = &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { n.serve(pc) })
	t.Cleanup(func() { pc.Close(); wg.Wait() })
	return n
}

func (n *names) set(answer func(name string, v6 bool) (dnsmessage.RCode, []string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

func (n *names) serve(pc net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		size, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) == 0 {
			continue
		}
		q := m.Questions[0]
		n.mu.Lock()
		code, addrs := n.answer(strings.TrimSuffix(q.Name.String(), "."), q.Type == dnsmessage.TypeAAAA)
		n.mu.Unlock()
		if code == silence {
			continue
		}
		out, err := reply(m.ID, q, code, addrs)
		if err == nil {
			pc.WriteTo(out, from)
		}
	}
}

func reply(id uint16, q dnsmessage.Question, code dnsmessage.RCode, addrs []string) ([]byte, error) {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true, RCode: code},
		Questions: []dnsmessage.Question{q},
	}
	for _, a := range addrs {
		ip := netip.MustParseAddr(a)
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		if ip.Is4() {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
		} else {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	return m.Pack()
}

// hosts answers every name with the v4 and v6 addresses given.
func hosts(v4, v6 []string) func(string, bool) (dnsmessage.RCode, []string) {
	return func(_ string, six bool) (dnsmessage.RCode, []string) {
		if six {
			return dnsmessage.RCodeSuccess, v6
		}
		return dnsmessage.RCodeSuccess, v4
	}
}

func fails(code dnsmessage.RCode) func(string, bool) (dnsmessage.RCode, []string) {
	return func(string, bool) (dnsmessage.RCode, []string) { return code, nil }
}

// insideAndOut is an endpoint on 127.0.0.2, which a test calls public, and a
// trap on the same port of 127.0.0.1, which it calls inside.
func insideAndOut(t *testing.T) (out, trap *server, port string) {
	out = serveOn(t, "127.0.0.2:0", nil, answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
	_, port, _ = net.SplitHostPort(out.addr())
	return out, serveOn(t, "127.0.0.1:"+port, nil, answering(ok200)), port
}

var outside = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}

// Field case 59.
func TestInsideAddressIsNeverDialled(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		out, trap, port := insideAndOut(t)
		dns := resolver(t, nil)
		sender := open(Options{Allow: outside, Resolver: dns.Resolver})
		send := func(answer func(string, bool) (dnsmessage.RCode, []string)) Outcome {
			dns.set(answer)
			return sender.Send(t.Context(), post("http://h.test:"+port+"/"))
		}
		want(t, send(hosts([]string{"127.0.0.2"}, nil)), engine.OK, 200, ReasonStatus)
		want(t, send(hosts([]string{"127.0.0.1", "127.0.0.2"}, nil)), engine.OK, 200, ReasonStatus)
		want(t, send(hosts([]string{"127.0.0.2", "127.0.0.1"}, nil)), engine.OK, 200, ReasonStatus)
		want(t, send(hosts([]string{"127.0.0.2"}, []string{"::1"})), engine.OK, 200, ReasonStatus)
		want(t, send(hosts([]string{"127.0.0.2"}, []string{"::ffff:127.0.0.1", "64:ff9b::7f00:1", "fe80::1"})), engine.OK, 200, ReasonStatus)
		// The same name, later: inside alone.
		for _, answer := range []func(string, bool) (dnsmessage.RCode, []string){
			hosts([]string{"127.0.0.1"}, nil),
			hosts([]string{"10.0.0.5", "169.254.169.254"}, []string{"::1", "fd00::1"}),
			hosts(nil, []string{"::1"}),
			hosts([]string{"0.0.0.0"}, []string{"::"}),
		} {
			o := send(answer)
			want(t, o, engine.NotSent, 0, ReasonGuard)
			if o.Detail != ErrRefused.Error() || o.Sent || o.Result.Refused {
				t.Errorf("the refusal tells more than it may: %+v", o)
			}
		}
		if n := len(out.requests()); n != 5 {
			t.Errorf("%d requests outside, want 5", n)
		}
		if n := trap.accepted(); n != 0 {
			t.Errorf("%d connections inside", n)
		}
	})
}

// A name with one address inside and one outside that is down is down, not refused.
func TestMixedNameThatCannotBeReachedIsAFailure(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		ln, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		for _, v4 := range [][]string{{"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "127.0.0.1"}} {
			dns := resolver(t, hosts(v4, nil))
			sender := open(Options{Allow: outside, Resolver: dns.Resolver})
			o := sender.Send(t.Context(), post("http://h.test:"+port+"/"))
			want(t, o, engine.Failed, 0, ReasonDial)
		}
	})
}

// Field case 60.
func TestLiteralInsideIsRefusedAtSendToo(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		sender := open(Options{Allow: outside})
		for _, host := range []string{"127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "0.0.0.0", "169.254.169.254", "[64:ff9b::a9fe:a9fe]"} {
			want(t, sender.Send(t.Context(), post("http://"+host+":9/")), engine.NotSent, 0, ReasonGuard)
		}
	})
}

// Field case 73.
func TestLookupFailuresAreFailedConnections(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		for _, c := range []struct {
			name   string
			answer func(string, bool) (dnsmessage.RCode, []string)
			detail string
		}{
			{"NXDOMAIN", fails(dnsmessage.RCodeNameError), "no such host"},
			{"no addresses", hosts(nil, nil), "no such host"},
			{"SERVFAIL", fails(dnsmessage.RCodeServerFailure), "lookup failed"},
			{"REFUSED", fails(dnsmessage.RCodeRefused), "lookup failed"},
			{"silence", fails(silence), "lookup timed out"},
		} {
			dns := resolver(t, c.answer)
			o := Options{Resolver: dns.Resolver}
			if c.name == "silence" {
				o.ConnectTimeout = 50 * time.Millisecond
			}
			sender := open(o)
			got := sender.Send(t.Context(), post("http://h.test/"))
			want(t, got, engine.Failed, 0, ReasonDNS)
			if got.Detail != c.detail || got.Sent {
				t.Errorf("%s: %q, want %q", c.name, got.Detail, c.detail)
			}
		}
	})
}

// Field case 73.
func TestLookupHasADeadlineOfItsOwn(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		returned := make(chan struct{})
		dns := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			<-returned
			return nil, syscall.ECONNREFUSED
		}}
		sender := open(Options{Resolver: dns, ConnectTimeout: 50 * time.Millisecond})
		r := post("http://h.test/")
		r.Timeout = time.Hour
		want(t, sender.Send(t.Context(), r), engine.Failed, 0, ReasonDNS)
		close(returned)
	})
}

// Field case 73.
// Field case 101.
func TestDeadResolverIsNoEndpointsFault(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		_, port, _ := net.SplitHostPort(s.addr())
		dns := resolver(t, fails(dnsmessage.RCodeServerFailure))
		sender := open(Options{Resolver: dns.Resolver})
		send := func(host string) Outcome { return sender.Send(t.Context(), post("http://"+host+":"+port+"/")) }
		for range 5 {
			want(t, send("a.test"), engine.Failed, 0, ReasonDNS) // one host alone is that host's fault
		}
		want(t, send("b.test"), engine.Failed, 0, ReasonDNS)
		want(t, send("c.test"), engine.NotSent, 0, ReasonLocal)
		want(t, send("a.test"), engine.NotSent, 0, ReasonLocal)
		dns.set(hosts([]string{"127.0.0.1"}, nil))
		want(t, send("d.test"), engine.OK, 200, ReasonStatus)
		dns.set(fails(dnsmessage.RCodeServerFailure))
		want(t, send("a.test"), engine.Failed, 0, ReasonDNS)
	})
}

func TestResolverHealthForgetsOldFailures(t *testing.T) {
	var h resolverHealth
	now := noon
	for _, host := range []string{"a", "b"} {
		if h.failed(host, now) {
			t.Fatalf("down at %s", host)
		}
	}
	if h.failed("c", now.Add(resolverWindow+1)) {
		t.Error("failures long ago were counted")
	}
	for i := range 1000 {
		h.failed(fmt.Sprint(i), now.Add(resolverWindow+1))
	}
	if len(h.failing) > resolverDown {
		t.Errorf("%d hosts remembered", len(h.failing))
	}
	h.answered()
	if h.failed("a", now.Add(resolverWindow+1)) {
		t.Error("an answer did not reset it")
	}
}

// Field case 72.
func TestExhaustionIsOurs(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		err := dialError(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}, true)
		if o := failure(err, false, false); o.Result.Kind != engine.NotSent || o.Reason != ReasonLocal {
			t.Errorf("%v: %+v", errno, o)
		}
	}
	for _, errno := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNRESET, syscall.ETIMEDOUT} {
		err := dialError(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}, true)
		if o := failure(err, false, false); o.Result.Kind != engine.Failed || o.Reason != ReasonDial {
			t.Errorf("%v: %+v", errno, o)
		}
	}
	looked := new(dialer).lookupError(t.Context(), &net.DNSError{Err: "dial udp 10.0.0.2:53: socket: too many open files"}, "h.test")
	if !looked.local || strings.Contains(looked.Error(), "10.0.0.2") {
		t.Errorf("lookup without a descriptor: %v", looked)
	}
}
