package main

import (
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/limit"
)

// epoch is the instant from which AllowN's times count; any will do.
var epoch = time.Unix(1_700_000_000, 0)

// takes returns n takes of a bucket and n AllowNs of a limiter, each a microsecond
// after the one before, from contracts that are equal.
func takes(perSecond, burst int) (take, allow func(n int)) {
	r, err := limit.NewRate(int64(perSecond), time.Second, int64(burst))
	if err != nil {
		panic(err) // the callers' numbers are in range
	}
	bucket, limiter := limit.NewBucket(r), rate.NewLimiter(rate.Limit(perSecond), burst)
	var now, at time.Duration
	take = func(n int) {
		for range n {
			now += time.Microsecond
			bucket.Take(now, 1)
		}
	}
	allow = func(n int) {
		for range n {
			at += time.Microsecond
			limiter.AllowN(epoch.Add(at), 1)
		}
	}
	return take, allow
}

// bucket compares a take with AllowN where all pass, and where nearly all are denied.
func (b *bench) bucket() ([]figure, error) {
	n := pick(b, 5_000_000, 500_000)
	take, allow := takes(1_000_000, 1_000_000)
	takeNo, allowNo := takes(1, 1)
	s, err := b.interleave(perOp(n, take), perOp(n, allow), perOp(n, takeNo), perOp(n, allowNo))
	if err != nil {
		return nil, err
	}
	return []figure{
		many("Bucket.Take, allowed", s[0], "ns", nil),
		many("AllowN(t, 1), allowed", s[1], "ns", nil),
		many("ratio, allowed", s[0].over(s[1]), "x", atMost(0.6)),
		many("Bucket.Take, denied", s[2], "ns", nil),
		many("AllowN(t, 1), denied", s[3], "ns", nil),
		many("ratio, denied", s[2].over(s[3]), "x", atMost(0.6)),
		one("Bucket.Take allocates", allocs(n, take), "", atMost(0)),
	}, nil
}

const lanes = 50_000

// fleet is an engine with lanes whose contract never binds. Lane i is of tenant and
// host i modulo the number of tenants.
type fleet struct {
	*engine.Engine
	now   time.Duration
	order []engine.LaneID // all lanes, shuffled
	next  int
}

func newFleet(tenants int) *fleet {
	rnd := rand.New(rand.NewPCG(1, 2))
	f := &fleet{Engine: engine.New(engine.Config{Rand: rnd})}
	r, err := limit.NewRate(100, time.Second, 500)
	if err != nil {
		panic(err) // in range
	}
	for i := range tenants {
		f.apply(engine.PutTenant{Tenant: engine.TenantID(i), Weight: 1})
	}
	for i := range lanes {
		f.apply(engine.PutLane{LaneSpec: engine.LaneSpec{
			Lane: engine.LaneID(i), Tenant: engine.TenantID(i % tenants), Host: engine.HostID(i % tenants),
			Profile: engine.Profile{Rate: r, Cap: 16},
		}})
		f.order = append(f.order, engine.LaneID(i))
	}
	rnd.Shuffle(lanes, func(i, j int) { f.order[i], f.order[j] = f.order[j], f.order[i] })
	return f
}

func (f *fleet) apply(c engine.Change) {
	if err := f.Apply(f.now, c); err != nil {
		panic(err) // the fleet's own changes are in order
	}
}

// deliver offers and finishes n deliveries, 20 us apart: one a second for each lane.
func (f *fleet) deliver(n int) {
	for range n {
		f.now += 20 * time.Microsecond
		id := f.order[f.next]
		f.next = (f.next + 1) % len(f.order)
		v := f.Offer(f.now, engine.Delivery{Lane: id, Cost: 1, Born: f.now})
		if v.Kind != engine.Send {
			panic("a delivery did not start: " + v.Reason.String())
		}
		f.Finish(f.now, v.Ticket, engine.Result{Kind: engine.OK})
	}
}

// offerFinish compares Offer and Finish with AllowN of one limiter, which stays in the
// cache, and of 50,000 in the same order.
func (b *bench) offerFinish() ([]figure, error) {
	n := pick(b, 1_000_000, 100_000)
	few, own := newFleet(1_000), newFleet(lanes)
	few.deliver(lanes)
	own.deliver(lanes)
	_, allow := takes(1_000_000, 1_000_000)
	s, err := b.interleave(perOp(n, few.deliver), perOp(n, own.deliver), perOp(n, allow), perOp(n, manyLimiters(few.order)))
	if err != nil {
		return nil, err
	}
	return []figure{
		many("Offer + Finish, 1,000 tenants", s[0], "ns", nil),
		many("Offer + Finish, 50,000 tenants", s[1], "ns", nil),
		many("AllowN(t, 1), one limiter", s[2], "ns", nil),
		many("AllowN(t, 1), 50,000 limiters in the same order", s[3], "ns", nil),
		many("ratio to AllowN, 1,000 tenants", s[0].over(s[2]), "x", atMost(6)),
		many("ratio to AllowN, 50,000 tenants", s[1].over(s[2]), "x", atMost(6)),
		many("ratio to AllowN of 50,000 limiters, 50,000 tenants", s[1].over(s[3]), "x", nil),
		one("Offer + Finish allocate", allocs(n, own.deliver), "", atMost(0)),
	}, nil
}

func manyLimiters(order []engine.LaneID) func(n int) {
	all := make([]*rate.Limiter, len(order))
	for i := range all {
		all[i] = rate.NewLimiter(100, 500)
	}
	next, at := 0, time.Duration(0)
	return func(n int) {
		for range n {
			at += 20 * time.Microsecond
			all[order[next]].AllowN(epoch.Add(at), 1)
			next = (next + 1) % len(order)
		}
	}
}

// laneMemory is the growth of the heap by an engine, over its lanes.
func (b *bench) laneMemory() ([]figure, error) {
	few, own := perLane(1_000), perLane(lanes)
	return []figure{
		one("heap per lane, 1,000 tenants on 1,000 hosts", few, "bytes", atMost(220)),
		one("heap per lane, 50,000 tenants on 50,000 hosts", own, "bytes", nil).
			note("each lane with a tenant and a host of its own, whose state is in it"),
	}, nil
}

func perLane(tenants int) float64 {
	before := heap()
	f := newFleet(tenants)
	f.deliver(2 * lanes)
	f.order = nil
	grown := heap() - before
	runtime.KeepAlive(f)
	return grown / lanes
}

// measuringRound times Tick at the second, after every tenant offered something.
func (b *bench) measuringRound() ([]figure, error) {
	f := newFleet(lanes)
	n := pick(b, 20, 3)
	var took, made series
	for i := range n + 3 {
		f.deliver(lanes) // a second
		var spent time.Duration
		n := mallocs(func() {
			begin := cpu()
			f.Tick(f.now)
			spent = cpu() - begin
		})
		if i >= 3 { // the first rounds size the buffers
			took = append(took, spent.Seconds()*1000)
			made = append(made, float64(n))
		}
	}
	return []figure{
		many("round", took, "ms", nil),
		many("allocations per round", made, "", atMost(0)),
	}, nil
}
