package httpadmit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/limit"
)

func bucket(n int64, per time.Duration, burst int64) admit.Spec {
	return admit.Spec{Algorithm: admit.TokenBucket, Limit: n, Window: per, Burst: burst}
}

// keys are "<tenant>-key" of some tenants.
func keys(t testing.TB, tenants ...string) *identity.Resolver {
	t.Helper()
	k := &identity.Keys{}
	var entries []identity.Entry
	for _, name := range tenants {
		entries = append(entries, identity.Entry{SHA256: identity.Hash(name + "-key"), Identity: identity.Identity{Tenant: name}})
	}
	if _, err := k.Set(entries); err != nil {
		t.Fatal(err)
	}
	return &identity.Resolver{Sources: []identity.Source{k}}
}

// settings have tiers free (2 slots) and jailed (none), everybody free.
func settings(t testing.TB, policies ...admit.Policy) Settings {
	t.Helper()
	g, _, err := admit.NewGate(admit.Config{
		Tiers:    []admit.Tier{{Name: "free", Share: 2}, {Name: "jailed"}},
		Routes:   []admit.Route{{Name: "report", Path: "/reports/**", Cost: 5}},
		Policies: policies,
	})
	if err != nil {
		t.Fatal(err)
	}
	return Settings{Gate: g, Identity: keys(t, "a", "b", "jailed"), DefaultTier: "free",
		TierOf:  func(tenant string) (string, bool) { return tenant, tenant == "jailed" },
		Answers: Answers{Draft: "draft-11", Older: true}}
}

func newDoor(s Settings) *Door { return New(s, rand.New(rand.NewPCG(1, 2)), 0) }

func get(h http.Handler, path, tenant string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	if tenant != "" {
		r.Header.Set("Authorization", "Bearer "+tenant+"-key")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })

func problem(t *testing.T, w *httptest.ResponseRecorder) (p Problem) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%d is no problem: %s, %v", w.Code, w.Body, err)
	}
	return p
}

// A refusal says which policy, which tier and which kind of limit, and when to
// come back, in whole seconds of at least one, rounded up.
// Limiter case L54.
// Limiter case L56.
// Limiter case L57.
func TestRefusalsSayWhatAndWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := bucket(10, time.Second, 3)
		s := settings(t,
			admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Tiers: map[string]*admit.Spec{"free": &three, "jailed": nil}, Percent: 100},
			admit.Policy{Name: "day", Key: []admit.Part{admit.ByTenant}, Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: 4, Window: admit.Day}, Percent: 100, Routes: []string{"default"}},
			admit.Policy{Name: "all", Spec: bucket(1, time.Minute, 6), Percent: 100})
		h := newDoor(s).Middleware(ok)
		for range 3 {
			if w := get(h, "/", "a"); w.Code != 200 {
				t.Fatal(w.Code)
			}
		}
		w := get(h, "/", "a")
		if p := problem(t, w); w.Code != 429 || p.Policy != "rate" || p.Kind != "rate" || p.Tier != "free" || p.Reason != RateLimited ||
			w.Header().Get("Retry-After") != "1" || fmt.Sprint(p.Violated) != "[rate]" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("rate: %d %+v %v", w.Code, p, w.Header())
		}
		after(time.Second)
		get(h, "/", "a")
		w = get(h, "/", "a")
		if p := problem(t, w); w.Code != 429 || p.Policy != "day" || p.Kind != "quota" || p.Retry < 2 || p.Retry > 86400 {
			t.Errorf("quota: %d %+v", w.Code, p)
		}
		for range 2 {
			get(h, "/", "b")
		}
		w = get(h, "/", "b")
		if p := problem(t, w); w.Code != 503 || p.Policy != "all" || p.Reason != Busy || p.Retry < 1 || p.Type != lessCapacity {
			t.Errorf("capacity: %d %+v", w.Code, p)
		}
		w = get(h, "/reports/1", "b")
		if p := problem(t, w); w.Code != 403 || p.Reason != TooCostly || w.Header().Get("Retry-After") != "" {
			t.Errorf("a cost that never fits: %d %+v", w.Code, p)
		}
	})
}

