package ui

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// laneOf is a lane of a tenant, whose subscription is named after it.
func laneOf(tenant string, n int, c engine.Counters, blocked engine.Reason) fanout.LaneStatus {
	return fanout.LaneStatus{TenantID: tenant, Subscription: fmt.Sprintf("sub-%s-%d", tenant, n), Rate: "unlimited", HostName: "https://" + tenant + ".example:443",
		LaneView: engine.LaneView{Lane: engine.LaneID(n), Cap: 16, Counters: c, Blocked: blocked}}
}

func tenantOf(id string, served float64, c engine.Counters) fanout.TenantStatus {
	return fanout.TenantStatus{TenantID: id, Counters: c, TenantView: engine.TenantView{Served: served, Short: served < 0.97, InFlight: int(c.InFlight), Share: 2.5}}
}

// A newcomer reads from the top of the overview that nothing is lost, that nobody is slowed, and who is noisy; the
// figures stand under their names, the worst first.
func TestOverviewReads(t *testing.T) {
	noisy, quiet := engine.Counters{Offered: 60, Delivered: 10, Parked: 40, Dead: 2, InFlight: 3, Cancelled: 4, Dropped: 1}, engine.Counters{Offered: 5, Delivered: 5}
	f := (&fixed{
		lanes: []fanout.LaneStatus{laneOf("quiet", 1, quiet, engine.None), laneOf("noisy", 2, noisy, engine.ByRate), laneOf("noisy", 3, engine.Counters{Parked: 1}, engine.ByBreaker),
			laneOf("b", 4, engine.Counters{Parked: 20}, engine.ByRate), laneOf("c", 5, engine.Counters{Parked: 30}, engine.ByRate), laneOf("d", 6, engine.Counters{Parked: 5}, engine.ByRate)},
		tenants: []fanout.TenantStatus{tenantOf("noisy", 1, noisy), tenantOf("quiet", 1, quiet)},
		stats:   fanout.Stats{Lanes: 6, OldestEligible: 3 * time.Second, Saturated: 1, Stats: engine.Stats{Slots: 48, InFlight: 12, Counters: noisy.Plus(quiet), Jain: 0.987, Entitled: 2, Reserve: 0.75}},
	}).visit(t)
	f.lanes[2].Breaker = breaker.Open
	f.reads("/ui/", "Nothing is lost: all 65 deliveries offered are accounted for", "No tenant is slowed by another", "1 of 2 tenants have nothing parked",
		"95 parked of noisy , c , b and 1 more tenants: the agreed rate is used up 1 parked of noisy : the endpoint failed",
		"Offered 65 Delivered 15 Parked 40 Dead 2 In flight 3 Cancelled 4 Dropped 1",
		"Slots in use 12 of 48 25 % Retry reserve left 75 % 75 % Fairness index 0.987 of 2 tenants", "Longest wait for a turn 3.0 s", "Lanes 6 1 above 80 %",
		"breaker open: the endpoint fails noisy sub-noisy-3 0 of 16 1 0", "offered more than its agreed rate", "noisy sub-noisy-2 3 of 16 40 2")
}

// What goes wrong is said at the top: an account that does not add up, of one tenant alone too, and who is short-changed.
func TestOverviewWarns(t *testing.T) {
	many, short, over := []fanout.LaneStatus{}, engine.Counters{Offered: 9, Delivered: 6, InFlight: 1}, engine.Counters{Offered: 1, Delivered: 3}
	for i := range listed + 3 {
		many = append(many, laneOf("dead", i, engine.Counters{Dead: 1}, engine.None))
	}
	f := (&fixed{lanes: many, tenants: []fanout.TenantStatus{tenantOf("half", 0.5, short), tenantOf("tenth", 0.1, over)},
		stats: fanout.Stats{Stats: engine.Stats{Counters: short.Plus(over), ShortChanged: 2, Entitled: 2, Jain: 0.5}}}).visit(t)
	f.reads("/ui/", "Short-changed by others: 2 of 2 tenants", "Who is short-changed tenth got 0.100 of its due; 0 in flight, entitled to 2.5 slots half got 0.500", "3 more")
	if page := f.reads("/ui/", "The account is out of balance by 0"); strings.Contains(page, "Nothing is lost") {
		t.Error("nothing is lost, and two tenants' accounts do not add up")
	}
	f = (&fixed{stats: fanout.Stats{Stats: engine.Stats{Counters: engine.Counters{Offered: 9, InFlight: 2, Parked: 4}}}}).visit(t)
	f.reads("/ui/", "The account is out of balance by 3")
	(&fixed{}).visit(t).reads("/ui/", "Nothing was offered yet: there is no subscription", "Fairness index – no tenant was due anything", "Lanes that need attention None.")
}

