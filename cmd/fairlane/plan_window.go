package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanWindowCmd() *cobra.Command {
	var in plan.WindowInput
	var n float64
	cmd := &cobra.Command{
		Use:   "window",
		Short: "What each kind of window lets through around a boundary of the clock",
		Long: `What "LIMIT per WINDOW" lets through if all of it is used just before a boundary of the clock, and
as much comes just after: by a fixed window, a sliding one of sub-windows, an exact one, and a
token bucket of the same rate whose burst is the limit.`,
		Example: "  fairlane plan window --limit 120 --window 1m",
	}
	numberFlag(cmd, &n, "limit", "", "requests per window")
	durationFlag(cmd, &in.Width, "window", "", "width of the window")
	wholeFlag(cmd, &in.Parts, "parts", "10", "sub-windows of the sliding window")
	durationFlag(cmd, &in.Gap, "gap", "200ms", "between the two bursts")
	return planned(cmd, func() (answer, error) {
		if in.Limit = int64(n); float64(in.Limit) != n {
			return answer{}, &plan.Invalid{Field: "limit", Value: fmt.Sprint(n), Rule: "must be a whole number from 1 to 1000000"}
		}
		r, err := plan.Window(in)
		rows := [][]string{{"rule", "before", "after", "in " + ms(r.GapMS), "retry in", "most in any window"}}
		for _, w := range r.Rules {
			retry := "-"
			if w.RetryMS > 0 {
				retry = ms(w.RetryMS)
			}
			rows = append(rows, []string{w.Rule, num(float64(w.Before)), num(float64(w.After)), num(float64(w.Through)), retry, num(float64(w.Most))})
		}
		return answer{json: r, charts: func() []picture.Chart { return windowCharts(r) }, text: []section{
			{fmt.Sprintf("%s per %s, twice: %s before a boundary and after it", num(n), span(in.Width), ms(r.GapMS/2)), rows},
			{fmt.Sprintf("The sliding window counts the last %s at most, not %s: its error, on the safe side.", ms(r.SlidingMS), ms(r.WindowMS)), nil},
		}}, err
	})
}
