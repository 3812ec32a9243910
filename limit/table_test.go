package limit

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func perSecond(n, burst int64) Rate { return must(NewRate(n, time.Second, burst)) }

func newTable(bound int) *Table { return NewTable(bound, maphash.MakeSeed()) }

// idling is what so many calls do: every bucket is looked at.
func idling(table *Table, now time.Duration) {
	for i := range table.shards {
		s := &table.shards[i]
		for range 4 * s.cells.size() {
			s.sweepLocked(s.seenLocked(int64(now)) - int64(idle))
		}
	}
}

func TestTableKeepsABucketForEachKey(t *testing.T) {
	table, r := newTable(100), perSecond(1, 2)
	for _, key := range []string{"a", "b"} {
		for i := range 3 {
			if d := table.Take(key, r, 0, 1); d.Allowed != (i < 2) {
				t.Errorf("%s %d: %+v", key, i, d)
			}
		}
	}
	if d := table.Take("a", r, time.Second, 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

// Another contract holds from the next request on, with what was left.
//
// Limiter case L64.
func TestTableChangesAContractWithoutARefill(t *testing.T) {
	table, low, high := newTable(10), perSecond(1, 10), perSecond(100, 1000)
	table.Take("k", low, 0, 8)
	for i, c := range []struct {
		r    Rate
		left int64
	}{{high, 1}, {low, 0}} {
		if d := table.Take("k", c.r, 0, 1); !d.Allowed || d.Remaining != c.left {
			t.Errorf("change %d: %+v", i, d)
		}
	}
	table.Take("k", Unlimited(), 0, 1)
	table.Take("k", must(NewRate(0, 0, 0)), 0, 1)
	if d := table.Take("k", high, 0, 1); d.Allowed {
		t.Errorf("unlimited or paused for a while refilled: %+v", d)
	}
}

func TestTableStoresNothingForUnlimitedAndPaused(t *testing.T) {
	table := newTable(10)
	d := table.Take("u", Unlimited(), 0, 1<<40)
	p := table.Take("p", must(NewRate(0, 0, 0)), 0, 1)
	if !d.Allowed || p.Allowed || p.Reason != Paused || table.Len() != 0 {
		t.Errorf("%+v %+v, %d keys", d, p, table.Len())
	}
}

// Millions of keys that come once do not grow the table, and once they are full
// for a while their memory goes.
//
// Limiter case L66.
func TestTableIsBoundedAndForgetsTheIdle(t *testing.T) {
	const bound = 1000
	table, r := newTable(bound), perSecond(1, 5)
	for i := range 20_000 {
		table.Take(fmt.Sprint(i), r, 0, 1)
	}
	if n := table.Len(); n != bound {
		t.Errorf("%d keys, bound %d", n, bound)
	}
	now := time.Second + idle // full after a second
	idling(table, now-1)
	if n := table.Len(); n != bound {
		t.Errorf("%d keys, forgotten before they were idle", bound-n)
	}
	idling(table, now)
	if n := table.Len(); n != 0 {
		t.Errorf("%d keys of idle buckets", n)
	}
	for i := range table.shards {
		if table.shards[i].cells.now.Load() != nil {
			t.Error("an empty shard keeps its memory")
		}
	}
}

// A bucket that is not full is never forgotten, whoever wants its room.
//
// Limiter case L18.
// Limiter case L4.
func TestTableForgetsOnlyFullBuckets(t *testing.T) {
	table, r := newTable(1), must(NewRate(1, time.Hour, 1))
	table.Take("a", r, time.Minute, 1)
	for now := time.Duration(0); now < time.Hour; now += time.Minute { // some of it before the last
		table.Take("b", r, now, 1)
		if table.Take("a", r, now, 1).Allowed {
			t.Fatalf("a second token at %v", now)
		}
	}
	if !table.Take("b", r, 2*time.Hour, 1).Allowed || table.Take("b", r, 2*time.Hour, 1).Allowed {
		t.Error("b does not get the room of a full bucket")
	}
}

// Newcomers without room share a bucket with those of their contract.
func TestTableNewcomersShareOneBucketAContract(t *testing.T) {
	table, r, other := newTable(1), must(NewRate(1, time.Second, 10)), must(NewRate(2, time.Second, 10))
	table.Take("resident", must(NewRate(1, time.Hour, 1)), 0, 1)
	for i := range 6 {
		if d := table.Take(fmt.Sprint("new", i), r, 0, 2); d.Allowed != (i < 5) {
			t.Fatalf("newcomer %d: %+v", i, d)
		}
	}
	if d := table.Take("other", other, 0, 10); !d.Allowed {
		t.Errorf("another contract shares with them: %+v", d)
	}
	if d := table.Take("new1", r, 0, 3); d.Allowed || d.RetryIn != 3*time.Second {
		t.Errorf("%+v", d)
	}
	for i := range int64(20) { // contracts come and go: full ones make room
		now := time.Duration(20+20*i) * time.Second
		table.Take("new", must(NewRate(100+i, time.Second, 1)), now, 1)
	}
	if n := len(table.shards[0].overflow); n > 2 {
		t.Errorf("%d overflow buckets", n)
	}
}

// A ticket of a bucket that has been forgotten, or that was shared, gives nothing
// to the one that the key has now, however many epochs either has seen.
//
// Limiter case L24.
func TestTableRefundsNothingAfterForgetting(t *testing.T) {
	r, slow := perSecond(1, 5), must(NewRate(1, time.Hour, 1))
	for name, resident := range map[string]Rate{"forgotten": r, "shared": slow} {
		table := newTable(1)
		if name == "shared" {
			table.Take("resident", resident, 0, 1)
		}
		var tickets []uint16
		now := time.Duration(0)
		for range 50 {
			tickets = append(tickets, table.Take("k", r, now, 1).Epoch)
			now += time.Second
		}
		table.Take("resident", resident, now, 1) // takes the room, or keeps it
		now += time.Hour
		for range 50 {
			table.Take("k", r, now, 5)
			for _, epoch := range tickets {
				table.Refund("k", now, 1, epoch)
			}
			if d := table.Take("k", r, now, 1); d.Allowed {
				t.Fatalf("%s: a late refund gave a token: %+v", name, d)
			}
			now += time.Minute
		}
	}
}

// Whatever is forgotten, shared, found again, given back late or comes with an
// instant of the past, no key gets more than its contract says over any interval
// (paid by its own takes, less what was given back).
//
// Limiter case L1.
// Limiter case L24.
// Limiter case L66.
func TestForgettingNeverGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newTable(rapid.IntRange(1, 3).Draw(t, "bound"))
		contracts := []Rate{perSecond(1, 2), perSecond(3, 5), perSecond(10, 10)}
		keys := []string{"a", "b", "c", "d", "e"}
		ledger := map[string]naive{}
		var now time.Duration
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now += rapid.SampledFrom([]time.Duration{0, 0, 0, 1, time.Second / 3, time.Second, 3 * time.Second, 2 * idle}).Draw(t, "wait")
			i := rapid.IntRange(0, len(keys)-1).Draw(t, "key")
			key, r := keys[i], contracts[i%len(contracts)]
			if rapid.IntRange(0, 4).Draw(t, "refund") == 0 && len(ledger[key]) > 0 {
				tableRefund(t, table, key, ledger, now)
				continue
			}
			cost := rapid.Int64Range(1, r.Burst()).Draw(t, "cost")
			if d := table.Take(key, r, now, cost); d.Allowed {
				ledger[key] = append(ledger[key], pass{now, cost, d.Epoch})
				holds(t, key, r, ledger[key])
			}
		}
	})
}

