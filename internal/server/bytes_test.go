package server

import (
	"bytes"
	"io"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Field case 1.
// Field case 2.
// Field case 3.
// Field case 57.
func TestPayloadBytesArriveAsPosted(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	sub := s.subscribe("acme", url, "")
	verify, err := standardwebhooks.NewWebhook(sub.Secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, payload, contentType string }{
		{"numbers, order, repeated keys", "{\"b\":9007199254740993,\"a\":1.10,\"e\":1E400,\"a\":2}\n", "application/json"},
		{"escaped NUL", `{"a":"\u0000"}`, "application/json"},
		{"raw NUL", "a\x00b", "text/plain; charset=utf-8"},
		{"invalid UTF-8", "\xff\xfe\x80", "application/octet-stream"},
		{"lone surrogates", `{"a":"\ud800"}`, "application/json"},
		{"emoji raw and escaped, U+2028, NFC, NFD, right-to-left", "{\"a\":\"\U0001f60a \\ud83d\\ude0a \u2028 \u00e9 e\u0301 \u200f\"}", "application/json"},
		{"empty object", "{}", "application/json"},
		{"empty", "", "application/json"},
		{"no content type", "x", ""},
	} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(c.payload)
			if chunked {
				body = io.MultiReader(body, strings.NewReader("")) // no length to see
			}
			a := s.do("POST", "/v1/triggers/a.b", body, "Fairlane-Tenant: acme", "Content-Type: "+c.contentType)
			s.must(202, a)
			r := next(t, got)
			if !bytes.Equal(r.body, []byte(c.payload)) || r.length != int64(len(c.payload)) {
				t.Errorf("%s: got %q, length %d", c.name, r.body, r.length)
			}
			if r.header.Get("Content-Type") != c.contentType {
				t.Errorf("%s: content type %q", c.name, r.header.Get("Content-Type"))
			}
			if err := verify.Verify(r.body, r.header); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			var first struct{ ID string }
			a.into(t, &first)
			if r.header.Get("Webhook-Id") != first.ID {
				t.Errorf("%s: id %q, answered %q", c.name, r.header.Get("Webhook-Id"), first.ID)
			}
		}
	}
}
