package httpadmit

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/identity"
)

// A path that is a route, or is not, by how the service reads it is forwarded to
// nobody, also where another proxy asks, and costs nothing.
// Field case 88.
func TestAPathInDoubtReachesNobody(t *testing.T) {
	s := settings(t, admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Minute, 6), Percent: 100})
	s.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // of httptest's requests
	d := newDoor(s)
	served := 0
	h := d.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for _, path := range []string{"/reports/..%2Fcheap", "/reports/../cheap", "/cheap/%2e%2e/reports/x"} {
		if w := get(h, path, "a"); w.Code != 400 || problem(t, w).Reason != Ambiguous {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if w := get(d.Check(), "/check?nginx", "a", "X-Original-Method", "GET", "X-Original-URI", path); w.Code != 403 || w.Header().Get(StatusHeader) != "400" {
			t.Errorf("a proxy that asks for %s: %d %v", path, w.Code, w.Header())
		}
	}
	for uri, status := range map[string]string{"/cheap#x": "400", "/cheap#?x": "400", "/cheap?#": ""} { // nginx hands it on as it came
		if w := get(d.Check(), "/check?nginx", "b", "X-Original-Method", "GET", "X-Original-URI", uri); w.Header().Get(StatusHeader) != status {
			t.Errorf("a proxy that asks for %s: %d %v", uri, w.Code, w.Header())
		}
	}
	if w := get(h, "/Reports/a%2Fb", "a"); w.Code != 200 || served != 1 || w.Header().Get("RateLimit-Remaining") != "1" {
		t.Errorf("%d, %d served, %q left", w.Code, served, w.Header().Get("RateLimit-Remaining"))
	}
	tr := &Transport{Gate: s.Gate, Local: admit.NewLocal(10), Base: answer(func(*http.Request) { served++ })}
	r, err := http.NewRequestWithContext(identity.With(t.Context(), identity.Identity{Tenant: "a", Tier: "free"}), "GET", "http://h/reports/..%2Fcheap", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(r); err == nil || errors.As(err, new(*Limited)) || served != 1 {
		t.Errorf("an outbound call: %v", err)
	}
}

type answer func(*http.Request)

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}
