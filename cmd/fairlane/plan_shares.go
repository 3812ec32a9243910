package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanSharesCmd() *cobra.Command {
	var in plan.SharesInput
	var list []string
	cmd := &cobra.Command{
		Use:   "shares",
		Short: "How a capacity is shared: weighted max-min over what tenants want",
		Long: `How a capacity is shared, by weighted max-min fairness: who wants less than its share gets what it
wants, the rest is divided by weight among the others. Nobody gets more by wanting more than its
share. Capacity and wants are in one unit, whichever it is.`,
		Example: "  fairlane plan shares --capacity 1200 --tenant big=5000 --tenant small=100 --tenant pro=900:3",
	}
	numberFlag(cmd, &in.Capacity, "capacity", "", "to share")
	cmd.Flags().StringArrayVar(&list, "tenant", nil, "NAME=WANT or NAME=WANT:WEIGHT; repeat it")
	return planned(cmd, func() (answer, error) {
		if len(list) == 0 {
			return answer{}, usageError{errors.New("--tenant must be given, for example --tenant acme=120")}
		}
		for _, s := range list {
			t, err := readTenant(s)
			if err != nil {
				return answer{}, usageError{fmt.Errorf("--tenant %s: %w", s, err)}
			}
			in.Tenants = append(in.Tenants, t)
		}
		r, err := plan.Shares(in)
		return answer{json: r, text: sharesText(in, r), charts: func() []picture.Chart { return sharesCharts(r) }}, err
	})
}

func readTenant(s string) (t plan.Tenant, err error) {
	const form = "must be NAME=WANT or NAME=WANT:WEIGHT, for example acme=120:3"
	name, rest, found := strings.Cut(s, "=")
	want, weight, weighted := strings.Cut(rest, ":")
	t = plan.Tenant{Name: name, Weight: 1}
	if t.Want, err = readNumber(want); err != nil || !found {
		return t, errors.New(form)
	}
	if weighted {
		if t.Weight, err = readNumber(weight); err != nil {
			return t, errors.New(form)
		}
	}
	return t, nil
}

func sharesText(in plan.SharesInput, r plan.SharesResult) []section {
	rows := [][]string{{"tenant", "weight", "wants", "gets", ""}}
	for _, t := range r.Tenants {
		note := ""
		if !t.Satisfied {
			note = "its share"
		}
		rows = append(rows, []string{t.Name, num(t.Weight), num(t.Want), num(t.Share), note})
	}
	level := "nobody gets less than it wants"
	if r.Level > 0 {
		level = num(r.Level) + " for each weight"
	}
	return []section{{fmt.Sprintf("A capacity of %s", num(in.Capacity)), rows}, {"In sum", [][]string{
		{"level", level}, {"unused", num(r.Unused)}, {"Jain's index", num(r.Jain)},
	}}}
}
