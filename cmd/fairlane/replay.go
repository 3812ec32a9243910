package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newReplayCmd() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: "replay", Short: "List, cancel and resume replays (fairlane dead replay starts one)", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.flags(cmd)
	cmd.AddCommand(newReplayListCmd(c), newReplayShowCmd(c),
		newReplayActCmd(c, "cancel", "Cancel a replay: what it has not taken stays dead"),
		newReplayActCmd(c, "resume", "Let a cancelled replay go on"))
	return cmd
}

// replayed is a replay of the API.
type replayed struct{ api.Replay }

// progress is one line of how far it is.
func (r *replayed) progress() string {
	line := fmt.Sprintf("%d of %d delivered, %d died again, %d on their way, %d skipped, %d left", r.Delivered, r.Selected, r.DiedAgain, r.Waiting, r.Skipped, r.Left)
	if r.Blocked != "" {
		line += ", held back: " + r.Blocked
	}
	return line
}

func replayText(out []byte) (string, error) {
	var r replayed
	if err := json.Unmarshal(out, &r); err != nil {
		return "", err
	}
	if r.DryRun {
		return fmt.Sprintf("would replay %d", r.Selected), nil
	}
	return fmt.Sprintf("%s %s: %s", r.ID, r.State, r.progress()), nil
}

func newReplayListCmd(c *client) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List replays",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/v1/replays?limit=1000"
			if tenant != "" {
				path += "&tenant=" + url.QueryEscape(tenant)
			}
			return c.list(cmd, path, "ID\tTENANT\tSUBSCRIPTION\tSTATE\tDELIVERED\tDIED AGAIN\tWAITING\tLEFT\tOF", func(item json.RawMessage) ([]string, error) {
				var r replayed
				err := json.Unmarshal(item, &r)
				sub := r.Subscription
				if sub == "" {
					sub = "(all)"
				}
				return []string{r.ID, r.Tenant, sub, r.State, fmt.Sprint(r.Delivered), fmt.Sprint(r.DiedAgain), fmt.Sprint(r.Waiting), fmt.Sprint(r.Left), fmt.Sprint(r.Selected)}, err
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "of this tenant only")
	return cmd
}

func newReplayShowCmd(c *client) *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how far a replay is",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.call(cmd.Context(), http.MethodGet, "/v1/replays/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			if follow {
				return c.follow(cmd, out)
			}
			return c.show(cmd, out, func() (string, error) { return replayText(out) })
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "until it has ended")
	return cmd
}

func newReplayActCmd(c *client, act, short string) *cobra.Command {
	return &cobra.Command{
		Use:   act + " ID",
		Short: short,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.call(cmd.Context(), http.MethodPost, "/v1/replays/"+url.PathEscape(args[0])+"/"+act, nil)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return replayText(out) })
		},
	}
}
