package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dialer makes guarded connections. Its errors are *errStage.
type dialer struct {
	guard   atomic.Pointer[Guard]
	proxy   *Proxy
	net     net.Dialer // Resolver, and ControlContext is the guard's
	tls     *tls.Config
	connect time.Duration // for name lookup and connect together
	shake   time.Duration
	names   resolverHealth
}

func newDialer(o *Options) *dialer {
	d := &dialer{
		proxy: o.Proxy,
		net:   net.Dialer{Resolver: o.Resolver},
		tls: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            o.RootCAs,
			NextProtos:         []string{"http/1.1"},
			ClientSessionCache: tls.NewLRUClientSessionCache(sessionCache),
		},
		connect: o.ConnectTimeout,
		shake:   o.HandshakeTimeout,
	}
	d.guard.Store(&Guard{Allow: o.Allow, NAT64: o.NAT64})
	d.net.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		return d.guard.Load().control(ctx, network, address, c)
	}
	if own := o.ClientCertificate; own != nil {
		d.tls.ClientSessionCache = nil
		d.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own(), nil }
	}
	return d
}

// sessionCache is how many endpoints' TLS sessions are kept for resumption.
const sessionCache = 4096

// tried remembers whether the guard let any address of a name pass: a name with
// public and other addresses that fails has failed to connect.
type tried struct{ allowed atomic.Bool }

type triedKey struct{}

// dial returns a connection to e, with the TLS handshake done where e asks for it.
func (d *dialer) dial(ctx context.Context, e endpoint) (net.Conn, error) {
	raw, err := d.dialTCP(ctx, e)
	if err != nil || !e.tls {
		return raw, err
	}
	return d.secure(ctx, raw, e)
}

func (d *dialer) dialTCP(ctx context.Context, e endpoint) (net.Conn, error) {
	if d.proxy != nil {
		return d.tunnel(ctx, e)
	}
	var t tried
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, triedKey{}, &t), d.connect)
	defer cancel()
	c, err := d.net.DialContext(ctx, "tcp", e.address())
	if err == nil {
		d.names.answered()
		return c, nil
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return nil, d.lookupError(ctx, dns, e.host)
	}
	d.names.answered()
	return nil, dialError(err, t.allowed.Load())
}

func (d *dialer) secure(ctx context.Context, raw net.Conn, e endpoint) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.shake)
	defer cancel()
	cfg := d.tls.Clone()
	if e.cert != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return e.cert, nil }
		cfg.ClientSessionCache = nil // a resumed session carries the identity that it began with
	}
	cfg.ServerName = e.host // left out of the handshake for address literals (RFC 6066 3)
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, tlsError(err)
	}
	return c, nil
}

func dialError(err error, allowed bool) *errStage {
	switch {
	case errors.Is(err, ErrRefused) && !allowed:
		return &errStage{reason: ReasonGuard, detail: ErrRefused.Error(), local: true}
	case exhausted(err):
		return errExhausted
	case errors.Is(err, syscall.ECONNREFUSED):
		return &errStage{reason: ReasonDial, detail: "connection refused", refused: true}
	case timedOut(err):
		return &errStage{reason: ReasonDial, detail: "connect timed out"}
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return &errStage{reason: ReasonDial, detail: "no route to host"}
	}
	return &errStage{reason: ReasonDial, detail: "connect failed"}
}

var errExhausted = &errStage{reason: ReasonLocal, detail: "out of descriptors, ports or memory", local: true}

// exhausted reports whether this machine, not the endpoint, is the cause.
func exhausted(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// lookupError tells "does not exist" from "cannot say". When lookups of several
// hosts fail in a row with no answer between them, the resolver is the one that
// is down, which is no fault of an endpoint.
func (d *dialer) lookupError(ctx context.Context, err *net.DNSError, host string) *errStage {
	// A DNSError keeps the text of a local error only.
	if strings.Contains(err.Err, syscall.EMFILE.Error()) || strings.Contains(err.Err, syscall.ENFILE.Error()) {
		return errExhausted
	}
	if err.IsNotFound {
		d.names.answered()
		return &errStage{reason: ReasonDNS, detail: "no such host"}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return &errStage{reason: ReasonDNS, detail: "lookup cancelled"}
	}
	if d.names.failed(host, time.Now()) {
		return &errStage{reason: ReasonLocal, detail: "name resolver does not answer", local: true}
	}
	if err.IsTimeout {
		return &errStage{reason: ReasonDNS, detail: "lookup timed out"}
	}
	return &errStage{reason: ReasonDNS, detail: "lookup failed"}
}

// resolverHealth counts the hosts whose lookup could not be answered since the
// last lookup that was. The zero value is healthy. Safe for concurrent use.
type resolverHealth struct {
	dirty atomic.Bool // something in failing
	mu    sync.Mutex
	// failing holds at most resolverDown hosts and when they failed last.
	failing map[string]time.Time
}

const (
	resolverDown   = 3                // hosts that fail together
	resolverWindow = 30 * time.Second // how long "together" is
)

func (h *resolverHealth) answered() {
	if !h.dirty.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.failing)
	h.dirty.Store(false)
}

// failed records a failure and reports whether the resolver is down.
func (h *resolverHealth) failed(host string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing == nil {
		h.failing = make(map[string]time.Time, resolverDown)
	}
	for name, at := range h.failing {
		if now.Sub(at) > resolverWindow {
			delete(h.failing, name)
		}
	}
	if _, known := h.failing[host]; known || len(h.failing) < resolverDown {
		h.failing[host] = now
	}
	h.dirty.Store(true)
	return len(h.failing) >= resolverDown
}

// tlsError names the verdict on a certificate, so that its owner can act.
func tlsError(err error) *errStage {
	var (
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		remote  *net.OpError
	)
	detail := "handshake failed"
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		detail = fmt.Sprintf("certificate valid only from %s to %s",
			invalid.Cert.NotBefore.UTC().Format(time.DateOnly), invalid.Cert.NotAfter.UTC().Format(time.DateOnly))
	case errors.As(err, &invalid):
		detail = "certificate invalid"
	case errors.As(err, &name):
		detail = "certificate is for another name: " + namesOf(name.Certificate)
	case errors.As(err, &unknown):
		detail = "certificate of an unknown authority"
	case errors.As(err, &record):
		detail = "answer is not TLS"
	case timedOut(err):
		detail = "handshake timed out"
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert
		detail = alertDetail(remote)
	}
	// A verdict on a certificate stays until somebody acts; a broken handshake may not.
	verdict := errors.As(err, &invalid) || errors.As(err, &name) || errors.As(err, &unknown)
	return &errStage{reason: ReasonTLS, detail: detail, slow: verdict}
}

func alertDetail(e *net.OpError) string {
	return "refused: " + clip(strings.TrimPrefix(e.Err.Error(), "tls: "), 100)
}

func namesOf(c *x509.Certificate) string {
	const most = 4
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return clip(strings.Join(names, " "), 200)
}

// clip bounds a text that others chose, and leaves only visible ASCII in it.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
