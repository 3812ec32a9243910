package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/internal/importer"
)

// importCmd is `fairlane import svix|convoy`.
type importCmd struct {
	out, secrets string
	json         bool
}

func newImportCmd() *cobra.Command {
	c := &importCmd{}
	cmd := &cobra.Command{Use: "import", Short: "Turn an export of another system into files for apply", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	f := cmd.PersistentFlags()
	f.StringVarP(&c.out, "out", "o", "fairlane.yaml", "the file for fairlane apply -f; must be new")
	f.StringVar(&c.secrets, "secrets", "fairlane.env", "the file for fairlane apply --env; must be new")
	f.BoolVar(&c.json, "json", false, "print the report as JSON")
	cmd.AddCommand(
		&cobra.Command{
			Use: "svix FILE|DIR", Short: "Applications and endpoints of Svix", Args: exactly(1),
			Long:    "Reads answers of Svix's API: a directory of them, or one file; docs/migrating.md says how to get them.",
			Example: "  fairlane import svix export/",
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.run(cmd.OutOrStdout(), func() (*importer.Result, error) { return importer.Svix(args[0]) })
			},
		},
		&cobra.Command{
			Use: "convoy FILE", Short: "A project of Convoy: endpoints and subscriptions", Args: exactly(1),
			Long:    "Reads answers of Convoy's API in one file; docs/migrating.md says how to get them.",
			Example: "  fairlane import convoy project.json",
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.run(cmd.OutOrStdout(), func() (*importer.Result, error) { return importer.Convoy(args[0], time.Now()) })
			},
		})
	return cmd
}

// importReport is what import prints with --json.
type importReport struct {
	File          string          `json:"file"`
	Secrets       string          `json:"secrets"`
	Tenants       int             `json:"tenants"`
	Subscriptions int             `json:"subscriptions"`
	Notes         []importer.Note `json:"notes"` // what does not map
}

func (c *importCmd) run(w io.Writer, read func() (*importer.Result, error)) error {
	result, err := read()
	if err != nil {
		return err
	}
	// URLs may be credentials: the file of objects is private too.
	if err := writeNew(c.out, result.File); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := writeNew(c.secrets, result.Secrets); err != nil {
		return errors.Join(fmt.Errorf("--secrets: %w", err), os.Remove(c.out))
	}
	if c.json {
		notes := append([]importer.Note{}, result.Notes...)
		return printJSON(w, importReport{c.out, c.secrets, result.Tenants, result.Subscriptions, notes})
	}
	fmt.Fprintf(w, "%d tenants and %d subscriptions in %s, secrets in %s\n", result.Tenants, result.Subscriptions, c.out, c.secrets)
	if len(result.Notes) > 0 {
		fmt.Fprintf(w, "\n%d things do not map as they are:\n", len(result.Notes))
	}
	for _, n := range result.Notes {
		fmt.Fprintf(w, "  %s: %s %s\n", n.Object, n.Field, n.Note)
	}
	_, err = fmt.Fprintf(w, "\nnext: fairlane apply -f %s --env %s --dry-run\n", c.out, c.secrets)
	return err
}

// writeNew writes a file that nobody else may read, and that does not exist yet.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
