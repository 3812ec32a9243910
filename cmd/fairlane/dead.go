package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

func newDeadCmd() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: "dead", Short: "List, show, replay and purge dead letters", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.flags(cmd)
	cmd.AddCommand(newDeadListCmd(c), newDeadShowCmd(c), newDeadReplayCmd(c), newDeadPurgeCmd(c))
	return cmd
}

// selection is what the flags that choose dead letters say; what is not set chooses nothing.
type selection struct{ api.Selection }

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.Tenant, "tenant", "", "of this tenant")
	f.StringVar(&s.Subscription, "subscription", "", "of this subscription")
	f.StringSliceVar(&s.Reasons, "reason", nil, "of these reasons: rejected, expired, exhausted, over-quota, too-costly")
	f.StringVar(&s.Since, "since", "", "accepted at or after, such as 2026-01-31T12:00:00Z")
	f.StringVar(&s.Until, "until", "", "accepted before")
}

// query is the selection as parameters, behind others.
func (s *selection) query() string {
	q := ""
	for _, p := range []struct{ name, value string }{
		{"tenant", s.Tenant}, {"subscription", s.Subscription}, {"reason", strings.Join(s.Reasons, ",")}, {"since", s.Since}, {"until", s.Until},
	} {
		if p.value != "" {
			q += "&" + p.name + "=" + url.QueryEscape(p.value)
		}
	}
	return q
}

func newDeadListCmd(c *client) *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List dead letters",
		Example: "  fairlane dead ls --tenant acme --reason rejected",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.list(cmd, "/v1/dead?limit=1000"+s.query(), "TRIGGER\tSUBSCRIPTION\tTOPIC\tREASON\tDIED\tATTEMPTS\tREPLAYS", deadRow)
		},
	}
	s.flags(cmd)
	return cmd
}

const shownTime = "2006-01-02T15:04:05.000Z"

func deadRow(item json.RawMessage) ([]string, error) {
	var d api.DeadLetter
	err := json.Unmarshal(item, &d)
	name := d.Trigger
	if name == "" {
		name = "(" + d.Unreadable + ")"
	}
	return []string{name, d.Subscription, d.Topic, d.Reason, d.Died.UTC().Format(shownTime), fmt.Sprint(d.Attempts), fmt.Sprint(d.Replays)}, err
}

func newDeadShowCmd(c *client) *cobra.Command {
	raw := false
	cmd := &cobra.Command{
		Use:   "show SUBSCRIPTION TRIGGER",
		Short: "Show a dead letter: why it died, its attempts, its headers",
		Args:  exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.call(cmd.Context(), http.MethodGet, "/v1/subscriptions/"+url.PathEscape(args[0])+"/dead/"+url.PathEscape(args[1]), nil)
			if err != nil {
				return err
			}
			var d api.DeadLetterDetail
			if err := json.Unmarshal(out, &d); err != nil {
				return fmt.Errorf("the service's answer: %w", err)
			}
			if raw {
				_, err := cmd.OutOrStdout().Write(d.Payload)
				return err
			}
			return c.show(cmd, out, func() (string, error) { return letterText(&d), nil })
		},
	}
	cmd.Flags().BoolVar(&raw, "payload", false, "write the payload's bytes and nothing else")
	return cmd
}

// letterText shows the payload by its size alone: terminals are read over shoulders.
func letterText(d *api.DeadLetterDetail) string {
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
	var s selection
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
			out, err := c.call(cmd.Context(), http.MethodPost, "/v1/replays", s)
			if err != nil {
				return err
			}
			if s.DryRun || detach {
				return c.show(cmd, out, func() (string, error) { return replayText(out) })
			}
			return c.follow(cmd, out)
		},
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.Rate, "rate", "", "no faster than, such as 15/s")
	f.BoolVar(&s.DryRun, "dry-run", false, "only count what would be replayed")
	f.BoolVar(&detach, "detach", false, "do not wait for its end")
	return cmd
}

func newDeadPurgeCmd(c *client) *cobra.Command {
	var s selection
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
			out, err := c.call(cmd.Context(), http.MethodPost, "/v1/dead/purge", s)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return purgedText(out) })
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&s.DryRun, "dry-run", false, "only count what would be purged")
	cmd.Flags().BoolVar(&sure, "yes", false, "do it")
	return cmd
}

func purgedText(out []byte) (string, error) {
	var v struct {
		Purged int
		DryRun bool `json:"dry_run"`
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return "", err
	}
	if v.DryRun {
		return fmt.Sprintf("would purge %d", v.Purged), nil
	}
	return fmt.Sprintf("purged %d", v.Purged), nil
}

// follow shows how far a replay is until it has ended; progress goes to the error output.
func (c *client) follow(cmd *cobra.Command, out []byte) error {
	begin := time.Now()
	shown := ""
	for {
		var r replayed
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("the service's answer: %w", err)
		}
		if r.State != "running" {
			return c.show(cmd, out, func() (string, error) { return replayText(out) })
		}
		if line := r.progress(); line != shown {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s\n", time.Since(begin).Round(time.Second), line)
			shown = line
		}
		if err := wait(cmd.Context(), time.Second); err != nil {
			return fmt.Errorf("%s goes on without us: %w", r.ID, err)
		}
		var err error
		if out, err = c.call(cmd.Context(), http.MethodGet, "/v1/replays/"+r.ID, nil); err != nil {
			return err
		}
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
