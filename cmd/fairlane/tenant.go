package main

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func newTenantCmd() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: "tenant", Short: "Create, list and remove tenants", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.flags(cmd)
	cmd.AddCommand(newTenantCreateCmd(c), newTenantListCmd(c), newTenantRemoveCmd(c))
	return cmd
}

func newTenantCreateCmd(c *client) *cobra.Command {
	var name, tier string
	var grants []string
	cmd := &cobra.Command{
		Use:     "create ID",
		Short:   "Create a tenant",
		Example: "  fairlane tenant create acme --name 'Acme Inc' --tier pro",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := map[string]any{"id": args[0]}
			if name != "" {
				in["name"] = name
			}
			if tier != "" {
				in["tier"] = tier
			}
			if grants != nil {
				in["grants"] = grants
			}
			out, err := c.call(cmd.Context(), http.MethodPost, "/v1/tenants", in)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return "created " + args[0], nil })
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name for people")
	cmd.Flags().StringArrayVar(&grants, "grant", nil, "topics of broadcasts that it may see, a pattern such as geofence.>; none if absent; may be repeated")
	cmd.Flags().StringVar(&tier, "tier", "", "tier; default if absent")
	return cmd
}

func newTenantListCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List tenants",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.list(cmd, "/v1/tenants?limit=1000", "ID\tTIER\tNAME", func(item json.RawMessage) ([]string, error) {
				var t struct{ ID, Tier, Name string }
				err := json.Unmarshal(item, &t)
				return []string{t.ID, t.Tier, t.Name}, err
			})
		},
	}
}

func newTenantRemoveCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a tenant without subscriptions; its id is never given again",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.call(cmd.Context(), http.MethodDelete, "/v1/tenants/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return "removed " + args[0], nil })
		},
	}
}
