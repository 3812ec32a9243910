package httpadmit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
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

// The final answer says what the gate's limits are, once, whatever the service said before or in it.
func TestTheFinalAnswerTellsTheLimits(t *testing.T) {
	d := newDoor(settings(t, admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 10), Percent: 100}))
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hint":
			w.Header().Set("Link", "</x.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
		case "/own":
			w.Header().Set("RateLimit", `"own";r=1`)
			w.Header().Set("RateLimit-Limit", "1000")
		}
		io.Copy(io.Discard, r.Body) // a 100 goes out before it
		w.WriteHeader(http.StatusCreated)
	}))
	defer service.Close()
	to, _ := url.Parse(service.URL)
	front := httptest.NewServer(d.Middleware(d.Proxy(to, nil, nil)))
	defer front.Close()
	for i, path := range []string{"/", "/hint", "/continue", "/own"} {
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h.Get("Link")))
			return nil
		}})
		r, _ := http.NewRequestWithContext(ctx, "POST", front.URL+path, strings.NewReader("x"))
		r.Header.Set("Authorization", "Bearer a-key")
		if path == "/continue" {
			r.Header.Set("Expect", "100-continue")
		}
		resp, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		left, want := resp.Header["Ratelimit-Remaining"], fmt.Sprint([]int{9 - i})
		if resp.StatusCode != 201 || fmt.Sprint(left) != want || fmt.Sprint(resp.Header["Ratelimit-Limit"]) != "[10]" || len(resp.Header["Ratelimit"]) != 1 {
			t.Errorf("%s after %q: %d %v", path, hints, resp.StatusCode, resp.Header)
		}
		if path == "/hint" && fmt.Sprint(hints) != "[103</x.css>; rel=preload 102</x.css>; rel=preload]" {
			t.Errorf("hints: %q", hints)
		}
	}
}
