package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// Dead is what the API asks of the fan-out about dead letters and replays; *fanout.Fanout is one.
type Dead interface {
	DeadLetters(context.Context, fanout.Selection, fanout.DeadCursor, int) ([]fanout.DeadLetter, *fanout.DeadCursor, error)
	DeadLetter(ctx context.Context, subscription, trigger string) (fanout.DeadLetter, []journal.Record, bool, error)
	PurgeDead(ctx context.Context, s fanout.Selection, dry bool) (int, error)
	PurgeOne(ctx context.Context, subscription, trigger string) error
	Replay(ctx context.Context, s fanout.Selection, rate string, dry bool) (fanout.ReplayStatus, error)
	Replays(shown func(tenant string) bool) []fanout.ReplayStatus
	ReplayOf(id string) (fanout.ReplayStatus, error)
	CancelReplay(ctx context.Context, id string) (fanout.ReplayStatus, error)
	ResumeReplay(ctx context.Context, id string) (fanout.ReplayStatus, error)
	Completion(ctx context.Context, trigger, tenant string) (fanout.Completion, error)
	Resend(ctx context.Context, trigger string, subscriptions []string) (journal.Position, error)
}

// deadView is a dead letter in a list: one trigger for one subscription.
type deadView struct {
	Trigger      string     `json:"trigger"`
	Position     uint64     `json:"position"` // of the trigger
	Subscription string     `json:"subscription"`
	Tenant       string     `json:"tenant"`
	Topic        string     `json:"topic"`
	Bytes        int        `json:"bytes"` // of payload
	Accepted     *time.Time `json:"accepted,omitempty"`
	Reason       string     `json:"reason"` // of the last death
	Class        string     `json:"class"`  // whose fault: endpoint, deferred, policy, internal
	Died         time.Time  `json:"died"`
	FirstReason  string     `json:"first_reason"`
	FirstDied    time.Time  `json:"first_died"`
	Deaths       uint32     `json:"deaths"`
	Replays      uint32     `json:"replays"`
	Attempts     uint32     `json:"attempts"`             // the first included, over all replays
	Unreadable   string     `json:"unreadable,omitempty"` // why the trigger cannot be shown
}

func viewDead(d *fanout.DeadLetter) deadView {
	v := deadView{
		Subscription: d.Subscription, Tenant: d.Tenant, Reason: d.Reason.String(), Class: fanout.Class(d.Reason), Died: d.Died,
		FirstReason: d.First.String(), FirstDied: d.FirstDied, Deaths: d.Deaths, Replays: d.Replays, Attempts: d.Attempts,
	}
	t := d.Trigger
	if t == nil {
		v.Unreadable = publicReason(d.Err)
		return v
	}
	v.Trigger, v.Position, v.Topic, v.Bytes, v.Accepted = t.ID, uint64(t.Position), t.Topic, d.Bytes, new(t.Accepted.UTC())
	return v
}

// deadLetterView is a dead letter whole.
type deadLetterView struct {
	deadView
	Headers      map[string]string `json:"headers"` // of its request, but for those of the moment
	Payload      string            `json:"payload_base64"`
	History      []deliveryView    `json:"history"`       // newest first
	HistoryWhole bool              `json:"history_whole"` // false: the log does not hold all of it any more
}

var deadQuery = []string{"after", "limit", "reason", "since", "until", "tenant", "subscription"}

// listDead is GET /v1/dead: by subscription, in the order in which they died.
func (s *Server) listDead(w http.ResponseWriter, r *http.Request) error {
	q, err := readDeadQuery(r)
	if err == nil {
		err = s.own(callerOf(r), &q.sel)
	}
	if err != nil {
		return err
	}
	return s.replyDead(w, r, q)
}

// listDeadOf is GET /v1/subscriptions/{id}/dead.
func (s *Server) listDeadOf(w http.ResponseWriter, r *http.Request) error {
	sub, err := s.subscription(r)
	if err != nil {
		return err
	}
	q, err := readDeadQuery(r)
	if err != nil {
		return err
	}
	q.sel.Subscription = sub.ID
	return s.replyDead(w, r, q)
}