// The fields parse as structured lists, count down, and are never negative.
// Limiter case L55.
// Limiter case L58.
func TestFieldsOfTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t,
			admit.Policy{Name: "burst", Key: []admit.Part{admit.ByTenant}, Spec: bucket(2, time.Second, 10), Percent: 100},
			admit.Policy{Name: "all", Spec: bucket(1, time.Second, 1000), Percent: 100},
			admit.Policy{Name: "daily", Key: []admit.Part{admit.ByTenant}, Spec: admit.Spec{Algorithm: admit.SlidingWindow, Limit: 1000, Window: admit.Day}, Percent: 100})
		h := newDoor(s).Middleware(ok)
		w := get(h, "/", "a")
		if got := w.Header().Get("RateLimit-Policy"); got != `"burst";q=10;w=5, "daily";q=1000;w=86400` {
			t.Errorf("RateLimit-Policy: %s", got)
		}
		if got := w.Header().Get("RateLimit"); !regexp.MustCompile(`^"burst";r=9;t=1, "daily";r=999;t=\d+$`).MatchString(got) {
			t.Errorf("RateLimit: %s", got)
		}
		if h := w.Header(); h.Get("RateLimit-Limit") != "10" || h.Get("RateLimit-Remaining") != "9" || h.Get("RateLimit-Reset") != "1" {
			t.Errorf("older: %v", h)
		}
		for range 20 {
			w = get(h, "/", "a")
		}
		if got := w.Header().Get("RateLimit"); w.Code != 429 || !strings.HasPrefix(got, `"burst";r=0;t=1, "daily";r=990;t=`) {
			t.Errorf("denied: %d %s", w.Code, got)
		}
		s.Answers = Answers{}
		d := newDoor(s)
		for name := range get(d.Middleware(ok), "/", "a").Header() {
			if strings.HasPrefix(name, "Ratelimit") {
				t.Errorf("%s is sent though none is configured", name)
			}
		}
	})
}

// Clients that obey Retry-After do not come back together.
// Field case 92.
func TestRetryAfterIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t, admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(100, time.Second, 100), Percent: 100})
		s.Answers.Spread = 50 * time.Second
		h := newDoor(s).Middleware(ok)
		back := map[int]int{}
		for range 5000 {
			w := get(h, "/", "a")
			if w.Code == 200 {
				continue
			}
			n, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if err != nil || n < 1 || n > 51 {
				t.Fatalf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			back[n]++
		}
		for second, n := range back {
			if n > 150 {
				t.Errorf("%d come back after %d s, of 100 that would pass", n, second)
			}
		}
	})
}

// Broken credentials are refused, cost an address and no tenant.
// Field case 88.
func TestBrokenCredentialsCostTheirAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t,
			admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Minute, 5), Percent: 100},
			admit.Policy{Name: "guesses", Key: []admit.Part{admit.ByAddress}, Spec: bucket(1, time.Minute, 3), Costs: map[string]int64{"report": 1}, Percent: 100, Failed: true})
		s.Identity.Header = "X-Tenant-Id"
		d := newDoor(s)
		h := d.Middleware(ok)
		codes := map[int]int{}
		for i := range 1000 {
			codes[get(h, "/", fmt.Sprint("guess", i), "X-Tenant-Id", "a", "X-Forwarded-For", fmt.Sprint("10.0.0.", i%250)).Code]++
		}
		if codes[401] != 3 || codes[429] != 997 {
			t.Errorf("%v, want three 401 and then 429", codes)
		}
		w := get(h, "/", "a", "X-Tenant-Id", "b")
		if p := problem(t, w); w.Code != 429 { // it is of the same address
			t.Errorf("another's name: %d %+v", w.Code, p)
		}
		if w := get(h, "/", "a"); w.Code != 200 || w.Header().Get("RateLimit-Remaining") != "4" {
			t.Errorf("the tenant finds %d %v", w.Code, w.Header())
		}
		after(time.Hour)
		if w := get(h, "/", ""); w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("no credential: %d", w.Code)
		}
		if w := get(h, "/", "a", "X-Tenant-Id", "b"); w.Code != 403 || problem(t, w).Reason != OtherTenant {
			t.Errorf("another's name: %d", w.Code)
		}
	})
}