// The list of lanes is paged, narrowed, searched and sorted by what its address says, and its links keep the rest.
func TestLanesReads(t *testing.T) {
	f := (&fixed{lanes: newPlatform(120)}).visit(t)
	f.lanes[7].Counters = engine.Counters{Delivered: 70, InFlight: 3, Parked: 5, Dead: 2}
	page := f.reads("/ui/lanes?sort=tenant&page=2", "51 to 100 of 120,", "State Tenant Subscription")
	for _, link := range []string{`dir=up&amp;page=1&amp;sort=tenant">Previous`, `dir=up&amp;page=3&amp;sort=tenant">Next`} {
		if !strings.Contains(page, link) {
			t.Errorf("the second page has no %s", link)
		}
	}
	if strings.Contains(page, f.lanes[0].Subscription) {
		t.Error("the second page has the first's")
	}
	f.reads("/ui/lanes?sort=tenant&page=3", "101 to 120 of 120,")
	f.reads("/ui/lanes?state=dead", "1 to 1 of 1, out of 120 lanes", "has dead letters tenant-7 "+f.lanes[7].Subscription+" 43.3 70 3 of 16 5 2 20 ms")
	page = f.reads("/ui/lanes?q=tenant-11&state=", "1 to 11 of 11, out of 120 lanes", "tenant-11")
	if !strings.Contains(page, `href="/ui/lanes?q=tenant-11&amp;sort=dead"`) {
		t.Errorf("sorting loses the search: %s", page)
	}
	if page := f.reads("/ui/lanes?q=nothing", "Nothing found, out of 120 lanes"); strings.Contains(page, "<table") {
		t.Error("nothing was found, and there is a table")
	}
	(&fixed{}).visit(t).reads("/ui/lanes", "No lane yet")
}

// A lane's page has its figures under their names, says when what waits comes, and pages through its ledger.
func TestLaneReads(t *testing.T) {
	l := laneOf("acme", 1, engine.Counters{Parked: 40, InFlight: 4}, engine.ByRate)
	l.Rate, l.Burst, l.Tokens, l.Offered, l.P99 = "5/s", 20, 0, 7, 100*time.Millisecond
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := (&fixed{lanes: []fanout.LaneStatus{l}, answers: map[string]any{
		"GET /v1/lanes/sub-acme-1": client.Lane{Subscription: "sub-acme-1", Tenant: "acme", Rate: "5/s", Burst: 20, Remaining: 5, Cap: 16, Blocked: "rate", Breaker: "closed", P99MS: 100, MeanSlotMS: 30,
			Account: client.Terms{Offered: 50, Delivered: 1, Parked: 40, Dead: 2, InFlight: 4, Cancelled: 2, Dropped: 1, Balanced: true}},
		"GET /v1/subscriptions/sub-acme-1":        map[string]any{"url": "https://acme.example/hook", "topics": []string{">", "orders.>"}},
		"GET /v1/subscriptions/sub-acme-1/parked": client.Page[client.Parked]{Items: []client.Parked{{Position: 256, Attempt: 1, Reason: "rate", Since: &since}}},
		"GET /v1/subscriptions/sub-acme-1/deliveries": client.Page[client.Delivery]{Next: "77", Items: []client.Delivery{
			{Position: 512, Kind: "failed", Attempt: 2, Status: 500, TookMS: 12, Reason: "retry", At: since, Due: &since, Detail: "status: <b>no</b>"}}},
	}}).visit(t)
	page := f.reads("/ui/lanes/sub-acme-1", "Tenant acme Endpoint https://acme.example/hook Topics every topic orders.>",
		"Offered 50 Delivered 1 Parked 40 Dead 2 In flight 4 Cancelled 2 Dropped 1", "offered more than its agreed rate",
		"Cap in use 4 of 16 25 % Rate 7/s offered; limit 5/s 25 % 5 of 20 tokens left Breaker closed Latency 100 ms p99 of successes 30 ms in a slot",
		"They come back by themselves: one after the other; the last in about 8.0 s.", "256 1 the agreed rate is used up parked since 2026-01-02 03:04:05", "And more behind them.",
		"2 dead letters", "Recommended cap: 3 7/s offered, each up to 100ms (p99 of successes): 1 in flight, and 2 to spare.",
		"2026-01-02 03:04:05 failed 512 2 500 12 ms an attempt failed and will be repeated <b>no</b>", "Older")
	if !strings.Contains(page, `href="/ui/lanes/sub-acme-1?after=77"`) || strings.Contains(page, "due now") {
		t.Errorf("no older deliveries, or something in the past is due: %s", page)
	}
	f.asked = nil
	f.reads("/ui/lanes/sub-acme-1?after=77", "Lane")
	if got := fmt.Sprint(f.asked); !strings.Contains(got, "/deliveries?limit=50&kind="+shownKinds+"&after=77") {
		t.Errorf("asked %s", got)
	}
	l.Breaker, l.Now, l.Probe = breaker.Open, 10*time.Second, 15*time.Second
	f.lanes[0] = l
	f.reads("/ui/lanes/sub-acme-1", "next test in 5.0 s", "when a test request succeeds")
	if to := f.act("/ui/lanes/sub-acme-1/rotate", "overlap", "1h"); !strings.HasPrefix(to, "422") {
		t.Errorf("a secret is rotated without the confirmation: %s", to)
	}
}

