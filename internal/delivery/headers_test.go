package delivery

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/envelope"
)

// Field case 61. What would add a header, or take one over, is refused, and no error repeats a value.
func TestCustomHeadersCannotInjectOrTakeOver(t *testing.T) {
	many := make([]Header, MaxHeaders+1)
	for i := range many {
		many[i] = Header{fmt.Sprintf("X-%d", i), "v"}
	}
	for name, c := range map[string]struct {
		headers     []Header
		field, rule string
	}{
		"line break":      {[]Header{{"X-A", "a\r\nX-Evil: SECRET"}}, "headers.X-A", "visible ASCII"},
		"bare return":     {[]Header{{"X-A", "SECRET\rb"}}, "headers.X-A", "visible ASCII"},
		"bare feed":       {[]Header{{"X-A", "SECRET\nb"}}, "headers.X-A", "visible ASCII"},
		"NUL":             {[]Header{{"X-A", "SECRET\x00"}}, "headers.X-A", "visible ASCII"},
		"not ASCII":       {[]Header{{"X-A", "SECRET\u00e9"}}, "headers.X-A", "visible ASCII"},
		"blank at end":    {[]Header{{"X-A", "SECRET "}}, "headers.X-A", "not at its ends"},
		"blank in name":   {[]Header{{"Bad Name", "SECRET"}}, "headers.Bad Name", "token"},
		"break in name":   {[]Header{{"X\r\nY", "SECRET"}}, "headers.X??Y", "token"},
		"colon in name":   {[]Header{{"X:", "SECRET"}}, "headers.X:", "token"},
		"no name":         {[]Header{{"", "SECRET"}}, "headers.", "token"},
		"long name":       {[]Header{{strings.Repeat("X", maxName+1), "SECRET"}}, "headers." + strings.Repeat("X", 64), "128"},
		"too many":        {many, "headers", "has 33 fields, may have 32"},
		"too long":        {[]Header{{"X-A", strings.Repeat("SECRET", 11000)}}, "headers", "8192"},
		"too long in all": {[]Header{{"X-A", strings.Repeat("a", 5000)}, {"X-B", strings.Repeat("b", 5000)}}, "headers", "8192"},
		"twice":           {[]Header{{"X-A", "1"}, {"x-a", "2"}}, "headers.x-a", "once"},
	} {
		wrongHeaders(t, name, c.headers, c.field, c.rule)
	}
	for _, name := range []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect", "Proxy-Connection",
		"Proxy-Authorization", "webhook-signature", "Webhook-Id", "WEBHOOK-timestamp", "svix-id", "Idempotency-Key", "X-Attempt", "User-Agent",
		"Content-Type", "Content-Encoding", "Accept-Encoding", "RateLimit", "ratelimit-limit", "RateLimit-Policy", "ce-id", "Fairlane-Position", "Date", "HTTP2-Settings",
	} {
		for _, spelled := range []string{name, strings.ToUpper(name), strings.ToLower(name)} {
			wrongHeaders(t, spelled, []Header{{spelled, "SECRET"}}, "headers."+spelled, "")
		}
	}
	s := shape(t, Spec{Secrets: [][]byte{secret}, Headers: []Header{{"Authorization", "Bearer x:y"}, {"Cookie", "a=b; c=d"}, {"X-Custom_1", ""}}})
	if got := string(s.headers); got != "\r\nAuthorization: Bearer x:y\r\nCookie: a=b; c=d\r\nX-Custom_1: " {
		t.Errorf("good ones: %q", got)
	}
	spec := Spec{Secrets: [][]byte{secret}, Signature: Signature{Profile: Template, Header: "X-Sig"}, Headers: []Header{{"x-sig", "forged"}}}
	if _, err := spec.Shape(); err == nil {
		t.Error("a custom header replaces the signature")
	}
}

func wrongHeaders(t *testing.T, name string, headers []Header, field, rule string) {
	t.Helper()
	spec := Spec{Secrets: [][]byte{secret}, Headers: headers}
	_, err := spec.Shape()
	wrong := new(SpecError)
	if !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(wrong.Rule, rule) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("%s: %v, want %s: %s", name, err, field, rule)
	}
}

func TestOptionalHeadersComeWhenChosen(t *testing.T) {
	ev := &envelope.Event{ID: "msg_1", Topic: "order.paid", Position: 4711, Accepted: time.Unix(1700000000, 0),
		Attributes: []envelope.Attribute{{Name: "source", Value: "/shop \"a\"\u20ac"}, {Name: "subject", Value: "7"}, {Name: "Bad-Name", Value: "x"}, {Name: "data", Value: "x"}}}
	r := &Request{ID: "msg_1", Limit: 500, Remaining: 42, Window: 5500 * time.Millisecond, Event: ev}
	f := fieldsOf(shape(t, Spec{Secrets: [][]byte{secret}, Optional: Optional}), r, 1)
	for name, value := range map[string]string{
		"ratelimit-policy": `"contract";q=500;w=6`, "ratelimit": `"contract";r=42;t=1`, "fairlane-position": "4711",
		"ce-id": "msg_1", "ce-specversion": "1.0", "ce-type": "order.paid", "ce-time": "2023-11-14T22:13:20Z", "ce-subject": "7",
		"ce-source": "/shop%20%22a%22%E2%82%AC",
	} {
		if f[name] != value {
			t.Errorf("%s: %q, want %q", name, f[name], value)
		}
	}
	if len(f) != 12 { // and the three of the signature
		t.Errorf("%d fields: %q", len(f), f)
	}
	if f := fieldsOf(shape(t, Spec{Secrets: [][]byte{secret}}), r, 1); len(f) != 3 {
		t.Errorf("nothing chosen: %q", f)
	}
	r.Limit = -1
	if f := fieldsOf(shape(t, Spec{Secrets: [][]byte{secret}, Optional: []string{OptRateLimit}}), r, 1); len(f) != 3 {
		t.Errorf("no rate: %q", f)
	}
	r = &Request{ID: "m", Limit: 1 << 60, Remaining: 1 << 60, Window: time.Hour}
	f = fieldsOf(shape(t, Spec{Secrets: [][]byte{secret}, Optional: []string{OptRateLimit}}), r, 1)
	if f["ratelimit-policy"] != `"contract";q=999999999999999;w=3600` || f["ratelimit"] != `"contract";r=999999999999999` {
		t.Errorf("integers of structured fields have 15 digits: %q", f)
	}
}
