package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// message is one stored message.
type message struct {
	seq  uint64
	at   time.Time
	data []byte
}

// getRequest is the server's request for messages by sequence ("direct get").
type getRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
	LastFor   string     `json:"last_by_subj,omitempty"`
	NextFor   string     `json:"next_by_subj,omitempty"`
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
}

// one returns the message that r names, and reports whether there is one.
func (l *link) one(ctx context.Context, stream string, r getRequest) (message, bool, error) {
	if l.cluster == nil {
		return l.direct(ctx, stream, r)
	}
	if r.Seq != 0 {
		if m, ok, err := l.direct(ctx, stream, r); ok || err != nil {
			return m, ok, err
		}
	}
	return l.leader(ctx, stream, r)
}

// direct is one, answered by whatever replica is asked.
func (l *link) direct(ctx context.Context, stream string, r getRequest) (message, bool, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return message{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	m, err := l.reads.RequestWithContext(ctx, getSubject(stream), body)
	if err != nil {
		return message{}, false, unanswered(stream, err)
	}
	got, err := parseGot(stream, m)
	if errors.Is(err, errNoMessage) {
		return message{}, false, nil
	}
	return got, err == nil, err
}

// batch returns up to readBatch messages from the sequence from on, those of one subject when it is not
// empty; fewer when they have readBytes together. None is no error.
func (l *link) batch(ctx context.Context, stream string, from uint64, subject string) ([]message, error) {
	if l.cluster == nil {
		return l.directBatch(ctx, stream, from, subject)
	}
	if subject == "" {
		if ms, err := l.directBatch(ctx, stream, from, subject); len(ms) > 0 || err != nil {
			return ms, err
		}
		return l.leaderBatch(ctx, stream, from, ">", 1)
	}
	return l.leaderBatch(ctx, stream, from, subject, readBatch)
}

// directBatch is batch, answered by whatever replica is asked.
func (l *link) directBatch(ctx context.Context, stream string, from uint64, subject string) ([]message, error) {
	r := getRequest{Seq: max(from, 1), NextFor: subject, Batch: readBatch, MaxBytes: readBytes}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	inbox := l.reads.NewInbox()
	got := make(chan *nats.Msg, readBatch+1) // with the one that says it was all: never full
	sub, err := l.reads.ChanSubscribe(inbox, got)
	if err != nil {
		return nil, unanswered(stream, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // fails only when the connection is gone, and the subscription with it
	if err := l.reads.PublishRequest(getSubject(stream), inbox, body); err != nil {
		return nil, unanswered(stream, err)
	}
	return l.collect(ctx, stream, got)
}

func (l *link) collect(ctx context.Context, stream string, answers <-chan *nats.Msg) (out []message, err error) {
	silence := time.NewTimer(l.patience)
	defer silence.Stop()
	for {
		select {
		case m := <-answers:
			got, err := parseGot(stream, m)
			if errors.Is(err, errNoMessage) {
				return out, nil
			}
			if err != nil {
				return nil, err
			}
			out = append(out, got)
			silence.Reset(l.patience)
		case <-silence.C:
			return nil, unanswered(stream, errors.New("no answer"))
		case <-ctx.Done():
			return nil, unanswered(stream, ctx.Err())
		}
	}
}

// each visits every message from the sequence from to the sequence to. A missing one is Damage, and so
// is what visit finds, with its place.
func (l *link) each(ctx context.Context, stream string, from, to uint64, visit func(message) error) error {
	for from <= to {
		ms, err := l.batch(ctx, stream, from, "")
		if err != nil {
			return err
		}
		if len(ms) == 0 || ms[0].seq != from {
			return missing(stream, from, ms)
		}
		for _, m := range ms {
			switch {
			case m.seq > to:
				return nil
			case m.seq != from:
				return missing(stream, from, []message{m})
			}
			if err := visit(m); err != nil {
				return damagedAt(stream, m.seq, err)
			}
			from++
		}
	}
	return nil
}

// missing is the damage of a gap that begins at from and ends before the next message.
func missing(stream string, from uint64, next []message) error {
	to := from
	if len(next) > 0 {
		to = next[0].seq - 1
	}
	return &Damage{Stream: stream, From: from, To: to, What: "messages are missing"}
}

func getSubject(stream string) string { return "$JS.API.DIRECT.GET." + stream }

func unanswered(stream string, err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: read of %s: %w", ErrUnavailable, stream, err)
}

var errNoMessage = errors.New("no message")

// parseGot reads one answer: a message, or errNoMessage where there is none (any more).
func parseGot(stream string, m *nats.Msg) (message, error) {
	switch status := m.Header.Get("Status"); status {
	case "":
	case "204", "404":
		return message{}, errNoMessage
	default:
		return message{}, unanswered(stream, fmt.Errorf("status %s %s", status, m.Header.Get("Description")))
	}
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	at, err2 := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err := errors.Join(err, err2); err != nil { // the server does not check what stands around the data
		return message{}, fmt.Errorf("%w: %s: a message without sequence or time: %w", ErrDamaged, stream, err)
	}
	return message{seq: seq, at: at, data: m.Data}, nil
}

// publish stores data as one message and returns its sequence, when it is durable.
//
// The error says what is known: errRefused (ErrFull among those): the server has answered that it is not
// stored; errAway: nobody took it; otherwise in doubt. All but ErrFull are ErrUnavailable.
func (l *link) publish(ctx context.Context, subject string, data []byte) (uint64, error) {
	if l.intercept != nil {
		return l.intercept(subject, data, func() (uint64, error) { return l.store(ctx, subject, data) })
	}
	return l.store(ctx, subject, data)
}

func (l *link) store(ctx context.Context, subject string, data []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, subject, data)
	if errors.Is(err, nats.ErrMaxPayload) {
		return 0, fmt.Errorf("%w: %w", ErrTooLarge, errRefused)
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrReconnectBufExceeded) {
		return 0, fmt.Errorf("%w: %w: %w", ErrUnavailable, errAway, err)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: write to %s: %w", ErrUnavailable, subject, err)
	}
	seq, err := parseAck(m.Data)
	if err != nil {
		return 0, err
	}
	if err := l.names.sync(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	l.works()
	return seq, nil
}

var (
	errRefused = errors.New("not stored")
	errAway    = errors.New("no stream there")
)

const (
	codeStoreFailed = 10077
	fullBytes       = "maximum bytes exceeded"
)

func parseAck(data []byte) (uint64, error) {
	var ack struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("%w: unreadable answer: %w", ErrUnavailable, err)
	}
	switch e := ack.Error; {
	case e == nil && ack.Seq > 0:
		return ack.Seq, nil
	case e == nil:
		return 0, fmt.Errorf("%w: answer without a sequence", ErrUnavailable)
	case e.ErrCode == codeStoreFailed && e.Description == fullBytes:
		return 0, fmt.Errorf("%w: %w", ErrFull, errRefused)
	case e.ErrCode == codeStoreFailed:
		return 0, fmt.Errorf("%w: %s", ErrUnavailable, e.Description)
	default: // 429, 10167: too much in flight, and others that come before storing
		return 0, fmt.Errorf("%w: %w: %s (%d)", ErrUnavailable, errRefused, e.Description, e.ErrCode)
	}
}
