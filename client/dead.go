package client

import "time"

// Selection chooses dead letters: those of one subscription, or all of one tenant. What is zero chooses nothing.
type Selection struct {
	Tenant       string   `json:"tenant,omitempty"`
	Subscription string   `json:"subscription,omitempty"`
	Reasons      []string `json:"reasons,omitempty"`
	Since        string   `json:"since,omitempty"` // accepted at or after, RFC 3339
	Until        string   `json:"until,omitempty"` // accepted before
	Rate         string   `json:"rate,omitempty"`  // of a replay: no faster than, "15/s"
	DryRun       bool     `json:"dry_run,omitempty"`
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
