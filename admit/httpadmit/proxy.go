package httpadmit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/fairlane-dev/fairlane/admit/identity"
)

// Proxy returns a handler that forwards to a service, with the tenant in
// Fairlane-Tenant and without whatever the caller said there, in any spelling that a
// service may take for it. Path and query are as they came. X-Forwarded-For is what
// trusted proxies said and the peer's address; of others only the peer's.
// X-Forwarded-Proto is a trusted proxy's, if it says so, else the connection's.
// failed, which may be nil, is told of requests that the service did not answer;
// the caller gets 502, 504 if the time for it was over (Settings.Timeout), or nothing
// if it has gone.
func (d *Door) Proxy(to *url.URL, transport http.RoundTripper, failed func(*http.Request, error)) http.Handler {
	return &httputil.ReverseProxy{
		Transport: prompt{transport, d},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // the gate decides nothing by it
			trusted := d.settings.Load().Proxies.Trusts(peer(r.In))
			if trusted {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			}
			r.SetXForwarded()
			if proto := r.In.Header["X-Forwarded-Proto"]; trusted && len(proto) > 0 {
				r.Out.Header["X-Forwarded-Proto"] = proto
			}
			id, _ := identity.From(r.In.Context())
			forward(r.Out.Header, id)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, context.Canceled) {
				w.WriteHeader(statusGone)
				return
			}
			if failed != nil {
				failed(r, err)
			}
			p := newProblem(http.StatusBadGateway, "no-answer", "The service behind the gate did not answer")
			if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
				p = newProblem(http.StatusGatewayTimeout, "timeout", "The service behind the gate did not answer in time")
			}
			p.write(w, 0)
		},
	}
}
