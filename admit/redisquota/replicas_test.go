package redisquota

import (
	"flag"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/quotatest"
)

var torture = flag.Bool("torture", false, "run the replicas for a minute")

const replicas = 3

// quotas are the limits of one tenant of the load. They differ by what holds while the store is away.
func quotas(m admit.Away) []admit.Check {
	tenant := m.String()
	of := func(c admit.Check) admit.Check { return mode(quotatest.Of(c, tenant), m) }
	return []admit.Check{
		of(quotatest.Fixed("second", 60, time.Second)),
		of(quotatest.Sliding("sliding", 50, time.Second)),
		of(quotatest.Bucket("rate", 80, time.Second, 40)),
		of(quotatest.Fixed("month", 1_000_000, admit.Month)),
	}
}

// book is one replica's own log of one tenant: what it let through, by window.
type book struct {
	mu              sync.Mutex
	second, sliding map[uint16]int64 // by window's and by sub-window's number, decided by the store
	share           map[uint16]int64 // by second, decided here
	shared, alone   int64
	offered         int64
}

func newBook() *book {
	return &book{second: map[uint16]int64{}, sliding: map[uint16]int64{}, share: map[uint16]int64{}}
}

func (b *book) add(a admit.Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offered++
	switch {
	case !a.Allowed:
	case a.Away:
		b.alone++
		b.share[a.Checks[0].Epoch]++
	default:
		b.shared++
		b.second[a.Checks[0].Epoch]++
		b.sliding[a.Checks[1].Epoch]++
	}
}

// sum adds the replicas' books up.
func sum(books []*book) *book {
	all := newBook()
	for _, b := range books {
		b.mu.Lock()
		for _, m := range []struct{ to, from map[uint16]int64 }{{all.second, b.second}, {all.sliding, b.sliding}, {all.share, b.share}} {
			for k, n := range m.from {
				m.to[k] += n
			}
		}
		all.shared += b.shared
		all.alone += b.alone
		all.offered += b.offered
		b.mu.Unlock()
	}
	return all
}

// most is the highest sum over that many consecutive windows.
func most(m map[uint16]int64, windows int) (n int64) {
	for k := range maps.Keys(m) {
		var s int64
		for i := range windows {
			s += m[k+uint16(i)]
		}
		n = max(n, s)
	}
	return n
}

// fleet is some replicas under load: each offers to every tenant.
type fleet struct {
	stores []*Store
	books  map[admit.Away][]*book
	stop   atomic.Bool
	wg     sync.WaitGroup
}

var modes = []admit.Away{admit.AwayClosed, admit.AwayLocal, admit.AwayOpen}

func startFleet(t *testing.T, srv *server) *fleet {
	f := &fleet{books: map[admit.Away][]*book{}}
	for range replicas {
		st := srv.open(func(c *Config) { c.Deadline = time.Second; c.Replicas = replicas })
		f.stores = append(f.stores, st)
		for _, m := range modes {
			b := newBook()
			f.books[m] = append(f.books[m], b)
			f.wg.Go(func() {
				tick := time.NewTicker(500 * time.Microsecond) // 2,000/s, far above the quota
				defer tick.Stop()
				for checks := quotas(m); !f.stop.Load(); <-tick.C {
					a, err := st.Take(bg, checks)
					if err != nil {
						t.Error(err)
					}
					b.add(a)
				}
			})
		}
	}
	t.Cleanup(f.end)
	return f
}

// end stops the load and waits for late answers.
func (f *fleet) end() {
	f.stop.Store(true)
	f.wg.Wait()
	for _, st := range f.stores {
		st.calls.Wait()
	}
}

func (f *fleet) stats() (s Stats) {
	for _, st := range f.stores {
		x := st.Stats()
		s.Away, s.Late, s.Kept, s.Returned, s.Doubt = s.Away+x.Away, s.Late+x.Late, s.Kept+x.Kept, s.Returned+x.Returned, s.Doubt+x.Doubt
	}
	return s
}

func (f *fleet) back() bool {
	for _, st := range f.stores {
		if a, err := st.Peek(bg, quotas(admit.AwayClosed)); err != nil || a.Away {
			return false
		}
	}
	return true
}

