package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/config"
)

func newTierCmd() *cobra.Command {
	return newGroupCmd("tier", "List, show, set and remove tiers", newTierListCmd, newTierShowCmd, newTierPutCmd, newTierRemoveCmd)
}

func newTierListCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List tiers",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listed(c, cmd, func(ctx context.Context, a *api.Client) iter.Seq2[api.Tier, error] { return a.Tiers(ctx) },
				"NAME\tWEIGHT\tRATE\tBURST\tCAP\tBACKLOG\tSUBSCRIPTIONS\tINBOUND\tSET BY", func(t api.Tier) []string { return tierCells(&t) })
		},
	}
}

func newTierShowCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a tier",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Tier, error) { return a.Tier(ctx, args[0]) }, tierText)
		},
	}
}

func newTierPutCmd(c *client) *cobra.Command {
	var in api.NewTier
	var auto api.CapAuto
	var inbound api.Inbound
	cmd := &cobra.Command{
		Use:   "put NAME",
		Short: "Create or replace a tier",
		Long: "Creates or replaces a tier; a flag that is absent gives its default, not what was there before. The tier is\n" +
			"in force at once for all tenants in it, and refills nothing. A tier of the configuration is changed there.",
		Example: "  fairlane tier put gold --weight 3 --rate 100/s --burst 500 --backlog 20GiB --inbound-rate 20/s",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			if auto != (api.CapAuto{}) {
				in.CapAuto = &auto
			}
			if inbound != (api.Inbound{}) {
				in.Inbound = &inbound
			}
			return do(c, cmd, func(ctx context.Context, a *api.Client) (api.Tier, error) { return a.PutTier(ctx, in) }, tierText)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Rate, "rate", "", `of one subscription, such as 20/s; "unlimited"; 0 is paused`)
	f.StringVar(&inbound.Rate, "inbound-rate", "", "of what a tenant posts with its own keys, such as 20/s")
	atLeastOne(cmd, &in.Weight, "weight", "share of capacity relative to other tenants")
	atLeastOne(cmd, &in.Burst, "burst", "at once; one second's worth if absent")
	atLeastOne(cmd, &in.Cap, "cap", "requests in flight to one subscription")
	atLeastOne(cmd, &auto.Min, "cap-auto-min", "the service sets caps by what it measures: from this")
	atLeastOne(cmd, &auto.Max, "cap-auto-max", "to this; not at all if absent")
	atLeastOne(cmd, &in.Subscriptions, "subscriptions", "that a tenant may have")
	atLeastOne(cmd, &inbound.Burst, "inbound-burst", "at once; one second's worth if absent")
	atLeastOne(cmd, &inbound.Share, "inbound-share", "posts that are handed to the log at once, before others' turns; of 64 in all")
	f.Var(&value{kind: "size", read: func(s string) (err error) {
		if in.Backlog, err = config.ParseSize(s); err != nil || in.Backlog == 0 {
			return errors.New("must be a size with a unit, for example 20GiB or 512MiB")
		}
		return nil
	}}, "backlog", "payload bytes that a tenant may have parked and dead, such as 20GiB")
	return cmd
}

// atLeastOne adds a flag for a whole number. A 0 would be taken for the default: it is refused.
func atLeastOne[T int | int64](cmd *cobra.Command, to *T, name, usage string) {
	cmd.Flags().Var(&value{kind: "number", read: func(s string) error {
		n, err := strconv.Atoi(s)
		if *to = T(n); err != nil || n < 1 {
			return errors.New("must be a whole number from 1")
		}
		return nil
	}}, name, usage)
}

func newTierRemoveCmd(c *client) *cobra.Command {
	return newEndCmd(c, "rm NAME", "Remove a tier that no tenant is in", "removed", (*api.Client).DeleteTier)
}

// tierCells are the columns of ls; sizes are as the configuration has them.
func tierCells(t *api.Tier) []string {
	burst, limit, by := "-", fmt.Sprint(t.Cap), "API"
	if t.Burst > 0 {
		burst = fmt.Sprint(t.Burst)
	}
	if t.CapAuto != nil {
		limit += fmt.Sprintf(" (auto %d to %d)", max(t.CapAuto.Min, 1), t.CapAuto.Max)
	}
	if t.Configured {
		by = "configuration"
	}
	return []string{t.Name, fmt.Sprint(t.Weight), t.Rate, burst, limit, config.FormatSize(t.Backlog), fmt.Sprint(t.Subscriptions), inboundText(t.Inbound), by}
}

func inboundText(in *api.Inbound) string {
	if in == nil {
		return "unlimited"
	}
	text := cmp.Or(in.Rate, "unlimited")
	if in.Burst > 0 {
		text += fmt.Sprintf(", burst %d", in.Burst)
	}
	if in.Share > 0 {
		text += fmt.Sprintf(", share %d", in.Share)
	}
	return text
}

func tierText(t api.Tier) string {
	var b strings.Builder
	var rows [][]string
	cells := tierCells(&t)
	for i, name := range []string{"tier", "weight", "rate", "burst", "cap", "backlog", "subscriptions", "inbound", "set by"} {
		rows = append(rows, []string{name, cells[i]})
	}
	_ = writeRows(&b, rows) // a builder takes everything
	return strings.TrimSuffix(b.String(), "\n")
}
