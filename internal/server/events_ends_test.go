package server

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/retry"
)

// waits are the reasons for which a delivery waits and comes back by itself.
var waits = []engine.Reason{engine.ByPause, engine.ByEndpoint, engine.ByBreaker, engine.ByRate, engine.ByCap, engine.ByHost,
	engine.BySlots, engine.ByBudget, engine.ByOrder, engine.ByRetry, engine.ByGone, engine.ByShutdown, engine.ByLocal}

// never are ends that no delivery comes to in this release: each costs one token, and a burst is at least one.
var never = []engine.Reason{engine.TooCostly}

// terminal is one way to an end: of what posts come to, one ends so, and the counter, the ledger and the account say so
// once each.
type terminal struct {
	result, reason string
	status         int    // the endpoint's
	sub            string // more of the subscription
	tier           string
	posts          int
	audience       string // beside the tenant
	act            func(s *service, sub string)
	of             func(account) uint64
}

func deadOf(a account) uint64      { return a.Dead }
func cancelledOf(a account) uint64 { return a.Cancelled }
func droppedOf(a account) uint64   { return a.Dropped }
func deliveredOf(a account) uint64 { return a.Delivered }

func removeIt(s *service, sub string) {
	s.must(204, s.do("DELETE", "/v1/subscriptions/"+sub, nil))
}

var terminals = []terminal{
	{"delivered", "none", 200, ``, "", 1, "", nil, deliveredOf},
	{"dead", "rejected", 422, ``, "", 1, "", nil, deadOf},
	{"dead", "exhausted", 500, `,"attempts":1`, "", 1, "", nil, deadOf},
	{"dead", "expired", 500, ``, "", 1, "", nil, deadOf},
	{"dead", "over-quota", 200, `,"rate":0`, "tight", 3, "plenty", nil, deadOf}, // 2,000 bytes: two of 1,500 are taken
	{"dropped", "rate", 200, `,"rate":"1/1h","burst":1,"on_limit":"drop"`, "", 2, "", nil, droppedOf},
	{"dropped", "cap", -1, `,"cap":1,"on_limit":"drop"`, "", 2, "", nil, droppedOf},
	{"cancelled", "deleted", 200, `,"rate":0`, "", 1, "", removeIt, cancelledOf},
}

// A reason that is added must be put above: with the way there, or as one that only waits.
func TestEveryReasonIsKnownToTheTable(t *testing.T) {
	known := map[string]bool{}
	for _, r := range append(append([]engine.Reason{}, waits...), never...) {
		known[r.String()] = true
	}
	for _, row := range terminals {
		known[row.reason] = true
	}
	for r := engine.None + 1; r.String() != "unknown"; r++ {
		if !known[r.String()] {
			t.Errorf("reason %q: how does a delivery come to it? Add a row to terminals, or to waits", r)
		}
	}
	for _, r := range fanout.Deadly {
		found := false
		for _, row := range terminals {
			found = found || row.result == "dead" && row.reason == r.String()
		}
		if !found && r != engine.TooCostly {
			t.Errorf("dead letters may be %q, and no row leads there", r)
		}
	}
}

// Field case 87.
func TestEveryEndIsCountedOnceEverywhere(t *testing.T) {
	s := start(t, "", func(c *Config) {
		c.Profile.Schedule = retry.Schedule{QuickAttempts: 1, Slow: []time.Duration{100 * time.Hour}} // beyond the horizon
	})
	s.tenant("plenty")
	for i, row := range terminals {
		t.Run(row.result+" "+row.reason, func(t *testing.T) {
			release := make(chan struct{})
			url, _ := endpoint(t, max(row.status, 200))
			if row.status < 0 {
				url = waitingEndpoint(t, release)
			}
			id := fmt.Sprint("ten", i)
			s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(fmt.Sprintf(`{"id":%q,"grants":[">"],"tier":%q}`, id, cmp.Or(row.tier, "default")))))
			sub := s.subscribe(id, url, row.sub).ID
			series := fmt.Sprintf(`fairlane_ends_total{reason=%q,result=%q}`, row.reason, row.result)
			before := number(s.scrape(), series)
			to := strings.Trim(id+","+row.audience, ",")
			for range row.posts {
				s.must(202, s.post(to, strings.Repeat("x", 1500)))
			}
			until(t, "offered", func() bool { return s.laneAccount(t, id).Offered == uint64(row.posts) })
			if row.act != nil {
				row.act(s, sub)
			}
			until(t, row.result, func() bool { return row.of(s.laneAccount(t, id)) == 1 })
			if got := number(s.scrape(), series) - before; got != 1 {
				t.Errorf("%s rose by %v", series, got)
			}
			s.inLedger(t, sub, row)
			close(release)
			if a := s.laneAccount(t, id); !a.Balanced {
				t.Errorf("out of balance: %+v", a)
			}
		})
	}
}

// inLedger finds the end once in the subscription's ledger.
func (s *service) inLedger(t *testing.T, sub string, row terminal) {
	t.Helper()
	reason := row.reason
	if reason == "none" {
		reason = ""
	}
	found := 0
	until(t, "in the ledger", func() bool {
		var p page[deliveryView]
		s.must(200, s.do("GET", "/v1/subscriptions/"+sub+"/deliveries", nil)).into(t, &p)
		found = 0
		for _, d := range p.Items {
			if kind := strings.TrimPrefix(d.Kind, "lane-"); kind == row.result && d.Reason == reason {
				found++
			}
		}
		return found > 0
	})
	if found != 1 {
		t.Errorf("%d times in the ledger", found)
	}
}

// waitingEndpoint answers 200 when it is released.
func waitingEndpoint(t *testing.T, release <-chan struct{}) string {
	t.Helper()
	srv := httptest.NewServer(answerWhen(release))
	t.Cleanup(srv.Close)
	return srv.URL
}

// laneAccount is a tenant's account; it stays when its lanes go.
func (s *service) laneAccount(t *testing.T, tenant string) account {
	t.Helper()
	var v accountView
	s.must(200, s.do("GET", "/v1/account?tenant="+tenant, nil)).into(t, &v)
	if len(v.Tenants.Items) != 1 {
		t.Fatalf("accounts of %s: %+v", tenant, v)
	}
	return v.Tenants.Items[0].account
}

func (s *service) scrape() string {
	s.t.Helper()
	return string(s.must(200, s.do("GET", "/metrics", nil)).body)
}
