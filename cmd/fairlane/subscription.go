package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func newSubscriptionCmd() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: "subscription", Aliases: []string{"sub"}, Short: "Create, list and remove subscriptions", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.flags(cmd)
	cmd.AddCommand(newSubscriptionCreateCmd(c), newSubscriptionListCmd(c), newSubscriptionRotateCmd(c), newSubscriptionRemoveCmd(c))
	return cmd
}

// newSubscription is what the flags of create say; what is not set is left to the service.
type newSubscription struct {
	Tenant   string   `json:"tenant"`
	URL      string   `json:"url"`
	Topics   []string `json:"topics"`
	Rate     string   `json:"rate,omitempty"`
	Burst    int64    `json:"burst,omitempty"`
	Cap      *int     `json:"cap,omitempty"`
	Timeout  string   `json:"timeout,omitempty"`
	Attempts uint32   `json:"attempts,omitempty"`
	OnLimit  string   `json:"on_limit,omitempty"`
	Lane     string   `json:"lane,omitempty"`
	Order    string   `json:"order,omitempty"`
	OnDead   string   `json:"on_dead,omitempty"`

	Match map[string]string `json:"match,omitempty"`

	Secrets           []string          `json:"secrets,omitempty"`
	Signature         json.RawMessage   `json:"signature,omitempty"`
	SignatureBeside   json.RawMessage   `json:"signature_beside,omitempty"`
	Headers           map[string]string `json:"headers,omitempty"`
	OptionalHeaders   []string          `json:"optional_headers,omitempty"`
	Envelope          string            `json:"envelope,omitempty"`
	ClientCertificate map[string]string `json:"client_certificate,omitempty"`
}

func newSubscriptionCreateCmd(c *client) *cobra.Command {
	var in newSubscription
	var limit int
	var look requestFlags
	cmd := &cobra.Command{
		Use:     "create --tenant ID --url URL --topic PATTERN",
		Short:   "Create a subscription; its signing secret is shown once",
		Example: "  fairlane subscription create --tenant acme --url https://acme.test/hook --topic 'geofence.>' --rate 20/s",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("cap") {
				in.Cap = &limit
			}
			if err := look.fill(&in); err != nil {
				return err
			}
			out, err := c.call(cmd.Context(), http.MethodPost, "/v1/subscriptions", in)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return createdText(out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Tenant, "tenant", "", "the tenant's id")
	f.StringVar(&in.URL, "url", "", "where to send")
	f.StringArrayVar(&in.Topics, "topic", nil, "a pattern such as geofence.>; may be repeated")
	f.StringVar(&in.Rate, "rate", "", `such as 20/s; "unlimited"; 0 is paused`)
	f.Int64Var(&in.Burst, "burst", 0, "at once; one second's worth if absent")
	f.IntVar(&limit, "cap", 0, "requests in flight; 0 is paused")
	f.StringVar(&in.Timeout, "timeout", "", "of one request, such as 15s")
	f.Uint32Var(&in.Attempts, "attempts", 0, "attempts before it is dead; the horizon alone if absent")
	f.StringVar(&in.OnLimit, "on-limit", "", "defer or drop")
	f.StringToStringVar(&in.Match, "match", nil, "attributes that a trigger must have, such as region=eu; may be repeated")
	f.StringVar(&in.Lane, "lane", "", "name of a lane whose rate and cap the tenant's subscriptions share")
	f.StringVar(&in.Order, "order", "", "subscription or key: one after the other, in all or of each key")
	f.StringVar(&in.OnDead, "on-dead", "", "continue or stop behind a dead letter, with --order")
	look.add(cmd, &in)
	for _, name := range []string{"tenant", "url", "topic"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

func createdText(out []byte) (string, error) {
	var s struct{ ID, Secret string }
	if err := json.Unmarshal(out, &s); err != nil {
		return "", err
	}
	text := "created " + s.ID
	if s.Secret != "" {
		text += "\nsecret  " + s.Secret + "  (not shown again)"
	}
	return text, nil
}

func newSubscriptionListCmd(c *client) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List subscriptions",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/v1/subscriptions?limit=1000"
			if tenant != "" {
				path += "&tenant=" + url.QueryEscape(tenant)
			}
			return c.list(cmd, path, "ID\tTENANT\tTOPICS\tRATE\tSTATE\tHOST", subscriptionRow)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "of this tenant only")
	return cmd
}

// subscriptionRow shows the host alone: a URL's path may be a credential, and terminals are read
// over shoulders.
func subscriptionRow(item json.RawMessage) ([]string, error) {
	var s struct {
		ID, Tenant, URL, Rate, Disabled string
		Topics                          []string
		Paused                          bool
	}
	if err := json.Unmarshal(item, &s); err != nil {
		return nil, err
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("url of %s", s.ID)
	}
	state := "active"
	switch {
	case s.Disabled != "":
		state = s.Disabled
	case s.Paused:
		state = "paused"
	}
	if s.Rate == "" {
		s.Rate = "(tier's)"
	}
	return []string{s.ID, s.Tenant, strings.Join(s.Topics, ","), s.Rate, state, u.Scheme + "://" + u.Host}, nil
}

func newSubscriptionRemoveCmd(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a subscription; what waits for it is cancelled",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := c.call(cmd.Context(), http.MethodDelete, "/v1/subscriptions/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return c.show(cmd, out, func() (string, error) { return "removed " + args[0], nil })
		},
	}
}