// A share of 0 is refused on an idle service, as suspended, and costs nobody anything: neither its tenant nor, of a limit
// of all, the others.
// Field case 93.
func TestAShareOfZeroIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t, admit.Policy{Name: "all", Key: []admit.Part{}, Spec: bucket(1, time.Hour, 5), Percent: 100})
		s.Slots = fair.SlotLimits{Slots: 10, Queue: 5, Waiters: 5}
		s.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
		d := newDoor(s)
		for range 5 {
			for _, h := range []http.Handler{d.Middleware(ok), d.Check()} {
				w := get(h, "/", "jailed", "X-Original-Method", "GET", "X-Original-URI", "/")
				if p := problem(t, w); w.Code != 403 || p.Reason != Suspended || w.Header().Get("Retry-After") != "" {
					t.Errorf("%d %+v", w.Code, p)
				}
			}
		}
		if w := get(d.Middleware(ok), "/", "a"); w.Code != 200 {
			t.Errorf("another tenant: %d %s", w.Code, w.Body)
		}
	})
}

// What finds no slot has its rates given back, and says whether it was its own
// share or the service's.
func TestNoSlotGivesTheRatesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t, admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 5), Percent: 100})
		s.Slots = fair.SlotLimits{Slots: 3, Mode: fair.Hard, Queue: 0, Waiters: 5}
		stay := make(chan struct{})
		d := newDoor(s)
		h := d.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stay }))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { get(h, "/", "a") })
		}
		synctest.Wait()
		for range 10 {
			if w := get(h, "/", "a"); w.Code != 429 || problem(t, w).Kind != "concurrency" || problem(t, w).Tier != "free" {
				t.Fatalf("over the share: %d %s", w.Code, w.Body)
			}
		}
		wg.Go(func() { get(h, "/", "b") })
		synctest.Wait()
		if w := get(h, "/", "b"); w.Code != 503 && w.Code != 429 {
			t.Errorf("full: %d", w.Code)
		}
		close(stay)
		wg.Wait()
		if w := get(d.Middleware(ok), "/", "a"); w.Header().Get("RateLimit-Remaining") != "2" {
			t.Errorf("after two that passed and ten that did not, %s are left of 5", w.Header().Get("RateLimit-Remaining"))
		}
	})
}

// settle waits until the door holds no slot.
func settle(t *testing.T, d *Door) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		running, _, waiting := d.Load()
		if running+waiting == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are held, %d wait", running, waiting)
		}
		after(ms)
	}
}

// One release for every acquire: on panic, on hijack, when the client goes in the
// middle of the handler, and for a response that streams.
// Field case 91.
// Limiter case L79.
func TestEverySlotComesBackOnce(t *testing.T) {
	s := settings(t)
	s.Slots = fair.SlotLimits{Slots: 2, Queue: 100, Waiters: 100}
	s.Wait, s.Stall = 5*time.Second, time.Minute
	d := newDoor(s)
	entered := make(chan struct{}, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-r.Context().Done() })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			io.WriteString(w, "x")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			entered <- struct{}{}
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		rw.Flush()
		go func() { // the handler returns, the connection lives
			io.Copy(io.Discard, conn)
			conn.Close()
			conn.Close() // twice gives back once
		}()
	})
	server := httptest.NewServer(d.Middleware(mux))
	defer server.Close()
	ask := func(ctx context.Context, path string) (*http.Response, error) {
		r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
		r.Header.Set("Authorization", "Bearer a-key")
		return server.Client().Do(r)
	}
	for range 5 {
		ask(t.Context(), "/panic")
	}
	settle(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	ask(ctx, "/wait")
	settle(t, d)
	resp, err := ask(t.Context(), "/stream")
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	if body, err := io.ReadAll(resp.Body); string(body) != "xxx" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	resp.Body.Close()
	settle(t, d)

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET /hijack HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-key\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatalf("%q, %v", line, err)
	}
	if running, _, _ := d.Load(); running != 1 {
		t.Errorf("a connection that lives holds %d slots, want 1", running)
	}
	conn.Close()
	settle(t, d)
}

