package main

import (
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
