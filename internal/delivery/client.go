package delivery

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Client is a Sender over HTTP/1.1. It writes the request itself, on the
// caller's goroutine, over its own pool of connections: a third of the CPU time
// of net/http (BenchmarkSenderVsBare), whose two goroutines for each connection
// hand every request over twice; the timestamp is taken when the connection
// stands; and nothing is left that could repeat a request.
//
// An attempt is: a connection (pooled and found quiet, or new and guarded),
// Start, the signature, one write, the answer's head, which decides, and as much
// of the body as the bounds allow. The connection is kept only if all of it was
// beyond doubt. HTTP/2 is not offered (ALPN names http/1.1 alone): its refused
// streams and GOAWAY would need repetitions of their own.
type Client struct {
	opt   Options
	dials *dialer
	dial  func(context.Context, endpoint) (net.Conn, error)
	pool  *pool
	agent string

	stop    chan struct{} // closed by Close
	sweeper sync.WaitGroup
}

var _ Sender = (*Client)(nil)

// New returns a Client that runs until Close.
func New(o Options) *Client {
	o = o.withDefaults()
	d := newDialer(&o)
	c := &Client{
		opt:   o,
		dials: d,
		dial:  d.dial,
		pool:  newPool(o.MaxConnsPerHost, o.MaxIdle, o.MaxConns),
		agent: "Fairlane/" + o.Version,
		stop:  make(chan struct{}),
	}
	c.sweeper.Go(c.sweep)
	return c
}

// Allow replaces Options.Allow. Requests in flight go on; what begins afterwards uses no connection that
// an earlier Allow let through.
func (c *Client) Allow(prefixes []netip.Prefix) {
	if slices.Equal(c.dials.guard.Load().Allow, prefixes) {
		return
	}
	c.dials.guard.Store(&Guard{Allow: prefixes, NAT64: c.opt.NAT64})
	c.pool.closeIdle()
}

// Close closes the idle connections and ends the Client.
func (c *Client) Close() {
	close(c.stop)
	c.sweeper.Wait()
	c.pool.close()
}

func (c *Client) sweep() {
	tick := time.NewTicker(max(c.opt.IdleTimeout/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			c.pool.expire(now)
		case <-c.stop:
			return
		}
	}
}

// Send makes one attempt.
func (c *Client) Send(ctx context.Context, r *Request) Outcome {
	t, err := parseTarget(r.URL)
	if err == nil {
		err = r.check(c.opt.Now().Unix())
	}
	if err != nil {
		return failure(&errStage{reason: ReasonConfig, detail: err.Error(), local: true}, false, false)
	}
	if r.Shape != nil && t.tls {
		t.cert = r.Shape.cert
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	deadline := time.Now().Add(timeout)
	cn, err := c.connect(ctx, t.endpoint, deadline)
	if err != nil {
		return failure(err, false, ctx.Err() != nil)
	}
	return c.attempt(ctx, cn, r, &t, deadline)
}

// connect returns a pooled connection that is still good, or a new one.
func (c *Client) connect(ctx context.Context, e endpoint, deadline time.Time) (*conn, error) {
	for {
		cn, err := c.pool.get(e)
		if errors.Is(err, errExhausted) && c.pool.closeIdle() > 0 {
			continue // idle ones make room
		}
		if err != nil {
			return nil, err
		}
		if cn == nil {
			break
		}
		cn.SetDeadline(deadline)
		if cn.guard == c.dials.guard.Load() && cn.quiet() {
			return cn, nil
		}
		c.pool.drop(cn)
	}
	dctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	guard := c.dials.guard.Load()
	nc, err := c.dial(dctx, e)
	if err != nil {
		c.pool.release(e)
		if errors.Is(err, errExhausted) {
			c.pool.closeIdle()
		}
		return nil, err
	}
	cn := newConn(nc, e)
	cn.guard = guard
	cn.SetDeadline(deadline)
	return cn, nil
}

// attempt sends r on cn and returns cn to the pool or closes it.
func (c *Client) attempt(ctx context.Context, cn *conn, r *Request, t *target, deadline time.Time) Outcome {
	unwatch := cn.watch(ctx)
	if ctx.Err() != nil || (r.Start != nil && !r.Start()) {
		c.give(cn, unwatch())
		return failure(nil, false, true)
	}
	cn.head = c.appendHead(cn.head[:0], r, t, c.opt.Now().Unix())
	begun := time.Now()
	var a answer
	sent, err := cn.exchange(r.Payload, &a)
	if err != nil {
		o := failure(err, sent, ctx.Err() != nil)
		unwatch()
		cn.abort()
		c.pool.drop(cn)
		return o
	}
	o := Outcome{Status: a.status, Sent: true, Took: time.Since(begun), Reason: ReasonStatus, Detail: a.detail()}
	o.Result = c.classify(&a, r)
	snippet, complete := a.body(cn.br, func() { cn.boundBody(ctx, deadline) })
	o.Snippet, o.Incomplete = mask(snippet, t.uri), !complete
	c.give(cn, unwatch() && complete && cn.reusable(&a))
	return o
}

func (c *Client) classify(a *answer, r *Request) engine.Result {
	wait, ok := RetryAfter(a.retryAfter, a.date, c.opt.Now())
	return Classify(a.status, wait, ok, r.Outcomes)
}

func (c *Client) give(cn *conn, keep bool) {
	if !keep {
		c.pool.drop(cn)
		return
	}
	cn.expires = time.Now().Add(cn.idleFor(c.opt.IdleTimeout))
	c.pool.put(cn)
}

// boundBody limits the reads of a body whose end is not at hand.
func (cn *conn) boundBody(ctx context.Context, deadline time.Time) {
	if end := time.Now().Add(bodyTime); end.Before(deadline) {
		cn.SetReadDeadline(end)
	}
	if ctx.Err() != nil { // it may have ended, and set its deadline, just before
		cn.SetDeadline(past)
	}
}

// mask takes the path and query out of a snippet: they may be a credential, and
// some endpoints repeat them.
func mask(snippet []byte, uri string) []byte {
	path, query, _ := strings.Cut(uri, "?")
	for _, secret := range []string{path, query} {
		if len(secret) >= 4 && bytes.Contains(snippet, []byte(secret)) {
			snippet = bytes.ReplaceAll(snippet, []byte(secret), []byte("..."))
		}
	}
	return snippet
}
