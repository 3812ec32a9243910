package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// WaitersSetup is an experiment with fair.Slots, as admission uses them: requests of several
// tenants wait for one of a few slots.
type WaitersSetup struct {
	Limits  fair.SlotLimits
	Tenants []Waiters
}

// Waiters are the requests of one tenant, all at once.
type Waiters struct {
	Name  string
	Share int
	Count int
	At    time.Duration
	Work  time.Duration // how long each holds its slot
}

// Waited is what came of an experiment with waiters.
type Waited struct {
	Tenants []WaitedTenant
	Idle    float64 // slot-seconds free while anybody waited
	End     time.Duration
}

// WaitedTenant is one tenant's part: how long each took from its coming, sorted, and when the last ended.
type WaitedTenant struct {
	Took    []time.Duration
	LastEnd time.Duration
	Refused int
}

// Median is the middle of what was taken, the mean of two when their number is even; 0 without any.
func (w *WaitedTenant) Median() time.Duration {
	n := len(w.Took)
	if n == 0 {
		return 0
	}
	return (w.Took[(n-1)/2] + w.Took[n/2]) / 2
}

// Max is the longest.
func (w *WaitedTenant) Max() time.Duration {
	if len(w.Took) == 0 {
		return 0
	}
	return w.Took[len(w.Took)-1]
}

// waiters is the experiment as it runs.
type waiters struct {
	setup  *WaitersSetup
	slots  *fair.Slots
	events events
	now    time.Duration
	claims map[fair.SlotTicket]int // to the tenant's index
	ends   []fair.SlotTicket
	out    Waited
}

// RunWaiters runs the experiment until all requests have ended. At one instant ends come before
// arrivals.
func RunWaiters(s *WaitersSetup) *Waited {
	w := &waiters{setup: s, slots: fair.NewSlots(s.Limits), claims: map[fair.SlotTicket]int{}}
	w.out.Tenants = make([]WaitedTenant, len(s.Tenants))
	for i, t := range s.Tenants {
		w.events.push(t.At, anArrival, uint32(i))
	}
	for e := w.events.top(); e != nil; e = w.events.top() {
		w.to(e.at)
		c, id := e.class(), e.id
		w.events.pop()
		if c == anArrival {
			w.arrive(int(id))
		} else {
			w.end(w.ends[id])
		}
		for {
			ticket, ok := w.slots.Next(w.now)
			if !ok {
				break
			}
			w.run(ticket)
		}
	}
	for i := range w.out.Tenants {
		slices.Sort(w.out.Tenants[i].Took)
	}
	w.out.End = w.now
	return &w.out
}

func (w *waiters) to(now time.Duration) {
	if w.slots.Waiting() > 0 {
		w.out.Idle += float64(w.setup.Limits.Slots-w.slots.Running()) * (now - w.now).Seconds()
	}
	w.now = now
}

const longest = 1 << 60

func (w *waiters) arrive(i int) {
	t := &w.setup.Tenants[i]
	for range t.Count {
		ticket, answer := w.slots.Request(w.now, fair.Claim{Tenant: t.Name, Share: t.Share, Until: longest})
		switch answer {
		case fair.Run:
			w.claims[ticket] = i
			w.run(ticket)
		case fair.Wait:
			w.claims[ticket] = i
		default:
			w.out.Tenants[i].Refused++
		}
	}
}

func (w *waiters) run(ticket fair.SlotTicket) {
	i, known := w.claims[ticket]
	if !known {
		panic(fmt.Sprintf("sim: a slot for an unknown claim at %v", w.now))
	}
	w.ends = append(w.ends, ticket)
	w.events.push(w.now+w.setup.Tenants[i].Work, anEnd, uint32(len(w.ends)-1))
}

func (w *waiters) end(ticket fair.SlotTicket) {
	i := w.claims[ticket]
	delete(w.claims, ticket)
	w.slots.Release(w.now, ticket)
	t := &w.out.Tenants[i]
	t.Took = append(t.Took, w.now-w.setup.Tenants[i].At)
	t.LastEnd = w.now
}
