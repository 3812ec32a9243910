package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// replayRun is the size of a run.
type replayRun struct {
	dead, bytes int // dead letters, and the payload of one
	good        int // delivered before
	rate, burst int // contract
	live        int // per second
	calm        time.Duration
	room        string // of the data directory: so little that what is dead moves into HELD
	kills       int
	within      float64 // live p99 during the replay over the one alone; 0: printed
}

func replaySize() replayRun {
	if *torture {
		return replayRun{dead: 50_000, bytes: 900, good: 1000, rate: 1000, burst: 1000, live: 200, calm: 20 * time.Second, room: "176MiB", kills: 2, within: 1.25}
	}
	return replayRun{dead: 800, bytes: 64_000, good: 50, rate: 150, burst: 20, live: 20, calm: 2 * time.Second, room: "160MiB", kills: 1}
}

// Row C17. Dead letters, half of them in HELD, are replayed onto a live endpoint with a contract: killed in the middle
// and resumed by itself, cancelled in the middle and resumed by a person. Nobody gets what was delivered; the endpoint
// never gets more than its contract; the numbers of the replay add up to what it took.
//
// Field case 43.
// Field case 49.
// Field case 50.
func TestKillWhileDeadLettersAreReplayed(t *testing.T) {
	size := replaySize()
	s := newService(t)
	roomFor(t, s, size.room)
	s.startReady()
	s.putTenant("ant")
	e := listen(t, "ant", "", always(200, 0))
	sub := s.subscribe("ant", e.url, "orders.>", nil)
	r := &replaying{service: s, t: t, endpoint: e, sub: sub, size: size, posted: make(map[string]time.Duration)}
	var kills []kill

	good := r.postAll("good", size.good, 900)
	r.awaitAccount("the good ones", func(a account) bool { return a.Delivered == uint64(size.good) })
	e.become(always(422, 0))
	dead := r.postAll("dead", size.dead, size.bytes)
	r.awaitAccount("death", func(a account) bool { return a.Dead == uint64(size.dead) })
	if !poll(30*time.Second, func() bool { return r.held() > float64(size.dead*size.bytes)/5 }) {
		t.Errorf("only %.0f bytes have moved into HELD", r.held())
	}
	kills = append(kills, s.kill()) // what is dead survives
	s.startReady()
	r.awaitAccount("the dead after a kill", func(a account) bool { return a.Dead == uint64(size.dead) && a.Delivered == uint64(size.good) })
	t.Logf("%d dead letters, %.1f MB in HELD", size.dead, r.held()/1e6)

	s.must("PATCH", "/v1/subscriptions/"+sub, map[string]any{"rate": fmt.Sprintf("%d/s", size.rate), "burst": size.burst, "cap": 32}, nil)
	e.become(always(200, time.Millisecond))
	from := now()
	live := r.startLive(size.live)
	calm := [][2]time.Duration{r.window(size.calm)} // the live stream alone

	var dry replay
	s.must("POST", "/v1/replays", map[string]any{"subscription": sub, "dry_run": true}, &dry)
	if dry.Selected != uint64(size.dead) {
		t.Errorf("the dry run counts %d", dry.Selected)
	}
	begin := now()
	s.must("POST", "/v1/replays", map[string]any{"subscription": sub}, &r.job)
	if r.job.Selected != dry.Selected {
		t.Errorf("the run selects %d, the dry run said %d", r.job.Selected, dry.Selected)
	}
	var busy [][2]time.Duration // undisturbed parts of the replay
	part := func(until uint64) {
		at := now()
		looked := now()
		if !poll(10*time.Minute, func() bool {
			if now()-looked < 50*time.Millisecond { // asking costs, too
				return false
			}
			looked = now()
			st := r.status()
			return st.Delivered+st.DiedAgain >= until || st.State == "done"
		}) {
			t.Fatalf("the replay stands still: %+v", r.status())
		}
		busy = append(busy, [2]time.Duration{at, now()})
	}
	n := uint64(size.dead)
	part(n / 4)
	kills = append(kills, s.kill())
	s.startReady()
	s.checkAccounts("after the kill")
	poll(3*time.Second, func() bool { return now()-kills[1].to > 2500*time.Millisecond })
	part(n / 2)
	s.must("POST", "/v1/replays/"+r.job.ID+"/cancel", nil, &r.job)
	taken := r.job.Taken
	poll(10*time.Second, func() bool { return r.status().Waiting == 0 })
	if st := r.status(); st.State != "cancelled" || st.Taken != taken || st.Left+st.Taken+st.Skipped != n || st.Left == 0 {
		t.Errorf("cancelled with %d taken, then %+v", taken, st)
	}
	if a := r.account(); a.Dead != n-taken {
		t.Errorf("after the cancel %d are dead, want %d", a.Dead, n-taken)
	}
	for range size.kills { // a cancelled one stays cancelled
		kills = append(kills, s.kill())
		s.startReady()
		if st := r.status(); st.State != "cancelled" || st.Taken != taken {
			t.Errorf("after a kill: %+v", st)
		}
	}
	poll(3*time.Second, func() bool { return now()-kills[len(kills)-1].to > 2500*time.Millisecond })
	calm = append(calm, r.window(size.calm))
	s.must("POST", "/v1/replays/"+r.job.ID+"/resume", nil, &r.job)
	part(n)
	poll(20*time.Second, func() bool { return r.status().State == "done" })
	took := now() - begin
	live.stop()
	r.awaitAccount("rest", func(a account) bool { return a.Parked+a.InFlight == 0 })

	st := r.status()
	if st.State != "done" || st.Delivered != n || st.Taken != n || st.DiedAgain+st.Cancelled+st.Waiting+st.Left+st.Skipped != 0 {
		t.Errorf("the replay at its end: %+v", st)
	}
	acked, inDoubt := live.outcome(t)
	want := account{Offered: uint64(size.good+size.dead) + uint64(len(acked)), Balanced: true}
	want.Delivered = want.Offered
	if a := s.checkAccounts("at the end")[sub].Account; a.Dead+a.Parked+a.InFlight != 0 || a.Delivered < want.Delivered || a.Delivered > want.Delivered+uint64(inDoubt) {
		t.Errorf("account %+v, want %+v", a, want)
	}
	r.judge(good, dead, kills, from)
	p50, before := r.percentiles(calm)
	p50During, during := r.percentiles(busy)
	t.Logf("%d replayed in %v, beside %d live a second", n, took-size.calm, size.live)
	t.Logf("live before: p50 %v, p99 %v", p50, before)
	t.Logf("live during: p50 %v, p99 %v", p50During, during)
	ratio := float64(during) / float64(before)
	t.Logf("live p99 during over before: %.2f (must be at most 1.25, on a machine that does nothing else)", ratio)
	if size.within > 0 && ratio > size.within {
		t.Errorf("live p99 %v before, %v during the replay: %.2f", before, during, ratio)
	}
}

