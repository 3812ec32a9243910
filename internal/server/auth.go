package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// adminProducer is the immutable id of the key that the configuration names.
const adminProducer = "admin"

// noKey refuses r. A body is not waited for: net/http reads an unread one before it answers,
// unless the connection ends.
func noKey(r *http.Request) *problem {
	return &problem{code: unauthorized, detail: "send Authorization: Bearer and a key, once", close: r.ContentLength != 0}
}

// authenticate finds who sent r; nil is nobody. Digests are compared, in a time that does not depend on
// the key.
func (s *Server) authenticate(r *http.Request) *caller {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return nil
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	sum := sha256.Sum256([]byte(strings.TrimLeft(key, " ")))
	if subtle.ConstantTimeCompare(sum[:], s.key[:]) == 1 {
		return &caller{id: adminProducer, role: admin}
	}
	return nil
}
