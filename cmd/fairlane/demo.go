package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/internal/demo"
)

// newDemoCmd is `fairlane demo`: three phases on this machine, compared.
func newDemoCmd() *cobra.Command {
	var o demo.Options
	var plot string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in a minute that no tenant slows another down",
		Long: "Runs the same healthy load three times on this machine: alone, beside eight troublesome\n" +
			"neighbours, and beside them with the protections off. Needs no arguments and no service;\n" +
			"everything is on loopback and in a temporary directory, and nothing is left behind.",
		Example: "  fairlane demo\n  fairlane demo --json > report.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			o.Out, o.Progress = cmd.OutOrStdout(), cmd.OutOrStdout()
			o.Live = o.Progress == os.Stdout && terminal(os.Stdout)
			if o.JSON {
				o.Progress, o.Live = cmd.ErrOrStderr(), false
			}
			r, err := demo.Run(ctx, o)
			if err != nil || plot == "" {
				return err
			}
			return writePicture(plot, r)
		},
	}
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print one JSON object; progress goes to stderr")
	cmd.Flags().StringVar(&plot, "plot", "", "write the three p99s as a picture to this SVG file")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "of the generator of triggers")
	return cmd
}

func writePicture(path string, r demo.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(demo.WritePicture(f, r), f.Close())
}

// terminal reports whether a table can be redrawn on f.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
