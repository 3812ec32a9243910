package sim

import (
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/limit"
)

// Figures are what a run showed.
type Figures struct {
	Groups  []Group
	Tenants []Tally
	Slots   int
	Bin     time.Duration // of Group.Series
	Measure Span
	End     time.Duration // the last instant
	Engine  engine.Stats

	// Jain is Jain's index over delivered/offered of all tenants, as in the literature. Served is
	// that over served/entitled, and ShortChanged counts tenants below 0.97 there.
	Jain, Served float64
	ShortChanged int
}

// Group is the account of the tenants in one group. Shares and Latency are of what was first
// offered in the measured span; counters are of the whole run.
type Group struct {
	Tenants    int
	Offered    uint64
	Delivered  uint64
	Attempts   uint64 // slots taken
	Requests   uint64 // that reached the endpoint
	Retries    uint64
	Duplicates uint64 // effects beyond the first of a delivery
	Parked     uint64 // times that one had to wait
	Lost       uint64 // dropped, or given up by a gate
	Dead       uint64

	DeliveredShare float64       // of what was offered in the span, what was delivered before its end
	Latency        Histogram     // from first offer to the answer
	MeasuredHeld   float64       // slot-seconds in the span
	BreakerOpened  time.Duration // when one first had to wait for it; -1: never
	MostProbes     int           // at once
	MostWaiting    int
	Waiting        int // at the end
	InFlight       int // at the end
	LastEnd        time.Duration
	Series         []Point
}

// Point is one bin of the series of a group.
type Point struct {
	Offered, Attempts, Delivered uint32
	Waiting                      int     // at the end of the bin
	Held                         float64 // slots, on average
}

// Tally is one tenant in the measured span.
type Tally struct {
	Offered, Delivered, Prompt uint32
	Served                     float64 // served/entitled, at most 1; -1 without entitlement
}

// Balanced reports whether the account adds up.
func (g *Group) Balanced() bool {
	return g.Offered == g.Delivered+g.Lost+g.Dead+uint64(g.Waiting)+uint64(g.InFlight)
}

// Lost is the sum over all groups, Parked too.
func (f *Figures) Lost() (n uint64) {
	for i := range f.Groups {
		n += f.Groups[i].Lost
	}
	return n
}

func (f *Figures) Parked() (n uint64) {
	for i := range f.Groups {
		n += f.Groups[i].Parked
	}
	return n
}

func (d *driver) figures() *Figures {
	b := &d.book
	f := &Figures{Slots: b.slots, Bin: b.bin, Measure: b.measure, End: d.now, Engine: d.engine.Stats(d.now)}
	for i := range b.groups {
		f.Groups = append(f.Groups, b.groups[i].Group)
	}
	d.shares(f)
	return f
}

// shares judges every tenant by the whole measured span, as the engine judges each second. Whose
// demand is within its max-min share of the slots and its contract is entitled to all that it
// offered, each sent within a second; whose demand is above, to the smaller of both, by what it
// started.
func (d *driver) shares(f *Figures) {
	b := &d.book
	span := (b.measure.To - b.measure.From).Seconds()
	contract := d.contracts(span)
	demands, level := make([]fair.Demand, len(b.tenants)), make([]float64, len(b.tenants))
	for i := range b.tenants {
		want := min(float64(b.tenants[i].offered), contract[i])
		demands[i] = fair.Demand{Want: want * d.workOf(i) / span, Weight: float64(max(d.setup.Tenants[i].Weight, 1))}
	}
	new(fair.Sharer).MaxMin(float64(b.slots), demands, level)
	var delivered, served []float64
	for i := range b.tenants {
		t := &b.tenants[i]
		out := Tally{Offered: t.offered, Delivered: t.delivered, Prompt: t.prompt, Served: -1}
		if t.offered > 0 {
			delivered = append(delivered, float64(t.delivered)/float64(t.offered))
		}
		entitled := contract[i]
		if work := d.workOf(i); work > 0 {
			entitled = min(entitled, level[i]*(1+1e-9)*span/work)
		}
		if out.Served = t.served(entitled); out.Served >= 0 {
			served = append(served, out.Served)
		}
		if out.Served >= 0 && out.Served < shortBelow {
			f.ShortChanged++
		}
		f.Tenants = append(f.Tenants, out)
	}
	f.Jain, f.Served = fair.Jain(delivered), fair.Jain(served)
	d.groupShares(f)
}

// served is served/entitled, -1 without entitlement.
func (t *tally) served(entitled float64) float64 {
	switch {
	case entitled <= 0 || t.offered == 0:
		return -1
	case entitled >= float64(t.offered):
		return float64(t.prompt) / float64(t.offered)
	}
	return min(float64(t.started)/entitled, 1)
}

func (d *driver) groupShares(f *Figures) {
	delivered, offered := make([]float64, len(f.Groups)), make([]float64, len(f.Groups))
	for i, t := range f.Tenants {
		g := d.setup.Tenants[i].Group
		delivered[g] += float64(t.Delivered)
		offered[g] += float64(t.Offered)
	}
	for g := range f.Groups {
		f.Groups[g].DeliveredShare = delivered[g] / max(offered[g], 1)
	}
}

const shortBelow = 0.97

// workOf is the mean time in seconds that the endpoints of a tenant's group worked on a delivery,
// waits inside the slot aside; 0 if none was delivered.
func (d *driver) workOf(tenant int) float64 {
	g := &d.book.groups[d.setup.Tenants[tenant].Group]
	return g.work / float64(max(g.answers, 1))
}

// contracts returns what each tenant's own contracts let through in a span, from full buckets.
func (d *driver) contracts(span float64) []float64 {
	sum := make([]float64, len(d.setup.Tenants))
	for i := range d.setup.Lanes {
		l := &d.setup.Lanes[i]
		r := l.Profile.Rate
		if l.Gate != nil {
			r = l.Gate.Rate
		}
		sum[l.Tenant] += lets(&r, span)
	}
	return sum
}

func lets(r *limit.Rate, span float64) float64 {
	switch {
	case r.IsUnlimited():
		return math.Inf(1)
	case r.IsPaused():
		return 0
	}
	return float64(r.Burst()) + r.PerSecond()*span
}