// A client that does not read is cut, and its slot with it.
// Field case 91.
func TestASlowReaderIsCut(t *testing.T) {
	s := settings(t)
	s.Slots = fair.SlotLimits{Slots: 1, Queue: 10, Waiters: 10}
	s.Stall = 100 * ms
	d := newDoor(s)
	server := httptest.NewServer(d.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-key\r\n\r\n")
	bufio.NewReader(conn).ReadString('\n')
	settle(t, d)
}

// A client that does not send its body is cut, and its slot with it; one that
// sends steadily is not, and neither is one whose answer takes long.
// Field case 91.
func TestASlowSenderIsCut(t *testing.T) {
	s := settings(t)
	s.Slots = fair.SlotLimits{Slots: 1, Queue: 10, Waiters: 10}
	s.Stall = 300 * ms
	d := newDoor(s)
	read := make(chan error, 1)
	server := httptest.NewServer(d.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			after(2 * s.Stall)
			err = r.Context().Err()
		}
		read <- err
	})))
	defer server.Close()
	for name, tc := range map[string]struct {
		pieces int
		cut    bool
	}{"stalls": {1, true}, "steady": {5, false}} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-key\r\nContent-Length: 5\r\n\r\n")
		for range tc.pieces {
			after(20 * ms)
			fmt.Fprint(conn, "x")
		}
		if err := <-read; (err != nil) != tc.cut {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
		settle(t, d)
	}
}

// The tenant travels: in the context, in the header to the service, and the
// caller's own header does not.
func TestTheTenantTravelsDownstream(t *testing.T) {
	s := settings(t)
	d := newDoor(s)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		named := 0
		for name, values := range r.Header {
			if regexp.MustCompile(`(?i)^fairlane.tenant$`).MatchString(name) { // as a service reads it that has CGI's names
				named += len(values)
			}
		}
		fmt.Fprint(w, r.Header.Get(TenantHeader), " ", named, " ", r.Header.Get("X-Forwarded-For"), " ", r.URL.Path)
	}))
	defer service.Close()
	to, _ := url.Parse(service.URL)
	front := httptest.NewServer(d.Middleware(d.Proxy(to, nil, nil)))
	defer front.Close()
	r, _ := http.NewRequest("GET", front.URL+"/x/../y", nil)
	r.Header.Set("Authorization", "Bearer a-key")
	for _, name := range []string{TenantHeader, "Fairlane_Tenant", "fairlane.tenant"} {
		r.Header[name] = []string{"b"}
	}
	r.Header.Add("X-Forwarded-For", "6.6.6.6")
	resp, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "a 1 127.0.0.1 /x/../y" {
		t.Errorf("the service got %q", body)
	}
}

