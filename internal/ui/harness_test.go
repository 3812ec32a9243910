package ui_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/receiver"
	"github.com/fairlane-dev/fairlane/internal/server"
	"github.com/fairlane-dev/fairlane/retry"
)

const adminKey = "test-admin-key-0123456789"

// service is a running service with tenants like the demo's.
type service struct {
	*server.Running
	t     *testing.T
	subs  map[string]string // tenant -> subscription
	picky *receiver.Receiver
}

// hostile is a payload that would run if a page trusted it.
const hostile = `<script>document.title="owned"</script><img src=x onerror="document.title='owned'">{{.}}`

// start runs the service and its endpoints. edit may change the configuration.
func start(t *testing.T, edit func(*server.Config)) *service {
	t.Helper()
	c := server.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", AdminKey: adminKey, StopGrace: time.Second, MaxBytes: 256 << 20,
		Allow:  []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Engine: engine.Config{Slots: 48},
		Profile: engine.Profile{
			Timeout: time.Second, Breaker: breaker.Config{Open: 2 * time.Second, OpenMax: 30 * time.Second, ProbeExpiry: time.Second},
			Schedule: retry.Schedule{Slow: []time.Duration{2 * time.Second, 4 * time.Second}},
		},
		Tiers: map[string]fanout.Tier{"default": {Name: "default"}},
	}
	if edit != nil {
		edit(&c)
	}
	r, err := server.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return &service{Running: r, t: t, subs: map[string]string{}}
}

// demo gives it the tenants: what each endpoint does, and its contract.
func (s *service) demo() {
	s.add("steady", receiver.OK(5*time.Millisecond), "")
	s.add("slow", receiver.OK(300*time.Millisecond), "")
	s.add("blackhole", receiver.BlackHole(), "")
	s.add("failing", receiver.Failing(500), "")
	s.add("noisy", receiver.OK(0), `,"rate":"5/s","burst":10`)
	s.picky = s.add("picky", receiver.EveryNth(2, 422), "")
}

// rude is a tenant whose endpoint answers with what an enemy would, and has done so once.
func (s *service) rude() {
	s.t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte("<b>no</b>\x1b[31m"))
	}))
	s.t.Cleanup(e.Close)
	s.register("rude", e.URL, "")
	s.post("rude", 1, "x")
	until(s.t, "the rude answer", func() bool {
		var l struct{ Items []any }
		s.api("GET", "/v1/dead?tenant=rude", "", &l)
		return len(l.Items) == 1
	})
}

func (s *service) add(tenant string, b receiver.Behaviour, more string) *receiver.Receiver {
	s.t.Helper()
	r, err := receiver.Start(receiver.Config{Behaviour: b})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.Close() })
	s.register(tenant, r.URL(), more)
	return r
}

// register makes a tenant and its subscription.
func (s *service) register(tenant, to, more string) {
	s.t.Helper()
	s.api("POST", "/v1/tenants", `{"id":"`+tenant+`"}`, nil)
	var sub struct {
		ID string `json:"id"`
	}
	s.api("POST", "/v1/subscriptions", `{"tenant":"`+tenant+`","url":"`+to+`","topics":[">"]`+more+`}`, &sub)
	s.subs[tenant] = sub.ID
}

// api calls the API as the administrator.
func (s *service) api(method, path, body string, out any, headers ...string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminKey)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			s.t.Fatal(err)
		}
	}
}

// post sends n triggers for a tenant and returns the id of the last.
func (s *service) post(tenant string, n int, payload string) (id string) {
	s.t.Helper()
	var got struct {
		ID string `json:"id"`
	}
	for range n {
		s.api("POST", "/v1/triggers/geofence.enter", payload, &got, "Fairlane-Tenant: "+tenant, "Content-Type: text/html")
	}
	return got.ID
}

// dead makes dead letters of picky's, at least one, and returns the trigger of one.
func (s *service) dead() string {
	s.t.Helper()
	s.post("picky", 4, hostile)
	var l struct {
		Items []struct{ Trigger string }
	}
	until(s.t, "dead letters", func() bool {
		s.api("GET", "/v1/dead?tenant=picky", "", &l)
		return len(l.Items) > 0
	})
	return l.Items[0].Trigger
}

// until waits for what the service reaches by itself.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("never: " + what)
		}
	}
}

// browser keeps cookies and follows redirects, without scripts.
type browser struct {
	*http.Client
	s *service
}

func (s *service) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{&http.Client{Jar: jar}, s}
}

// signIn opens a session with a key.
func (b *browser) signIn(key string) *shown { return b.send("/ui/sign-in", url.Values{"key": {key}}) }

// shown is a page.
type shown struct {
	status int
	header http.Header
	path   string // of the page, behind redirects
	text   string
}

func (b *browser) get(path string) *shown { return b.do("GET", path, nil) }

func (b *browser) send(path string, form url.Values) *shown { return b.do("POST", path, form) }

func (b *browser) do(method, path string, form url.Values, headers ...string) *shown {
	b.s.t.Helper()
	r, err := http.NewRequest(method, b.s.URL()+path, bytes.NewReader([]byte(form.Encode())))
	if err != nil {
		b.s.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := b.Do(r)
	if err != nil {
		b.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.s.t.Fatal(err)
	}
	return &shown{resp.StatusCode, resp.Header, resp.Request.URL.RequestURI(), string(text)}
}

var tokenForm = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token is what the forms of a page carry.
func (p *shown) token(t *testing.T) string {
	t.Helper()
	m := tokenForm.FindStringSubmatch(p.text)
	if m == nil {
		t.Fatalf("no form with a token: %s", p.text)
	}
	return m[1]
}

// has fails the test unless the page has the status and every text.
func (p *shown) has(t *testing.T, status int, texts ...string) *shown {
	t.Helper()
	if p.status != status {
		t.Fatalf("%s: status %d, want %d: %s", p.path, p.status, status, p.text)
	}
	for _, want := range texts {
		if !strings.Contains(p.text, want) {
			t.Errorf("%s lacks %q: %s", p.path, want, p.text)
		}
	}
	return p
}

// key makes a key of a role.
func (s *service) key(id, role, tenant string) string {
	s.t.Helper()
	var k struct{ Secret string }
	s.api("POST", "/v1/keys", fmt.Sprintf(`{"id":%q,"role":%q,"tenants":[%q]}`, id, role, tenant), &k)
	return k.Secret
}
