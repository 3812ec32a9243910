package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

const testKey = "test-admin-key-0123456789"

// service is a running service with a client, its log, and an endpoint.
type service struct {
	*Running
	t    *testing.T
	logs *buffer
	http *http.Client

	broken bool // the test breaks it: it need not stop well
}

// start runs the real service in dir ("" is a new one). edit may change its configuration.
func start(t *testing.T, dir string, edit func(*Config)) *service {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	s := &service{t: t, logs: &buffer{}, http: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	c := Config{
		Dir:       dir,
		Listen:    "127.0.0.1:0",
		AdminKey:  testKey,
		Logger:    slog.New(slog.NewTextHandler(s.logs, nil)),
		StopGrace: 5 * time.Second,
		MaxBytes:  256 << 20,
		Allow:     []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Tiers: map[string]fanout.Tier{
			"default": {Name: "default"},
			"pro":     {Name: "pro", Rate: "100/s", Burst: 500, Cap: 32},
			"tight":   {Name: "tight", Backlog: 2000},
		},
	}
	if edit != nil {
		edit(&c)
	}
	r, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	s.Running = r
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		if err := r.Stop(context.Background()); err != nil && !s.broken {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// into decodes the body.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
}

// problem decodes the body as a problem, and checks that it is a whole one.
func (a answer) problem(t *testing.T) body {
	t.Helper()
	var p body
	a.into(t, &p)
	if a.header.Get("Content-Type") != "application/problem+json" || p.Status != a.status || p.Title == "" ||
		!strings.HasPrefix(p.Type, "urn:fairlane:problem:") {
		t.Errorf("not a problem of status %d: %v %s", a.status, a.header, a.body)
	}
	return p
}

// do sends one request with the admin key. headers are "Name: value".
func (s *service) do(method, path string, body io.Reader, headers ...string) answer {
	s.t.Helper()
	return do(s.t, s.http, s.URL(), method, path, body, headers...)
}

func do(t *testing.T, c *http.Client, base, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	sent := ""
	if b, ok := body.(*strings.Reader); ok {
		all, _ := io.ReadAll(b)
		sent, body = string(all), bytes.NewReader(all)
	}
	req, err := http.NewRequest(method, base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Authorization" {
			req.Header.Del(name)
		}
		if value != "" {
			req.Header.Add(name, value)
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{resp.StatusCode, resp.Header, out}
	conform(t, req, sent, a)
	return a
}

// must fails the test unless the status is want.
func (s *service) must(want int, a answer) answer {
	s.t.Helper()
	if a.status != want {
		s.t.Fatalf("status %d, want %d: %s", a.status, want, a.body)
	}
	return a
}

// tenant creates one.
func (s *service) tenant(id string) {
	s.t.Helper()
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"`+id+`","grants":[">"]}`)))
}

// subscribe creates a subscription; more is JSON members after topics.
func (s *service) subscribe(tenant, url, more string) subscriptionView {
	s.t.Helper()
	a := s.must(201, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"`+tenant+`","url":"`+url+`","topics":[">"]`+more+`}`)))
	var v subscriptionView
	a.into(s.t, &v)
	return v
}

// post sends a trigger for tenant.
func (s *service) post(tenant, payload string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/triggers/a.b", strings.NewReader(payload), append(headers, "Fairlane-Tenant: "+tenant)...)
}

// received is a request that an endpoint got.
type received struct {
	header http.Header
	body   []byte
	length int64
}

// endpoint answers 200 and hands on what it gets.
func endpoint(t *testing.T, status int) (string, <-chan received) {
	t.Helper()
	got := make(chan received, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- received{r.Header, b, r.ContentLength}
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, got
}

// next waits for a delivery.
func next(t *testing.T, got <-chan received) received {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no delivery")
		return received{}
	}
}

// until waits for a condition that the service reaches by itself.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}

// account reads GET /v1/account.
func (s *service) account() accountView {
	s.t.Helper()
	var v accountView
	s.must(200, s.do("GET", "/v1/account", nil)).into(s.t, &v)
	return v
}
