package main

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

// What is done to a subscription that there is already.

func newSubscriptionPauseCmd(c *client) *cobra.Command {
	return c.actCmd("pause ID", "Let nothing go; what comes waits", func(id string) (string, string, any) {
		return http.MethodPatch, id, map[string]any{"paused": true}
	}, func([]byte) (string, error) { return "paused", nil })
}

func newSubscriptionResumeCmd(c *client) *cobra.Command {
	return c.actCmd("resume ID", "Let what waits go, after a pause or a 410", func(id string) (string, string, any) {
		return http.MethodPatch, id, map[string]any{"paused": false}
	}, func([]byte) (string, error) { return "resumed", nil })
}

func newSubscriptionRotateCmd(c *client) *cobra.Command {
	return c.actCmd("rotate ID", "Add a signing secret, which is shown once; those before sign too", func(id string) (string, string, any) {
		return http.MethodPost, id + "/secret", nil
	}, func(out []byte) (string, error) {
		var s struct{ Secret string }
		err := json.Unmarshal(out, &s)
		return "secret  " + s.Secret + "  (not shown again)", err
	})
}

// actCmd is a command of one call on the subscription that its argument names.
func (c *client) actCmd(use, short string, call func(id string) (method, path string, in any), text func(out []byte) (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			method, path, in := call(url.PathEscape(args[0]))
			out, err := c.call(cmd.Context(), method, "/v1/subscriptions/"+path, in)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return text(out) })
		},
	}
}
