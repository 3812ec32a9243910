package httpadmit

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlane-dev/fairlane/admit/identity"
)

// TenantHeader tells the protected service whose a request is. A caller's own is
// removed.
const TenantHeader = "Fairlane-Tenant"

// StatusHeader carries the answer's real status where the proxy understands only
// 401 and 403.
const StatusHeader = "Fairlane-Status"

// Check answers proxies that ask before they forward: 200 with Fairlane-Tenant and
// the limits' fields, or the refusal. It is for trusted proxies only
// (Settings.Proxies): others get 403 for any request, since what they say of a
// request's method and path decides what it costs. Slots are not taken: when the
// request ends is not known here.
//
// Traefik (ForwardAuth) sends X-Forwarded-Method, X-Forwarded-Uri and
// X-Forwarded-Host. nginx (auth_request) sends what it is told to: X-Original-Method and
// X-Original-URI; it takes every status but 2xx, 401 and 403 for a failure, so
// with ?nginx every refusal but 401 is 403, and Fairlane-Status says what it is.
func (d *Door) Check() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := d.settings.Load()
		v := d.visit(s)
		defer d.visits.Put(v)
		v.route = "check"
		if p := v.check(r); p != nil {
			v.refuseCheck(w, p, r.URL.RawQuery == "nginx")
			return
		}
		s.Answers.limits(w.Header(), &v.verdict)
		w.Header().Set(TenantHeader, v.id.Tenant)
		w.Header().Set("Cache-Control", "no-store")
		d.figures.admitted(v, 0)
		w.WriteHeader(http.StatusOK)
	})
}

func (v *visit) check(r *http.Request) *Problem {
	if !v.s.Proxies.Trusts(peer(r)) {
		return newProblem(http.StatusForbidden, "untrusted-proxy", "Only the configured proxies may ask")
	}
	method, uri := said(r, "X-Forwarded-Method", "X-Original-Method"), said(r, "X-Forwarded-Uri", "X-Original-URI")
	u, err := url.ParseRequestURI(uri)
	if method == "" || err != nil {
		return newProblem(http.StatusBadRequest, "bad-request", "The proxy must say method and URI of the request")
	}
	ambiguous := v.named(method, u.EscapedPath())
	if path, _, _ := strings.Cut(uri, "?"); strings.Contains(path, "#") { // the proxy hands it on: many services leave out what follows
		ambiguous = problemPath()
	}
	v.address = v.s.Proxies.Client(peer(r), r.Header.Values("X-Forwarded-For"))
	if host := r.Header.Get("X-Forwarded-Host"); host != "" {
		r = r.Clone(r.Context())
		r.Host = host
	}
	v.door.figures.arrived(v.route, r.Header.Get("X-Attempt"))
	if ambiguous != nil {
		return ambiguous
	}
	if p := v.identify(r); p != nil {
		return p
	}
	if p := v.rates(r.Context()); p != nil {
		return p
	}
	if v.tier.Share == 0 && v.s.Slots.Slots > 0 {
		v.refund(r.Context())
		return problemSlots(ErrSuspended, v.tier, 0)
	}
	return nil
}

func (v *visit) refuseCheck(w http.ResponseWriter, p *Problem, nginx bool) {
	w.Header().Set(StatusHeader, integer(int64(p.Status)))
	if nginx && p.Status != http.StatusUnauthorized {
		p.Status = http.StatusForbidden
	}
	v.refuse(w, p)
}

// said returns what a request says in one header or the other. If they differ it is
// nothing: one of them is the caller's, which the proxy handed on.
func said(r *http.Request, name, other string) string {
	a, b := r.Header.Get(name), r.Header.Get(other)
	if a != "" && b != "" && a != b {
		return ""
	}
	return cmp.Or(a, b)
}

// forward sets what the protected service is told of a request. A caller's own name for it goes in every spelling: to
// services that read headers as CGI names them, Fairlane_Tenant is the same header.
func forward(h http.Header, id identity.Identity) {
	h.Del(TenantHeader)
	for name := range h {
		if dashes := strings.Map(dashed, name); dashes != name && slices.Contains(told, http.CanonicalHeaderKey(dashes)) {
			delete(h, name)
		}
	}
	if id.Tenant != "" {
		h.Set(TenantHeader, id.Tenant)
	}
}

// dashed puts a dash for what CGI names have an underscore for.
func dashed(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
		return r
	}
	return '-'
}

var told = []string{TenantHeader, "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}
