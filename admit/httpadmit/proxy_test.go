package httpadmit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// forwarded returns what a service behind the door gets of a request.
func forwarded(t *testing.T, s Settings, target string, headers ...string) string {
	t.Helper()
	d := newDoor(s)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var said []string // as a service that does not tell - from _ has it
		for name, values := range r.Header {
			if name = strings.ToLower(strings.ReplaceAll(name, "-", "_")); name == "fairlane_tenant" || strings.HasPrefix(name, "x_forwarded_") && name != "x_forwarded_host" {
				said = append(said, values...)
			}
		}
		fmt.Fprint(w, r.RequestURI, " ", len(said), " ", r.Header.Get(TenantHeader), " ", r.Header.Get("X-Forwarded-For"), " ", r.Header.Get("X-Forwarded-Proto"))
	}))
	defer service.Close()
	to, _ := url.Parse(service.URL)
	front := httptest.NewServer(d.Middleware(d.Proxy(to, nil, nil)))
	defer front.Close()
	r, _ := http.NewRequest("GET", front.URL+target, nil)
	r.Header.Set("Authorization", "Bearer a-key")
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	resp, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	return string(got)
}

// A caller's headers that a service may take for the gate's go, whatever their
// spelling; path and query stay as they came, also what net/url would not read.
// Field case 88.
// Field case 89.
func TestTheServiceGetsTheRequestAndTheGatesWord(t *testing.T) {
	s := settings(t)
	const target = "/x%2Fy//z?q=a;b&sig=%zz&&c=1&b=2"
	lies := []string{"fairlane_tenant", "b", "Fairlane_Tenant", "b", "Fairlane-tenant", "b", "X_Forwarded_For", "6.6.6.6", "X-Forwarded_Proto", "https", "X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https", "Connection", "Fairlane-Tenant, X-Forwarded-For"}
	if got := forwarded(t, s, target, lies...); got != target+" 3 a 127.0.0.1 http" {
		t.Errorf("of a stranger: %q", got)
	}
	s.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	if got := forwarded(t, s, "/", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https"); got != "/ 3 a 192.0.2.1, 127.0.0.1 https" {
		t.Errorf("of a trusted proxy: %q", got)
	}
	if got := forwarded(t, s, "/"); got != "/ 3 a 127.0.0.1 http" {
		t.Errorf("of a trusted proxy that says nothing: %q", got)
	}
}
