package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/server"
)

func newKeyCmd() *cobra.Command {
	return newGroupCmd("key", "Create, list, rotate and revoke the keys of the API", newKeyCreateCmd, newKeyListCmd, newKeyRotateCmd, newKeyRevokeCmd)
}

// newKeyFlags are those of create.
type newKeyFlags struct {
	api.NewKey
	admin, producer      bool
	tenant, data, config string
}

func newKeyCreateCmd(c *client) *cobra.Command {
	var f newKeyFlags
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create a key; its secret is shown once",
		Long: `Create a key. The id cannot be changed and is never given again: the ids of triggers that are posted
with an idempotency key are made of it.

With --data the key is made in a data directory that no process serves, which is how the first
administrator gets one; with --config in the one that the file names, or in the file's NATS cluster.`,
		Example: `  fairlane key create ops --admin --data ./data
  fairlane key create orders --producer --may-post acme,globex
  fairlane key create acme-portal --tenant acme`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.ID = args[0]
			if err := f.role(); err != nil {
				return err
			}
			if f.offline() {
				return createOffline(c, cmd, &f)
			}
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Key, error) { return a.CreateKey(ctx, f.NewKey) }, newKeyText)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.admin, "admin", false, "an administrator's: everything")
	fl.BoolVar(&f.producer, "producer", false, "a producer's: posts triggers")
	fl.StringVar(&f.tenant, "tenant", "", "a tenant's: what belongs to this one")
	fl.StringSliceVar(&f.Tenants, "may-post", nil, "tenants that a producer may post for; all if absent")
	fl.BoolVar(&f.Broadcast, "broadcast", false, "a producer may post for all tenants at once")
	fl.StringVar(&f.Name, "name", "", "name for people")
	fl.StringVar(&f.data, "data", "", "data directory to make an administrator's key in, instead of a service")
	fl.StringVar(&f.config, "config", "", "configuration file whose data directory or NATS cluster it is made in, instead of a service")
	return cmd
}

// role turns the flags into a role.
func (f *newKeyFlags) role() error {
	roles := map[string]bool{journal.RoleAdmin: f.admin, journal.RoleProducer: f.producer, journal.RoleTenant: f.tenant != ""}
	for name, is := range roles {
		if is && f.Role != "" {
			return usageError{errors.New("a key has one role: --admin, --producer or --tenant")}
		}
		if is {
			f.Role = name
		}
	}
	switch {
	case f.Role == "":
		return usageError{errors.New("a key needs a role: --admin, --producer or --tenant")}
	case f.data != "" && f.config != "":
		return usageError{errors.New("--data and --config exclude each other")}
	case f.offline() && f.Role != journal.RoleAdmin:
		return usageError{errors.New("--data and --config make administrators' keys alone; make others by the service")}
	case f.tenant != "":
		f.Tenants = append(f.Tenants, f.tenant)
	}
	return nil
}

func (f *newKeyFlags) offline() bool { return f.data != "" || f.config != "" }

// createOffline makes an administrator's key in a data directory, or in a cluster.
func createOffline(c *client, cmd *cobra.Command, f *newKeyFlags) error {
	o := journal.Options{Dir: f.data}
	if f.config != "" {
		file, err := config.Load(f.config, nil)
		if err != nil {
			return err
		}
		s := server.FromFile(file)
		o = journal.Options{Dir: s.Dir, Cluster: s.Cluster, MaxBody: s.MaxBody}
	}
	access, finish, err := journal.OpenAccess(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer finish()
	k, secret, err := server.NewAdminKey(cmd.Context(), access, f.ID, f.Name)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), map[string]string{"id": k.ID, "role": k.Role, "secret": secret})
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), newKeyText(api.Key{ID: k.ID, Secret: secret}))
	return err
}

func newKeyText(k api.Key) string {
	return "key     " + k.ID + "\nsecret  " + k.Secret + "  (not shown again)"
}

func newKeyListCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List keys",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(c, cmd, func(ctx context.Context, a *api.Client) iter.Seq2[api.Key, error] { return a.Keys(ctx) },
				"ID\tROLE\tTENANTS\tBROADCAST\tSTATE\tNAME", keyRow)
		},
	}
}

func keyRow(k api.Key) []string {
	tenants, broadcast, state := strings.Join(k.Tenants, ","), "no", "active"
	if tenants == "" {
		tenants = "(all)"
	}
	if k.Broadcast || k.Role == journal.RoleAdmin {
		broadcast = "yes"
	}
	switch {
	case k.Revoked != nil:
		state = "revoked"
	case len(k.Secrets) > 1:
		state = "rotating until " + k.Secrets[1].Until.Format(time.RFC3339)
	}
	return []string{k.ID, k.Role, tenants, broadcast, state, k.Name}
}

func newKeyRotateCmd(c *client) *cobra.Command {
	overlap := 24 * time.Hour
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a key a new secret; the one before goes on for a while",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Key, error) { return a.RotateKey(ctx, args[0], overlap) }, newKeyText)
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", overlap, "how long the secret before opens, 0s to 720h")
	return cmd
}

func newKeyRevokeCmd(c *client) *cobra.Command {
	return newEndCmd(c, "revoke ID", "Let a key open nothing from now on", "revoked", (*api.Client).RevokeKey)
}
