package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
)

// keyVar holds the key of the commands that call the service; without it they use the admin's.
const keyVar = "FAIRLANE_KEY"

// maxAnswer bounds an answer in memory.
const maxAnswer = 16 << 20

// client calls the API of a running service and prints what it answers.
type client struct {
	server string
	json   bool // print the API's JSON
}

// flags adds what every command that calls the service takes.
func (c *client) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.server, "server", "http://127.0.0.1:8080", "base URL of the service; the key comes from "+keyVar+" or "+adminKeyVar)
	cmd.PersistentFlags().BoolVar(&c.json, "json", false, "print the API's JSON")
}

// api is the typed client.
func (c *client) api() (*api.Client, error) {
	key := cmp.Or(os.Getenv(keyVar), os.Getenv(adminKeyVar))
	if key == "" {
		return nil, errors.New("neither " + keyVar + " nor " + adminKeyVar + " is set")
	}
	return &api.Client{Base: c.server, Key: key}, nil
}

// do runs one call of the typed client and prints what it returns.
func do[T any](c *client, cmd *cobra.Command, call func(context.Context, *api.Client) (T, error), text func(T) string) error {
	a, err := c.api()
	if err != nil {
		return err
	}
	v, err := call(cmd.Context(), a)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), v)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text(v))
	return err
}

// newGroupCmd has the commands under one word that call the service.
func newGroupCmd(use, short string, commands ...func(*client) *cobra.Command) *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.flags(cmd)
	for _, command := range commands {
		cmd.AddCommand(command(c))
	}
	return cmd
}

// newEndCmd ends what its one argument names, by a call that answers nothing.
func newEndCmd(c *client, use, short, said string, call func(*api.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return done(c, cmd, func(ctx context.Context, a *api.Client) error { return call(a, ctx, args[0]) }, said+" "+args[0])
		},
	}
}

// done runs a call that answers nothing, and prints text unless --json is set.
func done(c *client, cmd *cobra.Command, call func(context.Context, *api.Client) error, text string) error {
	a, err := c.api()
	if err == nil {
		err = call(cmd.Context(), a)
	}
	if err == nil && !c.json {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	}
	return err
}

// listed prints a list as rows, or as one JSON array.
func listed[T any](c *client, cmd *cobra.Command, items func(context.Context, *api.Client) iter.Seq2[T, error], header string, row func(T) []string) error {
	all, err := collected(cmd.Context(), c, items)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), all)
	}
	rows := [][]string{strings.Split(header, "\t")}
	for _, item := range all {
		rows = append(rows, row(item))
	}
	return writeRows(cmd.OutOrStdout(), rows)
}

// collected is a whole list.
func collected[T any](ctx context.Context, c *client, items func(context.Context, *api.Client) iter.Seq2[T, error]) ([]T, error) {
	a, err := c.api()
	if err != nil {
		return nil, err
	}
	all := []T{}
	for item, err := range items(ctx, a) {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // topics keep their ">"
	return enc.Encode(v)
}

// writeRows writes cells under each other.
func writeRows(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
