package delivery

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Proxy is an HTTP proxy that makes the connections (CONNECT, for http and https alike).
//
// The name of an endpoint is then resolved by the proxy, so the Guard judges literal addresses alone:
// that names lead nowhere inside is the proxy's duty. It must resolve, judge the addresses that it
// connects to, and answer 403 to what it refuses. It is dialled without the Guard.
type Proxy struct {
	Address       string // host:port
	Authorization string // value of Proxy-Authorization; "" sends none
}

// tunnel returns a connection to e through the proxy.
func (d *dialer) tunnel(ctx context.Context, e endpoint) (net.Conn, error) {
	if a, err := netip.ParseAddr(e.host); err == nil && !d.guard.Load().Allowed(a) {
		return nil, &errStage{reason: ReasonGuard, detail: ErrRefused.Error(), local: true}
	}
	ctx, cancel := context.WithTimeout(ctx, d.connect)
	defer cancel()
	plain := net.Dialer{Resolver: d.net.Resolver}
	c, err := plain.DialContext(ctx, "tcp", d.proxy.Address)
	if err != nil {
		return nil, ourProxy(err)
	}
	if err := d.proxy.ask(ctx, c, e); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func ourProxy(err error) *errStage {
	if exhausted(err) {
		return errExhausted
	}
	return &errStage{reason: ReasonLocal, detail: "the egress proxy does not answer", local: true}
}

// ask sends CONNECT and reads the answer; afterwards c is the endpoint's.
func (p *Proxy) ask(ctx context.Context, c net.Conn, e endpoint) error {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(past) })
	defer stop()
	b := fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: %s", e.address(), e.address())
	if p.Authorization != "" {
		b = appendField(b, "Proxy-Authorization", p.Authorization)
	}
	if _, err := c.Write(append(b, "\r\n\r\n"...)); err != nil {
		return ourProxy(err)
	}
	br := bufio.NewReaderSize(c, 4<<10)
	var a answer
	if err := a.read(br); err != nil {
		return proxyError(ctx, err)
	}
	if err := proxyVerdict(a.status); err != nil {
		return err
	}
	if br.Buffered() > 0 || !stop() {
		return &errStage{reason: ReasonDial, detail: "the endpoint spoke first, or the time is up"}
	}
	return nil
}

// proxyError: a proxy that took the request and is still trying when the time is up has found an
// endpoint that does not connect.
func proxyError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &errStage{reason: ReasonDial, detail: "connect through the egress proxy timed out"}
	}
	return ourProxy(err)
}

func proxyVerdict(status int) error {
	switch {
	case 200 <= status && status <= 299:
		return nil
	case status == 403:
		return &errStage{reason: ReasonGuard, detail: "refused by the egress proxy", local: true}
	case status == 502 || status == 504:
		return &errStage{reason: ReasonDial, detail: fmt.Sprintf("the egress proxy could not connect (%d)", status)}
	}
	return &errStage{reason: ReasonLocal, detail: fmt.Sprintf("the egress proxy answered %d", status), local: true}
}
