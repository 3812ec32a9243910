// Package client calls the API of a Fairlane service.
//
//	c := &client.Client{Base: "http://127.0.0.1:8080", Key: os.Getenv("FAIRLANE_ADMIN_KEY")}
//	receipt, err := c.Post(ctx, client.Trigger{Topic: "orders.created", Tenants: []string{"acme"}, Payload: body})
//
// A refusal is a *Problem, whose Code says which. Nothing is tried again by itself; a Problem with
// RetryAfter says when it is worth it, and a post with an idempotency key can be repeated safely.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client calls one service. Safe for concurrent use while its fields do not change.
type Client struct {
	Base string       // URL of the service, such as "http://127.0.0.1:8080"
	Key  string       // sent as Authorization: Bearer
	HTTP *http.Client // nil: one that gives a call 30 s
}

var defaultHTTP = &http.Client{Timeout: 30 * time.Second}

// maxAnswer bounds an answer in memory.
const maxAnswer = 16 << 20

// Problem is a refusal (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // what is wrong, and the rule that it breaks
	Rule   string `json:"rule,omitempty"`
	Errors []struct {
		Field string `json:"field"`
		Rule  string `json:"rule"`
	} `json:"errors,omitempty"` // all, when there is more than one
	RetryAfter time.Duration `json:"-"` // 0: not said
}

// Code is the last part of Type, such as "not-found". Codes are stable, texts are not.
func (p *Problem) Code() string { return p.Type[strings.LastIndexByte(p.Type, ':')+1:] }

// Error says what the service said.
func (p *Problem) Error() string {
	if p.Title == "" {
		return fmt.Sprintf("the service answered %d %s", p.Status, http.StatusText(p.Status))
	}
	return fmt.Sprintf("%s (%d): %s", strings.ToLower(p.Title), p.Status, p.Detail)
}

// Do sends in as JSON, or nothing if it is nil, to a path such as "/v1/tenants", and decodes the answer
// into out, unless it is nil. It is for routes that have no method here. Errors are a *Problem where the
// service answered.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	header := http.Header{}
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
		header.Set("Content-Type", "application/json")
	}
	_, err := c.send(ctx, method, path, header, body, out)
	return err
}

// send sends one request, decodes a 2xx answer, and returns its header.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte, out any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+c.Key)
	caller := c.HTTP
	if caller == nil {
		caller = defaultHTTP
	}
	resp, err := caller.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, problemOf(resp, data)
	}
	if out == nil || len(data) == 0 {
		return resp.Header, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("the service's answer: %w", err)
	}
	return resp.Header, nil
}

func problemOf(resp *http.Response, data []byte) *Problem {
	p := &Problem{}
	_ = json.Unmarshal(data, p) // what does not parse has no title
	p.Status = resp.StatusCode
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(n) * time.Second
	}
	return p
}

// Page is one page of a list; Next is the cursor of the next, "" on the last.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// List walks the pages of a path. It ends at the first error, which is yielded last.
func List[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := url.Values{"limit": {"1000"}}
		for name, v := range query {
			q[name] = v
		}
		for {
			var p Page[T]
			if err := c.Do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &p); err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range p.Items {
				if !yield(item, nil) {
					return
				}
			}
			if p.Next == "" {
				return
			}
			q.Set("after", p.Next)
		}
	}
}

// one sends a request and returns what it answers.
func one[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	err = c.Do(ctx, method, path, in, &out)
	return out, err
}

func ofTenant(id string) url.Values {
	if id == "" {
		return nil
	}
	return url.Values{"tenant": {id}}
}

// at joins a path of escaped parts.
func at(parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}
