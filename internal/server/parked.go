package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// parkedView is one delivery that waits and comes back by itself.
type parkedView struct {
	Position uint64     `json:"position"` // of the trigger; 0 if its payload cannot be read
	Attempt  uint32     `json:"attempt"`  // attempts made
	Reason   string     `json:"reason"`
	Since    *time.Time `json:"since,omitempty"`
	Due      *time.Time `json:"due,omitempty"` // in place of since: it has a time of its own
}

// listParked is what waits for a subscription, in the order of acceptance.
func (s *Server) listParked(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	sub, err := s.subscription(r)
	if err != nil {
		return err
	}
	found, err := s.fanout.ParkedOf(sub.ID, journal.Position(q.after), q.limit, func(reason engine.Reason) bool { return q.hasReason(reason.String()) })
	if err != nil {
		return err
	}
	p := page[parkedView]{Items: make([]parkedView, len(found))}
	for i := range found {
		v := parkedView{Position: uint64(found[i].Position), Attempt: found[i].Attempt, Reason: found[i].Reason.String()}
		if found[i].Position.Held() {
			v.Position = 0
			if t, err := s.journal.Load(r.Context(), found[i].Position); err == nil {
				v.Position = uint64(t.Position)
			}
		}
		if v.Since = &found[i].At; found[i].Due {
			v.Since, v.Due = nil, v.Since
		}
		p.Items[i] = v
	}
	if len(found) == q.limit {
		p.Next = strconv.FormatUint(uint64(found[len(found)-1].Position), 10)
	}
	return reply(w, http.StatusOK, p)
}
