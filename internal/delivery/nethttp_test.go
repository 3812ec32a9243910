package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// netHTTP is the twin of Client over net/http: it shares only the guarded
// dialer, the signature and the table with it.
type netHTTP struct {
	opt Options
	tr  *http.Transport
}

func newNetHTTP(o Options) *netHTTP {
	o = o.withDefaults()
	d := newDialer(&o)
	dial := func(tls bool) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return d.dial(ctx, endpoint{tls: tls, host: host, port: port})
		}
	}
	return &netHTTP{o, &http.Transport{
		DialContext:            dial(false),
		DialTLSContext:         dial(true),
		DisableCompression:     true,
		MaxConnsPerHost:        o.MaxConnsPerHost,
		MaxIdleConns:           o.MaxIdle,
		MaxIdleConnsPerHost:    o.MaxIdle,
		IdleConnTimeout:        o.IdleTimeout,
		MaxResponseHeaderBytes: maxHead,
	}}
}

func (n *netHTTP) Close() { n.tr.CloseIdleConnections() }

func (n *netHTTP) Send(ctx context.Context, r *Request) Outcome {
	t, err := parseTarget(r.URL)
	if err == nil {
		err = r.check(n.opt.Now().Unix())
	}
	if err != nil {
		return failure(&errStage{reason: ReasonConfig, detail: err.Error(), local: true}, false, false)
	}
	if ctx.Err() != nil || r.Start != nil && !r.Start() {
		return failure(nil, false, true)
	}
	timeout := r.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	tctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	begun := time.Now()
	res, err := n.tr.RoundTrip(n.request(httptrace.WithClientTrace(tctx, trace), r, &t))
	if err != nil {
		return failure(n.stage(err, tctx), sent.Load(), ctx.Err() != nil)
	}
	defer res.Body.Close()
	return n.outcome(r, &t, res, time.Since(begun), cancel)
}

// request is built by hand: no GetBody, a body that is not http.NoBody, and the
// key under a name that net/http does not know, so that it repeats nothing.
func (n *netHTTP) request(ctx context.Context, r *Request, t *target) *http.Request {
	now := n.opt.Now().Unix()
	h := http.Header{
		"User-Agent":        {"Fairlane/" + n.opt.Version},
		"Accept-Encoding":   {"identity"},
		"webhook-id":        {r.ID},
		"webhook-timestamp": {strconv.FormatInt(now, 10)},
		"webhook-signature": {string(AppendSignature(nil, r.ID, now, r.Payload, r.Secrets))},
		"X-Attempt":         {strconv.Itoa(r.Attempt)},
		"Idempotency-Key":   {`"` + r.ID + `"`},
	}
	if r.ContentType != "" {
		h["Content-Type"] = []string{r.ContentType}
	}
	if r.Limit >= 0 {
		h["RateLimit-Limit"] = []string{strconv.FormatInt(r.Limit, 10)}
		h["RateLimit-Remaining"] = []string{strconv.FormatInt(r.Remaining, 10)}
	}
	u := &url.URL{Scheme: "http", Host: t.authority, Opaque: t.uri}
	if t.tls {
		u.Scheme = "https"
	}
	if strings.HasPrefix(t.uri, "//") { // Opaque would become absolute
		path, query, _ := strings.Cut(t.uri, "?")
		u.Opaque, u.Path, u.RawPath, u.RawQuery = "", path, path, query
	}
	req := &http.Request{Method: "POST", URL: u, Host: t.authority, Header: h, ProtoMajor: 1, ProtoMinor: 1}
	if len(r.Payload) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Payload)), int64(len(r.Payload))
	} else {
		req.Body = http.NoBody
		h["idempotency-key"] = h["Idempotency-Key"]
		delete(h, "Idempotency-Key")
	}
	return req.WithContext(ctx)
}

func (n *netHTTP) stage(err error, ctx context.Context) error {
	var stage *errStage
	switch {
	case errors.As(err, &stage):
		return stage
	case ctx.Err() != nil:
		return stageOf(context.DeadlineExceeded)
	case strings.Contains(err.Error(), "malformed"), strings.Contains(err.Error(), "exceeded"):
		return errNotHTTP
	}
	return stageOf(err)
}

func (n *netHTTP) outcome(r *Request, t *target, res *http.Response, took time.Duration, cancel func()) Outcome {
	wait, ok := RetryAfter(res.Header["Retry-After"], res.Header.Get("Date"), n.opt.Now())
	o := Outcome{
		Result: Classify(res.StatusCode, wait, ok, r.Outcomes),
		Status: res.StatusCode, Took: took, Sent: true, Reason: ReasonStatus,
	}
	if loc := HostKey(res.Header.Get("Location")); loc != "" && res.StatusCode/100 == 3 {
		o.Detail = "redirect to " + loc
	}
	timer := time.AfterFunc(bodyTime, cancel)
	defer timer.Stop()
	snippet := make([]byte, maxSnippet)
	got, err := fill(res.Body, snippet)
	if err == nil {
		_, err = io.CopyN(io.Discard, res.Body, maxDrain)
	}
	o.Snippet, o.Incomplete = mask(snippet[:got], t.uri), err != io.EOF
	return o
}
