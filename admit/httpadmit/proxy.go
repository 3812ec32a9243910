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
// the caller gets 502, or 504 if the time for it was over (Settings.Timeout). A caller
// whose body breaks off gets 400, or 408 if it stalled.
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
			p := unanswered(err)
			if failed != nil && p.Status >= 500 {
				failed(r, err)
			}
			p.write(w, 0)
		},
	}
}

// unanswered says why a call ended without an answer.
func unanswered(err error) *Problem {
	var body *bodyError
	var network net.Error
	late := errors.As(err, &network) && network.Timeout()
	switch clients := errors.As(err, &body); {
	case clients && late:
		return newProblem(http.StatusRequestTimeout, "broken-body", "The rest of the request did not come in time")
	case clients:
		return newProblem(http.StatusBadRequest, "broken-body", "The rest of the request did not come, or is no body")
	case late:
		return newProblem(http.StatusGatewayTimeout, "timeout", "The service behind the gate did not answer in time")
	}
	return newProblem(http.StatusBadGateway, "no-answer", "The service behind the gate did not answer")
}
