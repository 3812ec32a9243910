package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Act is what an administrator did. It holds names of fields and no values: those may be secrets.
type Act struct {
	Number uint64    `json:"-"` // set when read: increasing
	At     time.Time `json:"at"`
	Key    string    `json:"key"`              // its immutable id
	Method string    `json:"method"`           // of the request
	Path   string    `json:"path"`             // of what was changed or made
	Fields []string  `json:"fields,omitempty"` // that the request named
	Status int       `json:"status"`           // answered; 500 and above: whether it was done is not known
}

const (
	auditStream  = "AUDIT"
	auditSubject = "fairlane.audit"
	auditBytes   = 64 << 20 // some 300,000 acts; the oldest make room
)

var auditConfig = jetstream.StreamConfig{
	Name: auditStream, Subjects: []string{auditSubject}, MaxBytes: auditBytes, Discard: jetstream.DiscardOld,
	Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: 1,
	Duplicates: 100 * time.Millisecond, AllowDirect: true, DenyDelete: true,
}

// Audit keeps a durable record of an act.
func (r *Access) Audit(ctx context.Context, a Act) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.link.patience)
	defer cancel()
	if _, err = r.link.js.Publish(ctx, auditSubject, data); err == nil {
		err = r.link.names.sync()
	}
	if err != nil {
		return fmt.Errorf("%w: audit: %w", ErrUnavailable, err)
	}
	return nil
}

// Acts returns at most limit acts with a number below before (0: from the newest), newest first.
func (r *Access) Acts(ctx context.Context, before uint64, limit int) ([]Act, error) {
	s, err := r.link.span(ctx, auditStream)
	if err != nil {
		return nil, err
	}
	if before == 0 || before > s.last {
		before = s.last + 1
	}
	from := max(s.first, before-min(before, uint64(limit)))
	if from >= before {
		return nil, nil
	}
	acts := make([]Act, before-from)
	err = r.link.each(ctx, auditStream, from, before-1, func(m message) error {
		a := &acts[before-1-m.seq]
		a.Number = m.seq
		return json.Unmarshal(m.data, a)
	})
	return acts, err
}
