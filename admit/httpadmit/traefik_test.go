package httpadmit

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
)

// traefikAsks makes of a caller's request the one with which Traefik's ForwardAuth asks (version 3.7, with
// trustForwardHeader false): a GET without body, with the caller's header fields but for those of the hop and
// X-Forwarded-*, which say what Traefik itself saw.
func traefikAsks(caller *http.Request) *http.Request {
	ask := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8081/check", nil)
	ask.RemoteAddr = "10.0.0.9:40000" // Traefik
	for name, values := range caller.Header {
		if !strings.HasPrefix(name, "X-Forwarded-") {
			ask.Header[name] = values
		}
	}
	for _, hop := range []string{"Connection", "Keep-Alive", "Te", "Trailers", "Transfer-Encoding", "Upgrade"} {
		ask.Header.Del(hop)
	}
	for name, value := range map[string]string{
		"For": "203.0.113.7", "Method": caller.Method, "Proto": "http", "Port": "80", "Host": caller.Host, "Uri": caller.URL.RequestURI(),
	} {
		ask.Header.Set("X-Forwarded-"+name, value)
	}
	return ask
}

// What Traefik says decides route, cost, tenant and address; what the caller says of them does not.
func TestCheckUnderstandsTraefik(t *testing.T) {
	const host = "http://a.api.example.com"
	for name, row := range map[string]struct {
		method, url string
		header      http.Header
		status      int
		left        string // of ten
	}{
		"a plain request":      {"GET", host + "/", nil, 200, "9"},
		"a route's cost":       {"POST", host + "/reports/1?x=1", nil, 200, "5"},
		"an encoded path":      {"POST", host + "/%72eports/1", nil, 200, "5"},
		"another method":       {"GET", host + "/reports/1", nil, 200, "9"},
		"a method of its own":  {"PURGE", host + "/", nil, 200, "9"},
		"upgrade":              {"GET", host + "/", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, 200, "9"},
		"a body":               {"POST", host + "/", http.Header{"Content-Length": {"5"}, "Content-Type": {"text/plain"}}, 200, "9"},
		"the caller's method":  {"POST", host + "/reports/1", http.Header{"X-Forwarded-Method": {"GET"}}, 200, "5"},
		"the caller's path":    {"POST", host + "/reports/1", http.Header{"X-Forwarded-Uri": {"/"}}, 200, "5"},
		"as if to nginx":       {"POST", host + "/reports/1", http.Header{"X-Original-Uri": {"/"}}, 400, ""}, // who said which is not known
		"the caller's address": {"GET", host + "/", http.Header{"X-Forwarded-For": {"198.51.100.1"}, "X-Real-Ip": {"198.51.100.1"}}, 200, "9"},
		"the caller's tenant":  {"GET", host + "/", http.Header{TenantHeader: {"b"}}, 200, "9"},
		"another's subdomain":  {"GET", "http://b.api.example.com/", nil, 403, ""},
		"the caller's host":    {"GET", "http://b.api.example.com/", http.Header{"X-Forwarded-Host": {"a.api.example.com"}}, 403, ""},
		"no credential":        {"GET", host + "/", http.Header{"Authorization": nil}, 401, ""},
		"another's key":        {"GET", host + "/", http.Header{"Authorization": {"Bearer b-key"}}, 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := traefikSettings(t)
			caller := httptest.NewRequest(row.method, row.url, nil)
			caller.Header.Set("Authorization", "Bearer a-key")
			for field, values := range row.header {
				caller.Header[field] = values
			}
			w := httptest.NewRecorder()
			newDoor(s).Check().ServeHTTP(w, traefikAsks(caller))
			if w.Code != row.status || w.Header().Get("RateLimit-Remaining") != row.left {
				t.Errorf("%d, %s left, want %d, %s: %v %s", w.Code, w.Header().Get("RateLimit-Remaining"), row.status, row.left, w.Header(), w.Body)
			}
			if w.Code == 200 && w.Header().Get(TenantHeader) != "a" {
				t.Errorf("the tenant is %q", w.Header().Get(TenantHeader))
			}
		})
	}
}

// traefikSettings trust Traefik; a tenant and its address have ten each, of which a posted report costs five.
func traefikSettings(t *testing.T) Settings {
	t.Helper()
	g, _, err := admit.NewGate(admit.Config{
		Tiers:  []admit.Tier{{Name: "free", Share: 2}},
		Routes: []admit.Route{{Name: "report", Methods: []string{"POST"}, Path: "/reports/**", Cost: 5}},
		Policies: []admit.Policy{
			{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 10), Percent: 100},
			{Name: "address", Key: []admit.Part{admit.ByAddress}, Spec: bucket(1, time.Hour, 10), Percent: 100},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := Settings{Gate: g, Identity: keys(t, "a", "b"), DefaultTier: "free", Answers: Answers{Draft: "draft-11", Older: true}}
	s.Identity.Domain = "api.example.com"
	s.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.9/32")}
	return s
}

// Refusals pass through Traefik as they are: status, fields and problem. Each caller's address has its own counter.
func TestTraefikPassesRefusalsOn(t *testing.T) {
	h := newDoor(traefikSettings(t)).Check()
	ask := func(from string) *httptest.ResponseRecorder {
		u, _ := url.Parse("http://a.api.example.com/reports/1")
		r := traefikAsks(&http.Request{Method: "POST", Host: u.Host, URL: u, Header: http.Header{"Authorization": {"Bearer a-key"}}})
		r.Header.Set("X-Forwarded-For", from)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, left := range []string{`r=5;t=3600`, `r=0;t=3600`} {
		if w := ask("203.0.113.7"); w.Code != 200 || w.Header().Get("RateLimit") != `"rate";`+left+`, "address";`+left {
			t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
	w := ask("203.0.113.8")
	if p := problem(t, w); w.Code != 429 || p.Policy != "rate" || w.Header().Get("Retry-After") != "18000" || w.Header().Get("RateLimit") != `"rate";r=0;t=18000, "address";r=10` {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
