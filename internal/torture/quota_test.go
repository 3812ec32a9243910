package torture

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/admit/redisquota"
)

const replicas = 3

// modes are what may hold while the store is away; each is a route with policies of its own.
var modes = []string{"closed", "local", "open"}

// Quotas of the tenant "load"; "outage" has one for all time instead, which it uses only while the store is away and after.
const (
	quotaFixed   = 60
	quotaSliding = 50
	quotaRate    = 40
	quotaBurst   = 30
	quotaMonth   = 1_000_000
	quotaOnce    = 90
)

const gateHead = `
listen: "127.0.0.1:0"
admin: "127.0.0.1:0"
upstream: %s
identity: {keys: %s}
redis: {url: "${GATE_REDIS}", deadline: 5s, replicas: 3}
tiers: {load: {share: 1}, outage: {share: 1}}
default_tier: load
tenants: {outage: outage}
routes:
  closed: {path: /closed}
  local: {path: /local}
  open: {path: /open}
policies:
`

const gatePolicies = `
  second-%[1]s: {key: [tenant], routes: [%[1]s], store: redis, away: %[1]s, algorithm: fixed, window: 1s, tiers: {load: {limit: %[2]d}, outage: unlimited}}
  sliding-%[1]s: {key: [tenant], routes: [%[1]s], store: redis, away: %[1]s, window: 1s, tiers: {load: {limit: %[3]d}, outage: unlimited}}
  rate-%[1]s: {key: [tenant], routes: [%[1]s], store: redis, away: %[1]s, tiers: {load: {rate: %[4]d/s, burst: %[5]d}, outage: unlimited}}
  month-%[1]s: {key: [tenant], routes: [%[1]s], store: redis, away: %[1]s, algorithm: fixed, window: 30d, tiers: {load: {limit: %[6]d}, outage: unlimited}}
  once-%[1]s: {key: [tenant], routes: [%[1]s], store: redis, away: %[1]s, algorithm: fixed, window: 30d, tiers: {load: unlimited, outage: {limit: %[7]d}}}
`

// admission is one request that was let through: decided at some instant between the two.
type admission struct{ sent, came time.Duration }

// gates are some replicas of the command as gates before one service, which share one Redis.
type gates struct {
	t     *testing.T
	redis *redis
	all   []*gateProcess
	books []map[string]*atomic.Int64 // by replica, by mode: what the service saw

	mu    sync.Mutex
	came  map[string]time.Duration // at the service, by the request's id
	lists map[string][]admission   // by mode
	says  map[string]int           // answers, by mode and status
	sent  atomic.Int64
}

func startGates(t *testing.T) *gates {
	g := &gates{t: t, redis: startRedis(t), came: map[string]time.Duration{}, lists: map[string][]admission{}, says: map[string]int{}}
	service := httptest.NewServer(g)
	t.Cleanup(service.Close)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	text := identity.Hash("load-key") + " load\n" + identity.Hash("outage-key") + " outage\n"
	if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range replicas {
		var file bytes.Buffer
		fmt.Fprintf(&file, gateHead, service.URL+"/"+strconv.Itoa(i), keys)
		book := map[string]*atomic.Int64{}
		for _, m := range modes {
			fmt.Fprintf(&file, gatePolicies, m, quotaFixed, quotaSliding, quotaRate, quotaBurst, quotaMonth, quotaOnce)
			book[m] = new(atomic.Int64)
		}
		path := filepath.Join(dir, fmt.Sprintf("gate%d.yaml", i))
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		g.books = append(g.books, book)
		g.all = append(g.all, startGate(t, path, g.redis.addr))
	}
	return g
}

// ServeHTTP is the service: /<replica>/<mode>.
func (g *gates) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := now()
	parts := strings.Split(r.URL.Path, "/")
	replica, err := strconv.Atoi(parts[1])
	if err != nil || len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	g.books[replica][parts[2]].Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.came[r.Header.Get("X-Id")] = came
}

// ask sends one request through a replica and notes what came of it.
func (g *gates) ask(replica int, mode, tenant string) int {
	id := strconv.FormatInt(g.sent.Add(1), 10)
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.all[replica].front+"/"+mode, nil)
	if err != nil {
		g.t.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+tenant+"-key")
	req.Header.Set("X-Id", id)
	sent := now()
	resp, err := gateClient.Do(req)
	if err != nil {
		g.t.Error(err)
		return 0
	}
	resp.Body.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if tenant == "load" {
		g.says[fmt.Sprintf("%s %d", mode, resp.StatusCode)]++
		if resp.StatusCode == http.StatusOK {
			g.lists[mode] = append(g.lists[mode], admission{sent, g.came[id]})
		}
	}
	delete(g.came, id)
	return resp.StatusCode
}

var gateClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}

// load offers far more than the quotas through every replica, until what it returns is called.
func (g *gates) load() (stop func()) {
	var ended atomic.Bool
	var wg sync.WaitGroup
	for replica := range g.all {
		for _, m := range modes {
			wg.Go(func() {
				tick := time.NewTicker(8 * time.Millisecond)
				defer tick.Stop()
				for ; !ended.Load(); <-tick.C {
					g.ask(replica, m, "load")
				}
			})
		}
	}
	return func() { ended.Store(true); wg.Wait() }
}

// once sends n requests of the tenant "outage" through every replica and returns how many were let through, by mode.
func (g *gates) once(n int) map[string]int {
	passed := map[string]int{}
	for replica := range g.all {
		for _, m := range modes {
			for range n {
				if g.ask(replica, m, "outage") == http.StatusOK {
					passed[m]++
				}
			}
		}
	}
	return passed
}

// back reports whether every replica decides by the store again.
func (g *gates) back() bool {
	for replica := range g.all {
		if s := g.ask(replica, "closed", "load"); s != http.StatusOK && s != http.StatusTooManyRequests {
			return false
		}
	}
	return true
}

// tally is what replicas, service and store have counted, of the tenant "load" and since the start.
type tally struct {
	shared, alone, used map[string]int64 // by mode: let through by the store and without it; the store's usage
	store               map[string]int64 // the stores' figures, over all replicas
}

// count reads the replicas' figures and the store's, and holds the replicas' against the service's.
func (g *gates) count() tally {
	g.t.Helper()
	c := tally{map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}}
	for i, p := range g.all {
		figure := p.figures()
		for _, m := range modes {
			allowed := figure[`fairlane_gate_allowed_total{route="`+m+`"}`]
			away := figure[`fairlane_gate_allowed_away_total{route="`+m+`"}`]
			if seen := g.books[i][m].Load(); seen != allowed {
				g.t.Errorf("replica %d, %s: the gate let %d through, the service saw %d", i, m, allowed, seen)
			}
			c.shared[m] += allowed - away
			c.alone[m] += away
		}
		for _, name := range []string{"asked", "away", "late", "kept", "doubt"} {
			c.store[name] += figure[`fairlane_gate_store_total{figure="`+name+`"}`]
		}
	}
	for _, m := range modes {
		c.used[m] = g.used("month-"+m, "load", quotaMonth, admit.Month) + g.used("once-"+m, "outage", quotaOnce, admit.Month)
	}
	return c
}

