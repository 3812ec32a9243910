package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
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

// call sends one request and returns the body of a 2xx answer.
func (c *client) call(ctx context.Context, method, path string, in any) (out json.RawMessage, err error) {
	a, err := c.api()
	if err != nil {
		return nil, err
	}
	return out, a.Do(ctx, method, path, in, &out)
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
	a, err := c.api()
	if err != nil {
		return err
	}
	all := []T{}
	for item, err := range items(cmd.Context(), a) {
		if err != nil {
			return err
		}
		all = append(all, item)
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), all)
	}
	return table(cmd.OutOrStdout(), header, all, func(item T) ([]string, error) { return row(item), nil })
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // topics keep their ">"
	return enc.Encode(v)
}

func table[T any](w io.Writer, header string, items []T, row func(T) ([]string, error)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, header)
	for _, item := range items {
		cells, err := row(item)
		if err != nil {
			return fmt.Errorf("the service's answer: %w", err)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// list walks the pages of path, which has a query, and prints them as rows, or as one JSON array.
func (c *client) list(cmd *cobra.Command, path string, header string, row func(json.RawMessage) ([]string, error)) error {
	items, err := c.pages(cmd.Context(), path)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), append([]json.RawMessage{}, items...))
	}
	return table(cmd.OutOrStdout(), header, items, row)
}

// pages returns the items of all pages of path, which has a query.
func (c *client) pages(ctx context.Context, path string) (items []json.RawMessage, err error) {
	a, err := c.api()
	if err != nil {
		return nil, err
	}
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	for item, err := range api.List[json.RawMessage](ctx, a, path, values) {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// show prints an answer as it is with --json, else as text makes it.
func (c *client) show(cmd *cobra.Command, data []byte, text func() (string, error)) error {
	if c.json {
		_, err := cmd.OutOrStdout().Write(data)
		return err
	}
	s, err := text()
	if err != nil {
		return fmt.Errorf("the service's answer: %w", err)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), s)
	return err
}
