package server

import (
	"net/http"
	"slices"
	"time"
)

// completionView is what became of a trigger, derived from the ledger.
type completionView struct {
	ID       string     `json:"id"`
	Position uint64     `json:"position"`
	Topic    string     `json:"topic"`
	Bytes    int        `json:"bytes"`
	Accepted time.Time  `json:"accepted"`
	Complete bool       `json:"complete"` // each is delivered, dead, cancelled or dropped
	Whole    bool       `json:"whole"`    // false: the ledger does not hold all of it any more
	Fates    []fateView `json:"deliveries"`
}

// fateView is what became of one delivery.
type fateView struct {
	Subscription string     `json:"subscription"`
	Tenant       string     `json:"tenant"`
	State        string     `json:"state"` // the newest record's kind; pending: none yet
	Attempt      uint32     `json:"attempt,omitempty"`
	Status       uint16     `json:"status,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	At           *time.Time `json:"at,omitempty"`
}

// getTrigger is GET /v1/triggers/{id}: the id, or the position in digits. A tenant's key sees its own deliveries, of
// what is addressed to it.
func (s *Server) getTrigger(w http.ResponseWriter, r *http.Request) error {
	c, only := callerOf(r), ""
	if c.role == tenant {
		only = c.of
	}
	found, err := s.fanout.Completion(r.Context(), r.PathValue("id"), only)
	if err != nil {
		return err
	}
	t := found.Trigger
	v := completionView{ID: t.ID, Position: uint64(t.Position), Topic: t.Topic, Bytes: len(t.Payload), Accepted: t.Accepted.UTC(), Complete: true, Whole: found.Whole, Fates: []fateView{}}
	for i := range found.Fates {
		d := &found.Fates[i]
		if !c.sees(d.Tenant) {
			continue
		}
		rec := viewDelivery(&d.Record)
		one := fateView{Subscription: d.Subscription, Tenant: d.Tenant, State: rec.Kind, Attempt: rec.Attempt, Status: rec.Status, Reason: rec.Reason}
		if one.At = instantOf(d.At); d.Kind == 0 {
			one.State, one.At = "pending", nil
		}
		v.Complete = v.Complete && d.Settled()
		v.Fates = append(v.Fates, one)
	}
	if c.role == tenant && len(v.Fates) == 0 && !slices.Contains(t.Audience.Tenants, c.of) {
		return &problem{code: notFound, detail: nothingThere}
	}
	return reply(w, http.StatusOK, v)
}
