package main

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newTenantCmd() *cobra.Command {
	return newGroupCmd("tenant", "Create, list and remove tenants", newTenantCreateCmd, newTenantListCmd, newTenantRemoveCmd)
}

func newTenantCreateCmd(c *client) *cobra.Command {
	var in api.NewTenant
	cmd := &cobra.Command{
		Use:     "create ID",
		Short:   "Create a tenant",
		Example: "  fairlane tenant create acme --name 'Acme Inc' --tier pro",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.ID = args[0]
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Tenant, error) { return a.CreateTenant(ctx, in) },
				func(t api.Tenant) string { return "created " + t.ID })
		},
	}
	cmd.Flags().StringVar(&in.Name, "name", "", "name for people")
	cmd.Flags().StringArrayVar(&in.Grants, "grant", nil, "topics of broadcasts that it may see, a pattern such as geofence.>; none if absent; may be repeated")
	cmd.Flags().StringVar(&in.Tier, "tier", "", "tier; default if absent")
	return cmd
}

func newTenantListCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List tenants",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(c, cmd, func(ctx context.Context, a *api.Client) iter.Seq2[api.Tenant, error] { return a.Tenants(ctx) },
				"ID\tTIER\tNAME", func(t api.Tenant) []string { return []string{t.ID, t.Tier, t.Name} })
		},
	}
}

func newTenantRemoveCmd(c *client) *cobra.Command {
	return newEndCmd(c, "rm ID", "Remove a tenant without subscriptions; its id is never given again", "removed", (*api.Client).DeleteTenant)
}
