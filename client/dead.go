package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Selection chooses dead letters. What is zero does not narrow it; a replay and a purge need Tenant or Subscription,
// unless the key is a tenant's.
type Selection struct {
	Tenant       string   `json:"tenant,omitempty"`
	Subscription string   `json:"subscription,omitempty"`
	Reasons      []string `json:"reasons,omitempty"`
	Since        string   `json:"since,omitempty"`   // accepted at or after, RFC 3339
	Until        string   `json:"until,omitempty"`   // accepted before
	Rate         string   `json:"rate,omitempty"`    // of a replay: no faster than, "15/s"
	DryRun       bool     `json:"dry_run,omitempty"` // of a replay and a purge: count, and change nothing
}

func (s *Selection) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{
		"tenant": s.Tenant, "subscription": s.Subscription, "reason": strings.Join(s.Reasons, ","), "since": s.Since, "until": s.Until,
	} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q
}

// DeadLetter is one trigger that one subscription will not get, unless it is replayed.
type DeadLetter struct {
	Trigger      string     `json:"trigger"`
	Position     uint64     `json:"position"` // of the trigger
	Subscription string     `json:"subscription"`
	Tenant       string     `json:"tenant"`
	Topic        string     `json:"topic"`
	Bytes        int64      `json:"bytes"` // of payload
	Accepted     *time.Time `json:"accepted,omitempty"`
	Reason       string     `json:"reason"` // of the last death
	Class        string     `json:"class"`  // whose fault: "endpoint", "deferred", "policy", "internal"
	Died         time.Time  `json:"died"`
	FirstReason  string     `json:"first_reason"`
	FirstDied    time.Time  `json:"first_died"`
	Deaths       uint32     `json:"deaths"`
	Replays      uint32     `json:"replays"`
	Attempts     uint32     `json:"attempts"`             // the first included, over all replays
	Unreadable   string     `json:"unreadable,omitempty"` // why the trigger cannot be shown
}

// DeadLetterDetail is a dead letter with its trigger and its history.
type DeadLetterDetail struct {
	DeadLetter
	Headers      map[string]string `json:"headers"` // of its request, but for those of the moment
	Payload      []byte            `json:"payload_base64"`
	History      []Delivery        `json:"history"`       // newest first
	HistoryWhole bool              `json:"history_whole"` // false: the log does not hold all of it any more
}

// Purged says how many dead letters a purge gave up, or in a dry run would.
type Purged struct {
	Purged int  `json:"purged"`
	DryRun bool `json:"dry_run"`
}

// Replay is a replay and how far it is: Selected = Taken + Skipped + Left, and Taken = Delivered + DiedAgain +
// Cancelled + Waiting.
type Replay struct {
	ID           string     `json:"id,omitempty"` // none of a dry run
	Tenant       string     `json:"tenant"`
	Subscription string     `json:"subscription,omitempty"`
	Reasons      []string   `json:"reasons,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	Until        *time.Time `json:"until,omitempty"`
	Rate         string     `json:"rate,omitempty"`
	DryRun       bool       `json:"dry_run,omitempty"`
	State        string     `json:"state"`             // "running", "cancelled", "done"; "counted": a dry run
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

// Completion is what became of a trigger, derived from the ledger.
type Completion struct {
	ID         string    `json:"id"`
	Position   uint64    `json:"position"`
	Topic      string    `json:"topic"`
	Bytes      int64     `json:"bytes"`
	Accepted   time.Time `json:"accepted"`
	Complete   bool      `json:"complete"` // each is delivered, dead, cancelled or dropped
	Whole      bool      `json:"whole"`    // false: the ledger does not hold all of it any more
	Deliveries []Fate    `json:"deliveries"`
}

// Fate is what became of one delivery of a trigger.
type Fate struct {
	Subscription string     `json:"subscription"`
	Tenant       string     `json:"tenant"`
	State        string     `json:"state"` // the newest record's kind; "pending": none yet
	Attempt      uint32     `json:"attempt,omitempty"`
	Status       uint16     `json:"status,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	At           *time.Time `json:"at,omitempty"`
}

// Resent says what a resend has offered once more.
type Resent struct {
	Trigger       string   `json:"trigger"` // as it was named
	Position      uint64   `json:"position"`
	Subscriptions []string `json:"subscriptions"`
}

// DeadLetters lists those of a selection, by subscription, in the order in which they died. Its Rate and DryRun
// mean nothing here.
func (c *Client) DeadLetters(ctx context.Context, s Selection) iter.Seq2[DeadLetter, error] {
	return List[DeadLetter](ctx, c, "/v1/dead", s.query())
}

// DeadLetter returns one, with payload and history. The trigger is named by its id, or by its position in digits.
func (c *Client) DeadLetter(ctx context.Context, subscription, trigger string) (DeadLetterDetail, error) {
	return one[DeadLetterDetail](ctx, c, http.MethodGet, at("subscriptions", subscription, "dead", trigger), nil)
}

// PurgeOne gives up one dead letter; this cannot be undone.
func (c *Client) PurgeOne(ctx context.Context, subscription, trigger string) error {
	return c.Do(ctx, http.MethodDelete, at("subscriptions", subscription, "dead", trigger), nil, nil)
}

// Purge gives up the dead letters of a selection, which has no Rate; this cannot be undone. With DryRun it counts them.
func (c *Client) Purge(ctx context.Context, s Selection) (Purged, error) {
	return one[Purged](ctx, c, http.MethodPost, "/v1/dead/purge", s)
}

// StartReplay replays the dead letters of a selection; the answer comes when that is durable, and the service does
// the rest. With DryRun it counts them, and nothing is stored.
func (c *Client) StartReplay(ctx context.Context, s Selection) (Replay, error) {
	return one[Replay](ctx, c, http.MethodPost, "/v1/replays", s)
}

// Replays lists those of a tenant, or all with "", the oldest first.
func (c *Client) Replays(ctx context.Context, tenant string) iter.Seq2[Replay, error] {
	return List[Replay](ctx, c, "/v1/replays", ofTenant(tenant))
}

// Replay returns one, and how far it is.
func (c *Client) Replay(ctx context.Context, id string) (Replay, error) {
	return one[Replay](ctx, c, http.MethodGet, at("replays", id), nil)
}

// CancelReplay lets a replay take no more; what it has not taken stays dead. Again is no error.
func (c *Client) CancelReplay(ctx context.Context, id string) (Replay, error) {
	return one[Replay](ctx, c, http.MethodPost, at("replays", id, "cancel"), nil)
}

// ResumeReplay lets a cancelled one go on with what is left.
func (c *Client) ResumeReplay(ctx context.Context, id string) (Replay, error) {
	return one[Replay](ctx, c, http.MethodPost, at("replays", id, "resume"), nil)
}

// Completion says what became of a trigger, which is named by its id or by its position in digits.
func (c *Client) Completion(ctx context.Context, trigger string) (Completion, error) {
	return one[Completion](ctx, c, http.MethodGet, at("triggers", trigger), nil)
}

// Resend offers a trigger once more to these subscriptions, all of them or none, whatever became of it there. It
// returns when that is durable. A *Problem of code "conflict": it is on its way there, or dead there; "gone": the
// log no longer holds it.
func (c *Client) Resend(ctx context.Context, trigger string, subscriptions ...string) (Resent, error) {
	return one[Resent](ctx, c, http.MethodPost, at("triggers", trigger, "resend"), map[string][]string{"subscriptions": subscriptions})
}
