package importer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The part of Convoy's API that matters here: a project, its endpoints and its subscriptions, as its list routes
// answer them. Earlier releases said title, target_url, and durations as text.
type (
	convoyProject struct {
		UID, Name, Type string
		Config          struct {
			Signature struct {
				Header   string
				Versions []struct{ Hash, Encoding string }
			}
			Strategy  json.RawMessage
			RateLimit json.RawMessage `json:"ratelimit"`
		}
	}
	convoyEndpoint struct {
		UID, Name, Title, URL, Description, Status string
		TargetURL                                  string `json:"target_url"`
		OwnerID                                    string `json:"owner_id"`
		Secrets                                    []convoySecret
		Advanced                                   bool          `json:"advanced_signatures"`
		Timeout                                    convoySeconds `json:"http_timeout"`
		RateLimit                                  int64         `json:"rate_limit"`
		RateLimitDuration                          convoySeconds `json:"rate_limit_duration"`
		ContentType                                string        `json:"content_type"`
		SlackWebhookURL                            string        `json:"slack_webhook_url"`
		SupportEmail                               string        `json:"support_email"`
		IsDisabled                                 bool          `json:"is_disabled"`
		Authentication                             *convoyAuthentication
		Certificate                                *struct{} `json:"mtls_client_cert"`
	}
	convoySecret struct {
		Value   string
		Expires *time.Time      `json:"expires_at"`
		Deleted json.RawMessage `json:"deleted_at"`
	}
	convoyAuthentication struct {
		Type   string
		APIKey struct {
			Name  string `json:"header_name"`
			Value string `json:"header_value"`
		} `json:"api_key"`
		Basic struct{ Username, Password string } `json:"basic_auth"`
	}
	convoySubscription struct {
		UID, Name, Type, Status, Function string
		EndpointID                        string `json:"endpoint_id"`
		Endpoint                          struct {
			UID string
		} `json:"endpoint_metadata"`
		Filter struct {
			Types  []string `json:"event_types"`
			Filter struct{ Headers, Body json.RawMessage }
		} `json:"filter_config"`
		RateLimit *struct{ Count, Duration int64 } `json:"rate_limit_config"`
		Retry     json.RawMessage                  `json:"retry_config"`
		Alert     json.RawMessage                  `json:"alert_config"`
	}
)

// convoySeconds is a duration: seconds, or text such as "10s".
type convoySeconds time.Duration

// UnmarshalJSON reads either form.
func (s *convoySeconds) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		*s = convoySeconds(time.Duration(n) * time.Second)
		return nil
	}
	if text == "" || text == "null" {
		return nil
	}
	d, err := time.ParseDuration(text)
	*s = convoySeconds(d)
	return err
}

const convoyHeader = "X-Convoy-Signature"

// Convoy reads an export of one project: a file {"project": .., "endpoints": [..], "subscriptions": [..]} of
// answers of the API as they are, or of what is under data in them. now decides which secrets are over.
func Convoy(path string, now time.Time) (*Result, error) {
	var file struct {
		Project       json.RawMessage
		Endpoints     *list[convoyEndpoint]
		Subscriptions *list[convoySubscription]
	}
	if err := readJSON(path, &file); err != nil {
		return nil, err
	}
	for _, l := range []struct {
		name    string
		missing bool
		more    bool
	}{
		{"project", file.Project == nil, false},
		{"endpoints", file.Endpoints == nil, file.Endpoints != nil && file.Endpoints.more},
		{"subscriptions", file.Subscriptions == nil, file.Subscriptions != nil && file.Subscriptions.more},
	} {
		switch {
		case l.missing:
			return nil, fmt.Errorf("%s: %s: is missing", path, l.name)
		case l.more:
			return nil, fmt.Errorf("%s: %s: is one page of several (has_next_page); fetch the others", path, l.name)
		}
	}
	var answer struct{ Data *convoyProject }
	project := convoyProject{}
	if err := json.Unmarshal(file.Project, &answer); err != nil {
		return nil, fmt.Errorf("%s: project: %s", path, jsonReason(err))
	}
	if answer.Data != nil {
		project = *answer.Data
	} else if err := json.Unmarshal(file.Project, &project); err != nil {
		return nil, fmt.Errorf("%s: project: %s", path, jsonReason(err))
	}
	w := newWork()
	return w.convoy(path, &project, file.Endpoints.items, file.Subscriptions.items, now)
}

