package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/promtest"
)

const filmStep = 250 * time.Millisecond

// film scrapes eight times while do runs between the frames, and lets things go on for four minutes.
func (s *service) film(do func(frame int)) *promtest.Film {
	s.t.Helper()
	f := &promtest.Film{Step: filmStep}
	tick := time.NewTicker(filmStep)
	defer tick.Stop()
	for i := range 8 {
		do(i)
		<-tick.C // frames are of real time
		f.Add(s.scrape())
	}
	f.GoOn(4 * time.Minute)
	return f
}

// fires holds what fires of a class against what must.
func fires(t *testing.T, f *promtest.Film, class string, want ...string) {
	t.Helper()
	root, err := promtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Fired(filepath.Join(root, "deploy/prometheus/alerts.yaml"), class)
	if errors.Is(err, promtest.ErrNoPromtool) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%ss that fire: %q, want %q", class, got, want)
	}
}

// stuck is a sender whose requests end only with the service.
type stuck struct{}

func (stuck) Send(ctx context.Context, r *delivery.Request) delivery.Outcome {
	r.Start()
	<-ctx.Done()
	return delivery.Outcome{Sent: true, Reason: delivery.ReasonCut, Result: engine.Result{Kind: engine.Unknown}}
}
func (stuck) Close() {}

func smallSlots(c *Config) { c.Engine.Slots, c.StopGrace = 4, time.Millisecond }

// Every page fires on its fault made real. (The demo shows the two on fairness, and that none fires without a fault.)
//
// Field case 86.
func TestPagesFireOnTheirFaults(t *testing.T) {
	for _, c := range []struct {
		fault string
		edit  func(*Config)
		make  func(s *service)
		want  []string
	}{
		{"every worker is stuck", func(c *Config) { smallSlots(c); c.Sender = stuck{} }, nil, []string{"FairlaneOldestEligibleTooOld", "FairlaneNothingDelivered"}},
		{"the reader stands", nil, func(s *service) { s.Fanout().StopSends() }, []string{"FairlaneOldestEligibleTooOld"}},
		{"the disk is full", func(c *Config) { c.Ballast = 1 << 60 }, nil, []string{"FairlaneDiskLow", "FairlaneOldestEligibleTooOld"}},
		{"the log is gone", nil, func(s *service) { s.broken = true; s.Journal().Close(context.Background()) }, []string{"FairlaneJournalNotAnswering"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			s := start(t, "", c.edit)
			url, _ := endpoint(t, 200)
			if s.Journal().Status().Sends == nil {
				s.tenant("acme")
				s.subscribe("acme", url, "")
			}
			if c.make != nil {
				c.make(s)
			}
			fires(t, s.film(func(int) {
				for range 3 {
					s.post("acme", "x")
				}
			}), "page", c.want...)
		})
	}
}

// losing is a fan-out that has lost one delivery.
type losing struct{ *fanout.Fanout }

func (l losing) Stats() fanout.Stats {
	st := l.Fanout.Stats()
	st.Counters.Parked--
	return st
}

func TestALostDeliveryPages(t *testing.T) {
	s := start(t, "", nil)
	url, _ := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, `,"rate":0`)
	s.must(202, s.post("acme", "x"))
	until(t, "parked", func() bool { return s.account().Parked == 1 })
	m := NewMetrics("dev", 3)
	m.watch(losing{s.Fanout()}, s.Journal(), s.Journal().Registry(), newWatcher(losing{s.Fanout()}, s.Journal(), m.top))
	f := &promtest.Film{Step: 15 * time.Second}
	f.Add(scrapeOf(t, m))
	f.Add(scrapeOf(t, m))
	f.GoOn(2 * time.Minute)
	fires(t, f, "page", "FairlaneAccountOutOfBalance")
}

// Every notice comes of a tenant's own doing, each made real, and pages nobody.
func TestNoticesFireAndPageNobody(t *testing.T) {
	s := start(t, "", func(c *Config) { c.Profile.Horizon = time.Hour; c.StopGrace = time.Millisecond })
	good, _ := endpoint(t, 200)
	picky, _ := endpoint(t, 422)
	hole := waitingEndpoint(t, make(chan struct{}))
	killed := httptest.NewServer(http.NotFoundHandler())
	killed.Close()
	for tenant, sub := range map[string]struct{ url, more string }{
		"healthy": {good, ``}, "picky": {picky, ``}, "hole": {hole, `,"cap":4`}, "dead": {killed.URL, ``}, "paused": {good, `,"rate":0`},
	} {
		s.tenant(tenant)
		s.subscribe(tenant, sub.url, sub.more)
	}
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"full","grants":[">"],"tier":"tight"}`)))
	s.subscribe("full", good, `,"rate":0`)
	s.must(202, s.post("full", strings.Repeat("x", 1900)))
	f := s.film(func(int) {
		for range 8 {
			for _, tenant := range []string{"healthy", "picky", "hole", "dead", "paused"} {
				s.must(202, s.post(tenant, "x"))
			}
		}
		s.post("full", "x")
	})
	fires(t, f, "notice", "FairlaneLaneSaturated", "FairlaneParkedGrowing", "FairlaneDeadLetters", "FairlaneEndpointFailing", "FairlaneQuotaNear")
	fires(t, f, "page")
}

func TestTheHorizonIsNoticedBeforeItPasses(t *testing.T) {
	s := start(t, "", func(c *Config) { c.Profile.Horizon = time.Second })
	url, _ := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, `,"rate":0`)
	s.must(202, s.post("acme", "x"))
	until(t, "near its horizon", func() bool {
		if err := s.Fanout().LookNear(); err != nil {
			t.Fatal(err)
		}
		return s.Fanout().Stats().Near == 1
	})
	f := &promtest.Film{Step: 15 * time.Second}
	f.Add(s.scrape())
	f.Add(s.scrape())
	f.GoOn(2 * time.Minute)
	fires(t, f, "notice", "FairlaneHorizonNear")
}

// Every metric that an alert or the dashboard asks for exists, and every runbook's heading.
func TestAlertsAndDashboardNameWhatExists(t *testing.T) {
	root, err := promtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/operating.md")) // docs_test.go holds its table against a scrape
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`fairlane_[a-z_0-9]+`)
	for _, file := range []string{"deploy/prometheus/alerts.yaml", "deploy/grafana/fairlane.json"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, m := range found {
			base := regexp.MustCompile(`_seconds_(bucket|sum|count)$`).ReplaceAllString(m, "_seconds")
			if !strings.Contains(string(page), fmt.Sprintf("| `%s` |", base)) {
				t.Errorf("%s: there is no metric %s", file, m)
			}
		}
		for _, m := range regexp.MustCompile(`operating\.md#([a-z0-9-]+)`).FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
				title := strings.TrimLeft(line, "# ")
				return strings.HasPrefix(line, "#") && strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(title), ""), " ", "-") == m[1]
			}) {
				t.Errorf("%s: operating.md has no heading #%s", file, m[1])
			}
		}
	}
}
