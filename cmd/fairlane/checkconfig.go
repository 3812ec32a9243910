package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/internal/config"
)

func newCheckConfigCmd() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Check a configuration file; with --print, show every setting in force",
		Long: `Check a configuration file and report everything that is wrong with it, with file, line,
field and rule. The exit code is 0 if it can be served.

--print shows the effective configuration: every setting with its value, meaning and range.
Without FILE that is the default. Secrets show the name of their variable.`,
		Example: "  fairlane check-config fairlane.yaml\n  fairlane check-config --print",
		Args:    atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := config.Default()
			if len(args) == 1 {
				var err error
				if c, err = config.Load(args[0], nil); err != nil {
					return err
				}
			}
			if show {
				return c.Print(cmd.OutOrStdout())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return err
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print the effective configuration")
	return cmd
}
