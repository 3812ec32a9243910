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

// shares judges every tenant by the whole measured span. Its entitlement, in deliveries, is the
// smaller of what it offered, what its contract lets through, and its max-min share of the slots
// at its mean slot time; served is what was first sent within a second of its offer.
func (d *driver) shares(f *Figures) {
	b := &d.book
	span := (b.measure.To - b.measure.From).Seconds()
	mean := make([]float64, len(b.tenants)) // slot-seconds a delivery
	contract := d.contracts(span)
	demands := make([]fair.Demand, len(b.tenants))
	for i := range b.tenants {
		g, weight := &b.groups[d.setup.Tenants[i].Group], d.setup.Tenants[i].Weight
		if g.Delivered > 0 {
			mean[i] = d.workOf(g)
		}
		want := min(float64(b.tenants[i].offered), contract[i])
		demands[i] = fair.Demand{Want: want * mean[i] / span, Weight: float64(max(weight, 1))}
	}
	level := make([]float64, len(demands))
	new(fair.Sharer).MaxMin(float64(b.slots), demands, level)
	var delivered, served []float64
	sums := make([][2]float64, len(b.groups))
	for i := range b.tenants {
		t := &b.tenants[i]
		out := Tally{Offered: t.offered, Delivered: t.delivered, Prompt: t.prompt, Served: -1}
		sum := &sums[d.setup.Tenants[i].Group]
		sum[0] += float64(t.delivered)
		sum[1] += float64(t.offered)
		if t.offered > 0 {
			delivered = append(delivered, float64(t.delivered)/float64(t.offered))
		}
		entitled := min(float64(t.offered), contract[i])
		if mean[i] > 0 {
			entitled = min(entitled, level[i]*span/mean[i])
		}
		if entitled > 0 {
			out.Served = min(float64(t.prompt)/entitled, 1)
			served = append(served, out.Served)
			if out.Served < shortBelow {
				f.ShortChanged++
			}
		}
		f.Tenants = append(f.Tenants, out)
	}
	for i, s := range sums {
		if s[1] > 0 {
			f.Groups[i].DeliveredShare = s[0] / s[1]
		}
	}
	f.Jain, f.Served = fair.Jain(delivered), fair.Jain(served)
}

const shortBelow = 0.97

// workOf is the mean time that the endpoints of a group worked on one delivery, waits in the slot
// aside.
func (d *driver) workOf(g *group) float64 {
	if g.answers == 0 {
		return 0
	}
	return g.work / float64(g.answers)
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