// tableRefund gives some take back; it leaves the ledger only if that bucket's
// level rose by it, as far as one can see from outside: only then was it given.
func tableRefund(t *rapid.T, table *Table, key string, ledger map[string]naive, now time.Duration) {
	h := ledger[key]
	i := rapid.IntRange(0, len(h)-1).Draw(t, "which")
	s, hash := table.shard(key)
	held := s.cells.hold(hash)
	if held == nil {
		table.Refund(key, now, h[i].cost, h[i].epoch)
		return
	}
	held.mu.Unlock()
	before := held.level
	table.Refund(key, now, h[i].cost, h[i].epoch)
	if before != held.level {
		ledger[key] = append(append(naive{}, h[:i]...), h[i+1:]...)
	}
}

// holds checks B + rT over every interval that ends now.
func holds(t *rapid.T, key string, r Rate, h naive) {
	end, sum := h[len(h)-1].at, int64(0)
	for i := len(h) - 1; i >= 0; i-- {
		sum += h[i].cost
		if float64(sum) > float64(r.Burst())+r.PerSecond()*(end-h[i].at).Seconds()+1e-6 {
			t.Fatalf("%s took %d within %v: %v", key, sum, end-h[i].at, h)
		}
	}
}

// Limiter case L52.
func TestTableHoldsLimitsUnderConcurrency(t *testing.T) {
	const workers, keys = 8, 300
	table, r := newTable(200), perSecond(1, 50)
	var mu sync.Mutex
	passed := map[int]int{}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rnd, mine := rand.New(rand.NewPCG(uint64(w), 1)), map[int]int{}
			for range 5000 {
				k := rnd.IntN(keys)
				if d := table.Take(fmt.Sprint(k), r, 0, 1); d.Allowed {
					mine[k]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, n := range mine {
				passed[k] += n
			}
		})
	}
	all.Wait()
	for k, n := range passed {
		if n > 50 {
			t.Errorf("key %d: %d of 50", k, n)
		}
	}
	if table.Len() > 200 {
		t.Errorf("%d keys", table.Len())
	}
}

