package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// client calls the API of a running service.
type client struct {
	server string
	json   bool // print the answer as it is
}

// flags adds what every command that calls the service takes.
func (c *client) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.server, "server", "http://127.0.0.1:8080", "base URL of the service; the key comes from "+adminKeyVar)
	cmd.PersistentFlags().BoolVar(&c.json, "json", false, "print the API's JSON")
}

const (
	callTimeout = 30 * time.Second
	maxAnswer   = 16 << 20
)

// call sends one request and returns the body of a 2xx answer. Other answers are errors that
// say field and rule.
func (c *client) call(ctx context.Context, method, path string, in any) ([]byte, error) {
	key := os.Getenv(adminKeyVar)
	if key == "" {
		return nil, errors.New(adminKeyVar + " is not set")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body io.Reader = http.NoBody
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.server, "/")+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, answerError(resp.StatusCode, out)
	}
	return out, nil
}

// answerError says what a problem says.
func answerError(status int, body []byte) error {
	var p struct{ Title, Detail string }
	if json.Unmarshal(body, &p) != nil || p.Title == "" {
		return fmt.Errorf("the service answered %d %s", status, http.StatusText(status))
	}
	return fmt.Errorf("%s (%d): %s", strings.ToLower(p.Title), status, p.Detail)
}

// list walks the pages of path and prints them as rows, or as one JSON array.
func (c *client) list(cmd *cobra.Command, path string, header string, row func(json.RawMessage) ([]string, error)) error {
	items, err := c.pages(cmd.Context(), path)
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(append([]json.RawMessage{}, items...))
	}
	return table(cmd.OutOrStdout(), header, items, row)
}

// pages returns the items of all pages of path, which has a query.
func (c *client) pages(ctx context.Context, path string) (items []json.RawMessage, err error) {
	for after := ""; ; {
		data, err := c.call(ctx, http.MethodGet, path+after, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Items []json.RawMessage
			Next  string
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, fmt.Errorf("the service's answer: %w", err)
		}
		items = append(items, page.Items...)
		if page.Next == "" {
			return items, nil
		}
		after = "&after=" + page.Next
	}
}

func table(w io.Writer, header string, items []json.RawMessage, row func(json.RawMessage) ([]string, error)) error {
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