func (s *Server) replyDead(w http.ResponseWriter, r *http.Request, q deadFilter) error {
	found, next, err := s.fanout.DeadLetters(r.Context(), q.sel, q.after, q.limit)
	if err != nil {
		return err
	}
	p := page[deadView]{Items: make([]deadView, len(found))}
	for i := range found {
		p.Items[i] = viewDead(&found[i])
	}
	if next != nil {
		p.Next = deadCursor(next)
	}
	return reply(w, http.StatusOK, p)
}

const deadCursorForm = "%d.%d.%d"

func deadCursor(c *fanout.DeadCursor) string {
	return fmt.Sprintf(deadCursorForm, c.Lane, c.Stamp, c.Skip)
}

// parseDeadCursor takes what deadCursor wrote, and nothing else.
func parseDeadCursor(v string) (c fanout.DeadCursor, ok bool) {
	_, err := fmt.Sscanf(v, deadCursorForm, &c.Lane, &c.Stamp, &c.Skip)
	return c, err == nil && c.Skip >= 0 && deadCursor(&c) == v
}

// own narrows a selection to what the caller may know of: its own, of a tenant's key.
func (s *Server) own(c *caller, sel *fanout.Selection) error {
	if c.role == tenant && sel.Tenant == "" {
		sel.Tenant = c.of
	}
	if sel.Tenant != "" && !c.sees(sel.Tenant) {
		return &problem{code: notFound, detail: nothingThere}
	}
	if sel.Subscription == "" {
		return nil
	}
	sub, ok := s.registry.Subscription(sel.Subscription)
	if !ok || sub.Deleted || !c.sees(sub.Tenant) || sel.Tenant != "" && sel.Tenant != sub.Tenant {
		return &problem{code: notFound, detail: nothingThere}
	}
	return nil
}

func (s *Server) getDead(w http.ResponseWriter, r *http.Request) error {
	sub, err := s.subscription(r)
	if err != nil {
		return err
	}
	d, history, whole, err := s.fanout.DeadLetter(r.Context(), sub.ID, r.PathValue("trigger"))
	if err != nil {
		return err
	}
	v := deadLetterView{deadView: viewDead(&d), Headers: map[string]string{}, History: make([]deliveryView, len(history)), HistoryWhole: whole}
	for i := range history {
		v.History[i] = viewDelivery(&history[i])
	}
	if t := d.Trigger; t != nil {
		v.Payload = base64.StdEncoding.EncodeToString(t.Payload)
		v.Headers["webhook-id"] = t.ID
		if t.ContentType != "" {
			v.Headers["Content-Type"] = t.ContentType
		}
	}
	return reply(w, http.StatusOK, v)
}

