package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// value reads one series from a text exposition; it fails the test if there is none.
func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return v
		}
	}
	t.Errorf("no series %s", series)
	return ""
}

func TestMetricsSayWhatHappened(t *testing.T) {
	s := start(t, "", nil)
	good, _ := endpoint(t, 200)
	bad, _ := endpoint(t, 400)
	s.tenant("acme")
	s.tenant("beta")
	s.subscribe("acme", good, "")
	s.subscribe("acme", bad, "")
	s.subscribe("beta", good, `,"rate":0`)
	for range 5 {
		s.must(202, s.post("acme,beta", "x"))
	}
	s.must(422, s.post("", "x"))
	until(t, "settled", func() bool { a := s.account(); return a.Delivered == 5 && a.Dead == 5 && a.Parked == 5 })
	var text string
	until(t, "counted", func() bool { // after the account, and outside of its lock
		text = string(s.must(200, s.do("GET", "/metrics", nil)).body)
		return strings.Contains(text, "fairlane_delivery_seconds_count 5\n") && strings.Contains(text, "fairlane_attempt_seconds_count 10\n")
	})
	for series, want := range map[string]string{
		`fairlane_build_info{version="dev"}`:                                                 "1",
		`fairlane_ingest_requests_total{status="2xx"}`:                                       "5",
		`fairlane_ingest_requests_total{status="4xx"}`:                                       "1",
		`fairlane_ingest_seconds_count`:                                                      "6",
		`fairlane_attempts_total{class="2xx",reason="status",retry="false"}`:                 "5",
		`fairlane_attempts_total{class="4xx",reason="status",retry="false"}`:                 "5",
		`fairlane_deliveries_total{reason="",result="delivered"}`:                            "5",
		`fairlane_deliveries_total{reason="` + engine.Rejected.String() + `",result="dead"}`: "5",
		`fairlane_delivery_seconds_count`:                                                    "5",
		`fairlane_attempt_seconds_count`:                                                     "10",
		`fairlane_account{state="offered"}`:                                                  "15",
		`fairlane_account{state="delivered"}`:                                                "5",
		`fairlane_account{state="dead"}`:                                                     "5",
		`fairlane_account{state="parked"}`:                                                   "5",
		`fairlane_account{state="in_flight"}`:                                                "0",
		`fairlane_account_gap`:                                                               "0",
		`fairlane_rejections_gap`:                                                            "0",
		`fairlane_ends_total{reason="rejected",result="dead"}`:                               "5",
		`fairlane_ends_total{reason="none",result="delivered"}`:                              "5",
		`fairlane_fairness_least`:                                                            "1",
		`fairlane_tenant_account{state="delivered",tenant="acme"}`:                           "5",
		`fairlane_tenant_account{state="parked",tenant="beta"}`:                              "5",
		`fairlane_lanes`:                   "3",
		`fairlane_lanes_saturated`:         "0",
		`fairlane_slots`:                   "1200",
		`fairlane_slots_used`:              "0",
		`fairlane_fairness_index`:          "1",
		`fairlane_short_changed_tenants`:   "0",
		`fairlane_retry_reserve_fill`:      "1",
		`fairlane_oldest_eligible_seconds`: "0",
		`fairlane_journal_ready`:           "1",
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s is %s, want %s", series, got, want)
		}
	}
	for _, positive := range []string{"journal_flush_seconds_sum", `journal_fsyncs_total{stream="triggers"}`, `journal_fsyncs_total{stream="outcomes"}`, "journal_history_seconds", "journal_max_bytes", "journal_last_position",
		`journal_stream_bytes{stream="triggers"}`, "disk_free_bytes", "disk_total_bytes"} {
		if v := value(t, text, "fairlane_"+positive); v == "0" || v == "" {
			t.Errorf("%s is %q", positive, v)
		}
	}
	for _, there := range []string{"journal_unflushed", `journal_reads_total{stream="triggers"}`, `journal_reads_total{stream="held"}`, "journal_unflushed_seconds", "journal_floor_position", "idempotency_window_seconds", "cursor_position", "journal_lag_seconds", "horizon_near", "lanes_disabled", "waiting_references", "dead_references"} {
		value(t, text, "fairlane_"+there)
	}
	if !strings.Contains(text, "fairlane_denials_total{reason=") {
		t.Error("no denials")
	}
}

