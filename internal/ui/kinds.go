package ui

import "time"

// What the API answers, as far as the pages show it.

type account struct {
	Offered   uint64 `json:"offered"`
	Delivered uint64 `json:"delivered"`
	Parked    uint64 `json:"parked"`
	Dead      uint64 `json:"dead"`
	InFlight  uint64 `json:"in_flight"`
	Cancelled uint64 `json:"cancelled"`
	Dropped   uint64 `json:"dropped"`
	Balanced  bool   `json:"balanced"`
}

type lane struct {
	Subscription string  `json:"subscription"`
	Tenant       string  `json:"tenant"`
	Host         string  `json:"host"`
	Rate         string  `json:"rate"`
	Burst        int64   `json:"burst"`
	Remaining    int64   `json:"remaining"`
	Cap          int     `json:"cap"`
	Account      account `json:"account"`
	Breaker      string  `json:"breaker"`
	Blocked      string  `json:"blocked"`
	Paused       bool    `json:"paused"`
	Disabled     bool    `json:"disabled"`
	PausedFor    string  `json:"paused_for"`
	Ramp         int     `json:"ramp"`
	Stopped      int     `json:"stopped"`
	MeanSlotMS   float64 `json:"mean_slot_ms"`
	P99MS        float64 `json:"p99_ms"`
}

// subscription is what the pages show of one. It has no place for a secret.
type subscription struct {
	ID       string   `json:"id"`
	Tenant   string   `json:"tenant"`
	URL      string   `json:"url"`
	Topics   []string `json:"topics"`
	Paused   bool     `json:"paused"`
	Disabled string   `json:"disabled"`
	Order    string   `json:"order"`
}

type delivery struct {
	Position uint64     `json:"position"`
	Kind     string     `json:"kind"`
	Attempt  uint32     `json:"attempt"`
	Status   uint16     `json:"status"`
	Reason   string     `json:"reason"`
	TookMS   float64    `json:"took_ms"`
	At       time.Time  `json:"at"`
	Due      *time.Time `json:"due"`
	Count    uint32     `json:"count"`
	Detail   string     `json:"detail"`
}

type parked struct {
	Position uint64     `json:"position"`
	Attempt  uint32     `json:"attempt"`
	Reason   string     `json:"reason"`
	Since    *time.Time `json:"since"`
	Due      *time.Time `json:"due"`
}

type deadRow struct {
	Trigger      string     `json:"trigger"`
	Position     uint64     `json:"position"`
	Subscription string     `json:"subscription"`
	Tenant       string     `json:"tenant"`
	Topic        string     `json:"topic"`
	Bytes        int64      `json:"bytes"`
	Accepted     *time.Time `json:"accepted"`
	Reason       string     `json:"reason"`
	Class        string     `json:"class"`
	Died         time.Time  `json:"died"`
	FirstReason  string     `json:"first_reason"`
	FirstDied    time.Time  `json:"first_died"`
	Deaths       uint32     `json:"deaths"`
	Replays      uint32     `json:"replays"`
	Attempts     uint32     `json:"attempts"`
	Unreadable   string     `json:"unreadable"`
}

type letter struct {
	deadRow
	Headers      map[string]string `json:"headers"`
	Payload      []byte            `json:"payload_base64"`
	History      []delivery        `json:"history"`
	HistoryWhole bool              `json:"history_whole"`
}

type replayRow struct {
	ID           string     `json:"id"`
	Tenant       string     `json:"tenant"`
	Subscription string     `json:"subscription"`
	Reasons      []string   `json:"reasons"`
	Since        *time.Time `json:"since"`
	Until        *time.Time `json:"until"`
	Rate         string     `json:"rate"`
	State        string     `json:"state"`
	Blocked      string     `json:"blocked"`
	Selected     uint64     `json:"selected"`
	Taken        uint64     `json:"taken"`
	Delivered    uint64     `json:"delivered"`
	DiedAgain    uint64     `json:"died_again"`
	Cancelled    uint64     `json:"cancelled"`
	Waiting      uint64     `json:"waiting"`
	Skipped      uint64     `json:"skipped"`
	Left         uint64     `json:"left"`
	Created      *time.Time `json:"created"`
}

type completion struct {
	ID         string      `json:"id"`
	Position   uint64      `json:"position"`
	Topic      string      `json:"topic"`
	Bytes      int64       `json:"bytes"`
	Accepted   time.Time   `json:"accepted"`
	Complete   bool        `json:"complete"`
	Whole      bool        `json:"whole"`
	Deliveries []completed `json:"deliveries"`
}

type completed struct {
	Subscription string     `json:"subscription"`
	Tenant       string     `json:"tenant"`
	State        string     `json:"state"`
	Attempt      uint32     `json:"attempt"`
	Status       uint16     `json:"status"`
	Reason       string     `json:"reason"`
	At           *time.Time `json:"at"`
}

type tenantAccount struct {
	account
	Tenants list[struct {
		Tenant string `json:"tenant"`
		account
		Bytes int64 `json:"backlog_bytes"`
		Quota int64 `json:"backlog_quota"`
	}] `json:"tenants"`
}

type tenantRow struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Tier      string   `json:"tier"`
	Suspended bool     `json:"suspended"`
	Grants    []string `json:"grants"`
}

// list is a page of the API.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}
