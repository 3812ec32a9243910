package engine_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/limit"
)

// apply panics on a change that is refused: in an example all are right.
func apply(e *engine.Engine, changes ...engine.Change) {
	for _, c := range changes {
		if err := e.Apply(0, c); err != nil {
			panic(err)
		}
	}
}

func newEngine(slots int) *engine.Engine {
	return engine.New(engine.Config{Slots: slots, Rand: rand.New(rand.NewPCG(1, 2))})
}

// Drive one lane of 1/s: the first delivery goes at once, the second is parked and goes at the instant
// that the verdict named.
func Example() {
	e := newEngine(10)
	rate, err := limit.ParseRate("1/s", 1)
	if err != nil {
		panic(err)
	}
	apply(e,
		engine.PutTenant{Tenant: 0},
		engine.PutLane{LaneSpec: engine.LaneSpec{Lane: 0, Tenant: 0, Profile: engine.Profile{Rate: rate, Cap: 4}}},
	)

	first := e.Offer(0, engine.Delivery{Lane: 0})
	second := e.Offer(0, engine.Delivery{Lane: 0})
	fmt.Println("first sent:", first.Kind == engine.Send)
	fmt.Println("second parked:", second.Kind == engine.Park, second.Reason, second.At)

	// The driver keeps what is parked, and states it.
	e.Waiting(0, 0, engine.Backlog{Count: 1, HeadCost: 1})
	done := e.Finish(20*time.Millisecond, first.Ticket, engine.Result{Kind: engine.OK})
	fmt.Println("first delivered:", done.Kind == engine.Done)

	_, early := e.Next(second.At - 1)
	grant, ok := e.Next(second.At)
	fmt.Println("second granted:", early, ok)
	e.Waiting(second.At, 0, engine.Backlog{})
	e.Finish(second.At, grant.Ticket, engine.Result{Kind: engine.OK})
	fmt.Println("balanced:", e.Stats(second.At).Counters.Balanced())
	// Output:
	// first sent: true
	// second parked: true rate 1s
	// first delivered: true
	// second granted: false true
	// balanced: true
}

// One slot, and two tenants: a thousand deliveries of one wait, and two of the other. A free slot goes to
// the tenant that has used less, so they take turns until the small one is served.
func ExampleEngine_Next() {
	e := newEngine(1)
	for i := range 2 {
		apply(e, engine.PutTenant{Tenant: engine.TenantID(i)}, engine.PutLane{LaneSpec: engine.LaneSpec{
			Lane: engine.LaneID(i), Tenant: engine.TenantID(i), Profile: engine.Profile{Cap: 16},
		}})
	}
	running := e.Offer(0, engine.Delivery{Lane: 0}).Ticket // takes the slot
	waiting := []uint32{1000, 2}
	for lane, n := range waiting {
		for range n {
			e.Offer(0, engine.Delivery{Lane: engine.LaneID(lane)}) // parked
		}
		e.Waiting(0, engine.LaneID(lane), engine.Backlog{Count: n, HeadCost: 1})
	}
	for now := time.Duration(0); now < 120*time.Millisecond; {
		now += 20 * time.Millisecond
		e.Finish(now, running, engine.Result{Kind: engine.OK})
		g, _ := e.Next(now)
		running = g.Ticket
		waiting[g.Lane]--
		e.Waiting(now, g.Lane, engine.Backlog{Count: waiting[g.Lane], HeadCost: 1})
		fmt.Print(g.Lane, " ")
	}
	// Output: 1 0 1 0 0 0
}

// A failed attempt is parked with a due time of its own, jittered; the lane is granted again by then.
func ExampleEngine_Finish() {
	e := newEngine(10)
	apply(e,
		engine.PutTenant{Tenant: 0},
		engine.PutLane{LaneSpec: engine.LaneSpec{Lane: 0, Tenant: 0, Profile: engine.Profile{Cap: 4}}},
	)
	v := e.Offer(0, engine.Delivery{Lane: 0})
	v = e.Finish(time.Second, v.Ticket, engine.Result{Kind: engine.Failed})
	fmt.Println(v.Kind == engine.Park, v.Reason, v.Due, v.Attempt, v.At-time.Second <= 250*time.Millisecond)

	e.Waiting(time.Second, 0, engine.Backlog{Count: 1, HeadDue: v.At, HeadAttempt: v.Attempt, HeadCost: 1})
	g, ok := e.Next(v.At)
	fmt.Println(ok, g.Ticket.Attempt)
	// Output:
	// true retry true 1 true
	// true 1
}