// A tenant's page asks for the tenant's own, page by page, and says what it is allowed.
func TestTenantReads(t *testing.T) {
	f := (&fixed{answers: map[string]any{
		"GET /v1/tenants/acme": client.Tenant{ID: "acme", Name: "Acme Inc", Tier: "pro", Suspended: true},
		"GET /v1/account": client.Account{Tenants: client.Page[client.TenantAccount]{Items: []client.TenantAccount{{Tenant: "acme", BacklogBytes: 1 << 20, BacklogQuota: 1 << 22,
			Terms: client.Terms{Offered: 21, Delivered: 1, Parked: 2, Dead: 3, InFlight: 4, Cancelled: 5, Dropped: 6}}}}},
		"GET /v1/lanes": client.Page[client.Lane]{Next: "9", Items: []client.Lane{{Subscription: "s1", Host: "https://acme.example", Rate: "5/s", Burst: 10, Remaining: 4, Cap: 16,
			Account: client.Terms{Offered: 8, Delivered: 5, Parked: 2, InFlight: 1}, Blocked: "rate"}}},
		"GET /v1/dead": client.Page[client.DeadLetter]{},
	}}).visit(t)
	page := f.reads("/ui/tenants/acme?after=5", "Tenant Acme Inc acme , tier pro", "This tenant is suspended", "Offered 21 Delivered 1 Parked 2 Dead 3 In flight 4 Cancelled 5 Dropped 6",
		"Backlog 1.0 MiB of 4.0 MiB 25 %", "s1 https://acme.example Rate 5/s; 4 of 10 tokens left 40 % In flight 1 of 16 Delivered 5 of 8 Parked 2: the agreed rate is used up.", "More subscriptions")
	if !strings.Contains(page, `href="?after=9"`) {
		t.Errorf("no next page: %s", page)
	}
	f.asks("GET /v1/tenants/acme", "GET /v1/account?tenant=acme", "GET /v1/lanes?limit=50&tenant=acme&after=5", "GET /v1/dead?limit=10&tenant=acme")
	if w := f.do("GET", "/ui/", nil); w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("a page may be kept: %v", w.Header())
	}
	if w := f.do("GET", "/ui/tenants/nobody", nil); w.Code != http.StatusNotFound {
		t.Errorf("nobody's page: %d", w.Code)
	}
}

// A trigger's page is paged, has the most frequent state first, and of each subscription this trigger's records, the oldest first.
func TestTriggerReads(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := client.Completion{ID: "msg_1", Position: 256, Topic: "orders.created", Bytes: 900, Accepted: at, Whole: true}
	for i := range rowsOfTrigger + 2 {
		c.Deliveries = append(c.Deliveries, client.Fate{Subscription: fmt.Sprintf("s%02d", i), Tenant: "acme", State: "delivered", At: &at})
	}
	c.Deliveries[0].State = "parked"
	f := (&fixed{answers: map[string]any{
		"GET /v1/triggers/msg_1": &c,
		"GET /v1/subscriptions/s00/deliveries": client.Page[client.Delivery]{Items: []client.Delivery{
			{Position: 256, Kind: "parked", At: at}, {Position: 999, Kind: "dead", At: at}, {Position: 256, Kind: "failed", Attempt: 1, Status: 503, At: at}}},
	}}).visit(t)
	page := f.reads("/ui/trigger?id=msg_1", "Id msg_1 Position 256 Topic orders.created Payload 900 B", "Not complete", "delivered 51 parked 1",
		"s00 acme parked 2026-01-02 03:04:05 failed , attempt 1, 503 2026-01-02 03:04:05 parked s01")
	if strings.Contains(page, "s50") || !strings.Contains(page, `id=msg_1&amp;page=2">Next`) {
		t.Error("the first page has what belongs on the second, or does not lead there")
	}
	f.reads("/ui/trigger?id=msg_1&page=2", "s50", "s51", "Previous")
	c.Deliveries, c.Complete = c.Deliveries[1:3], true
	f.reads("/ui/trigger?id=msg_1", "Complete: every delivery is settled.")
	c.Deliveries[0].State = "dead"
	if page := f.reads("/ui/trigger?id=msg_1", "1 dead: a person has to replay or purge. Complete"); strings.Contains(page, "notice good") {
		t.Error("what died looks well")
	}
}
