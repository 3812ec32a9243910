package delivery

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	joinPayload = 4 << 10  // up to here head and payload are copied into one write
	bigPayload  = 16 << 10 // above it the answer is read while the payload is written

	// keepMargin is how long before the end of the server's own idle timeout,
	// where it names one, a connection is given up.
	keepMargin = time.Second
)

// conn is one connection. It belongs to one attempt or to the pool, never both.
type conn struct {
	net.Conn
	endpoint endpoint
	under    net.Conn        // what carries TLS, else Conn itself
	raw      syscall.RawConn // nil if there is no descriptor
	br       *bufio.Reader
	head     []byte // of the request; its memory is kept for the next
	vec      [2][]byte
	hint     time.Duration // the server's idle timeout, 0 if it named none
	expires  time.Time     // when idle
	guard    *Guard        // that was in force before it was dialled

	probe    func(fd uintptr) bool
	probeErr error
}

func newConn(nc net.Conn, e endpoint) *conn {
	cn := &conn{Conn: nc, endpoint: e, under: nc, br: bufio.NewReaderSize(nc, 4<<10)}
	if t, ok := nc.(*tls.Conn); ok {
		cn.under = t.NetConn()
	}
	if sc, ok := cn.under.(syscall.Conn); ok {
		cn.raw, _ = sc.SyscallConn()
	}
	cn.probe = func(fd uintptr) bool {
		cn.probeErr = probe(fd)
		return true
	}
	return cn
}

// quiet reports whether an idle connection is open and nothing came over it
// since the last answer. Whatever did come (the end, an alert, a 408 or a 200
// that nobody asked for) must not be taken for the next answer.
func (cn *conn) quiet() bool {
	if cn.raw == nil {
		return true
	}
	return cn.raw.Read(cn.probe) == nil && cn.probeErr == nil
}

// abort closes without a word: TLS would wait up to 5 s for an endpoint that
// reads nothing to take its closing alert.
func (cn *conn) abort() { cn.under.Close() }

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// watch ends the reads and writes of cn when ctx ends. The function that it
// returns ends the watch; false means that cn is spoilt.
func (cn *conn) watch(ctx context.Context) (unwatch func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { cn.SetDeadline(past) })
}

// exchange writes head and payload and reads the head of the answer. sent
// reports whether any byte may have left.
func (cn *conn) exchange(payload []byte, a *answer) (sent bool, err error) {
	if len(payload) > bigPayload {
		return true, cn.exchangeBig(payload, a)
	}
	n, werr := cn.write(payload)
	// An endpoint may have answered and closed before it read everything.
	rerr := a.read(cn.br)
	if werr == nil || rerr == nil {
		a.spoilt = a.spoilt || werr != nil
		return true, rerr
	}
	return n > 0 || cn.endpoint.tls, stageOf(werr)
}

// exchangeBig reads while it writes: an endpoint that answers without reading
// would otherwise leave both sides waiting. After a 2xx the rest is still
// written, after anything else it is not.
func (cn *conn) exchangeBig(payload []byte, a *answer) error {
	written := make(chan error, 1)
	go func() {
		_, err := cn.write(payload)
		written <- err
	}()
	err := a.read(cn.br)
	if err != nil || a.status > 299 {
		select {
		case werr := <-written:
			a.spoilt = a.spoilt || werr != nil
			return err
		default:
			cn.SetWriteDeadline(past)
		}
	}
	if <-written != nil {
		a.spoilt = true
	}
	return err
}

// write sends head and payload, a small payload in one piece with the head.
func (cn *conn) write(payload []byte) (int, error) {
	if len(payload) <= joinPayload {
		cn.head = append(cn.head, payload...)
		return cn.Conn.Write(cn.head)
	}
	cn.vec = [2][]byte{cn.head, payload}
	bufs := net.Buffers(cn.vec[:])
	n, err := bufs.WriteTo(cn.Conn)
	cn.vec = [2][]byte{}
	return int(n), err
}

// reusable reports whether cn may carry another request, its answer's body
// having been read to the end.
func (cn *conn) reusable(a *answer) bool {
	if a.idle > 0 {
		cn.hint = a.idle
	}
	return !a.spoilt && cn.br.Buffered() == 0 && (cn.hint == 0 || cn.hint > keepMargin)
}

// idleFor returns how long cn may stay unused.
func (cn *conn) idleFor(limit time.Duration) time.Duration {
	if cn.hint > 0 {
		return min(limit, cn.hint-keepMargin)
	}
	return limit
}

// stageOf names what went wrong between the first byte and the answer.
func stageOf(err error) *errStage {
	if os.IsTimeout(err) {
		return &errStage{reason: ReasonTimeout, detail: "no answer in time"}
	}
	if e := new(net.OpError); errors.As(err, &e) && e.Op == "remote error" { // an alert, behind the handshake
		return &errStage{reason: ReasonTLS, detail: alertDetail(e)}
	}
	return &errStage{reason: ReasonReset, detail: "connection closed without an answer"}
}
