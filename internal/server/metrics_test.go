package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlane-dev/fairlane/engine"
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
	for _, positive := range []string{"journal_flush_seconds", "journal_flushes_total", "journal_max_bytes", "journal_last_position",
		`journal_stream_bytes{stream="triggers"}`, "disk_free_bytes", "disk_total_bytes"} {
		if v := value(t, text, "fairlane_"+positive); v == "0" || v == "" {
			t.Errorf("%s is %q", positive, v)
		}
	}
	for _, there := range []string{"journal_unflushed", "journal_unflushed_seconds", "journal_floor_position", "idempotency_window_seconds", "cursor_position", "waiting_references"} {
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
	m := NewMetrics("dev")
	m.watch(&fake{}, &fake{}, fakeRegistry{}, &saturation{})
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

// halfDeleted is a registry in which every tenant with an odd number is deleted.
type halfDeleted struct{ fakeRegistry }

func (halfDeleted) Tenant(id string) (journal.Tenant, bool) {
	return journal.Tenant{ID: id, Deleted: strings.ContainsAny(id[len(id)-1:], "13579")}, true
}

// Field case 84.
func TestSeriesByTenantAreBounded(t *testing.T) {
	f := &fake{}
	for i := range 500 {
		f.all = append(f.all, fanout.TenantStatus{TenantView: engine.TenantView{Tenant: engine.TenantID(499 - i)}, TenantID: fmt.Sprint("t", 499-i), Counters: engine.Counters{Offered: 2, Delivered: 2}})
	}
	m := NewMetrics("dev")
	m.watch(f, f, halfDeleted{}, &saturation{})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byTenant := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "fairlane_tenant_account" {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["state"] == "delivered" {
				byTenant[labels["tenant"]] = series.GetGauge().GetValue()
			}
		}
	}
	if len(byTenant) != maxTenantSeries+1 || byTenant["t0"] != 2 || byTenant["t98"] != 2 || byTenant[otherTenants] != 900 {
		t.Errorf("%d series: %v", len(byTenant), byTenant)
	}
	if validTenantID(otherTenants) {
		t.Error("a tenant may be called like the rest")
	}
}

func TestSaturationCountsLanesHighFor30Seconds(t *testing.T) {
	var s saturation
	t0 := time.Unix(0, 0)
	lane := func(id engine.LaneID, inFlight uint64, limit int) fanout.LaneStatus {
		return fanout.LaneStatus{LaneView: engine.LaneView{Lane: id, Cap: limit, Counters: engine.Counters{InFlight: inFlight}}}
	}
	high, edge, paused := lane(1, 9, 10), lane(2, 8, 10), lane(3, 0, 0)
	for _, step := range []struct {
		at    time.Duration
		lanes []fanout.LaneStatus
		want  int
	}{
		{0, []fanout.LaneStatus{high, edge, paused}, 0},
		{29 * time.Second, []fanout.LaneStatus{high, edge, paused}, 0},
		{30 * time.Second, []fanout.LaneStatus{high, edge, paused}, 1},
		{35 * time.Second, []fanout.LaneStatus{lane(1, 8, 10)}, 0},
		{40 * time.Second, []fanout.LaneStatus{high}, 0},
		{69 * time.Second, []fanout.LaneStatus{high}, 0},
		{70 * time.Second, []fanout.LaneStatus{high, lane(4, 100, 100)}, 1},
		{100 * time.Second, []fanout.LaneStatus{high, lane(4, 100, 100)}, 2},
		{101 * time.Second, nil, 0},
	} {
		s.sample(t0.Add(step.at), step.lanes)
		if got := s.count(); got != step.want {
			t.Errorf("at %v: %d, want %d", step.at, got, step.want)
		}
	}
}
