package main

import (
	"context"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

// What is done to a subscription that there is already.

func newSubscriptionPauseCmd(c *client) *cobra.Command {
	return newPausedCmd(c, "pause ID", "Let nothing go; what comes waits", true, "paused")
}

func newSubscriptionResumeCmd(c *client) *cobra.Command {
	return newPausedCmd(c, "resume ID", "Let what waits go, after a pause or a 410", false, "resumed")
}

func newPausedCmd(c *client, use, short string, paused bool, text string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Subscription, error) {
				return a.PatchSubscription(ctx, args[0], map[string]any{"paused": paused})
			}, func(api.Subscription) string { return text })
		},
	}
}

func newSubscriptionTestCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "test ID",
		Short: "Send a test trigger to a subscription, whatever its topics",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Receipt, error) { return a.TestSubscription(ctx, args[0]) },
				func(r api.Receipt) string { return "sent " + r.ID })
		},
	}
}
