package main

import (
	"errors"
	"math"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

// The pictures of `fairlane plan`: plain data, drawn by --plot.

// grid returns n+1 points from 0 to most.
func grid(most float64, n int) []float64 {
	x := make([]float64, n+1)
	for i := range x {
		x[i] = most * float64(i) / float64(n)
	}
	return x
}

// over returns the values of f at x.
func over(x []float64, f func(float64) float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = f(x[i])
	}
	return y
}

// drawn writes the charts.
func drawn(file string, charts []picture.Chart) error {
	if len(charts) == 0 {
		return usageError{errors.New("--plot: there is nothing to draw: the other flags ask for nothing")}
	}
	return picture.Write(file, charts...)
}

func bucketCharts(in plan.BucketInput, r plan.BucketResult) (charts []picture.Chart) {
	if in.Burst > 0 {
		charts = append(charts, picture.Chart{
			Title: "A burst at once", X: "what becomes of it", Y: "units", Zero: true,
			Names: []string{"offered", "tokens before it", "admitted", "denied"},
			Bars:  []picture.Bars{{Values: []float64{in.Burst, r.TokensBeforeBurst, r.AdmittedInBurst, r.DeniedInBurst}}},
		})
	}
	if in.For > 0 {
		t := grid(in.For.Seconds(), 60)
		charts = append(charts, picture.Chart{
			Title: "A steady offer, from a full bucket on", X: "time (s)", Y: "units since the start", Zero: true,
			Lines: []picture.Line{
				{Name: "offered", X: t, Y: over(t, func(s float64) float64 { return in.Offered * s })},
				{Name: "admitted at most: capacity + rate * time", X: t, Y: over(t, func(s float64) float64 { return in.Capacity + in.Rate*s })},
			},
		})
	}
	return charts
}

func windowCharts(r plan.WindowResult) []picture.Chart {
	c := picture.Chart{Title: "Admitted around a boundary of the clock", X: "rule", Y: "requests", Zero: true}
	before, after, most := picture.Bars{Name: "before it"}, picture.Bars{Name: "after it"}, picture.Bars{Name: "at most in any window"}
	for _, w := range r.Rules {
		c.Names = append(c.Names, w.Rule)
		before.Values = append(before.Values, float64(w.Before))
		after.Values = append(after.Values, float64(w.After))
		most.Values = append(most.Values, float64(w.Most))
	}
	c.Bars = []picture.Bars{before, after, most}
	return []picture.Chart{c}
}

func capCharts(in plan.CapInput, r plan.CapResult) []picture.Chart {
	latency := grid(2*max(in.P99.Seconds()*1000, r.EnoughForMilli), 60)
	return []picture.Chart{{
		Title: "In flight, by Little's law", X: "mean latency (ms)", Y: "requests in flight", Zero: true,
		Lines: []picture.Line{
			{Name: "without a cap, at most all slots", X: latency, Y: over(latency, func(l float64) float64 { return min(in.Rate*l/1000, in.Slots) })},
			{Name: "with this cap", X: latency, Y: over(latency, func(l float64) float64 { return min(in.Rate*l/1000, r.Cap) })},
		},
	}}
}

func lanesCharts(lanes []laneCap) []picture.Chart {
	c := picture.Chart{Title: "Caps", X: "lane", Y: "requests in flight", Zero: true}
	now, next := picture.Bars{Name: "cap"}, picture.Bars{Name: "recommended"}
	for _, l := range lanes {
		if l.Recommended == nil || len(c.Names) == maxBars {
			continue
		}
		c.Names = append(c.Names, l.Subscription)
		now.Values, next.Values = append(now.Values, l.Cap), append(next.Values, *l.Recommended)
	}
	if len(c.Names) == 0 {
		return nil
	}
	c.Bars = []picture.Bars{now, next}
	return []picture.Chart{c}
}

// maxBars is the most groups that can be told apart.
const maxBars = 24

func fanOutCharts(in plan.FanOutInput, r plan.FanOutResult) []picture.Chart {
	one, all, bad := picture.Line{Name: "one delivery"}, picture.Line{Name: "all of " + num(float64(r.N))}, picture.Line{Name: "with a pathological one"}
	for _, p := range r.Curve {
		add := func(l *picture.Line, y float64) { l.X, l.Y = append(l.X, 100*p.Quantile), append(l.Y, y) }
		add(&one, p.Single)
		add(&all, p.Completion)
		add(&bad, p.WithBad)
	}
	lines := []picture.Line{one, all}
	if in.BadShare > 0 {
		lines = append(lines, bad)
	}
	return []picture.Chart{{Title: "When it is done", X: "quantile (%)", Y: "latency (ms)", Log: true, Lines: lines}}
}

func retriesCharts(in plan.RetriesInput) []picture.Chart {
	failing := grid(1, 100)
	of := func(which func(plan.RetriesResult) float64) []float64 {
		return over(failing, func(f float64) float64 {
			in := in
			in.Failing = f
			r, err := plan.Retries(in)
			if err != nil {
				return 1 // the same input has passed before
			}
			return which(r)
		})
	}
	percent := over(failing, func(f float64) float64 { return 100 * f })
	return []picture.Chart{{
		Title: "What retries add", X: "attempts that fail (%)", Y: "attempts per request", Zero: true,
		Lines: []picture.Line{
			{Name: "without a budget", X: percent, Y: of(func(r plan.RetriesResult) float64 { return r.Without })},
			{Name: "with it", X: percent, Y: of(func(r plan.RetriesResult) float64 { return r.With })},
		},
	}}
}

func sharesCharts(r plan.SharesResult) []picture.Chart {
	c := picture.Chart{Title: "Shares", X: "tenant", Y: "capacity", Zero: true}
	wants, gets := picture.Bars{Name: "wants"}, picture.Bars{Name: "gets"}
	for _, t := range r.Tenants[:min(len(r.Tenants), maxBars)] {
		c.Names = append(c.Names, t.Name)
		wants.Values, gets.Values = append(wants.Values, t.Want), append(gets.Values, t.Share)
	}
	c.Bars = []picture.Bars{wants, gets}
	return []picture.Chart{c}
}

func fleetCharts(in plan.FleetInput, r plan.FleetResult) []picture.Chart {
	latency := grid(4*in.Latency.Seconds()*1000, 60)
	busy := func(l float64) float64 { return r.Deliveries * l / 1000 }
	return []picture.Chart{{
		Title: "Slots for " + num(r.Deliveries) + " deliveries/s", X: "mean latency (ms)", Y: "slots", Zero: true,
		Lines: []picture.Line{
			{Name: "busy", X: latency, Y: over(latency, busy)},
			{Name: "capacity.slots", X: latency, Y: over(latency, func(l float64) float64 { return math.Ceil(busy(l) / plan.SlotsUsed) })},
		},
	}}
}
