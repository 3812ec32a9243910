package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Arithmetic of limits: budgets, windows, caps, fan-out, retries, shares, sizing",
		Long: `Arithmetic of limits, in closed form. Nothing is sent and nothing is stored.

Rates are an amount per period (120/s, 7200/m; 120 alone is per second), durations have a unit
(120ms, 1s, 2m, 3h, 1d), sizes may have one (900, 64KiB), shares are 0.1 or 10%.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newPlanBucketCmd(),
		newPlanWindowCmd(),
		newPlanCapCmd(),
		newPlanFanOutCmd(),
		newPlanRetriesCmd(),
		newPlanSharesCmd(),
		newPlanFleetCmd(),
	)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			return usageError{fmt.Errorf("--%s %s: %w", bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())}
		}
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	return cmd
}

// answer is what a plan says: the contract of --json, and the text.
type answer struct {
	json   any
	text   []section
	charts func() []picture.Chart // for --plot
}

type section struct {
	head string
	rows [][]string // cells; all sections of a text share their columns
}

// planned makes cmd print what run answers.
func planned(cmd *cobra.Command, run func() (answer, error)) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	plot := cmd.Flags().String("plot", "", "draw it into this .svg or .png too")
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := missing(cmd); err != nil {
			return err
		}
		if err := checkPlot(*plot); err != nil {
			return err
		}
		a, err := run()
		if err != nil {
			return byFlag(err)
		}
		if *plot != "" {
			if err := drawn(*plot, a.charts()); err != nil {
				return err
			}
		}
		if *asJSON {
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(a.json)
		}
		return writeText(cmd.OutOrStdout(), a.text)
	}
	return cmd
}

func writeText(w io.Writer, text []section) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, s := range text {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintln(t, s.head)
		for _, cells := range s.rows {
			for len(cells) > 1 && cells[len(cells)-1] == "" {
				cells = cells[:len(cells)-1] // no blanks at the end of a line
			}
			fmt.Fprintln(t, "  "+strings.Join(cells, "\t"))
		}
	}
	return t.Flush()
}

// byFlag says of an input that a plan refused which flag it came from.
func byFlag(err error) error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		var named []error
		for _, e := range several.Unwrap() {
			named = append(named, byFlag(e))
		}
		return usageError{errors.Join(named...)}
	}
	var bad *plan.Invalid
	if errors.As(err, &bad) {
		name := "--" + strings.ReplaceAll(bad.Field, "_", "-")
		if strings.HasPrefix(bad.Field, "tenants[") {
			name = bad.Field // an item of a list
		}
		return usageError{fmt.Errorf("%s %s: %s", name, bad.Value, bad.Rule)}
	}
	return err
}

// num writes a number for people: thousands apart, four digits where it has decimals.
func num(x float64) string {
	if x != math.Trunc(x) && math.Abs(x) < 1000 {
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
	s := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percent(x float64) string { return num(100*x) + " %" }

// ms writes milliseconds for people.
func ms(x float64) string {
	switch {
	case x >= 120_000:
		return time.Duration(x * float64(time.Millisecond)).Round(time.Second).String()
	case x >= 1000:
		return num(x/1000) + " s"
	}
	return num(x) + " ms"
}

// span writes a duration for people: 1m, not 1m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size writes bytes for people.
func size(x float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; x >= 1000 && i < len(units)-1; i++ {
		x /= 1000
	}
	return strconv.FormatFloat(x, 'g', 3, 64) + " " + units[i]
}
