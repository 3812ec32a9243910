package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newTriggerCmd() *cobra.Command {
	return newGroupCmd("trigger", "Show what became of a trigger, and deliver one again", newTriggerShowCmd, newTriggerResendCmd)
}

func newTriggerShowCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "show TRIGGER",
		Short: "Show what became of a trigger, by subscription; it is named by its id or its position",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Completion, error) { return a.Completion(ctx, args[0]) }, completionText)
		},
	}
}

func completionText(v api.Completion) string {
	var b strings.Builder
	rows := [][]string{{"trigger", v.ID}, {"position", fmt.Sprint(v.Position)}, {"topic", v.Topic}, {"payload", fmt.Sprintf("%d bytes", v.Bytes)},
		{"accepted", v.Accepted.UTC().Format(shownTime)}, {"complete", map[bool]string{true: "yes", false: "no"}[v.Complete]}}
	_ = writeRows(&b, rows) // a builder takes everything
	if !v.Whole {
		b.WriteString("the log does not hold all of it any more\n")
	}
	rows = [][]string{{"SUBSCRIPTION", "TENANT", "STATE", "ATTEMPT", "STATUS", "REASON", "AT"}}
	for i := range v.Deliveries {
		rows = append(rows, fateRow(&v.Deliveries[i]))
	}
	if len(v.Deliveries) == 0 {
		rows = [][]string{{"no subscription was to get it"}}
	}
	_ = writeRows(&b, rows)
	return strings.TrimSuffix(b.String(), "\n")
}

// fateRow shows what is not known, or does not apply, as a dash.
func fateRow(f *api.Fate) []string {
	row := []string{f.Subscription, f.Tenant, f.State, "-", "-", "-", "-"}
	if f.Attempt > 0 {
		row[3] = fmt.Sprint(f.Attempt)
	}
	if f.Status > 0 {
		row[4] = fmt.Sprint(f.Status)
	}
	if f.Reason != "" {
		row[5] = f.Reason
	}
	if f.At != nil {
		row[6] = f.At.UTC().Format(shownTime)
	}
	return row
}

func newTriggerResendCmd(c *client) *cobra.Command {
	var to []string
	cmd := &cobra.Command{
		Use:   "resend TRIGGER --subscription ID",
		Short: "Deliver a trigger once more to the subscriptions named, whatever became of it there",
		Long: "Offers a trigger that the log still holds once more to the subscriptions named, all of them or none,\n" +
			"whatever became of it there: a delivery of its own. It is named by its id, or by its position.\n" +
			"What is dead there is replayed instead: fairlane dead replay.",
		Example: "  fairlane trigger resend msg_p00000000006g0qdzdy8yy --subscription sub_yoklpns7ygelr7jonaor",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Resent, error) { return a.Resend(ctx, args[0], to...) }, resentText)
		},
	}
	cmd.Flags().StringSliceVar(&to, "subscription", nil, "who gets it; may be repeated")
	if err := cmd.MarkFlagRequired("subscription"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func resentText(r api.Resent) string {
	return fmt.Sprintf("offered %s once more to %s", r.Trigger, strings.Join(r.Subscriptions, ", "))
}
