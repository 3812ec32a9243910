package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/admit/httpadmit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/admit/policyfile"
)

func newGateCheckCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a policy file, whole, and say what it lets through",
		Long: `Check a policy file and report everything that is wrong with it, with line, field and rule. The
exit code is 0 if it can be served. Warnings go to the standard error.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := policyfile.Load(args[0], nil)
			if err != nil {
				return err
			}
			for _, w := range f.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w.Error())
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"ok": true, "limits": limitRows(f)})
			}
			return printLimits(cmd.OutOrStdout(), f)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, `print {"ok","limits":[{"policy","tier","limit","mode","key"}]}`)
	return cmd
}

type limitRow struct {
	Policy string `json:"policy"`
	Tier   string `json:"tier"`
	Limit  string `json:"limit"`
	Mode   string `json:"mode"`
	Key    string `json:"key"`
}

// limitRows lists what each policy lets each tier do.
func limitRows(f *policyfile.File) (rows []limitRow) {
	c := f.Gate.Config()
	for _, p := range c.Policies {
		row := limitRow{Policy: p.Name, Mode: "enforce"}
		switch {
		case p.Percent == 0:
			row.Mode = "observe"
		case p.Percent < 100:
			row.Mode = strconv.Itoa(p.Percent) + "%"
		}
		var parts []string
		for _, part := range p.Key {
			parts = append(parts, part.String())
		}
		row.Key = strings.Join(parts, "+")
		if p.Tiers == nil {
			row.Tier, row.Limit = "all", policyfile.LimitOf(&p.Spec)
			rows = append(rows, row)
			continue
		}
		for _, t := range c.Tiers {
			row.Tier, row.Limit = t.Name, policyfile.LimitOf(p.Tiers[t.Name])
			rows = append(rows, row)
		}
	}
	return rows
}

func printLimits(w io.Writer, f *policyfile.File) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POLICY\tKEY\tTIER\tLIMIT\tMODE")
	for _, r := range limitRows(f) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Policy, r.Key, r.Tier, r.Limit, r.Mode)
	}
	return t.Flush()
}

func newGateReportCmd() *cobra.Command {
	var admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Compare what policies observed and enforced, and costs with slot time",
		Long: `Ask a running gate what it has counted since its start: by policy, route and tenant how many
requests it judged, refused, and would have refused had an observed policy been enforced; refusals
while the service was idle (false rejections) and requests let through while it was saturated (false
acceptances); and for each route the measured slot time, the configured cost and a proposed one.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, strings.TrimSuffix(admin, "/")+"/report", nil)
			if err != nil {
				return usageError{err}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
			if err != nil {
				return err
			}
			var r httpadmit.Report
			if resp.StatusCode != http.StatusOK || json.Unmarshal(data, &r) != nil {
				return errors.New("that is not the admin address of a gate")
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(data)
				return err
			}
			return printReport(cmd.OutOrStdout(), &r)
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "http://127.0.0.1:9091", "admin address of the gate")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the gate's JSON")
	return cmd
}

func printReport(w io.Writer, r *httpadmit.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POLICY\tROUTE\tTENANT\tJUDGED\tDENIED\tWOULD DENY\tFALSE REJ.\tFALSE ACC.")
	for _, p := range r.Policies {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", p.Policy, p.Route, p.Tenant, p.Attempted, p.Denied, p.WouldDeny, p.FalseRejections, p.FalseAcceptances)
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "ROUTE\tREQUESTS\tMEAN SLOT MS\tCOST\tPROPOSED")
	for _, p := range r.Routes {
		proposed := "-"
		if p.Proposed > 0 {
			proposed = strconv.FormatInt(p.Proposed, 10)
		}
		fmt.Fprintf(t, "%s\t%d\t%.3f\t%d\t%s\n", p.Route, p.Requests, p.MeanMs, p.Cost, proposed)
	}
	return t.Flush()
}

func newGateKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "key TENANT [USER]",
		Short: "Make an API key, and the line that the gate's file of keys holds for it",
		Args: func(cmd *cobra.Command, args []string) error {
			return asUsage(cobra.RangeArgs(1, 2)(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, word := range args {
				if word == "" || strings.ContainsAny(word, " \t\r\n") {
					return usageError{errors.New("tenant and user must be words without spaces")}
				}
			}
			key := "fl_" + rand.Text()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "key:  %s\nline: %s %s\n", key, identity.Hash(key), strings.Join(args, " "))
			return err
		},
	}
}