func (w *work) convoy(path string, p *convoyProject, endpoints []convoyEndpoint, subs []convoySubscription, now time.Time) (*Result, error) {
	if p.Type == "incoming" {
		return nil, fmt.Errorf("%s: project: is an incoming one, which receives webhooks; Fairlane sends them", path)
	}
	w.convoyProject(p)
	for i := range endpoints {
		e := &endpoints[i]
		var own []convoySubscription
		for _, s := range subs {
			if e.UID != "" && (s.Endpoint.UID == e.UID || s.EndpointID == e.UID) {
				own = append(own, s)
			}
		}
		if err := w.convoyEndpoint(p, e, own, now); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, s := range subs {
		if !slices.ContainsFunc(endpoints, func(e convoyEndpoint) bool { return s.Endpoint.UID == e.UID || s.EndpointID == e.UID }) {
			w.note("subscription "+s.UID, "endpoint", "is not among the endpoints: not imported")
		}
	}
	return w.result("Convoy")
}

func (w *work) convoyProject(p *convoyProject) {
	object := "project " + p.UID
	if len(p.Config.Signature.Versions) > 1 {
		w.note(object, "config.signature.versions", "only the last version signs here, v%d", len(p.Config.Signature.Versions))
	}
	if present(p.Config.Strategy) {
		w.note(object, "config.strategy", "is not taken over: delivery.retry of the configuration holds for all")
	}
	if present(p.Config.RateLimit) {
		w.note(object, "config.ratelimit", "limits what is posted: set inbound of a tier")
	}
}

// present reports whether an optional part says something.
func present(raw json.RawMessage) bool {
	s := string(bytes.TrimSpace(raw))
	return s != "" && s != "null" && s != "{}" && s != `""`
}

// convoyEndpoint adds the subscriptions of an endpoint, and its owner's tenant.
func (w *work) convoyEndpoint(p *convoyProject, e *convoyEndpoint, subs []convoySubscription, now time.Time) error {
	object := "endpoint " + e.UID
	base := subscription{
		Tenant: w.id(object, "owner_id", e.OwnerID, e.UID), URL: cmp.Or(e.URL, e.TargetURL), Rate: rate(e.RateLimit, time.Duration(e.RateLimitDuration)),
		Paused: e.IsDisabled || e.Status != "" && e.Status != "active", Signature: w.convoySignature(object, p, e.Advanced),
	}
	if base.Tenant == "" {
		return fmt.Errorf("%s: has neither an owner_id nor a uid that can be a tenant's id", object)
	}
	if e.OwnerID == "" {
		w.note(object, "owner_id", "is empty: the endpoint is a tenant of its own")
	}
	if e.Timeout > 0 {
		base.Timeout = time.Duration(e.Timeout).String()
	}
	if len(subs) > 1 {
		base.Lane = e.UID // they share the endpoint's rate
	}
	w.convoyOwner(object, e, base.Tenant)
	w.convoySecrets(object, &base, e, now)
	w.convoyAuthentication(object, &base, e)
	w.convoyRest(object, e)
	if len(subs) == 0 {
		w.note(object, "subscriptions", "there is none: nothing is sent to it, and it is not imported")
	}
	for i := range subs {
		w.convoySubscription(base, &subs[i])
	}
	return nil
}

// rate is a number of requests in a time.
func rate(n int64, per time.Duration) string {
	switch {
	case n <= 0:
		return ""
	case per <= time.Second:
		return fmt.Sprintf("%d/s", n)
	}
	return fmt.Sprintf("%d/%ds", n, per/time.Second)
}

func (w *work) convoyOwner(object string, e *convoyEndpoint, id string) {
	if _, known := w.ids[id]; known {
		return
	}
	w.ids[id] = object
	t := tenant{ID: id}
	if e.OwnerID == "" {
		t.Name = w.label(object, "name", cmp.Or(e.Name, e.Title))
	}
	w.Tenants = append(w.Tenants, t)
}

// convoySignature is a template: the hex or base64 HMAC of the body, or with a timestamp, t=..,v1=...
func (w *work) convoySignature(object string, p *convoyProject, advanced bool) *signature {
	c := &p.Config.Signature
	s := &signature{Profile: "template", Header: cmp.Or(c.Header, convoyHeader), Algorithm: "hmac-sha256", Encoding: "hex"}
	if n := len(c.Versions); n > 0 {
		switch last := c.Versions[n-1]; last.Hash {
		case "SHA256", "":
		case "SHA512":
			s.Algorithm = "hmac-sha512"
		default:
			w.note(object, "signature", "the hash %q does not map; SHA256 stands for it", clip(last.Hash))
		}
		s.Encoding = cmp.Or(c.Versions[n-1].Encoding, "hex")
	}
	if advanced {
		s.Content, s.Separator = "{timestamp},{body}", ","
		s.Value = fmt.Sprintf("t={timestamp},v%d={signature}", max(len(c.Versions), 1))
	}
	return s
}

// convoySecrets takes those that are in force, the newest first; a simple signature carries one.
func (w *work) convoySecrets(object string, s *subscription, e *convoyEndpoint, now time.Time) {
	for _, k := range slices.Backward(e.Secrets) {
		switch {
		case k.Value == "" || present(k.Deleted) || k.Expires != nil && !k.Expires.IsZero() && now.After(*k.Expires):
			continue
		case len(s.Secrets) == 1 && !e.Advanced:
			w.note(object, "secrets", "a simple signature carries one: only the newest is taken")
			return
		}
		text := "text:" + k.Value
		if strings.ContainsAny(text, "\r\n") {
			text = "base64:" + base64.StdEncoding.EncodeToString([]byte(k.Value))
		}
		s.Secrets = append(s.Secrets, w.secret("SECRET_"+e.UID, text))
	}
	if len(s.Secrets) == 0 {
		w.note(object, "secrets", "there is none in force in the export: the service makes one, which the receiver must be given")
	}
}

func (w *work) convoyAuthentication(object string, s *subscription, e *convoyEndpoint) {
	a := e.Authentication
	if e.Certificate != nil {
		s.Paused = true
		w.note(object, "mtls_client_cert", "is not taken over: imported paused; set client_certificate")
	}
	switch {
	case a == nil || a.Type == "":
	case a.Type == "api_key" && a.APIKey.Name != "":
		w.header(object, s, e.UID, a.APIKey.Name, a.APIKey.Value)
	case a.Type == "api_key":
	case a.Type == "basic_auth":
		basic := base64.StdEncoding.EncodeToString([]byte(a.Basic.Username + ":" + a.Basic.Password))
		w.header(object, s, e.UID, "Authorization", "Basic "+basic)
	default:
		s.Paused = true
		w.note(object, "authentication", "%q does not map: imported paused", clip(a.Type))
	}
}

func (w *work) convoyRest(object string, e *convoyEndpoint) {
	for _, f := range []struct{ name, value string }{
		{"description", e.Description}, {"support_email", e.SupportEmail}, {"slack_webhook_url", e.SlackWebhookURL},
	} {
		if f.value != "" {
			w.note(object, f.name, "is not kept")
		}
	}
	if e.ContentType != "" && e.ContentType != "application/json" {
		w.note(object, "content_type", "payloads are sent as they are posted, with the content type of the post")
	}
}

// convoySubscription adds one.
func (w *work) convoySubscription(s subscription, c *convoySubscription) {
	object := "subscription " + c.UID
	s.Name = w.id(object, "uid", c.UID)
	switch {
	case s.Name == "":
		w.note(object, "uid", "cannot be a name here: not imported")
		return
	case c.Type == "cli":
		w.note(object, "type", "cli does not map: not imported")
		return
	}
	s.Paused = s.Paused || c.Status != "" && c.Status != "active"
	if s.Topics = []string{">"}; len(c.Filter.Types) > 0 && !slices.Contains(c.Filter.Types, "*") {
		if s.Topics = w.topics(object, "filter_config.event_types", c.Filter.Types); len(s.Topics) == 0 {
			w.note(object, "filter_config.event_types", "left nothing to subscribe to: not imported")
			return
		}
	}
	if present(c.Filter.Filter.Body) || present(c.Filter.Filter.Headers) {
		s.Paused = true
		w.note(object, "filter_config.filter", "does not map: imported paused; post triggers with attributes, and set match")
	}
	if c.Function != "" {
		s.Paused = true
		w.note(object, "function", "does not map: imported paused; an envelope of the configuration may do")
	}
	if c.RateLimit != nil && c.RateLimit.Count > 0 {
		s.Rate = rate(c.RateLimit.Count, time.Duration(c.RateLimit.Duration)*time.Second)
	}
	if present(c.Retry) {
		w.note(object, "retry_config", "is not taken over: delivery.retry of the configuration holds for all")
	}
	if present(c.Alert) {
		w.note(object, "alert_config", "does not map: alerts come from the metrics")
	}
	w.subscribe(s)
}
