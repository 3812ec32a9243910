package plan_test

import (
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/plan"
)

// What a contract of 120/s and a burst of 240 does with 300 at once, a second
// after it was empty, and over a minute of 200/s.
func ExampleBucket() {
	r, err := plan.Bucket(plan.BucketInput{
		Rate: 120, Capacity: 240, Burst: 300, Idle: time.Second, Offered: 200, For: time.Minute,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.AdmittedInBurst, "of the burst pass,", r.DeniedInBurst, "do not")
	fmt.Println(r.MaximumBudget, "of", r.OfferedUnits, "pass in a minute at most")
	// Output:
	// 120 of the burst pass, 180 do not
	// 7440 of 12000 pass in a minute at most
}

// The textbook's step, in floats.
func ExampleTakeStep() {
	s, err := plan.TakeStep(plan.Step{Tokens: 240, Capacity: 240, Refill: 120, Elapsed: 1, Cost: 1})
	fmt.Println(s.Allowed, s.Refilled, s.Tokens, err)
	_, err = plan.TakeStep(plan.Step{Capacity: -1, Cost: 0})
	fmt.Println(err)
	// Output:
	// true 240 239 <nil>
	// capacity -1: must be a finite number, 0 or more
	// cost 0: must be a finite number above 0
}

// Which rule lets how many through around a boundary of the clock.
func ExampleWindow() {
	r, err := plan.Window(plan.WindowInput{Limit: 120, Width: time.Minute})
	if err != nil {
		panic(err)
	}
	for _, w := range r.Rules {
		fmt.Println(w.Rule, w.Through)
	}
	// Output:
	// fixed 240
	// sliding 120
	// exact 120
	// bucket 120
}

// How many requests of a lane are in flight at 100/s and 120 ms.
func ExampleCap() {
	r, err := plan.Cap(plan.CapInput{Rate: 100, P99: 120 * time.Millisecond, Headroom: 4})
	fmt.Println(r.InFlight, r.Cap, err)
	// Output: 12 16 <nil>
}

// What forty deliveries make of one delivery's tail.
func ExampleFanOut() {
	r, err := plan.FanOut(plan.FanOutInput{N: 40, Median: 8 * time.Millisecond, Tail: 400 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	fmt.Printf("one %.0f ms, all %.1f ms; the median of all is one's p%.1f\n", r.SingleP50, r.CompletionP50, 100*r.SingleOfP50)
	// Output: one 8 ms, all 116.5 ms; the median of all is one's p98.3
}

// What an outage of a minute costs.
func ExampleRetries() {
	r, err := plan.Retries(plan.RetriesInput{Rate: 200, Failing: 1})
	fmt.Printf("%.1f attempts a request without a budget, %.2f with it %v\n", r.Without, r.With, err)
	// Output: 4.0 attempts a request without a budget, 1.02 with it <nil>
}

// Who gets what of 1,200 slots.
func ExampleShares() {
	r, err := plan.Shares(plan.SharesInput{Capacity: 1200, Tenants: []plan.Tenant{
		{Name: "big", Want: 5000, Weight: 1}, {Name: "small", Want: 100, Weight: 1}, {Name: "pro", Want: 900, Weight: 3},
	}})
	if err != nil {
		panic(err)
	}
	for _, t := range r.Tenants {
		fmt.Println(t.Name, t.Share)
	}
	// Output:
	// big 275
	// small 100
	// pro 825
}

// What 2,000 triggers a second need.
func ExampleFleet() {
	r, err := plan.Fleet(plan.FleetInput{Subscriptions: 50_000, Tenants: 4000, Triggers: 2000, Payload: 900, Latency: 60 * time.Millisecond})
	fmt.Println(r.SlotsBusy, "slots busy, of", r.Slots, err)
	// Output: 120 slots busy, of 172 <nil>
}
