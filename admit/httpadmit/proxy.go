package httpadmit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/fairlane-dev/fairlane/admit/identity"
)

// Proxy returns a handler that forwards to a service, with the tenant in
// Fairlane-Tenant and without whatever the caller said there. X-Forwarded-For is
// what trusted proxies said and the peer's address; of others only the peer's.
// failed, which may be nil, is told of requests that the service did not answer;
// the caller gets 502, or nothing if it has gone.
func (d *Door) Proxy(to *url.URL, transport http.RoundTripper, failed func(*http.Request, error)) http.Handler {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			if d.settings.Load().Proxies.Trusts(peer(r.In)) {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			}
			r.SetXForwarded()
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
			newProblem(http.StatusBadGateway, "no-answer", "The service behind the gate did not answer").write(w, 0)
		},
	}
}
