package delivery

import (
	"fmt"
	"strings"
)

// Bounds of custom headers.
const (
	MaxHeaders     = 32
	MaxHeaderBytes = 8 << 10 // names and values together
	maxName        = 128
)

const nameRule = "must be a token (letters, digits and !#$%&'*+-.^_`|~) of at most 128 characters"

// reservedNames are those that frame the message, belong to one hop, or say what the sender alone may
// say; in lower case.
var reservedNames = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "keep-alive": true,
	"proxy-connection": true, "te": true, "trailer": true, "upgrade": true, "expect": true, "http2-settings": true,
	"content-type": true, "content-encoding": true, "accept-encoding": true, "user-agent": true, "date": true,
	"idempotency-key": true, "x-attempt": true,
	"ratelimit": true, "ratelimit-policy": true, "ratelimit-limit": true, "ratelimit-remaining": true, "ratelimit-reset": true,
}

// reservedPrefixes are kept from custom headers, in lower case.
var reservedPrefixes = []string{"webhook-", "svix-", "ce-", "fairlane-", "proxy-", "sec-"}

func reserved(low string) bool { return reservedNames[low] }

// compileHeaders checks custom headers and returns them as they are sent. taken are names, in lower
// case, that the request has already.
func compileHeaders(headers []Header, taken map[string]bool) ([]byte, error) {
	if len(headers) > MaxHeaders {
		return nil, bad("headers", "has %d fields, may have %d", len(headers), MaxHeaders)
	}
	var b []byte
	size := 0
	seen := map[string]bool{}
	for _, h := range headers {
		low := strings.ToLower(h.Name)
		if rule := headerRule(h, low); rule != "" {
			return nil, bad("headers."+shown(h.Name), "%s", rule)
		}
		if seen[low] || taken[low] {
			return nil, bad("headers."+shown(h.Name), "must stand once")
		}
		seen[low] = true
		if size += len(h.Name) + len(h.Value); size > MaxHeaderBytes {
			return nil, bad("headers", "is longer than %d bytes, names and values together", MaxHeaderBytes)
		}
		b = appendField(b, h.Name, h.Value)
	}
	return b, nil
}

func headerRule(h Header, low string) string {
	switch {
	case !token([]byte(h.Name)) || len(h.Name) > maxName:
		return "the name " + nameRule
	case reserved(low):
		return "is a name that the request needs itself, or that belongs to one connection"
	case !visible(h.Value):
		return "the value must be visible ASCII and blanks, not at its ends"
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(low, p) {
			return fmt.Sprintf("names that begin with %s are taken", p)
		}
	}
	return ""
}

// visible reports whether s is a field value of visible ASCII with blanks only inside (RFC 9110 5.5).
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return strings.Trim(s, " ") == s
}

// shown is a name as an error may quote it.
func shown(name string) string { return clip(name, 64) }