// A proxy that asks learns what it would be; only configured ones may ask.
func TestCheckAnswersTrustedProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t, admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Minute, 6), Percent: 100})
		h := newDoor(s).Check()
		if w := get(h, "/check", "a", "X-Original-Method", "GET", "X-Original-URI", "/"); w.Code != 403 {
			t.Errorf("anybody may ask: %d", w.Code)
		}
		s.Proxies.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // of httptest's requests
		d := newDoor(s)
		h = d.Check()
		nginx := func(path, tenant string) *httptest.ResponseRecorder {
			return get(h, "/check?nginx", tenant, "X-Original-Method", "GET", "X-Original-URI", path)
		}
		if w := nginx("/reports/1?x=1", "a"); w.Code != 200 || w.Header().Get(TenantHeader) != "a" || w.Header().Get("RateLimit-Remaining") != "1" {
			t.Errorf("a report: %d %v", w.Code, w.Header())
		}
		nginx("/", "a")
		if w := nginx("/", "a"); w.Code != 403 || w.Header().Get(StatusHeader) != "429" || w.Header().Get("Retry-After") != "60" {
			t.Errorf("over the limit, nginx: %d %v", w.Code, w.Header())
		}
		if w := nginx("/", "zz"); w.Code != 401 {
			t.Errorf("a broken key, nginx: %d", w.Code)
		}
		if w := get(h, "/check", "a", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/"); w.Code != 429 {
			t.Errorf("over the limit, Traefik: %d", w.Code)
		}
		for _, headers := range [][]string{
			{"X-Original-Method", "POST", "X-Original-URI", "/reports/1", "X-Forwarded-Uri", "/"},
			{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/reports/1", "X-Original-Method", "GET"},
		} {
			if w := get(h, "/check", "b", headers...); w.Code != 400 {
				t.Errorf("the caller says of the request what the proxy does not: %d", w.Code)
			}
		}
		if r := d.Report(); len(r.Routes) > 0 {
			t.Errorf("slot times of requests whose end is not known: %+v", r.Routes)
		}
		if w := get(h, "/check", "a"); w.Code != 400 {
			t.Errorf("without a method: %d", w.Code)
		}
	})
}

// Outbound calls are held to the tenant's own limits, and never sent when refused.
// Limiter case L27.
func TestOutboundCallsHaveTheTenantsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t, admit.Policy{Name: "out", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Second, 2), Costs: map[string]int64{"report": 1}, Percent: 100})
		var sent atomic.Int64
		tr := &Transport{Gate: s.Gate, Local: admit.NewLocal(10), TierOf: func(string) (string, bool) { return "free", true },
			Base: roundTrip(func(*http.Request) (*http.Response, error) {
				sent.Add(1)
				return httptest.NewRecorder().Result(), nil
			})}
		call := func(tenant string) error {
			r := httptest.NewRequest("GET", "http://out/", nil)
			resp, err := tr.RoundTrip(r.WithContext(identity.With(t.Context(), identity.Identity{Tenant: tenant})))
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		for i := range 4 {
			err := call("a")
			if limited, is := err.(*Limited); is != (i >= 2) || is && limited.RetryIn != time.Second {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err := call("b"); err != nil || sent.Load() != 3 {
			t.Errorf("another tenant: %v, %d sent", err, sent.Load())
		}
		tr.Wait = 3 * time.Second
		began := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := call("a"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("two waited %v: one was let in without a token", took)
		}
		if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://out/", nil)); err != ErrNoTenant {
			t.Errorf("no tenant: %v", err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Labels are bounded however many tenants and paths come, and the report tells
// observed from enforced, idle from busy, and what a route costs.
// Limiter case L67.
func TestFiguresAreBoundedAndTellTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t,
			admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 30), Percent: 100},
			admit.Policy{Name: "tight", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 10)})
		s.Identity, s.Anonymous = nil, "free"
		s.Slots = fair.SlotLimits{Slots: 10, Queue: 10, Waiters: 10}
		busy := 0.0
		s.Signal = func() float64 { return busy }
		d := newDoor(s)
		h := d.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/reports") {
				after(80 * ms)
			} else {
				after(20 * ms)
			}
		}))
		for i := range 25 {
			get(h, fmt.Sprint("/any/", i), "", "X-Attempt", strconv.Itoa(1+i%2))
		}
		busy = 1
		get(h, "/x", "")
		busy = 0
		for range 20 {
			get(h, "/x", "")
		}
		r := d.Report()
		rate, tight := r.Policies[0], r.Policies[1]
		if want := (Row{Policy: "rate", Route: "default", Attempted: 46, Denied: 16, FalseRejections: 16, FalseAcceptances: 1}); rate != want {
			t.Errorf("%+v, want %+v", rate, want)
		}
		if want := (Row{Policy: "tight", Route: "default", Attempted: 46, WouldDeny: 36}); tight != want {
			t.Errorf("%+v, want %+v", tight, want)
		}
		if got := r.Routes[0]; got.Requests != 30 || got.MeanMs != 20 || got.Cost != 1 || got.Proposed != 1 {
			t.Errorf("%+v", got)
		}

		many := settings(t, admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 5), Percent: 100})
		d = newDoor(many)
		for i := range 5 * maxTenants {
			v := &visit{door: d, s: &many, route: "default", id: identity.Identity{Tenant: fmt.Sprint("t", i)}}
			d.figures.enter(v)(200, ms, true)
		}
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(d.Collector())
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.Metric)
		}
		if n > 100 || len(d.figures.tenants) > maxTenants+1 || len(d.figures.rows) > maxRows {
			t.Errorf("%d series, %d tenants, %d rows", n, len(d.figures.tenants), len(d.figures.rows))
		}
	})
}

