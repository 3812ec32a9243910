package delivery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
)

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