func (g *gates) used(policy, tenant string, quota int64, window time.Duration) int64 {
	g.t.Helper()
	store, err := redisquota.Open(redisquota.Config{URL: "redis://" + g.redis.addr, Deadline: 10 * time.Second})
	if err != nil {
		g.t.Fatal(err)
	}
	defer store.Close()
	n, err := store.Usage(g.t.Context(), admit.Check{
		Policy: policy, Key: []string{tenant}, Cost: 1,
		Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: quota, Window: window},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// exact holds the store's usage against the replicas' logs: equal, but for decisions that were in doubt.
func (g *gates) exact(when string) tally {
	g.t.Helper()
	c := g.count()
	var logged, used int64
	for _, m := range modes {
		logged, used = logged+c.shared[m], used+c.used[m]
		if c.store["doubt"]+c.store["kept"] == 0 && c.shared[m] != c.used[m] {
			g.t.Errorf("%s, %s: the store has %d, the replicas logged %d", when, m, c.used[m], c.shared[m])
		}
	}
	g.t.Logf("%s: the replicas logged %d and without the store %v, the store has %d; %v", when, logged, c.alone, used, c.store)
	if kept := c.store["kept"]; used-logged < kept || used-logged > kept+c.store["doubt"] {
		g.t.Errorf("%s: the store has %d, the replicas logged %d; recorded late %d, in doubt %d", when, used, logged, kept, c.store["doubt"])
	}
	return c
}

// within holds admissions against the quotas of a second. What was sent and came within one span was decided within it.
func within(t *testing.T, what string, list []admission) {
	t.Helper()
	unix := time.Duration(origin.UnixNano())
	fixed := map[time.Duration]int{}
	for i, a := range list {
		if s := (unix + a.sent) / time.Second; s == (unix+a.came)/time.Second {
			fixed[s]++
		}
		n, rate := 0, 0
		for _, b := range list[max(0, i-1000):min(len(list), i+1000)] { // in the order of answers
			if b.sent >= a.sent && b.came <= a.sent+time.Second {
				n++
			}
			if b.sent >= a.sent && b.came <= a.sent+4*time.Second {
				rate++
			}
		}
		if n > quotaSliding || rate > quotaBurst+4*quotaRate {
			t.Fatalf("%s: %d in one second and %d in four, quotas %d and %d", what, n, rate, quotaSliding, quotaBurst+4*quotaRate)
		}
	}
	for s, n := range fixed {
		if n > quotaFixed {
			t.Errorf("%s: %d in the second %d, quota %d", what, n, s, quotaFixed)
		}
	}
}

// split returns the admissions that began and ended in the span, and those that do not touch it.
func split(list []admission, from, to time.Duration) (during, outside []admission) {
	for _, a := range list {
		switch {
		case a.sent >= from && a.came <= to:
			during = append(during, a)
		case a.came < from || a.sent > to:
			outside = append(outside, a)
		}
	}
	return during, outside
}

// Row D12: three gates with one Redis admit no more than a quota in any window, and the store's usage is what they
// logged; over a kill -9 of the store too, but for decisions of which nobody can know. While it is away, closed
// admits nothing, local at most the sum of the shares, open everything; after it, all is exact again.
func TestThreeGatesShareOneQuotaOverAKill(t *testing.T) {
	phase := 1200 * time.Millisecond
	if *torture {
		phase = 20 * time.Second
	}
	g := startGates(t)
	stop := g.load()
	<-time.After(phase)
	stop()
	before := g.exact("before")
	if before.alone["local"]+before.alone["open"] != 0 || before.store["doubt"] != 0 {
		t.Errorf("before the kill some were let through without the store: %+v", before)
	}

	stop = g.load()
	<-time.After(phase / 4)
	gone := g.redis.kill()
	if passed := g.once(40); passed["closed"] != 0 || passed["local"] != quotaOnce || passed["open"] != 40*replicas {
		t.Errorf("while the store was away these were let through: %v; want none, all shares' %d, all %d", passed, quotaOnce, 40*replicas)
	}
	<-time.After(phase / 4)
	restarted := now()
	g.redis.start()
	if !poll(30*time.Second, g.back) {
		t.Fatal("the replicas do not come back to the store")
	}
	back := now()
	<-time.After(phase / 2)
	stop()
	over := g.exact("over a kill")
	if over.alone["closed"] != 0 || over.alone["local"] == 0 || over.alone["open"] == 0 {
		t.Errorf("let through without the store: %v", over.alone)
	}

	if passed := g.once(40); passed["closed"] != quotaOnce || passed["local"] != quotaOnce || passed["open"] != quotaOnce {
		t.Errorf("after it these were let through: %v, want the whole quota of %d: what was let through without the store is not booked", passed, quotaOnce)
	}
	stop = g.load()
	<-time.After(phase)
	stop()
	after := g.exact("after")
	if after.store["doubt"] != over.store["doubt"] || after.store["away"] != over.store["away"] {
		t.Errorf("after it: %v, then %v", over.store, after.store)
	}
	for _, m := range modes {
		logged, used := after.shared[m]-over.shared[m], after.used[m]-over.used[m]
		if logged != used {
			t.Errorf("after it, %s: the replicas logged %d, the store %d", m, logged, used)
		}
	}
	g.judge(gone.to, restarted, back)
}

// judge holds all admissions against the quotas.
func (g *gates) judge(gone, restarted, back time.Duration) {
	for _, m := range modes {
		if m == "closed" {
			within(g.t, m, g.lists[m])
			continue
		}
		_, outside := split(g.lists[m], gone, back)
		within(g.t, m, outside)
		during, _ := split(g.lists[m], gone, restarted)
		g.t.Logf("%s: %d let through in the %v without the store", m, len(during), restarted-gone)
		if m == "local" {
			within(g.t, m+" without the store", during)
		}
	}
	g.t.Log(g.says)
	for _, m := range modes {
		if g.says[m+" 429"] == 0 {
			g.t.Errorf("%s: nothing was refused: that was no load", m)
		}
	}
}
