package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/topic"
)

// Bounds of what a producer says in headers.
const (
	maxAudience    = 1000 // tenants of one list
	maxKey         = 255  // bytes of an idempotency key
	maxContentType = 256
)

// ingest takes one trigger: POST /v1/triggers/{topic}. The order is that of cost: headers,
// audience and pressure are judged before a byte of the body is read.
func (s *Server) ingest(w http.ResponseWriter, r *http.Request) (err error) {
	defer func(start time.Time) { s.metrics.posted(start, err) }(time.Now())
	r, end := s.trace.ingest(r)
	defer func() { end(err) }()
	if s.stopping.Load() {
		return fanout.ErrStopped
	}
	return s.ingestOne(w, r, r.PathValue("topic"))
}

// ingestOne takes a trigger whose payload is the body: for a topic, or "" for a binary event's type.
func (s *Server) ingestOne(w http.ResponseWriter, r *http.Request, name string) error {
	t, err := s.envelope(r, name)
	if err != nil {
		return err
	}
	if err := s.rate(callerOf(r), 1); err != nil {
		return err
	}
	if t.Payload, err = readBody(w, r, s.maxBody, s.pace); err != nil {
		return err
	}
	return s.append(w, r, t)
}

// append stores one and answers 202.
func (s *Server) append(w http.ResponseWriter, r *http.Request, t *journal.Trigger) error {
	s.stamp(r, t)
	var receipt journal.Receipt
	err := s.inTurn(r, t, len(t.Payload), func() (err error) {
		receipt, err = s.journal.Append(r.Context(), t)
		return err
	})
	if err != nil {
		return err
	}
	accepted(w, receipt)
	return nil
}

// stamp sets what follows from the whole of a trigger.
func (s *Server) stamp(r *http.Request, t *journal.Trigger) {
	if t.Key != "" {
		t.Fingerprint = fingerprint(r, t)
	}
	s.keepTrace(r, t)
	t.Accepted = time.Now()
}

// receiptView is the answer to a trigger.
type receiptView struct {
	ID       string `json:"id"`
	Position uint64 `json:"position"`
	Repeat   bool   `json:"repeat,omitempty"` // in a batch; alone it is the header Fairlane-Repeat
}

// accepted answers 202.
func accepted(w http.ResponseWriter, receipt journal.Receipt) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if receipt.Repeat {
		h.Set("Fairlane-Repeat", "true")
	}
	w.WriteHeader(http.StatusAccepted)
	var buf [128]byte
	b := append(buf[:0], `{"id":`...)
	b = strconv.AppendQuoteToASCII(b, receipt.ID)
	b = append(b, `,"position":`...)
	b = strconv.AppendUint(b, uint64(receipt.Position), 10)
	w.Write(append(b, "}\n"...))
}

// envelope reads everything but the body.
func (s *Server) envelope(r *http.Request, name string) (*journal.Trigger, error) {
	if name != "" {
		if err := checkTopic(name); err != nil {
			return nil, err
		}
	}
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	media, err := contentType(r.Header)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return nil, err
	}
	e, err := binaryEvent(r)
	if err != nil {
		return nil, err
	}
	if e != nil {
		e.contentType = media
		return s.eventTrigger(r, e, name, key, "ce-")
	}
	c := callerOf(r)
	t := &journal.Trigger{Topic: name, ContentType: media, Key: key, Producer: c.id}
	if t.Attributes, err = attributes(r.Header); err != nil {
		return nil, err
	}
	if t.Audience, err = s.audience(c, r.Header.Values("Fairlane-Tenant"), "Fairlane-Tenant"); err != nil {
		return nil, err
	}
	return t, s.pressure(t.Audience)
}

func checkTopic(name string) error {
	if !topic.Valid(name) {
		return refuse(invalid, "topic", "must be "+topic.Rule)
	}
	if topic.Own(name) {
		return refuse(invalid, "topic", "must not begin with fairlane., which is the service's own; a test trigger is made by the subscription's /test")
	}
	return nil
}

func contentType(h http.Header) (string, error) {
	values := h.Values("Content-Type")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", refuse(badRequest, "Content-Type", "must stand once")
	case len(values[0]) > maxContentType || strings.ContainsFunc(values[0], notVisible):
		return "", refuse(badRequest, "Content-Type", fmt.Sprintf("must be at most %d bytes of visible ASCII", maxContentType))
	}
	return values[0], nil
}

