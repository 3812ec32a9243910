package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

func newRepairCmd() *cobra.Command {
	var data string
	var asJSON, yes bool
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Mend the log of a stopped service that a disk has damaged",
		Long: `Look through the whole log of a service that is stopped, and mend what is damaged, so that it opens again.

Without --yes nothing is changed: everything is tried on a copy, and what would be done is printed. With
--yes the mended copy takes the place of the log; the log as it was is kept beside it and can be
deleted, or put back, by hand. The copy needs as much free space as the log takes.

What is lost stays lost. Its positions are filled, so that nothing else gets them. Deliveries that
waited for it, or were dead, end as dropped, with the reason "local", and are listed. Where outcomes
are lost, deliveries may be repeated, with the same id.`,
		Example: "  fairlane repair --data ./data\n  fairlane repair --data ./data --yes",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger("text", cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			r, err := journal.Repair(cmd.Context(), journal.RepairOptions{Dir: data, Apply: yes, Logger: log})
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			return printRepair(cmd.OutOrStdout(), r, data)
		},
	}
	cmd.Flags().StringVar(&data, "data", config.Default().Data.Dir, "data directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// printRepair writes the report for a person.
func printRepair(w io.Writer, r *journal.RepairReport, data string) error {
	var b strings.Builder
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "%s%s: %s; %s\n", d.Stream, numbers(" message", d.From, d.To), d.What, d.Mend)
	}
	if r.Found > 0 {
		fmt.Fprintf(&b, "%d deliveries that the log has lost are in the held part: kept\n", r.Found)
	}
	for _, o := range r.Outcomes {
		fmt.Fprintf(&b, "outcomes in%s are lost: deliveries may be repeated\n", numbers(" message", o.From, o.To))
	}
	printLost(&b, r.Lost)
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "lost before all of it was delivered:%s; whom it was for is not known\n", numbers(" position", u.From, u.To))
	}
	switch {
	case b.Len() == 0:
		b.WriteString("nothing is damaged\n")
	case r.Applied:
		fmt.Fprintf(&b, "mended; what was there before is in %s\n", r.Copy)
	default:
		fmt.Fprintf(&b, "nothing was changed; to do this: fairlane repair --data %s --yes\n", data)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func numbers(what string, from, to uint64) string {
	switch {
	case to == 0:
		return ""
	case from == to:
		return fmt.Sprintf("%s %d", what, to)
	}
	return fmt.Sprintf("%ss %d to %d", what, from, to)
}

const lostShown = 20 // positions of a subscription; --json has all

// printLost lists lost deliveries by subscription; they are in its order.
func printLost(w io.Writer, lost []journal.LostDelivery) {
	for len(lost) > 0 {
		n := 1
		for n < len(lost) && lost[n].Lane == lost[0].Lane && lost[n].State == lost[0].State {
			n++
		}
		var at []string
		for _, l := range lost[:min(n, lostShown)] {
			at = append(at, fmt.Sprint(l.Position))
		}
		if n > lostShown {
			at = append(at, "...")
		}
		l := lost[0]
		fmt.Fprintf(w, "%s %s: %d %s, lost: %s\n", l.Tenant, cmp.Or(l.Subscription, fmt.Sprintf("lane %d", l.Lane)), n, l.State, strings.Join(at, " "))
		lost = lost[n:]
	}
}

// withRepair adds what a person can do about damage.
func withRepair(err error, dir string) error {
	if !errors.Is(err, journal.ErrDamaged) {
		return err
	}
	if _, e := os.Stat(dir); e != nil {
		return err
	}
	return fmt.Errorf("%w\nnothing was changed; see what can be done: fairlane repair --data %s", err, dir)
}
