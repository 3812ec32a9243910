// Command fairlane delivers triggers (webhooks) to every subscriber, and lets no tenant slow
// another down.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set when a release is built.
var version = "dev"

func main() {
	ctx, stop := signalled()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// signalled ends the context at the first SIGINT or SIGTERM; the second ends the process at once.
func signalled() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run is the command without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "fairlane:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "fairlane",
		Short:         "Deliver every trigger to every subscriber; let no tenant slow another down",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		newServeCmd(),
		newTenantCmd(),
		newTierCmd(),
		newSubscriptionCmd(),
		newKeyCmd(),
		newApplyCmd(),
		newImportCmd(),
		newDeadCmd(),
		newReplayCmd(),
		newTriggerCmd(),
		newCheckConfigCmd(),
		newVersionCmd(),
		newDemoCmd(),
		newSinkCmd(),
		newGateCmd(),
		newBenchCmd(),
		newPlanCmd(),
		newRepairCmd(),
		newSimCmd(),
		newExportCmd(),
	)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	return root
}

// noArgs and exactly are cobra's, as usage errors.
func noArgs(cmd *cobra.Command, args []string) error {
	return asUsage(cobra.NoArgs(cmd, args))
}

func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return asUsage(cobra.ExactArgs(n)(cmd, args)) }
}

func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return asUsage(cobra.MaximumNArgs(n)(cmd, args)) }
}

func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}