func notVisible(r rune) bool { return (r < ' ' && r != '\t') || r > '~' }

const keyRule = `must be 1 to 255 bytes of visible ASCII without blank, comma, quote and backslash, bare or in double quotes`

// idempotencyKey reads the one key. A bare key and the same key as a structured-field string
// are one key.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", refuse(badRequest, "Idempotency-Key", "must stand once")
	}
	key := values[0]
	if inner, quoted := strings.CutPrefix(key, `"`); quoted {
		if key, quoted = strings.CutSuffix(inner, `"`); !quoted {
			return "", refuse(badRequest, "Idempotency-Key", keyRule)
		}
	}
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, notKey) {
		return "", refuse(badRequest, "Idempotency-Key", keyRule)
	}
	return key, nil
}

func notKey(r rune) bool {
	return r <= ' ' || r > '~' || r == '"' || r == '\\' || r == ','
}

const audienceRule = "must be a tenant's id, a list of them separated by commas, or * for all"

// audience reads the lines of Fairlane-Tenant, or what else field names. Every tenant must exist: a trigger for one that does not
// would be accepted and reach nobody.
// A tenant's own key implies it.
func (s *Server) audience(c *caller, lines []string, field string) (journal.Audience, error) {
	var a journal.Audience
	for _, line := range lines {
		for id := range strings.SplitSeq(line, ",") {
			switch id = strings.Trim(id, " \t"); {
			case id == "":
			case id == "*":
				a.Broadcast = true
			case len(a.Tenants) == maxAudience:
				return a, refuse(invalid, field, fmt.Sprintf("must list at most %d tenants", maxAudience))
			default:
				a.Tenants = append(a.Tenants, id)
			}
		}
	}
	if c.role == tenant && !a.Broadcast && len(a.Tenants) == 0 {
		a.Tenants = []string{c.of}
	}
	if a.Broadcast == (len(a.Tenants) > 0) {
		return a, refuse(invalid, field, audienceRule)
	}
	if a.Broadcast && c.role != admin && !c.broadcast {
		return a, &problem{code: forbidden, detail: "this key may not post for all tenants at once"}
	}
	slices.Sort(a.Tenants)
	a.Tenants = slices.Compact(a.Tenants)
	return a, s.exist(c, a.Tenants, field)
}

// exist refuses a tenant that does not exist and, in the same words, one that the caller does not reach.
func (s *Server) exist(c *caller, tenants []string, field string) error {
	for _, id := range tenants {
		if !validTenantID(id) {
			return refuse(invalid, field, audienceRule+"; an id is "+tenantIDRule)
		}
		if t, ok := s.registry.Tenant(id); !ok || t.Deleted || !c.reaches(id) {
			return refuse(unknownTenant, field, "names "+id+", which does not exist; nothing was stored")
		}
	}
	return nil
}

// pressure refuses a post whose tenants are all over their backlog quota. A broadcast is
// never refused for a tenant's sake.
func (s *Server) pressure(a journal.Audience) error {
	var soonest time.Duration
	for _, id := range a.Tenants {
		retryIn, over := s.fanout.Pressure(id)
		if !over {
			return nil
		}
		if soonest == 0 || retryIn < soonest {
			soonest = retryIn
		}
	}
	if len(a.Tenants) == 0 {
		return nil
	}
	s.metrics.refused(a.Tenants)
	p := refuse(overQuota, "Fairlane-Tenant", "has more parked and dead than its quota; nothing was stored")
	p.retryIn = max(soonest, time.Second)
	return p
}

// fingerprint tells two requests with one key apart: SHA-256 over method, path, audience,
// topic, content type, attributes and body, each with its length before it.
func fingerprint(r *http.Request, t *journal.Trigger) (sum [32]byte) {
	h := sha256.New()
	part := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	part(r.Method)
	part(r.URL.Path)
	part(cmp.Or(strings.Join(t.Audience.Tenants, ","), "*"))
	part(t.Topic)
	part(t.ContentType)
	for _, a := range t.Attributes {
		if isTrace(a) {
			continue // a retry may come from another span
		}
		part(a.Name)
		part(a.Value)
	}
	h.Write(t.Payload)
	h.Sum(sum[:0])
	return sum
}
