package receiver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// MaxBody is the most bytes of a request that a receiver reads.
const MaxBody = 32 << 20

// Config of a Receiver; the zero value is one that answers 200 at once.
type Config struct {
	Listen    string    // address; "" is a free port on 127.0.0.1
	Behaviour Behaviour // nil is OK(0)

	// StampField names a field of a JSON payload (its first of that name) that holds the
	// instant of the trigger's post, in Unix nanoseconds by the wall clock of this machine:
	// for generators that live in another process. "" when Posted is called instead.
	StampField string

	// Seen, when not nil, is told of every request before it is answered, by many
	// goroutines at once.
	Seen func(*Request)

	// NoBook keeps no account, so that memory stays flat however long it runs.
	NoBook bool
}

// Request is one request as it came, and the answer it will get.
type Request struct {
	N      int           // from 1, in order of arrival
	At     time.Duration // since the receiver's start
	Header http.Header
	Body   []byte // at most MaxBody
	Reply  Reply
}

// Receiver is one endpoint. Its methods are safe for concurrent use.
type Receiver struct {
	config   Config
	book     Book
	origin   time.Time
	listener net.Listener
	server   *http.Server
	served   sync.WaitGroup // the listener and every request

	mu     sync.Mutex // held while the behaviour decides
	n      int
	closed bool
}

// Start listens and serves until Close.
func Start(c Config) (*Receiver, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Behaviour == nil {
		c.Behaviour = OK(0)
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	r := &Receiver{config: c, listener: listener, origin: time.Now()}
	r.server = &http.Server{
		Handler:           r,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that leave are this endpoint's business
	}
	r.served.Go(func() { _ = r.server.Serve(listener) })
	return r, nil
}

// URL is the endpoint's address, with the path "/".
func (r *Receiver) URL() string { return "http://" + r.listener.Addr().String() + "/" }

// Elapsed returns the time since the receiver's start.
func (r *Receiver) Elapsed() time.Duration { return time.Since(r.origin) }

// Become changes the behaviour for the requests that arrive from now on. Requests in
// flight keep the answer they were given; numbers and instants go on.
func (r *Receiver) Become(b Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.Behaviour = b
}

// Posted says when the trigger that is delivered as id was posted.
func (r *Receiver) Posted(id string, at time.Time) { r.book.Posted(id, at.Sub(r.origin)) }

// Tally returns the counts so far.
func (r *Receiver) Tally() Tally { return r.book.Tally() }

// Latencies returns the latencies so far, ascending.
func (r *Receiver) Latencies() []time.Duration { return r.book.Latencies() }

// Report returns the account so far against what the sender promised.
func (r *Receiver) Report(c Contract) Report { return r.book.Report(c) }

// Close stops listening, drops every connection and returns when no request is left.
// The account stays readable. A second Close does nothing.
func (r *Receiver) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	err := r.server.Close() // ends the context of every request
	r.served.Wait()
	return err
}

// ServeHTTP takes one request, decides its answer and carries it out.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	q := &Request{Header: req.Header}
	if !r.arrive(q) {
		panic(http.ErrAbortHandler)
	}
	defer r.served.Done()
	a := &answer{receiver: r, w: w, req: req, reply: q.Reply}
	id := req.Header.Get("webhook-id")
	if !r.config.NoBook {
		a.entry = r.book.Begin(id, q.At)
	}
	body, err := r.read(req)
	if err != nil {
		a.end(0)
		panic(http.ErrAbortHandler) // the client left, or sent too much
	}
	q.Body = body
	if posted, ok := r.stamp(body); ok {
		r.Posted(id, posted)
	}
	if r.config.Seen != nil {
		r.config.Seen(q)
	}
	a.carryOut()
}

// arrive numbers the request and decides its answer, both in order of arrival. It
// reports whether the receiver is open; then the caller owes served.Done.
func (r *Receiver) arrive(q *Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.served.Add(1)
	r.n++
	q.N, q.At = r.n, r.Elapsed()
	q.Reply = r.config.Behaviour(q.N, q.At)
	return true
}

// read reads the body to its end: only then does the server notice a client that
// leaves. The bytes are kept only if somebody looks at them.
func (r *Receiver) read(req *http.Request) ([]byte, error) {
	body := io.LimitReader(req.Body, MaxBody+1)
	if r.config.Seen == nil && r.config.StampField == "" {
		n, err := io.Copy(io.Discard, body)
		return nil, errors.Join(err, tooLong(n))
	}
	all, err := io.ReadAll(body)
	return all, errors.Join(err, tooLong(int64(len(all))))
}

func tooLong(n int64) error {
	if n > MaxBody {
		return fmt.Errorf("receiver: body above %d bytes", MaxBody)
	}
	return nil
}

// stamp returns the instant that the payload's field holds. It looks for the field's
// name and a colon rather than parse the payload, so that receivers cost little.
func (r *Receiver) stamp(body []byte) (time.Time, bool) {
	if r.config.StampField == "" {
		return time.Time{}, false
	}
	_, rest, ok := bytes.Cut(body, []byte(strconv.Quote(r.config.StampField)+":"))
	if !ok {
		return time.Time{}, false
	}
	rest = bytes.TrimLeft(rest, " ")
	end := bytes.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(rest)
	}
	ns, err := strconv.ParseInt(string(rest[:end]), 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	return time.Unix(0, ns), true
}
