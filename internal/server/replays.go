package server

import (
	"net/http"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// replayIn selects dead letters to replay: of one subscription, or of all of one tenant.
type replayIn struct {
	Tenant       string   `json:"tenant,omitempty"`
	Subscription string   `json:"subscription,omitempty"`
	Reasons      []string `json:"reasons,omitempty"`
	Since        string   `json:"since,omitempty"`
	Until        string   `json:"until,omitempty"`
	Rate         string   `json:"rate,omitempty"`
	DryRun       bool     `json:"dry_run,omitempty"`
}

// replayView is a replay and how far it is. selected = taken + skipped + left, and taken = delivered +
// died_again + cancelled + waiting.
type replayView struct {
	ID           string     `json:"id,omitempty"` // none of a dry run
	Tenant       string     `json:"tenant"`
	Subscription string     `json:"subscription,omitempty"`
	Reasons      []string   `json:"reasons,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	Until        *time.Time `json:"until,omitempty"`
	Rate         string     `json:"rate,omitempty"`
	DryRun       bool       `json:"dry_run,omitempty"`
	State        string     `json:"state"`             // running, cancelled, done; counted: a dry run
	Blocked      string     `json:"blocked,omitempty"` // what holds a lane of it back
	Selected     uint64     `json:"selected"`
	Taken        uint64     `json:"taken"`
	Delivered    uint64     `json:"delivered"`
	DiedAgain    uint64     `json:"died_again"`
	Cancelled    uint64     `json:"cancelled"`
	Waiting      uint64     `json:"waiting"`
	Skipped      uint64     `json:"skipped"` // taken by another replay, or purged, before its turn came
	Left         uint64     `json:"left"`
	Created      *time.Time `json:"created,omitempty"`
}

func viewReplay(r *fanout.ReplayStatus) replayView {
	v := replayView{
		ID: r.ID, Tenant: r.Tenant, Subscription: r.Subscription, Reasons: r.Reasons, Rate: r.Rate, State: r.State, Selected: r.Selected,
		Taken: r.Count.Taken, Delivered: r.Count.Delivered, DiedAgain: r.Count.Dead, Cancelled: r.Count.Cancelled,
		Waiting: r.Count.Waiting(), Skipped: r.Skipped, Left: r.Left,
		Since: instantOf(r.Since), Until: instantOf(r.Until), Created: instantOf(r.Created),
	}
	if r.Blocked != engine.None {
		v.Blocked = r.Blocked.String()
	}
	return v
}

func instantOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

func (s *Server) listReplays(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	c := callerOf(r)
	return reply(w, http.StatusOK, pageOf(q, s.fanout.Replays(func(tenant string) bool { return q.of(c, tenant) }),
		func(r *fanout.ReplayStatus) uint64 { return uint64(r.Number) },
		func(*fanout.ReplayStatus) bool { return true },
		viewReplay))
}

// createReplay is POST /v1/replays: 201, or 200 for a dry run, which stores nothing.
func (s *Server) createReplay(w http.ResponseWriter, r *http.Request) error {
	sel, dry, rate, err := s.readSelection(w, r, true)
	if err != nil {
		return err
	}
	status, err := s.fanout.Replay(r.Context(), sel, rate, dry)
	if err != nil {
		return err
	}
	v := viewReplay(&status)
	if dry {
		v.DryRun, v.State = true, "counted"
		return reply(w, http.StatusOK, v)
	}
	w.Header().Set("Location", "/v1/replays/"+v.ID)
	return reply(w, http.StatusCreated, v)
}

// replay finds the one of the path, if r's caller may know of it.
func (s *Server) replay(r *http.Request) (fanout.ReplayStatus, error) {
	status, err := s.fanout.ReplayOf(r.PathValue("id"))
	if err != nil || !callerOf(r).sees(status.Tenant) {
		return status, &problem{code: notFound, detail: nothingThere}
	}
	return status, nil
}

func (s *Server) getReplay(w http.ResponseWriter, r *http.Request) error {
	status, err := s.replay(r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, viewReplay(&status))
}

func (s *Server) cancelReplay(w http.ResponseWriter, r *http.Request) error {
	status, err := s.replay(r)
	if err == nil {
		status, err = s.fanout.CancelReplay(r.Context(), status.ID)
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, viewReplay(&status))
}

func (s *Server) resumeReplay(w http.ResponseWriter, r *http.Request) error {
	status, err := s.replay(r)
	if err == nil {
		status, err = s.fanout.ResumeReplay(r.Context(), status.ID)
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, viewReplay(&status))
}