// A proposal is slot time over that of the cheapest route.
func TestCostsAreProposedFromSlotTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t)
		d := newDoor(s)
		h := d.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			after(map[bool]time.Duration{true: 240 * ms, false: 20 * ms}[strings.HasPrefix(r.URL.Path, "/reports")])
		}))
		for range 20 {
			get(h, "/x", "a")
			get(h, "/reports/1", "a")
		}
		if r := d.Report().Routes[1]; r.Route != "report" || r.Cost != 5 || r.Proposed != 12 {
			t.Errorf("%+v, want a proposal of 12", r)
		}
	})
}

// A reload changes what the next request finds; what was used stays used, and
// waiters go on.
// Limiter case L64.
func TestReloadRefillsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := func(burst int64) admit.Policy {
			return admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, burst), Percent: 100}
		}
		d := newDoor(settings(t, policy(5)))
		h := d.Middleware(ok)
		for range 4 {
			get(h, "/", "a")
		}
		for _, step := range []struct {
			burst int64
			left  string
		}{{100, "0"}, {5, "0"}} {
			d.Reload(settings(t, policy(step.burst)))
			if w := get(h, "/", "a"); w.Header().Get("RateLimit-Remaining") != step.left {
				t.Errorf("burst %d: %s left", step.burst, w.Header().Get("RateLimit-Remaining"))
			}
		}
	})
}

// away is a shared store that answers as it is told.
type away struct{ answer admit.Answer }

func (a *away) Take(context.Context, []admit.Check) (admit.Answer, error) { return a.answer, nil }
func (a *away) Peek(context.Context, []admit.Check) (admit.Answer, error) { return a.answer, nil }
func (a *away) Refund(context.Context, []admit.Check, admit.Answer) error { return nil }

// What the shared store refuses is not counted here either.
// Limiter case L45.
func TestTheSharedStoresRefusalIsRecordedNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(t,
			admit.Policy{Name: "rate", Key: []admit.Part{admit.ByTenant}, Spec: bucket(1, time.Hour, 5), Percent: 100},
			admit.Policy{Name: "day", Key: []admit.Part{admit.ByTenant}, Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: 9, Window: admit.Day}, Percent: 100, Shared: true})
		store := &away{}
		s.Shared = store
		d := newDoor(s)
		store.answer = admit.Answer{Away: true, Checks: denied(time.Second)}
		for range 10 {
			w := get(d.Middleware(ok), "/", "a")
			if p := problem(t, w); w.Code != 503 || p.Reason != StoreAway || p.Policy != "day" || p.Retry != 1 {
				t.Fatalf("%d %+v", w.Code, p)
			}
		}
		store.answer = admit.Answer{Allowed: true, Checks: allowed(7)}
		if w := get(d.Middleware(ok), "/", "a"); w.Code != 200 || w.Header().Get("RateLimit-Remaining") != "4" {
			t.Errorf("%d, %s left of the local limit", w.Code, w.Header().Get("RateLimit-Remaining"))
		}
	})
}

func denied(in time.Duration) []limit.Decision {
	return []limit.Decision{{Reason: limit.Later, RetryIn: in}}
}

func allowed(left int64) []limit.Decision {
	return []limit.Decision{{Allowed: true, Remaining: left}}
}
