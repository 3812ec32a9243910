package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

func benchEngine(t testing.TB, lanes, tenants int) *Engine {
	e := New(Config{Rand: rand.New(rand.NewPCG(1, 2))})
	for i := range tenants {
		if err := e.Apply(0, PutTenant{Tenant: TenantID(i)}); err != nil {
			t.Fatal(err)
		}
	}
	addLanes(t, e, lanes, tenants)
	return e
}

func addLanes(t testing.TB, e *Engine, lanes, tenants int) {
	rate, _ := limit.NewRate(100, time.Second, 500)
	for i := range lanes {
		err := e.Apply(0, PutLane{LaneSpec: LaneSpec{
			Lane: LaneID(i), Tenant: TenantID(i % tenants), Host: HostID(i), Profile: Profile{Rate: rate, Cap: 16},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkOfferFinish is one delivery's two decisions over 50,000 lanes in
// random order.
func BenchmarkOfferFinish(b *testing.B) {
	e := benchEngine(b, 50_000, 4000)
	order := randomLanes(50_000)
	now := time.Duration(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 20 * time.Microsecond
		v := e.Offer(now, Delivery{Lane: order[i%len(order)], Born: now})
		if v.Kind != Send {
			b.Fatal(v)
		}
		e.Finish(now, v.Ticket, Result{Kind: OK})
	}
}

func randomLanes(lanes int) []LaneID {
	rnd := rand.New(rand.NewPCG(3, 4))
	order := make([]LaneID, 1<<16)
	for i := range order {
		order[i] = LaneID(rnd.IntN(lanes))
	}
	return order
}

// BenchmarkWaitNextFinish is the long way: parked, stated, granted, finished, with
// every slot taken and 4,000 tenants waiting.
func BenchmarkWaitNextFinish(b *testing.B) {
	const lanes = 50_000
	e := benchEngine(b, lanes, 4000)
	for i := range lanes {
		e.Settle(0, LaneID(i), ToResent, 1_000_000)
		e.Waiting(0, LaneID(i), Backlog{Count: 1_000_000})
	}
	var out []Ticket
	take := func(now time.Duration) {
		g, ok := e.Next(now)
		if !ok {
			b.Fatal("nothing granted")
		}
		v, _ := e.Lane(now, g.Lane)
		e.Waiting(now, g.Lane, v.Waiting)
		out = append(out, g.Ticket)
	}
	for range 1000 {
		take(0)
	}
	now := time.Duration(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 20 * time.Microsecond
		k := i % len(out)
		e.Finish(now, out[k], Result{Kind: OK})
		out[k] = out[len(out)-1]
		out = out[:len(out)-1]
		take(now)
	}
}

// BenchmarkMeasuringRound is the second's round over 50,000 active tenants.
func BenchmarkMeasuringRound(b *testing.B) {
	const tenants = 50_000
	e := benchEngine(b, tenants, tenants)
	now := time.Second
	round := func() {
		for i := range tenants { // all stay active, all with another demand
			t := e.tenants.at(uint32(i))
			t.lastActive, t.round.first = now, float32(i*7919%tenants)
		}
		now += time.Second
		e.Tick(now)
	}
	for i := range tenants {
		v := e.Offer(now, Delivery{Lane: LaneID(i)})
		e.Finish(now, v.Ticket, Result{Kind: OK})
	}
	for range 3 {
		round()
	}
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
}

// BenchmarkBucketTake is the unit in which the others are read.
func BenchmarkBucketTake(b *testing.B) {
	rate, _ := limit.NewRate(1e9, time.Second, 1e9)
	bucket := limit.NewBucket(rate)
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 20 * time.Microsecond
		bucket.Take(now, 1)
	}
}