func TestMetricsAreOpenOnlyWhereConfigured(t *testing.T) {
	closed, open := start(t, "", nil), start(t, "", func(c *Config) { c.OpenMetrics = true })
	closed.must(401, closed.do("GET", "/metrics", nil, "Authorization: "))
	open.must(200, open.do("GET", "/metrics", nil, "Authorization: "))
}

func TestMetricNamesAreWellFormed(t *testing.T) {
	m := NewMetrics("dev", 3)
	m.watch(&fake{}, &fake{}, fakeRegistry{}, newWatcher(&fake{}, &fake{}, m.top))
	m.Attempted(fanout.Attempted{Verdict: engine.Done})
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "fairlane_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// fleet is so many lanes, four a tenant, with every measure rising with the number.
func fleet(n int) *fake {
	f := &fake{}
	for i := range n {
		c := engine.Counters{Offered: 3, Delivered: 2, InFlight: 1}
		f.figure = append(f.figure, fanout.LaneFigures{
			LaneView:     engine.LaneView{Lane: engine.LaneID(i), Tenant: engine.TenantID(i / 4), Counters: c, Cap: 16, Offered: float64(i + 1)},
			Subscription: fmt.Sprintf("sub_%022d", i), TenantID: fmt.Sprint("t", i/4), Denied: uint64(i),
		})
		if i%4 == 0 {
			f.all = append(f.all, fanout.TenantStatus{TenantView: engine.TenantView{Tenant: engine.TenantID(i / 4), Nominal: 1}, TenantID: fmt.Sprint("t", i/4)})
		}
		f.all[i/4].Counters = f.all[i/4].Counters.Plus(c)
	}
	return f
}

// everyTenant is a registry in which all are there but those named.
type everyTenant struct {
	fakeRegistry
	deleted string
}

func (r everyTenant) Tenant(id string) (journal.Tenant, bool) {
	return journal.Tenant{ID: id, Deleted: id == r.deleted}, true
}

// scrapeOf is what /metrics says of f.
func scrapeOf(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// watching is metrics of f with the first k.
func watching(f *fake, r Registry, k int) (*Metrics, *watcher) {
	m := NewMetrics("dev", k)
	w := newWatcher(f, f, m.top)
	m.watch(f, f, r, w)
	return m, w
}

// Field case 84.
func TestSeriesAreBoundedWithFiftyThousandLanes(t *testing.T) {
	f := fleet(50_000)
	m, w := watching(f, everyTenant{}, defaultTop)
	w.sample(time.Now())
	for i := range f.figure { // every lane sends, every tenant is refused, every status comes
		l := &f.figure[i]
		m.Attempted(fanout.Attempted{Subscription: l.Subscription, Tenant: l.TenantID, Number: 1, Waited: 1, Verdict: engine.Done,
			Outcome: delivery.Outcome{Sent: true, Status: 100 + i%900, Reason: delivery.ReasonStatus, Took: 1}})
		m.refused([]string{l.TenantID})
	}
	text := scrapeOf(t, m)
	if len(text) > 2_000_000 {
		t.Errorf("/metrics has %d bytes", len(text))
	}
	lanes := strings.Count(text, "\nfairlane_lane_cap{")
	if lanes < defaultTop || lanes > 3*defaultTop {
		t.Errorf("%d lanes have series", lanes)
	}
	for series, want := range map[string]string{
		`fairlane_lane_account{state="delivered",subscription="(other)",tenant="(other)"}`: fmt.Sprint(2 * (50_000 - lanes)),
		`fairlane_lane_cap{subscription="sub_0000000000000000049999",tenant="t12499"}`:     "16",
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s is %s, want %s", series, got, want)
		}
	}
	if validTenantID(otherLabel) {
		t.Error("a tenant may be called like the rest")
	}
}

// Field case 84.
func TestWhoLeavesTheTopLosesItsSeries(t *testing.T) {
	f := fleet(40)
	m, w := watching(f, everyTenant{deleted: "t9"}, 2)
	w.sample(time.Now())
	last := f.figure[39]
	attempt := func() {
		m.Attempted(fanout.Attempted{Subscription: last.Subscription, Tenant: last.TenantID, Outcome: delivery.Outcome{Sent: true, Status: 200}})
	}
	attempt()
	own := `fairlane_lane_attempts_total{class="2xx",subscription="` + last.Subscription + `",tenant="t9"} `
	rest := `fairlane_lane_attempts_total{class="2xx",subscription="(other)",tenant="(other)"} `
	if text := scrapeOf(t, m); !strings.Contains(text, own+"1\n") || strings.Contains(text, `fairlane_tenant_account{state="offered",tenant="t9"}`) {
		t.Error("a top lane has no series, or a deleted tenant has some")
	}
	f.figure, f.all = f.figure[:36], f.all[:9] // it was deleted
	w.sample(time.Now())
	attempt() // and one that was in flight ends
	if text := scrapeOf(t, m); strings.Contains(text, last.Subscription) || !strings.Contains(text, rest+"1\n") || strings.Contains(text, `"t9"`) {
		t.Error("who is gone still has series")
	}
	if len(m.top.lanes) > 6 || len(m.top.ten) != 9 {
		t.Errorf("%d lanes, %d tenants are remembered", len(m.top.lanes), len(m.top.ten))
	}
}

// Field case 86.
func TestLagTellsForHowLongTheReaderHasStood(t *testing.T) {
	t0, s := time.Unix(1000, 0), time.Second
	var b behind
	b.note(t0, 10, 11)
	if got := b.lag(t0.Add(s), 11); got != 0 {
		t.Errorf("with nothing undecided: %v", got)
	}
	b.note(t0.Add(1*s), 20, 11)
	b.note(t0.Add(2*s), 30, 11)
	for _, c := range []struct {
		at     time.Duration
		cursor journal.Position
		want   time.Duration
	}{{5 * s, 11, 4 * s}, {5 * s, 20, 4 * s}, {5 * s, 21, 3 * s}, {60 * s, 30, 58 * s}, {60 * s, 31, 0}} {
		if got := b.lag(t0.Add(c.at), c.cursor); got != c.want {
			t.Errorf("at %v with the reader at %d: %v, want %v", c.at, c.cursor, got, c.want)
		}
	}
	for i := range 1000 { // it stands still: what is remembered is bounded, and the oldest is kept
		b.note(t0.Add(time.Duration(100+i)*s), journal.Position(100+i), 31)
	}
	if got := b.lag(t0.Add(1100*s), 31); got != 1000*s || len(b.marks) > mostMarks {
		t.Errorf("%v, %d marks", got, len(b.marks))
	}
}

func TestSaturationCountsLanesHighFor30Seconds(t *testing.T) {
	var s saturation
	t0 := time.Unix(0, 0)
	lane := func(id engine.LaneID, inFlight uint64, limit int) fanout.LaneFigures {
		return fanout.LaneFigures{LaneView: engine.LaneView{Lane: id, Cap: limit, Counters: engine.Counters{InFlight: inFlight}}}
	}
	high, edge, paused := lane(1, 9, 10), lane(2, 8, 10), lane(3, 0, 0)
	for _, step := range []struct {
		at    time.Duration
		lanes []fanout.LaneFigures
		want  int
	}{
		{0, []fanout.LaneFigures{high, edge, paused}, 0},
		{29 * time.Second, []fanout.LaneFigures{high, edge, paused}, 0},
		{30 * time.Second, []fanout.LaneFigures{high, edge, paused}, 1},
		{35 * time.Second, []fanout.LaneFigures{lane(1, 8, 10)}, 0},
		{40 * time.Second, []fanout.LaneFigures{high}, 0},
		{69 * time.Second, []fanout.LaneFigures{high}, 0},
		{70 * time.Second, []fanout.LaneFigures{high, lane(4, 100, 100)}, 1},
		{100 * time.Second, []fanout.LaneFigures{high, lane(4, 100, 100)}, 2},
		{101 * time.Second, nil, 0},
	} {
		s.sample(t0.Add(step.at), step.lanes)
		if got := s.count(); got != step.want {
			t.Errorf("at %v: %d, want %d", step.at, got, step.want)
		}
	}
}

// number is a series' value in a scrape; 0 where there is none.
func number(text, series string) (v float64) {
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, _ = strconv.ParseFloat(rest, 64)
		}
	}
	return v
}

// answerWhen answers 200 when it is released.
func answerWhen(release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
}
