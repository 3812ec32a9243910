package delivery

import (
	"errors"
	"strconv"
)

var (
	errID          = errors.New("id is not usable as webhook-id")
	errContentType = errors.New("content type is not a header value")
	errSchema      = errors.New("schema version is not a header value")
	errNoSecret    = errors.New("subscription has no signing secret")
)

// check refuses what would not be a well-formed request. Whatever stored it
// should have refused it first; a delivery is not sent with a broken head.
func (r *Request) check(now int64) error {
	switch {
	case !validID(r.ID):
		return errID
	case !validValue(r.ContentType):
		return errContentType
	case !validValue(r.Schema):
		return errSchema
	case r.Shape != nil && !r.Shape.live(now):
		return errNoSecret
	case r.Shape != nil:
		return nil
	case len(r.Secrets) == 0:
		return errNoSecret
	}
	for _, s := range r.Secrets {
		if len(s) == 0 {
			return errNoSecret
		}
	}
	return nil
}

// validValue reports whether s may be a field value (RFC 9110 5.5).
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// appendHead appends the request line and the fields of r, signed for the Unix
// second now. Idempotency-Key is a structured-field string, quoted, as its
// draft has it; the id's alphabet needs no escapes.
func (c *Client) appendHead(b []byte, r *Request, t *target, now int64) []byte {
	b = append(b, "POST "...)
	b = append(b, t.uri...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, t.authority...)
	b = appendField(b, "User-Agent", c.agent)
	b = append(b, "\r\nAccept-Encoding: identity"...)
	if r.ContentType != "" {
		b = appendField(b, "Content-Type", r.ContentType)
	}
	b = appendNumber(b, "Content-Length", int64(len(r.Payload)))
	if r.TraceParent != "" && validValue(r.TraceParent) && validValue(r.TraceState) {
		b = appendField(b, "traceparent", r.TraceParent)
		if r.TraceState != "" {
			b = appendField(b, "tracestate", r.TraceState)
		}
	}
	if r.Schema != "" {
		b = appendField(b, "Fairlane-Schema", r.Schema)
	}
	if r.Shape != nil {
		b = r.Shape.appendFields(b, r, now)
	} else {
		b = appendField(b, "webhook-id", r.ID)
		b = appendNumber(b, "webhook-timestamp", now)
		b = append(b, "\r\nwebhook-signature: "...)
		b = AppendSignature(b, r.ID, now, r.Payload, r.Secrets)
	}
	b = append(b, "\r\nIdempotency-Key: \""...)
	b = append(b, r.ID...)
	b = append(b, '"')
	b = appendNumber(b, "X-Attempt", int64(r.Attempt))
	if r.Limit >= 0 {
		b = appendNumber(b, "RateLimit-Limit", r.Limit)
		b = appendNumber(b, "RateLimit-Remaining", max(r.Remaining, 0))
	}
	return append(b, "\r\n\r\n"...)
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, "\r\n"...)
	b = append(b, name...)
	b = append(b, ": "...)
	return append(b, value...)
}

func appendNumber(b []byte, name string, n int64) []byte {
	b = append(b, "\r\n"...)
	b = append(b, name...)
	b = append(b, ": "...)
	return strconv.AppendInt(b, n, 10)
}
