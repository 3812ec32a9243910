package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/sim/picture"
	"github.com/fairlane-dev/fairlane/sim/scenario"
)

// newSimCmd is `fairlane sim`: experiments in virtual time, on the engine that serves.
func newSimCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Try policies in virtual time, on the code that will run them",
		Long: "Runs scenarios: one population, several policies, one row a policy. The engine is the\n" +
			"service's own; only time, endpoints and arrivals are simulated. One seed, one result.",
		Example: "  fairlane sim list\n  fairlane sim run black-hole\n" +
			"  fairlane sim show burst > mine.yaml\n  fairlane sim run mine.yaml --plot mine.svg",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimListCmd(), newSimShowCmd(), newSimRunCmd(), newSimTraceCmd())
	return cmd
}

func newSimListCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the scenarios that ship with fairlane",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := scenario.List()
			if err != nil {
				return err
			}
			if asJSON {
				return listJSON(cmd.OutOrStdout(), all)
			}
			lines := [][]string{{"scenario", "policies", "asks"}}
			for _, s := range all {
				lines = append(lines, []string{s.Name, strings.Join(s.PolicyNames(), " "), s.About})
			}
			return scenario.WriteTable(cmd.OutOrStdout(), lines)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

func listJSON(w io.Writer, all []*scenario.Scenario) error {
	type item struct {
		Scenario string   `json:"scenario"`
		About    string   `json:"about"`
		Policies []string `json:"policies"`
	}
	var items []item
	for _, s := range all {
		items = append(items, item{s.Name, s.About, s.PolicyNames()})
	}
	return json.NewEncoder(w).Encode(items)
}

func newSimShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Print the file of a shipped scenario, to start your own from",
		Example: "  fairlane sim show burst > mine.yaml",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := scenario.Source(args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

// simRun is `fairlane sim run` with its flags.
type simRun struct {
	out, progress io.Writer
	live          bool // progress is a terminal
	asJSON        bool
	plot          string
	options       scenario.Options
	drawn         time.Time // when the bar was last drawn
}

func newSimRunCmd() *cobra.Command {
	var r simRun
	cmd := &cobra.Command{
		Use:   "run NAME|FILE|all",
		Short: "Run a scenario and print a row for each policy",
		Long: "Runs a shipped scenario by its name, a file of your own, or all that ship. Figures in\n" +
			"brackets are the literature's. --json has more figures than the table: an object for each\n" +
			"scenario, {\"scenario\",\"seed\",\"rows\":[{\"policy\",\"figures\":{...}}]}.",
		Example: "  fairlane sim run burst --json\n  fairlane sim run all --plot docs/sim.svg\n" +
			"  fairlane sim run ./mine.yaml --policy fair --seed 7",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.begin(cmd); err != nil {
				return err
			}
			return r.run(cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print one JSON object for each scenario")
	cmd.Flags().Uint64Var(&r.options.Seed, "seed", 1, "of all chance; equal seeds give equal results")
	cmd.Flags().StringVar(&r.options.Only, "policy", "", "run this policy alone")
	cmd.Flags().StringVar(&r.plot, "plot", "", "draw the result into this .svg or .png; with all, a file each: NAME is put before the ending")
	return cmd
}

// begin finds where to print, and checks what can be checked before long work.
func (r *simRun) begin(cmd *cobra.Command) error {
	r.out, r.progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
	r.live = r.progress == os.Stderr && terminal(os.Stderr)
	return checkPlot(r.plot)
}

// checkPlot refuses a picture's name that nothing can be drawn into; "" is no picture.
func checkPlot(name string) error {
	if name == "" {
		return nil
	}
	if err := picture.CheckName(name); err != nil {
		return usageError{fmt.Errorf("--plot: %w", err)}
	}
	return nil
}

func (r *simRun) run(cmd *cobra.Command, name string) error {
	if name != "all" {
		s, err := scenario.Load(name)
		if err != nil {
			return err
		}
		return r.one(cmd, s, r.plot)
	}
	all, err := scenario.List()
	if err != nil {
		return err
	}
	for _, s := range all {
		plot := r.plot
		if plot != "" {
			ending := filepath.Ext(plot)
			plot = strings.TrimSuffix(plot, ending) + "-" + s.Name + ending
		}
		if err := r.one(cmd, s, plot); err != nil {
			return err
		}
	}
	return nil
}

func (r *simRun) one(cmd *cobra.Command, s *scenario.Scenario, plot string) error {
	o := r.options
	ctx := cmd.Context()
	o.Progress = func(row string, part float64) bool {
		r.bar(s.Name+", "+row, part)
		return ctx.Err() == nil
	}
	result, err := s.Run(o)
	r.clearBar()
	if err != nil {
		return err
	}
	if plot != "" {
		if err := picture.Write(plot, charts(s, result)...); err != nil {
			return err
		}
	}
	if r.asJSON {
		return json.NewEncoder(r.out).Encode(result)
	}
	return s.WriteText(r.out, result)
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
)

// bar redraws the progress of a row, on a terminal only.
func (r *simRun) bar(row string, part float64) {
	if !r.live || time.Since(r.drawn) < barEvery {
		return
	}
	r.drawn = time.Now()
	full := int(part * barWidth)
	fmt.Fprintf(r.progress, "\r\x1b[K[%s%s] %3.0f %%  %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), part*100, row)
}

func (r *simRun) clearBar() {
	if r.live && !r.drawn.IsZero() {
		fmt.Fprint(r.progress, "\r\x1b[K")
	}
}
