package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanRetriesCmd() *cobra.Command {
	var in plan.RetriesInput
	cmd := &cobra.Command{
		Use:     "retries",
		Short:   "What retries add to the load of a failing endpoint, with and without the budget",
		Long:    `What retries add to the load of an endpoint that fails after a healthy time, in attempts per request.`,
		Example: "  fairlane plan retries --rate 200 --failing 100% --for 60s",
	}
	rateFlag(cmd, &in.Rate, "rate", "", "requests, first attempts only")
	shareFlag(cmd, &in.Failing, "failing", "", "share of attempts that fail")
	wholeFlag(cmd, &in.Attempts, "attempts", "4", "of a request at most")
	shareFlag(cmd, &in.Ratio, "ratio", "10%", "of the budget: retries per success")
	durationFlag(cmd, &in.HalfLife, "half-life", "10s", "of the budget")
	durationFlag(cmd, &in.For, "for", "1m", "how long it fails")
	return planned(cmd, func() (answer, error) {
		r, err := plan.Retries(in)
		return answer{json: r, charts: func() []picture.Chart { return retriesCharts(in) }, text: []section{
			{fmt.Sprintf("%s/s of which %s fail for %s", num(in.Rate), percent(in.Failing), span(in.For)), [][]string{
				{"", "attempts per request", "load"},
				{"without a budget", num(r.Without), num(r.PerSecond) + "/s"},
				{"with it", num(r.With), num(r.Limited) + "/s"},
			}},
			{"The budget", [][]string{
				{"earlier successes pay for", num(r.Credit) + " retries"},
				{"which last", ms(r.CreditMS)},
				{"load is lower by", num(r.Lower) + " x"},
			}},
		}}, err
	})
}