// Row B11, D12: three replicas share one quota. What they admit is never above it in any window,
// and what the store has counted is what they logged; over a kill -9 of the store too, but for
// decisions of which nobody can know.
//
// Limiter case L30.
// Limiter case L68.
// Limiter case L70.
func TestThreeReplicasShareOneQuota(t *testing.T) {
	phase := time.Second
	if *torture {
		phase = 20 * time.Second
	}
	// What is written outlives the process; with everysec, writes are held back while a sync takes long.
	srv, counted := serve(t, "--appendfsync", "no"), map[admit.Away]int64{}

	f := startFleet(t, srv)
	pause(phase)
	f.end()
	check(t, srv, f, counted, "before")

	f = startFleet(t, srv)
	pause(phase / 2)
	before := f.stats()
	srv.kill()
	pause(phase)
	down := f.stats()
	srv.start()
	until(t, "all replicas have the store again", f.back)
	pause(phase / 2)
	f.end()
	check(t, srv, f, counted, "over a kill")
	t.Logf("while the store was away, %d decisions: closed admitted %d, local %d, open %d",
		down.Away-before.Away, sum(f.books[admit.AwayClosed]).alone, sum(f.books[admit.AwayLocal]).alone, sum(f.books[admit.AwayOpen]).alone)
	if n := sum(f.books[admit.AwayClosed]).alone; n != 0 {
		t.Errorf("closed admitted %d while the store was away", n)
	}
	if n := most(sum(f.books[admit.AwayLocal]).share, 1); n > 60 || n == 0 {
		t.Errorf("local shares admitted %d in a second, want at most their sum of 60", n)
	}
	if n := sum(f.books[admit.AwayOpen]).alone; n == 0 {
		t.Error("open admitted nothing while the store was away")
	}

	f = startFleet(t, srv)
	pause(phase)
	f.end()
	check(t, srv, f, counted, "after")
}

// check compares the replicas' books with the quotas and with the store.
//
// counted is what the store had of each tenant at the last check.
func check(t *testing.T, srv *server, f *fleet, counted map[admit.Away]int64, when string) {
	t.Helper()
	s := f.stats()
	var surplus, logged int64
	for _, m := range modes {
		b := sum(f.books[m])
		if n := most(b.second, 1); n > 60 {
			t.Errorf("%s, %v: %d admitted in one second, quota 60", when, m, n)
		}
		if n := most(b.sliding, admit.SlidingParts+1); n > 50 {
			t.Errorf("%s, %v: %d admitted in a sliding second, quota 50", when, m, n)
		}
		if b.shared < 20 || b.offered < 2*b.shared {
			t.Errorf("%s, %v: %d of %d admitted: that was no load", when, m, b.shared, b.offered)
		}
		used, err := srv.open().Usage(bg, quotas(m)[3])
		if err != nil {
			t.Fatal(err)
		}
		surplus += used - counted[m] - b.shared
		logged += b.shared
		counted[m] = used
	}
	t.Logf("%s: the replicas logged %d, the store has %d; %+v", when, logged, logged+surplus, s)
	if surplus < s.Kept || surplus > s.Kept+s.Doubt {
		t.Errorf("%s: the store has %d more than the replicas logged, want the %d recorded late and at most the %d in doubt", when, surplus, s.Kept, s.Doubt)
	}
}

// Row B11: without a shared store n replicas admit n times the quota.
func TestIndependentReplicasAdmitNTimesTheQuota(t *testing.T) {
	srv := serve(t)
	quota := []admit.Check{quotatest.Fixed("month", 100, admit.Month)}
	var alone, shared int
	for range replicas {
		l, st := admit.NewLocal(10), srv.open()
		for range 200 {
			if l.Take(quotatest.Start, quota).Allowed {
				alone++
			}
			if a, _ := st.Take(bg, quota); a.Allowed {
				shared++
			}
		}
	}
	if got := fmt.Sprint(alone, shared); got != "300 100" {
		t.Errorf("independent and shared replicas admitted %s, want 300 and 100", got)
	}
}