func (s *Server) deleteDead(w http.ResponseWriter, r *http.Request) error {
	sub, err := s.subscription(r)
	if err != nil {
		return err
	}
	if err := s.fanout.PurgeOne(r.Context(), sub.ID, r.PathValue("trigger")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// purgeIn selects dead letters to give up: of one subscription, or of all of one tenant.
type purgeIn struct {
	Tenant       string   `json:"tenant,omitempty"`
	Subscription string   `json:"subscription,omitempty"`
	Reasons      []string `json:"reasons,omitempty"`
	Since        string   `json:"since,omitempty"`
	Until        string   `json:"until,omitempty"`
	DryRun       bool     `json:"dry_run,omitempty"`
}

type purgeView struct {
	Purged int  `json:"purged"`
	DryRun bool `json:"dry_run"`
}

func (s *Server) purgeDead(w http.ResponseWriter, r *http.Request) error {
	sel, dry, _, err := s.readSelection(w, r, false)
	if err != nil {
		return err
	}
	n, err := s.fanout.PurgeDead(r.Context(), sel, dry)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, purgeView{Purged: n, DryRun: dry})
}

// readSelection reads the body that a purge and a replay share. Unknown fields are refused: a filter that is
// ignored would mean everything.
func (s *Server) readSelection(w http.ResponseWriter, r *http.Request, paced bool) (sel fanout.Selection, dry bool, rate string, err error) {
	o, err := s.readObject(w, r, false)
	if err != nil {
		return
	}
	o.read("subscription", nil, parseText(&sel.Subscription, "the id of a subscription", func(v string) bool { return v != "" && len(v) < 64 }))
	o.read("tenant", nil, parseText(&sel.Tenant, tenantIDRule, validTenantID))
	o.read("reasons", nil, parseReasons(&sel.Reasons))
	o.read("since", nil, parseInstant(&sel.Since))
	o.read("until", nil, parseInstant(&sel.Until))
	if !sel.Until.IsZero() && sel.Until.Before(sel.Since) {
		o.bad("until", "must not be before since")
	}
	o.read("dry_run", nil, parseBool(&dry))
	if paced {
		o.read("rate", nil, parseReplayRate(&rate))
	}
	c := callerOf(r)
	if c.role == admin && sel.Tenant == "" && sel.Subscription == "" {
		o.bad("subscription", "is missing; name one, or a tenant")
	}
	if err = o.err(); err == nil {
		err = s.own(c, &sel)
	}
	return
}

func parseReplayRate(to *string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		v, is := text(raw)
		if rate, err := limit.ParseContract(v, 1); !is || v == "" || err != nil || rate.IsPaused() {
			return `text such as "15/s"; left out, the lane's own limits pace it`
		}
		*to = v
		return ""
	}
}

func reasonRule() string {
	names := make([]string, len(fanout.Deadly))
	for i, r := range fanout.Deadly {
		names[i] = r.String()
	}
	return "reasons: " + strings.Join(names, ", ")
}

func reasonsOf(names []string) (list []engine.Reason, ok bool) {
	for _, name := range names {
		r, known := fanout.ReasonOf(name)
		if !known || !slices.Contains(fanout.Deadly, r) {
			return nil, false
		}
		list = append(list, r)
	}
	return list, len(list) > 0
}

func parseReasons(to *[]engine.Reason) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		names, is := texts(raw)
		list, ok := reasonsOf(names)
		if !is || !ok {
			return "a list of " + reasonRule()
		}
		*to = list
		return ""
	}
}

const instantRule = "an instant such as 2026-01-31T12:00:00Z"

func parseInstant(to *time.Time) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		v, is := text(raw)
		t, err := time.Parse(time.RFC3339Nano, v)
		if !is || err != nil {
			return instantRule
		}
		*to = t.UTC()
		return ""
	}
}

// deadFilter is the query of a list of dead letters.
type deadFilter struct {
	sel   fanout.Selection
	after fanout.DeadCursor
	limit int
}

func readDeadQuery(r *http.Request) (q deadFilter, err error) {
	q.limit = defaultLimit
	for name, v := range r.URL.Query() { // which the row has let in
		if rule := q.set(name, v[0]); rule != "" {
			return q, refuse(badRequest, name, "must be "+rule)
		}
	}
	return q, nil
}

// set takes one parameter, and returns what it must be when it is not.
func (q *deadFilter) set(name, v string) (rule string) {
	var err error
	ok := true
	switch name {
	case "after":
		q.after, ok = parseDeadCursor(v)
		rule = "the next of an earlier page"
	case "limit":
		q.limit, err = strconv.Atoi(v)
		ok, rule = q.limit >= 1 && q.limit <= maxLimit, "from 1 to 1000"
	case "reason":
		q.sel.Reasons, ok = reasonsOf(strings.Split(v, ","))
		rule = reasonRule()
	case "since":
		q.sel.Since, err = time.Parse(time.RFC3339Nano, v)
		rule = instantRule
	case "until":
		q.sel.Until, err = time.Parse(time.RFC3339Nano, v)
		rule = instantRule
	case "tenant":
		q.sel.Tenant = v
		ok, rule = validTenantID(v), tenantIDRule
	case "subscription":
		q.sel.Subscription = v
		ok, rule = v != "", "the id of a subscription"
	}
	if err == nil && ok {
		return ""
	}
	return rule
}
