package server

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// audited keeps a record of what an administrator did, before the answer leaves: what was acknowledged is
// in the record. What was refused changed nothing and is not.
func (s *Server) audited(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c := callerOf(r)
		if c.role != admin {
			return h(w, r)
		}
		a := &heldAnswer{w: w, header: w.Header(), status: http.StatusOK}
		err := h(a, r)
		if err != nil {
			a.status = problemOf(err).status()
		}
		if a.status/100 == 4 {
			return err
		}
		act := journal.Act{At: now(), Key: c.id, Method: r.Method, Path: cmp.Or(a.header.Get("Location"), r.URL.Path), Fields: c.fields, Status: a.status}
		if lost := s.access.Audit(context.WithoutCancel(r.Context()), act); lost != nil {
			return lost
		}
		if err == nil {
			a.release()
		}
		return err
	}
}

// heldAnswer keeps an answer back.
type heldAnswer struct {
	w      http.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *heldAnswer) Header() http.Header         { return a.header }
func (a *heldAnswer) WriteHeader(status int)      { a.status = status }
func (a *heldAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }

// Unwrap lets the deadlines of the connection be set.
func (a *heldAnswer) Unwrap() http.ResponseWriter { return a.w }

func (a *heldAnswer) release() {
	a.w.WriteHeader(a.status)
	a.w.Write(a.body.Bytes())
}

// actView is one act of an administrator.
type actView struct {
	At     time.Time `json:"at"`
	Key    string    `json:"key"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Fields []string  `json:"fields,omitempty"`
	Status int       `json:"status"`
}

func (s *Server) listActs(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	acts, err := s.access.Acts(r.Context(), q.after, q.limit)
	if err != nil {
		return err
	}
	p := page[actView]{Items: []actView{}}
	for _, a := range acts {
		if !q.during(a.At) {
			continue
		}
		p.Items = append(p.Items, actView{a.At, a.Key, a.Method, a.Path, a.Fields, a.Status})
	}
	if n := len(acts); n == q.limit && !acts[n-1].At.Add(ledgerSlack).Before(q.since) {
		p.Next = strconv.FormatUint(acts[len(acts)-1].Number, 10)
	}
	return reply(w, http.StatusOK, p)
}