// Keys are forgotten, moved and found again under those who take from them.
//
// Limiter case L52.
// Limiter case L66.
func TestForgettingNeverGrantsUnderConcurrency(t *testing.T) {
	const workers, keys, burst = 4, 300, 20
	table, r := newTable(100), perSecond(10, burst)
	var mu sync.Mutex
	var clock atomic.Int64
	passed := map[int][]time.Duration{}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rnd, mine := rand.New(rand.NewPCG(uint64(w), 1)), map[int][]time.Duration{}
			for range 5000 {
				now := time.Duration(clock.Add(int64(time.Millisecond)))
				k := (int(now/time.Second)*20 + rnd.IntN(20)) % keys // busy for a second, idle for fourteen
				if d := table.Take(fmt.Sprint(k), r, now, 1); d.Allowed {
					mine[k] = append(mine[k], now)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, at := range mine {
				passed[k] = append(passed[k], at...)
			}
		})
	}
	all.Wait()
	for k, at := range passed {
		slices.Sort(at)
		for i := range at {
			for j := i; j < len(at); j++ {
				// a worker's instant may be older than those of the takes before it
				if most := burst + 10*(at[j]-at[i]).Seconds() + workers; float64(j-i+1) > most {
					t.Fatalf("key %d: %d passed within %v", k, j-i+1, at[j]-at[i])
				}
			}
		}
	}
	if n := table.Len(); n > 100 {
		t.Errorf("%d keys, bound 100", n)
	}
}

func TestACellIsACacheLineAndAShardTwo(t *testing.T) {
	if c, s := unsafe.Sizeof(cell{}), unsafe.Sizeof(shard{}); c != 64 || s != 128 {
		t.Errorf("cell %d bytes, shard %d", c, s)
	}
}

func TestTableTakeOfAKnownKeyAllocatesNothing(t *testing.T) {
	table, r := newTable(10), perSecond(1000, 1000)
	now := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() { now++; table.Take("k", r, now, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The hash table is a map, over growth, removal and shrinking.
func TestCellsAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c cells
		twin := map[uint64]bool{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			hash := rapid.Uint64Range(1, 40).Draw(t, "hash") << rapid.SampledFrom([]int{0, 8}).Draw(t, "shift")
			switch h, i := c.look(); {
			case !twin[hash]:
				twin[hash] = true
				if h != nil {
					h.mu.Unlock()
				}
				c.add(hash, state{per: int64(hash)}).mu.Unlock()
			case h != nil:
				delete(twin, h.key.Load())
				c.remove(i)
			}
			for hash := range twin {
				h := c.hold(hash)
				if h == nil || h.key.Load() != hash || h.per != int64(hash) {
					t.Fatalf("%d is lost", hash)
				}
				h.mu.Unlock()
			}
			if c.n != len(twin) || 8*c.n < c.size()-minCells {
				t.Fatalf("%d of %d in %d cells", c.n, len(twin), c.size())
			}
		}
	})
}
