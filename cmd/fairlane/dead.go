package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newDeadCmd() *cobra.Command {
	return newGroupCmd("dead", "List, show, replay and purge dead letters", newDeadListCmd, newDeadShowCmd, newDeadReplayCmd, newDeadPurgeCmd)
}

// selectionFlags adds the flags that choose dead letters; what is not set does not narrow it.
func selectionFlags(cmd *cobra.Command, s *api.Selection) {
	f := cmd.Flags()
	f.StringVar(&s.Tenant, "tenant", "", "of this tenant")
	f.StringVar(&s.Subscription, "subscription", "", "of this subscription")
	f.StringSliceVar(&s.Reasons, "reason", nil, "of these reasons: rejected, expired, exhausted, over-quota, too-costly")
	f.StringVar(&s.Since, "since", "", "accepted at or after, such as 2026-01-31T12:00:00Z")
	f.StringVar(&s.Until, "until", "", "accepted before")
}

func newDeadListCmd(c *client) *cobra.Command {
	var s api.Selection
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List dead letters",
		Example: "  fairlane dead ls --tenant acme --reason rejected",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(c, cmd, func(ctx context.Context, a *api.Client) iter.Seq2[api.DeadLetter, error] {
				return a.DeadLetters(ctx, s)
			},
				"TRIGGER\tSUBSCRIPTION\tTOPIC\tREASON\tDIED\tATTEMPTS\tREPLAYS", deadRow)
		},
	}
	selectionFlags(cmd, &s)
	return cmd
}

const shownTime = "2006-01-02T15:04:05.000Z"

func deadRow(d api.DeadLetter) []string {
	name := d.Trigger
	if name == "" {
		name = "(" + d.Unreadable + ")"
	}
	return []string{name, d.Subscription, d.Topic, d.Reason, d.Died.UTC().Format(shownTime), fmt.Sprint(d.Attempts), fmt.Sprint(d.Replays)}
}

func newDeadShowCmd(c *client) *cobra.Command {
	raw := false
	cmd := &cobra.Command{
		Use:   "show SUBSCRIPTION TRIGGER",
		Short: "Show a dead letter: why it died, its attempts, its headers",
		Args:  exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(ctx context.Context, a *api.Client) (api.DeadLetterDetail, error) {
				return a.DeadLetter(ctx, args[0], args[1])
			}
			if !raw {
				return do(c, cmd, show, letterText)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			d, err := show(cmd.Context(), a)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(d.Payload)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&raw, "payload", false, "write the payload's bytes and nothing else")
	return cmd
}

// letterText shows the payload by its size alone: terminals are read over shoulders.
func letterText(d api.DeadLetterDetail) string {
	var accepted time.Time
	if d.Accepted != nil {
		accepted = *d.Accepted
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "trigger\t%s\nposition\t%d\nsubscription\t%s\ntenant\t%s\ntopic\t%s\n", d.Trigger, d.Position, d.Subscription, d.Tenant, d.Topic)
	fmt.Fprintf(t, "accepted\t%s\ndied\t%s  %s (%s)\n", accepted.UTC().Format(shownTime), d.Died.UTC().Format(shownTime), d.Reason, d.Class)
	if d.Deaths > 1 {
		fmt.Fprintf(t, "first died\t%s  %s\n", d.FirstDied.UTC().Format(shownTime), d.FirstReason)
	}
	fmt.Fprintf(t, "attempts\t%d\ndeaths\t%d\nreplays\t%d\npayload\t%d bytes %s (--payload writes them)\n", d.Attempts, d.Deaths, d.Replays, d.Bytes, d.Headers["Content-Type"])
	_ = t.Flush() // a builder takes everything
	b.WriteString("history, newest first")
	if !d.HistoryWhole {
		b.WriteString(" (the log does not hold all of it any more)")
	}
	for _, h := range d.History {
		fmt.Fprintf(&b, "\n  %s  %-9s attempt %d", h.At.UTC().Format(shownTime), h.Kind, h.Attempt)
		if h.Status != 0 {
			fmt.Fprintf(&b, "  status %d", h.Status)
		}
		if h.Detail != "" {
			b.WriteString("  " + h.Detail)
		}
	}
	return b.String()
}

func newDeadReplayCmd(c *client) *cobra.Command {
	var s api.Selection
	detach := false
	cmd := &cobra.Command{
		Use:   "replay (--subscription ID | --tenant ID)",
		Short: "Replay dead letters, as fast as their subscriptions' limits and the live stream let them",
		Long: "Replay dead letters, as fast as their subscriptions' limits and the live stream let them.\n" +
			"It shows how far it is until it is done; interrupting that does not cancel the replay (fairlane replay cancel does).",
		Example: "  fairlane dead replay --subscription sub_... --reason rejected --dry-run",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.Subscription == "" && s.Tenant == "" {
				return usageError{errors.New("name a --subscription, or a --tenant")}
			}
			start := func(ctx context.Context, a *api.Client) (api.Replay, error) { return a.StartReplay(ctx, s) }
			if s.DryRun || detach {
				return do(c, cmd, start, replayText)
			}
			return do(c, cmd, followed(cmd, start), replayText)
		},
	}
	selectionFlags(cmd, &s)
	f := cmd.Flags()
	f.StringVar(&s.Rate, "rate", "", "no faster than, such as 15/s")
	f.BoolVar(&s.DryRun, "dry-run", false, "only count what would be replayed")
	f.BoolVar(&detach, "detach", false, "do not wait for its end")
	return cmd
}

func newDeadPurgeCmd(c *client) *cobra.Command {
	var s api.Selection
	sure := false
	cmd := &cobra.Command{
		Use:   "purge (--subscription ID | --tenant ID) (--dry-run | --yes)",
		Short: "Give up dead letters; this cannot be undone",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.Subscription == "" && s.Tenant == "":
				return usageError{errors.New("name a --subscription, or a --tenant")}
			case !sure && !s.DryRun:
				return usageError{errors.New("this cannot be undone: add --yes, or --dry-run to count only")}
			}
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Purged, error) { return a.Purge(ctx, s) }, purgedText)
		},
	}
	selectionFlags(cmd, &s)
	cmd.Flags().BoolVar(&s.DryRun, "dry-run", false, "only count what would be purged")
	cmd.Flags().BoolVar(&sure, "yes", false, "do it")
	return cmd
}

func purgedText(p api.Purged) string {
	if p.DryRun {
		return fmt.Sprintf("would purge %d", p.Purged)
	}
	return fmt.Sprintf("purged %d", p.Purged)
}
