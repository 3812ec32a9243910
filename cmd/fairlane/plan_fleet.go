package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanFleetCmd() *cobra.Command {
	var in plan.FleetInput
	cmd := &cobra.Command{
		Use:     "fleet",
		Short:   "What a machine needs: slots, memory, descriptors, log, disk",
		Long:    `What one machine needs for a load, estimated by the figures that it prints with the answer.`,
		Example: "  fairlane plan fleet --subscriptions 50000 --tenants 4000 --triggers 2000/s --payload 900 --latency 60ms",
	}
	numberFlag(cmd, &in.Subscriptions, "subscriptions", "", "endpoints")
	numberFlag(cmd, &in.Tenants, "tenants", "", "whose they are")
	rateFlag(cmd, &in.Triggers, "triggers", "", "triggers posted")
	numberFlag(cmd, &in.FanOut, "fan-out", "1", "deliveries of a trigger, mean")
	sizeFlag(cmd, &in.Payload, "payload", "", "size of a trigger's payload, mean")
	durationFlag(cmd, &in.Latency, "latency", "", "time that a request takes, mean")
	durationFlag(cmd, &in.Outage, "outage", "72h", "for which endpoints may be down and nothing is lost")
	return planned(cmd, func() (answer, error) {
		r, err := plan.Fleet(in)
		return answer{json: r, text: fleetText(in, r), charts: func() []picture.Chart { return fleetCharts(in, r) }}, err
	})
}

func fleetText(in plan.FleetInput, r plan.FleetResult) []section {
	given := section{head: "By these figures"}
	for _, a := range r.Assumptions {
		given.rows = append(given.rows, []string{a.Name, strconv.FormatFloat(a.Value, 'f', -1, 64) + " " + a.Unit, a.From})
	}
	return []section{{fmt.Sprintf("%s deliveries/s to %s subscriptions of %s tenants", num(r.Deliveries), num(in.Subscriptions), num(in.Tenants)), [][]string{
		{"slots busy, in the mean", num(r.SlotsBusy)},
		{"capacity.slots", num(r.Slots)},
		{"cores", num(r.Cores)},
		{"memory", size(r.MemoryBytes)},
		{"descriptors (ulimit -n)", num(r.Descriptors)},
		{"log", size(r.LogBytes) + "/s, " + size(r.LogPerDay) + " a day"},
		{"data.max_bytes", size(r.Disk)},
	}}, given}
}
