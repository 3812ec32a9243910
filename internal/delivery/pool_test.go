package delivery

import (
	"fmt"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// closing counts how often it was closed.
type closing struct {
	net.Conn
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// The pool against a count of what is out and what is in: never more than the
// bounds, nothing handed out twice, nothing left open, nothing remembered.
func TestPoolKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxHost, maxIdle = 3, 2
		p := newPool(maxHost, maxIdle, 1000)
		now := noon
		out := map[endpoint][]*conn{}
		var all []*closing
		open := func(e endpoint) int { // by what was handed out and not closed
			n := 0
			for _, c := range all {
				if c.closed == 0 && c.RemoteAddr().String() == e.host {
					n++
				}
			}
			return n
		}
		pick := rapid.Custom(func(t *rapid.T) endpoint {
			return endpoint{host: fmt.Sprint("h", rapid.IntRange(0, 2).Draw(t, "host")), port: "80"}
		})
		take := func(cns []*conn) ([]*conn, *conn) { return cns[:len(cns)-1], cns[len(cns)-1] }
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				e := pick.Draw(t, "endpoint")
				before := open(e)
				cn, err := p.get(e)
				switch {
				case err != nil && before < maxHost:
					t.Fatalf("refused with %d open", before)
				case err == nil && cn == nil && before >= maxHost:
					t.Fatalf("%d open and one more allowed", before)
				case err == nil && cn == nil:
					c := &closing{Conn: fake{e.host}}
					all = append(all, c)
					cn = newConn(c, e)
				}
				if cn != nil {
					if cn.Conn.(*closing).closed > 0 || cn.endpoint != e {
						t.Fatalf("got a closed or foreign connection")
					}
					for _, other := range out[e] {
						if other == cn {
							t.Fatalf("handed out twice")
						}
					}
					out[e] = append(out[e], cn)
				}
			},
			"put": func(t *rapid.T) {
				e := pick.Draw(t, "endpoint")
				if len(out[e]) > 0 {
					var cn *conn
					out[e], cn = take(out[e])
					cn.expires = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "idle")) * time.Second)
					p.put(cn)
				}
			},
			"drop": func(t *rapid.T) {
				e := pick.Draw(t, "endpoint")
				if len(out[e]) > 0 {
					var cn *conn
					out[e], cn = take(out[e])
					p.drop(cn)
				}
			},
			"expire": func(t *rapid.T) {
				now = now.Add(time.Second)
				p.expire(now)
				for _, h := range p.hosts {
					for _, cn := range h.idle {
						if !cn.expires.After(now) {
							t.Fatalf("kept beyond its time")
						}
					}
				}
			},
			"": func(t *rapid.T) {
				idle := 0
				for e, h := range p.hosts {
					idle += len(h.idle)
					if h.open != len(h.idle)+len(out[e]) || h.open == 0 || h.open != open(e) {
						t.Fatalf("%s: open %d, idle %d, out %d, really open %d", e, h.open, len(h.idle), len(out[e]), open(e))
					}
				}
				if idle != p.idle || idle > maxIdle {
					t.Fatalf("%d idle, counted %d", idle, p.idle)
				}
			},
		})
		p.close()
		for _, cns := range out { // what comes back after Close is not kept
			for _, cn := range cns {
				p.put(cn)
			}
		}
		for _, c := range all {
			if c.closed != 1 {
				t.Fatalf("a connection was closed %d times", c.closed)
			}
		}
		if len(p.hosts) != 0 || p.idle != 0 {
			t.Fatalf("%d hosts, %d idle remembered", len(p.hosts), p.idle)
		}
	})
}

// fake is a connection to a named host and no more.
type fake struct{ host string }

func (f fake) RemoteAddr() net.Addr           { return &net.UnixAddr{Name: f.host} }
func (fake) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (fake) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (fake) Close() error                     { return nil }
func (fake) LocalAddr() net.Addr              { return nil }
func (fake) SetDeadline(time.Time) error      { return nil }
func (fake) SetReadDeadline(time.Time) error  { return nil }
func (fake) SetWriteDeadline(time.Time) error { return nil }