// replay is a replay of the API.
type replay struct {
	ID, State, Blocked                                            string
	Selected, Taken, Delivered, Cancelled, Waiting, Skipped, Left uint64
	DiedAgain                                                     uint64 `json:"died_again"`
}

// replaying is one run's books.
type replaying struct {
	*service
	t        *testing.T
	endpoint *endpoint
	sub      string
	size     replayRun
	job      replay

	mu     sync.Mutex
	posted map[string]time.Duration // of live triggers, by name
}

func roomFor(t *testing.T, s *service, room string) {
	t.Helper()
	text, err := os.ReadFile(s.config())
	if err == nil {
		err = os.WriteFile(s.config(), []byte(strings.Replace(string(text), "max_bytes: 2GiB", "max_bytes: "+room, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (r *replaying) held() float64 { return r.metric(`fairlane_journal_stream_bytes{stream="held"}`) }

func (r *replaying) status() (st replay) {
	r.t.Helper()
	r.must("GET", "/v1/replays/"+r.job.ID, nil, &st)
	return st
}

func (r *replaying) account() account {
	r.t.Helper()
	var l lane
	r.must("GET", "/v1/lanes/"+r.sub, nil, &l)
	return l.Account
}

func (r *replaying) awaitAccount(what string, holds func(account) bool) {
	r.t.Helper()
	if !poll(3*time.Minute, func() bool { return holds(r.account()) }) {
		r.t.Fatalf("never: %s; account %+v", what, r.account())
	}
}

// named is a payload of about so many bytes that names its trigger.
func named(name string, bytes int) []byte {
	b, _ := json.Marshal(map[string]string{"trigger": name, "pad": strings.Repeat("x", bytes)}) // strings always marshal
	return b
}

// postAll posts n triggers and returns their ids.
func (r *replaying) postAll(kind string, n, bytes int) []string {
	r.t.Helper()
	ids := make([]string, n)
	var next atomic.Int64
	var posters sync.WaitGroup
	for range 16 {
		posters.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				ids[i] = r.post(fmt.Sprintf("%s/%d", kind, i), bytes)
			}
		})
	}
	posters.Wait()
	if slices.Contains(ids, "") {
		r.t.Fatalf("%s: a post was not acknowledged", kind)
	}
	return ids
}

// post returns the id, or "" when it was not acknowledged.
func (r *replaying) post(name string, bytes int) string {
	var out struct{ ID string }
	_, err := r.do(context.Background(), "POST", "/v1/triggers/orders.created", http.Header{"Fairlane-Tenant": {"ant"}}, named(name, bytes), &out)
	if err != nil {
		return ""
	}
	return out.ID
}

// startLive posts so many a second, as many customers do: each independently of the others, so that the gaps are
// exponential and no post keeps step with a flush. It goes on until it is stopped, whatever the service does.
func (r *replaying) startLive(perSecond int) *load {
	ctx, cancel := context.WithCancel(r.t.Context())
	l := newLoad(r.service)
	l.cancel = cancel
	gaps := rand.New(rand.NewPCG(1, 2))
	l.running.Go(func() {
		due := now()
		for n := 0; ; n++ {
			due += time.Duration(gaps.ExpFloat64() / float64(perSecond) * float64(time.Second))
			select {
			case <-ctx.Done():
				return
			case <-time.After(due - now()):
			}
			name := fmt.Sprintf("live/%d", n)
			r.mu.Lock()
			r.posted[name] = now()
			r.mu.Unlock()
			l.running.Go(func() {
				id := r.post(name, 860)
				l.mu.Lock()
				defer l.mu.Unlock()
				if id == "" {
					l.inDoubt++
					return
				}
				l.acked[id] = trigger{id: id, tenants: []string{"ant"}, n: n}
			})
		}
	})
	r.t.Cleanup(l.stop)
	return l
}

// window lets so much time pass.
func (r *replaying) window(d time.Duration) [2]time.Duration {
	begin := now()
	poll(d+time.Second, func() bool { return now()-begin >= d })
	return [2]time.Duration{begin, now()}
}

// percentiles are those of the time from a live trigger's post to its arrival, of those posted in the windows.
func (r *replaying) percentiles(windows [][2]time.Duration) (p50, p99 time.Duration) {
	var all []time.Duration
	seen := make(map[string]bool)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.endpoint.requests() {
		at, live := r.posted[q.posted]
		if !live || seen[q.posted] {
			continue
		}
		seen[q.posted] = true
		for _, w := range windows {
			if at >= w[0] && q.at < w[1] {
				all = append(all, q.at-at)
			}
		}
	}
	if len(all) == 0 {
		r.t.Error("no live trigger in the window")
		return 1, 1
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// judge holds the endpoint's book against what was dead and what was delivered before, and against the contract
// from the instant on at which it was set.
func (r *replaying) judge(good, dead []string, kills []kill, from time.Duration) {
	r.t.Helper()
	byID := r.endpoint.byID()
	for _, id := range good {
		if n := len(byID[id]); n != 1 {
			r.t.Errorf("%s was delivered before, and came %d times", id, n)
		}
	}
	missing := 0
	for _, id := range dead {
		if !slices.ContainsFunc(byID[id], func(q request) bool { return q.accepted() }) {
			missing++
		}
	}
	if missing > 0 {
		r.t.Errorf("%d of %d dead letters were not delivered", missing, len(dead))
	}
	v := judgeDuplicates(r.t, r.endpoint, kills)
	r.t.Logf("%d duplicates, %d of them in flight at a kill", v.duplicates, v.inFlight)
	contract := &endpoint{name: r.endpoint.name}
	r.endpoint.mu.Lock()
	for _, q := range r.endpoint.seen {
		if q.at >= from {
			contract.seen = append(contract.seen, q)
		}
	}
	r.endpoint.mu.Unlock()
	most := judgeRate(r.t, contract, float64(r.size.rate), r.size.burst, 32)
	r.t.Logf("contract %d/s, burst %d, cap 32: no interval T had more than %.0f beyond the rate (at most %d allowed), as the endpoint counted",
		r.size.rate, r.size.burst, most, r.size.burst+32)
}
