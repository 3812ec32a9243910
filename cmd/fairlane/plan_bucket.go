package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanBucketCmd() *cobra.Command {
	var in plan.BucketInput
	cmd := &cobra.Command{
		Use:   "bucket",
		Short: "What a rate and a burst admit: of a burst at once, and over a time",
		Long: `What a token bucket admits. --idle counts from an empty bucket until the burst comes; the budget
of --for counts from a full one: capacity + rate * time.`,
		Example: "  fairlane plan bucket --rate 120 --capacity 240 --burst 300 --idle 1s --offered 200 --for 60s",
	}
	rateFlag(cmd, &in.Rate, "rate", "", "tokens that the bucket gains")
	numberFlag(cmd, &in.Capacity, "capacity", "", "tokens that it holds (the contract's burst)")
	numberFlag(cmd, &in.Burst, "burst", "0", "units that come at once")
	durationFlag(cmd, &in.Idle, "idle", "0s", "from an empty bucket until they come")
	rateFlag(cmd, &in.Offered, "offered", "0", "units that come steadily")
	durationFlag(cmd, &in.For, "for", "0s", "for how long, from a full bucket on")
	return planned(cmd, func() (answer, error) {
		r, err := plan.Bucket(in)
		return answer{json: r, charts: func() []picture.Chart { return bucketCharts(in, r) }, text: []section{
			{fmt.Sprintf("A burst of %s, %s after the bucket was empty", num(in.Burst), span(in.Idle)), [][]string{
				{"tokens before it", num(r.TokensBeforeBurst)},
				{"admitted", num(r.AdmittedInBurst)},
				{"denied", num(r.DeniedInBurst)},
			}},
			{fmt.Sprintf("%s/s for %s, from a full bucket on", num(in.Offered), span(in.For)), [][]string{
				{"offered", num(r.OfferedUnits)},
				{"admitted at most", num(r.MaximumBudget)},
				{"not admitted at least", num(r.NotAdmitted)},
			}},
		}}, err
	})
}
