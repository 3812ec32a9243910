package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/fairlane-dev/fairlane/admit/httpadmit"
	"github.com/fairlane-dev/fairlane/fair"
)

// Bounds of changes of the registry, which are made one at a time.
const (
	changeQueue = 1024            // of one tenant, or one key, that wait
	changeWait  = 2 * time.Minute // longest wait for its turn: an apply of 30,000 subscriptions takes as long
)

// alone runs f while nobody else changes the registry, so that what f read still holds when it writes. Tenants take
// turns, and an administrator's key is one of them: a flood of one's changes does not keep another's waiting.
//
// It answers with what f returns, no value without a body, when the next one goes on: a client that does not read its
// answer holds nobody up.
func (s *Server) alone(w http.ResponseWriter, r *http.Request, f func() (status int, v any, err error)) error {
	status, v, err := s.inOrder(r, f)
	if err != nil {
		return err
	}
	if v == nil {
		w.WriteHeader(status)
		return nil
	}
	return reply(w, status, v)
}

// inOrder runs f when it is the turn of r's caller.
func (s *Server) inOrder(r *http.Request, f func() (int, any, error)) (int, any, error) {
	c := callerOf(r)
	claim := fair.Claim{Tenant: "key " + c.id, Share: 1, Weight: 1}
	if c.role == tenant {
		claim.Tenant = c.of
	}
	release, err := s.changes.Acquire(r.Context(), claim, changeWait)
	if err != nil {
		return 0, nil, unchanged(err)
	}
	defer release()
	return f()
}

// unchanged says that a change did not come to its turn.
func unchanged(err error) error {
	if errors.Is(err, httpadmit.ErrQueueFull) || errors.Is(err, httpadmit.ErrAllFull) || errors.Is(err, httpadmit.ErrWaited) {
		return &problem{code: busy, detail: "too many changes wait; nothing was changed", retryIn: time.Second, cause: err}
	}
	return err
}
