package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// pretender stands in for the service: it takes the same requests and delivers every
// trigger once, at once.
type pretender struct {
	api     *httptest.Server
	dir     string
	sending sync.WaitGroup

	mu      sync.Mutex
	n       int
	urls    map[string]string
	counts  map[string]*engine.Counters
	refuse  bool // every post of a trigger
	stopped bool
}

func launchPretender(ctx context.Context, dir string, s settings) (service, error) {
	p := &pretender{dir: dir, urls: map[string]string{}, counts: map[string]*engine.Counters{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/tenants", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux.HandleFunc("POST /v1/subscriptions", p.subscribe)
	mux.HandleFunc("POST /v1/triggers/{topic}", p.ingest)
	p.api = httptest.NewServer(mux)
	return p, os.MkdirAll(dir, 0o755)
}

func (p *pretender) subscribe(w http.ResponseWriter, r *http.Request) {
	var sub struct{ Tenant, URL string }
	if err := json.NewDecoder(r.Body).Decode(&sub); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urls[sub.Tenant], p.counts[sub.Tenant] = sub.URL, &engine.Counters{}
	w.WriteHeader(http.StatusCreated)
}

func (p *pretender) ingest(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		http.Error(w, "disk full", http.StatusServiceUnavailable)
		return
	}
	p.n++
	id, tenant := fmt.Sprintf("trg_%d", p.n), r.Header.Get("Fairlane-Tenant")
	p.counts[tenant].Offered++
	p.counts[tenant].InFlight++
	url := p.urls[tenant]
	p.sending.Go(func() { p.deliver(tenant, url, id, body) })
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, `{"id":%q,"position":%d}`, id, p.n)
}

func (p *pretender) deliver(tenant, url, id string, body []byte) {
	req, _ := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	req.Header.Set("webhook-id", id)
	resp, err := http.DefaultClient.Do(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts[tenant]
	c.InFlight--
	if err == nil && resp.StatusCode == http.StatusOK {
		c.Delivered++
	} else {
		c.Parked++
	}
	if err == nil {
		resp.Body.Close()
	}
}

func (p *pretender) url() string { return p.api.URL }
func (p *pretender) key() string { return "secret" }
func (p *pretender) stopSends()  {}

func (p *pretender) account() map[string]engine.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]engine.Counters{}
	for t, c := range p.counts {
		all[t] = *c
	}
	return all
}

func (p *pretender) served() map[string]float64 { return map[string]float64{steady: 1} }

func (p *pretender) stop(context.Context) error {
	p.api.Close()
	p.sending.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	return nil
}

// short is a demo of a second.
func short(t *testing.T) (Options, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	return Options{Out: &out, Progress: &progress, Load: 300 * time.Millisecond, Tail: 50 * time.Millisecond}, &out, &progress
}

func two() []tenant {
	return []tenant{
		{name: steady, rate: 100, answer: func() receiver.Behaviour { return receiver.OK(0) }},
		{name: failing, rate: 50, answer: func() receiver.Behaviour { return receiver.Failing(500) }},
	}
}

func leftovers(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "fairlane-demo-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestDemoCountsWhatTheReceiversSaw(t *testing.T) {
	o, out, progress := short(t)
	o.JSON = true
	r, err := start(t.Context(), o, launchPretender, two())
	if err != nil {
		t.Fatal(err)
	}
	if !r.Balanced || r.Offered != 45 || r.Delivered != 30 || r.Parked != 15 || r.InFlight != 0 || r.Duplicates != 0 {
		t.Errorf("%+v", r)
	}
	if r.FailingAmplification != 1 || r.Tenants[1].P99 != nil || *r.Tenants[0].P50 <= 0 {
		t.Errorf("%+v", r)
	}
	var printed Report
	d := json.NewDecoder(out)
	if err := d.Decode(&printed); err != nil || d.More() {
		t.Errorf("stdout is not one JSON object: %v", err)
	}
	for _, want := range []string{"1/3 alone: ", "2/3 with neighbours: ", "3/3 with neighbours, protections off: "} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, progress)
		}
	}
	if strings.Contains(progress.String(), "\x1b") {
		t.Error("control characters although it is no terminal")
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoLeavesNothingWhenItIsInterrupted(t *testing.T) {
	o, out, _ := short(t)
	o.Load = time.Hour
	ctx, interrupt := context.WithCancel(t.Context())
	var started *pretender
	launch := func(ctx context.Context, dir string, s settings) (service, error) {
		p, err := launchPretender(ctx, dir, s)
		started = p.(*pretender)
		time.AfterFunc(50*time.Millisecond, interrupt)
		return p, err
	}
	slow := two()
	slow[0].rate = 1 // an hour of it is a short schedule
	if _, err := start(ctx, o, launch, slow); !errors.Is(err, ErrInterrupted) {
		t.Errorf("%v", err)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if !started.stopped || out.Len() > 0 {
		t.Errorf("service stopped: %v; printed %q", started.stopped, out)
	}
}

func TestDemoSaysWhenPostsAreRefused(t *testing.T) {
	o, _, _ := short(t)
	launch := func(ctx context.Context, dir string, s settings) (service, error) {
		p, err := launchPretender(ctx, dir, s)
		p.(*pretender).refuse = true
		return p, err
	}
	_, err := start(t.Context(), o, launch, two())
	if err == nil || !strings.Contains(err.Error(), "30 posts were not accepted") || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoSaysWhenTheServiceDoesNotStart(t *testing.T) {
	o, _, _ := short(t)
	launch := func(context.Context, string, settings) (service, error) { return nil, errors.New("no disk") }
	if _, err := start(t.Context(), o, launch, two()); err == nil || !strings.Contains(err.Error(), "alone: no disk") {
		t.Errorf("%v", err)
	}
}

func TestLiveTableIsRedrawnInPlace(t *testing.T) {
	o, _, progress := short(t)
	o.Live = true
	o.Load = 600 * time.Millisecond
	if _, err := start(t.Context(), o, launchPretender, two()); err != nil {
		t.Fatal(err)
	}
	text := progress.String()
	if strings.Count(text, wrapOff) != 3 || strings.Count(text, wrapOn) != 3 {
		t.Errorf("wrapping is not restored after each phase: %q", text)
	}
	if !strings.Contains(text, "\x1b[4A") { // title, head, two tenants
		t.Errorf("not redrawn: %q", text)
	}
}
