package torture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	contractRate, contractBurst, contractCap = 10, 10, 4
	leastInFlight                            = 50
)

// member is one subscription of the test's tenants and the endpoint behind it.
type member struct {
	*endpoint
	tenant, subscription string
	limited, picky       bool
}

// members gives every tenant five subscriptions: fast, two slow ones, one that fails now and then, one
// whose contract is far below the load.
func members(t *testing.T, s *service, tenants []string) []*member {
	t.Helper()
	var all []*member
	for _, tenant := range tenants {
		s.putTenant(tenant)
		add := func(kind string, r reply, extra map[string]any) *member {
			m := &member{endpoint: listen(t, tenant+"-"+kind, "", r), tenant: tenant}
			m.subscription = s.subscribe(tenant, m.url, "orders.>", extra)
			all = append(all, m)
			return m
		}
		add("fast", always(200, 0), nil)
		add("slow", between(50*time.Millisecond, 500*time.Millisecond), nil)
		add("slower", between(200*time.Millisecond, 500*time.Millisecond), nil)
		add("failing", failingSometimes(12), nil).picky = true
		add("limited", always(200, 5*time.Millisecond), map[string]any{
			"rate": fmt.Sprintf("%d/s", contractRate), "burst": contractBurst, "cap": contractCap,
		}).limited = true
	}
	return all
}

func killCount(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("FAIRLANE_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("FAIRLANE_KILLS: %v", err)
		}
		return n
	}
	if testing.Short() {
		return 10
	}
	return 20
}

// Row E1: nothing acknowledged is lost, and the account balances, over any number of kill -9 under load.
//
// Field case 80.
func TestKillNineLosesNothing(t *testing.T) {
	s := newService(t)
	s.startReady()
	tenants := []string{"ant", "bee", "cat", "dog"}
	all := members(t, s, tenants)
	l := startLoad(t, s, 50*time.Millisecond,
		[]string{"ant"}, []string{"bee"}, []string{"cat"}, []string{"dog"}, []string{"ant", "cat"}, []string{"bee", "dog"})

	var kills, restarts []time.Duration
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for i := range killCount(t) {
		if !poll(20*time.Second, func() bool { return inFlight.Load() >= leastInFlight }) {
			t.Fatalf("kill %d: only %d requests in flight; lanes %+v", i, inFlight.Load(), s.lanes())
		}
		more := arrivals.Load() + rng.Int64N(200) // any instant between two flushes
		poll(time.Second, func() bool { return arrivals.Load() >= more })
		kills = append(kills, now())
		s.kill()
		restarts = append(restarts, s.startReady())
		s.checkAccounts(fmt.Sprintf("after kill %d", i))
	}
	slices.Sort(restarts)
	t.Logf("%d kills; restart to ready: median %v, longest %v", len(kills), restarts[len(restarts)/2], restarts[len(restarts)-1])
	l.stop()
	acked, inDoubt := l.outcome(t)
	drain(t, s, all)
	judge(t, s, all, acked, inDoubt, kills)
}

// drain waits until only what contracts hold back waits, lifts the contracts, and waits for the rest.
func drain(t *testing.T, s *service, all []*member) {
	t.Helper()
	waiting := func(limited bool) (n uint64) {
		lanes := s.lanes()
		for _, m := range all {
			if a := lanes[m.subscription].Account; m.limited == limited {
				n += a.Parked + a.InFlight
			}
		}
		return n
	}
	begin := now()
	if !poll(time.Minute, func() bool { return waiting(false) == 0 }) {
		t.Errorf("a minute after the load: %d deliveries to endpoints without a contract wait: %+v", waiting(false), s.lanes())
	}
	t.Logf("everything without a contract was settled %v after the load; %d wait for their contracts", now()-begin, waiting(true))
	for _, m := range all {
		if m.limited {
			judgeRate(t, m.endpoint, contractRate, contractBurst, contractCap)
			s.must("PATCH", "/v1/subscriptions/"+m.subscription, map[string]any{"rate": "unlimited", "cap": 32}, nil)
		}
	}
	if !poll(time.Minute, func() bool { return waiting(true) == 0 }) {
		t.Errorf("a minute after the contracts were lifted: %d deliveries wait: %+v", waiting(true), s.lanes())
	}
}

// judge holds the endpoints' books against what was acknowledged and against the service's account.
func judge(t *testing.T, s *service, all []*member, acked map[string]trigger, inDoubt int, kills []time.Duration) {
	t.Helper()
	lanes := s.checkAccounts("at the end")
	var sum verdict
	requests := 0
	ids := make(map[string]string)
	for _, m := range all {
		judgeIDs(t, m.endpoint, ids)
		mine := make(map[string]trigger)
		for id, tr := range acked {
			if slices.Contains(tr.tenants, m.tenant) {
				mine[id] = tr
			}
		}
		accepted, rejected, unacked := judgeDelivered(t, m.endpoint, mine, func(id string) bool { return m.picky && poison(id) })
		if unacked > inDoubt {
			t.Errorf("%s: %d deliveries of triggers that nobody posted", m.name, unacked-inDoubt)
		}
		want := account{Offered: uint64(accepted + rejected), Delivered: uint64(accepted), Dead: uint64(rejected), Balanced: true}
		if got := lanes[m.subscription].Account; got != want {
			t.Errorf("%s: the account says %+v, the endpoint saw %+v", m.name, got, want)
		}
		v := judgeDuplicates(t, m.endpoint, kills)
		sum.duplicates += v.duplicates
		sum.inFlight += v.inFlight
		sum.furthest = max(sum.furthest, v.furthest)
		requests += len(m.requests())
	}
	t.Logf("%d requests of %d triggers; %d duplicates after a 2xx, %d of them in flight at the kill; furthest answer before its kill: %v",
		requests, len(acked), sum.duplicates, sum.inFlight, sum.furthest)
}
