package httpadmit

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// writer follows a response: its status, and whether its connection was taken
// over. A client that does not read is cut after stall without progress.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration // 0: never
	extend  time.Time     // the deadline is moved again after this
	limits  http.Header   // are told with the status
	status  int
	done    func() // gives the slot back, once
	body    *body  // nil: none, or no stall
	taken   bool   // hijacked: done is called when the connection is closed
}

func newWriter(w http.ResponseWriter, stall time.Duration, done func()) *writer {
	return &writer{ResponseWriter: w, control: http.NewResponseController(w), stall: stall, done: sync.OnceFunc(done)}
}

// Unwrap lets http.ResponseController through.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		maps.Copy(w.Header(), w.limits) // the service may have its own, and a proxy clears what was there before a 1xx
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.push()
	return w.ResponseWriter.Write(b)
}

// push gives the next write its time. Before it the server may wait for what is left
// of the request's body, which has its own. A writer without deadlines (in tests) has
// all the time it wants.
func (w *writer) push() {
	now := time.Now()
	if w.stall == 0 || !now.After(w.extend) {
		return
	}
	until := now.Add(w.stall)
	if w.body != nil && w.body.push() {
		until = until.Add(w.stall)
	}
	w.control.SetWriteDeadline(until) //nolint:errcheck // not every writer has one
	w.extend = now.Add(w.stall / 8)
}

// Flush sends what is buffered.
func (w *writer) Flush() { w.FlushError() } //nolint:errcheck // as http.Flusher

// FlushError sends what is buffered.
func (w *writer) FlushError() error {
	w.push()
	return w.control.Flush()
}

// Hijack takes the connection over. The slot is held until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := w.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.taken = true
	if w.body != nil {
		w.body.end(time.Time{})
	}
	if w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return &heldConn{Conn: conn, done: w.done}, buffer, nil
}

// end is called when the handler has returned, or panicked.
func (w *writer) end() {
	if !w.taken {
		w.done()
		if w.body != nil {
			w.body.end(time.Now().Add(w.stall))
		}
	}
	if w.stall > 0 && !w.taken && !w.extend.IsZero() {
		w.control.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection's next request begins anew
	}
}

// body follows a request's body: a client that sends nothing for stall is cut.
// Until all of the body is there the connection has a deadline, also for what the
// server reads of it by itself: before it sends an answer, and at the end.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration

	mu    sync.Mutex // a transport may still read when the handler has returned
	ended bool       // the deadline is no longer the body's
}

// Read moves the deadline along. It ends with the body: the server then watches
// the connection for the client's going, for as long as the answer takes.
func (b *body) Read(p []byte) (int, error) {
	b.push()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // a Reader's end is this itself
		b.end(time.Time{})
	}
	return n, err
}

// push gives the client its time anew, and reports whether some of the body is still to come.
func (b *body) push() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.control.SetReadDeadline(time.Now().Add(b.stall)) //nolint:errcheck // not every reader has one
	}
	return !b.ended
}

// end sets the last deadline.
func (b *body) end(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		b.control.SetReadDeadline(t) //nolint:errcheck // as above
	}
}

// Close may read what is left.
func (b *body) Close() error {
	b.push()
	err := b.ReadCloser.Close()
	b.end(time.Time{})
	return err
}

// heldConn gives its slot back when it is closed.
type heldConn struct {
	net.Conn
	done func()
}

func (c *heldConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}

// CloseWrite lets a proxy close one direction.
func (c *heldConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
