package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
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
	if of, linked := r.Context().Value(linkedKey{}).(string); linked {
		return s.callerWith(&journal.Key{ID: linkProducer, Role: journal.RoleTenant, Tenants: []string{of}})
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return nil
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return s.holder(sha256.Sum256([]byte(strings.TrimLeft(key, " "))))
}

// holder is who has the key with that digest; nil is nobody.
func (s *Server) holder(sum [sha256.Size]byte) *caller {
	if s.configured && subtle.ConstantTimeCompare(sum[:], s.key[:]) == 1 {
		return &caller{id: adminProducer, role: admin}
	}
	k, ok := s.access.Find(sum, time.Now())
	if !ok {
		return nil
	}
	return s.callerWith(&k)
}

// callerWith is who has the key k. The keys of a tenant that was removed open nothing.
func (s *Server) callerWith(k *journal.Key) *caller {
	c := &caller{id: k.ID, tenants: k.Tenants, broadcast: k.Broadcast}
	for _, n := range roleNames {
		if n.name == k.Role {
			c.role = n.role
		}
	}
	if c.role == tenant {
		c.of = k.Tenants[0]
		if t, ok := s.registry.Tenant(c.of); !ok || t.Deleted {
			return nil
		}
	}
	return c
}
