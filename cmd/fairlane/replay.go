package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newReplayCmd() *cobra.Command {
	return newGroupCmd("replay", "List, cancel and resume replays (fairlane dead replay starts one)", newReplayListCmd, newReplayShowCmd, newReplayCancelCmd, newReplayResumeCmd)
}

// progress is one line of how far a replay is.
func progress(r *api.Replay) string {
	line := fmt.Sprintf("%d of %d delivered, %d died again, %d on their way, %d skipped, %d left", r.Delivered, r.Selected, r.DiedAgain, r.Waiting, r.Skipped, r.Left)
	if r.Blocked != "" {
		line += ", held back: " + r.Blocked
	}
	return line
}

func replayText(r api.Replay) string {
	if r.DryRun {
		return fmt.Sprintf("would replay %d", r.Selected)
	}
	return fmt.Sprintf("%s %s: %s", r.ID, r.State, progress(&r))
}

func newReplayListCmd(c *client) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List replays",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(c, cmd, func(ctx context.Context, a *api.Client) iter.Seq2[api.Replay, error] { return a.Replays(ctx, tenant) },
				"ID\tTENANT\tSUBSCRIPTION\tSTATE\tDELIVERED\tDIED AGAIN\tWAITING\tLEFT\tOF", replayRow)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "of this tenant only")
	return cmd
}

func replayRow(r api.Replay) []string {
	return []string{r.ID, r.Tenant, cmp.Or(r.Subscription, "(all)"), r.State, fmt.Sprint(r.Delivered), fmt.Sprint(r.DiedAgain),
		fmt.Sprint(r.Waiting), fmt.Sprint(r.Left), fmt.Sprint(r.Selected)}
}

// replayCall is a call that answers with a replay.
type replayCall = func(context.Context, *api.Client) (api.Replay, error)

func newReplayShowCmd(c *client) *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how far a replay is",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(ctx context.Context, a *api.Client) (api.Replay, error) { return a.Replay(ctx, args[0]) }
			if follow {
				show = followed(cmd, show)
			}
			return do(c, cmd, show, replayText)
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "until it has ended")
	return cmd
}

func newReplayCancelCmd(c *client) *cobra.Command {
	return newReplayActCmd(c, "cancel", "Cancel a replay: what it has not taken stays dead", (*api.Client).CancelReplay)
}

func newReplayResumeCmd(c *client) *cobra.Command {
	return newReplayActCmd(c, "resume", "Let a cancelled replay go on", (*api.Client).ResumeReplay)
}

func newReplayActCmd(c *client, act, short string, call func(*api.Client, context.Context, string) (api.Replay, error)) *cobra.Command {
	return &cobra.Command{
		Use:   act + " ID",
		Short: short,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Replay, error) { return call(a, ctx, args[0]) }, replayText)
		},
	}
}

// followed is call, whose replay it shows until that has ended; progress goes to the error output.
func followed(cmd *cobra.Command, call replayCall) replayCall {
	return func(ctx context.Context, a *api.Client) (api.Replay, error) {
		begin := time.Now()
		shown := ""
		r, err := call(ctx, a)
		for err == nil && r.State == "running" {
			if line := progress(&r); line != shown {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s\n", time.Since(begin).Round(time.Second), line)
				shown = line
			}
			if err := wait(ctx, time.Second); err != nil {
				return r, fmt.Errorf("%s goes on without us: %w", r.ID, err)
			}
			r, err = a.Replay(ctx, r.ID)
		}
		return r, err
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
