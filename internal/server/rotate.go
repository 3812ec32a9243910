package server

import (
	"net/http"

	"github.com/fairlane-dev/fairlane/internal/delivery"
)

// rotateSecret is POST /v1/subscriptions/{id}/secret: it makes a secret, which the answer shows once and which signs
// from now on beside those before. A patch of secrets with the new one alone ends the overlap: whoever rotates need
// not know the old one.
func (s *Server) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	if err := plain(r); err != nil {
		return err
	}
	return s.alone(r.Context(), func() error {
		sub, err := s.subscription(r)
		if err != nil {
			return err
		}
		if len(sub.Secrets) >= maxSecrets {
			return refuse(conflict, "secrets", "are as many as may sign at once; end an overlap first, by a patch of secrets")
		}
		key := delivery.NewSecret()
		sub.Secrets = append([][]byte{key}, sub.Secrets...)
		stored, err := s.fanout.PutSubscription(r.Context(), sub)
		if err != nil {
			return err
		}
		v := viewSubscription(&stored)
		v.Secret = delivery.FormatSecret(key)
		return reply(w, http.StatusOK, v)
	})
}
