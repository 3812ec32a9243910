package server

import (
	"encoding/json"
	"fmt"
	"net/http"
)

const maxResend = 100 // subscriptions of one resend

// resendIn names who gets a trigger once more.
type resendIn struct {
	Subscriptions []string `json:"subscriptions"`
}

// resentView says what was offered once more.
type resentView struct {
	Trigger       string   `json:"trigger"` // as it was named
	Position      uint64   `json:"position"`
	Subscriptions []string `json:"subscriptions"`
}

// resend is POST /v1/triggers/{id}/resend: the id, or the position in digits. It is an act of its own: whatever
// became of the trigger there before, it is offered to these subscriptions once more.
func (s *Server) resend(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, false)
	if err != nil {
		return err
	}
	var in resendIn
	o.read("subscriptions", nil, func(raw json.RawMessage) string {
		list, is := texts(raw)
		if !is || len(list) == 0 || len(list) > maxResend {
			return fmt.Sprintf("a list of 1 to %d ids of subscriptions", maxResend)
		}
		in.Subscriptions = list
		return ""
	})
	o.require("subscriptions")
	if err := o.err(); err != nil {
		return err
	}
	c := callerOf(r)
	for _, id := range in.Subscriptions {
		if sub, ok := s.registry.Subscription(id); !ok || sub.Deleted || !c.sees(sub.Tenant) {
			return &problem{code: notFound, detail: nothingThere}
		}
	}
	p, err := s.fanout.Resend(r.Context(), r.PathValue("id"), in.Subscriptions)
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, resentView{Trigger: r.PathValue("id"), Position: uint64(p), Subscriptions: in.Subscriptions})
}
