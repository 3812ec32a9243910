package delivery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

// Bounds of a signing secret in bytes, and its spelling (Standard Webhooks 1.0.0).
const (
	MinSecret    = 24
	MaxSecret    = 64
	secretPrefix = "whsec_"
)

// ErrSecret is returned for text that is no signing secret.
var ErrSecret = errors.New(`a secret is "whsec_" and the base64 of 24 to 64 bytes`)

// ParseSecret returns the bytes of a secret spelled "whsec_" + base64. The key
// of the signature is those bytes, never the text.
func ParseSecret(s string) ([]byte, error) {
	b64, ok := strings.CutPrefix(s, secretPrefix)
	if !ok {
		return nil, ErrSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(b64)
	if err != nil || len(key) < MinSecret || len(key) > MaxSecret || strings.ContainsAny(b64, "\r\n") {
		return nil, ErrSecret
	}
	return key, nil
}

// FormatSecret is the inverse of ParseSecret.
func FormatSecret(key []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// AppendSignature appends the value of webhook-signature to dst: for every
// secret "v1," and the base64 of HMAC-SHA256 over {id}.{timestamp}.{body},
// separated by blanks. timestamp is in Unix seconds, of this attempt. The body
// is read where it lies.
func AppendSignature(dst []byte, id string, timestamp int64, body []byte, secrets [][]byte) []byte {
	for i, secret := range secrets {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = appendV1(dst, id, timestamp, body, secret)
	}
	return dst
}

func appendV1(dst []byte, id string, timestamp int64, body, secret []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	lead := append(dst, id...) // beyond the end of dst, overwritten below
	lead = append(lead, '.')
	lead = strconv.AppendInt(lead, timestamp, 10)
	lead = append(lead, '.')
	mac.Write(lead[len(dst):])
	mac.Write(body)
	dst = append(lead[:len(dst)], "v1,"...)
	var sum [sha256.Size]byte
	return base64.StdEncoding.AppendEncode(dst, mac.Sum(sum[:0]))
}

// maxID is the longest webhook-id.
const maxID = 256

// validID reports whether id may be a webhook-id: it must not hold a dot, which
// separates the signed parts, nor anything that a header or a structured-field
// string would have to escape.
func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
