package server

import (
	"net/http"
	"strconv"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/topic"
)

// testSubscription is POST /v1/subscriptions/{id}/test: a trigger for this subscription alone, whatever its
// topics. It takes the way of every other: the tier's inbound rate, limits, ledger, account.
func (s *Server) testSubscription(w http.ResponseWriter, r *http.Request) error {
	if s.stopping.Load() {
		return fanout.ErrStopped
	}
	sub, err := s.subscription(r)
	if err != nil {
		return err
	}
	t := &journal.Trigger{Topic: topic.Test(sub.ID), Audience: journal.Audience{Tenants: []string{sub.Tenant}}, Producer: callerOf(r).id}
	if err := s.pressure(t.Audience); err != nil {
		return err
	}
	if err := checkEncoding(r); err != nil {
		return err
	}
	if t.ContentType, err = contentType(r.Header); err != nil {
		return err
	}
	if err := s.rate(callerOf(r), 1); err != nil {
		return err
	}
	if t.Payload, err = readBody(w, r, s.maxBody, s.pace); err != nil {
		return err
	}
	if len(t.Payload) == 0 && t.ContentType == "" {
		t.ContentType = "application/json"
		t.Payload = []byte(`{"type":"fairlane.test","subscription":` + strconv.Quote(sub.ID) + `}`)
	}
	return s.append(w, r, t)
}
