package main

import (
	"cmp"
	"context"
	"iter"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newSubscriptionCmd() *cobra.Command {
	cmd := newGroupCmd("subscription", "Create, list and remove subscriptions", newSubscriptionCreateCmd, newSubscriptionListCmd, newSubscriptionRemoveCmd,
		newSubscriptionPauseCmd, newSubscriptionResumeCmd, newSubscriptionRotateCmd, newSubscriptionTestCmd)
	cmd.Aliases = []string{"sub"}
	return cmd
}

func newSubscriptionCreateCmd(c *client) *cobra.Command {
	var in api.NewSubscription
	var limit int
	var look requestFlags
	cmd := &cobra.Command{
		Use:     "create --tenant ID --url URL --topic PATTERN",
		Short:   "Create a subscription; its signing secret is shown once",
		Example: "  fairlane subscription create --tenant acme --url https://acme.test/hook --topic 'geofence.>' --rate 20/s",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("cap") {
				in.Cap = &limit
			}
			if err := look.fill(&in); err != nil {
				return err
			}
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Subscription, error) {
				return a.CreateSubscription(ctx, in)
			}, createdText)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Tenant, "tenant", "", "the tenant's id")
	f.StringVar(&in.Name, "name", "", "what fairlane apply's files know it by; unique in the tenant")
	f.StringVar(&in.URL, "url", "", "where to send")
	f.StringArrayVar(&in.Topics, "topic", nil, "a pattern such as geofence.>; may be repeated")
	f.StringVar(&in.Rate, "rate", "", `such as 20/s; "unlimited"; 0 is paused`)
	f.Int64Var(&in.Burst, "burst", 0, "at once; one second's worth if absent")
	f.IntVar(&limit, "cap", 0, "requests in flight; 0 is paused")
	f.StringVar(&in.Timeout, "timeout", "", "of one request, such as 15s")
	f.Uint32Var(&in.Attempts, "attempts", 0, "attempts before it is dead; the horizon alone if absent")
	f.StringVar(&in.OnLimit, "on-limit", "", "defer or drop")
	f.StringToStringVar(&in.Match, "match", nil, "attributes that a trigger must have, such as region=eu; may be repeated")
	f.StringVar(&in.Lane, "lane", "", "name of a lane whose rate and cap the tenant's subscriptions share")
	f.StringVar(&in.Order, "order", "", "subscription or key: one after the other, in all or of each key")
	f.StringVar(&in.OnDead, "on-dead", "", "continue or stop behind a dead letter, with --order")
	look.add(cmd, &in)
	for _, name := range []string{"tenant", "url", "topic"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

func createdText(s api.Subscription) string {
	text := "created " + s.ID
	if s.Secret != "" {
		text += "\nsecret  " + s.Secret + "  (not shown again)"
	}
	return text
}

func newSubscriptionListCmd(c *client) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List subscriptions",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(c, cmd, func(ctx context.Context, a *api.Client) iter.Seq2[api.Subscription, error] {
				return a.Subscriptions(ctx, tenant)
			},
				"ID\tTENANT\tTOPICS\tRATE\tSTATE\tHOST", subscriptionRow)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "of this tenant only")
	return cmd
}

// subscriptionRow shows the host alone: a URL's path may be a credential, and terminals are read
// over shoulders.
func subscriptionRow(s api.Subscription) []string {
	host := "?"
	if u, err := url.Parse(s.URL); err == nil {
		host = u.Scheme + "://" + u.Host
	}
	state := "active"
	switch {
	case s.Disabled != "":
		state = s.Disabled
	case s.Paused:
		state = "paused"
	}
	return []string{s.ID, s.Tenant, strings.Join(s.Topics, ","), cmp.Or(s.Rate, "(tier's)"), state, host}
}

func newSubscriptionRemoveCmd(c *client) *cobra.Command {
	return newEndCmd(c, "rm ID", "Remove a subscription; what waits for it is cancelled", "removed", (*api.Client).DeleteSubscription)
}
