package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
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
	strict               bool // takes them one after the other, in the order of acceptance
}

// members gives every tenant six subscriptions: fast, two slow ones, one that fails now and then, one that is
// ordered, one whose contract is far below the load.
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
		add("strict", failingSeldom(50), map[string]any{"order": "subscription"}).strict = true
		add("limited", always(200, 5*time.Millisecond), map[string]any{
			"rate": fmt.Sprintf("%d/s", contractRate), "burst": contractBurst, "cap": contractCap,
		}).limited = true
	}
	return all
}

func endCount() int {
	switch {
	case *torture:
		return 240
	case testing.Short():
		return 12
	}
	return 24
}

// endings are the ways in which the process ends, in turn: most are kills under load.
var endings = []struct {
	name string
	end  func(*testing.T, *service) (k kill, killed bool)
}{
	{"kill", func(t *testing.T, s *service) (kill, bool) { return s.kill(), true }},
	{"kill", func(t *testing.T, s *service) (kill, bool) { return s.kill(), true }},
	{"stop", func(t *testing.T, s *service) (kill, bool) {
		s.signal(syscall.SIGTERM)
		if !s.awaitExit(20 * time.Second) {
			t.Fatal("no end after SIGTERM")
		}
		return kill{}, false
	}},
	{"kill", func(t *testing.T, s *service) (kill, bool) { return s.kill(), true }},
	{"kill", func(t *testing.T, s *service) (kill, bool) { return s.kill(), true }},
	{"kill at the end of a stop", func(t *testing.T, s *service) (kill, bool) { // near the last checkpoint
		s.signal(syscall.SIGTERM)
		poll(5*time.Second, func() bool { return inFlight.Load() == 0 })
		return s.kill(), true
	}},
}

// awaitCheckpoint lets the service run, under light load, until it has written a checkpoint, which it
// does every 30 s: the floor of the log is moved with it.
func awaitCheckpoint(t *testing.T, s *service, l *load) {
	t.Helper()
	usual := l.every.Swap(int64(100 * time.Millisecond))
	floor := s.metric("fairlane_journal_floor_position")
	if !poll(time.Minute, func() bool { return s.metric("fairlane_journal_floor_position") > floor }) {
		t.Error("no checkpoint in a minute")
	}
	l.every.Store(usual)
	poll(5*time.Second, func() bool { return inFlight.Load() >= leastInFlight })
}

// Row E1: nothing acknowledged is lost, and the account balances, over any number of kill -9 under load.
//
// Field case 80.
func TestKillNineLosesNothing(t *testing.T) {
	s := newService(t)
	s.startReady()
	tenants := []string{"ant", "bee", "cat", "dog"}
	all := members(t, s, tenants)
	l := startLoad(t, s, 25*time.Millisecond,
		[]string{"ant"}, []string{"bee"}, []string{"cat"}, []string{"dog"}, []string{"ant", "cat"}, []string{"bee", "dog"})

	var kills []kill
	var restarts []time.Duration
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	n := endCount()
	for i := range n {
		if !poll(20*time.Second, func() bool { return inFlight.Load() >= leastInFlight }) {
			t.Fatalf("kill %d: only %d requests in flight; lanes %+v", i, inFlight.Load(), s.lanes())
		}
		more := arrivals.Load() + rng.Int64N(800) // any instant between two flushes
		poll(2*time.Second, func() bool { return arrivals.Load() >= more })
		if i == n/2 && !testing.Short() {
			awaitCheckpoint(t, s, l)
		}
		how := endings[i%len(endings)]
		if k, killed := how.end(t, s); killed {
			kills = append(kills, k)
		}
		restarts = append(restarts, s.startReady())
		s.checkAccounts(fmt.Sprintf("after end %d, %s", i, how.name))
	}
	slices.Sort(restarts)
	t.Logf("%d ends, %d of them kill -9; restart to ready: median %v, longest %v", n, len(kills), restarts[len(restarts)/2], restarts[len(restarts)-1])
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
	// As long as it takes: endpoints that take half a second for an answer were kept from their work by kills. But something
	// has to be settled all the time.
	settled := func(limited bool) bool {
		least, since := waiting(limited), now()
		poll(10*time.Minute, func() bool {
			if n := waiting(limited); n < least {
				least, since = n, now()
			}
			return least == 0 || now()-since > 20*time.Second
		})
		return least == 0
	}
	begin := now()
	if !settled(false) {
		t.Errorf("for 20 s nothing of %d deliveries to endpoints without a contract was settled: %+v", waiting(false), s.lanes())
	}
	t.Logf("everything without a contract was settled %v after the load; %d wait for their contracts", now()-begin, waiting(true))
	for _, m := range all {
		if m.limited {
			judgeRate(t, m.endpoint, contractRate, contractBurst, contractCap)
			s.must("PATCH", "/v1/subscriptions/"+m.subscription, map[string]any{"rate": "unlimited", "cap": 32}, nil)
		}
	}
	if !settled(true) {
		t.Errorf("the contracts are lifted, and for 20 s nothing of %d deliveries was settled: %+v", waiting(true), s.lanes())
	}
}

// judge holds the endpoints' books against what was acknowledged and against the service's account.
func judge(t *testing.T, s *service, all []*member, acked map[string]trigger, inDoubt int, kills []kill) {
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
		sum.add(judgeDuplicates(t, m.endpoint, kills))
		if m.strict {
			judgeOrder(t, m.endpoint, acked)
		}
		requests += len(m.requests())
	}
	if most := 1 + len(kills)/50; len(sum.stalled) > most { // a disk that stalls now and then
		t.Errorf("at %d of %d kills, outcomes older than %v were not on disk; at most %d may be", len(sum.stalled), len(kills), cutWindow, most)
	}
	t.Logf("%d requests of %d triggers; %d duplicates after a 2xx, %d of them in flight at the kill; furthest answer before its kill: %v",
		requests, len(acked), sum.duplicates, sum.inFlight, sum.furthest)
}
