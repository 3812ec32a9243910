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
	if s.stopping.Load() {
		return fanout.ErrStopped
	}
	t, err := s.envelope(r)
	if err != nil {
		return err
	}
	if err := s.pressure(t.Audience); err != nil {
		return err
	}
	if t.Payload, err = readBody(w, r, s.maxBody, s.pace); err != nil {
		return err
	}
	if t.Key != "" {
		t.Fingerprint = fingerprint(r, t)
	}
	t.Accepted = time.Now()
	receipt, err := s.journal.Append(r.Context(), t)
	if err != nil {
		return err
	}
	accepted(w, receipt)
	return nil
}

// receiptView is the answer to a trigger.
type receiptView struct {
	ID       string `json:"id"`
	Position uint64 `json:"position"`
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
func (s *Server) envelope(r *http.Request) (*journal.Trigger, error) {
	t := &journal.Trigger{Topic: r.PathValue("topic"), Producer: callerOf(r).id}
	if !topic.Valid(t.Topic) {
		return nil, refuse(invalid, "topic", "must be "+topic.Rule)
	}
	if r.URL.RawQuery != "" {
		return nil, refuse(badRequest, "query", "must be empty")
	}
	err := checkEncoding(r)
	if err == nil {
		t.ContentType, err = contentType(r.Header)
	}
	if err == nil {
		t.Key, err = idempotencyKey(r.Header)
	}
	if err == nil {
		t.Attributes, err = attributes(r.Header)
	}
	if err == nil {
		t.Audience, err = s.audience(callerOf(r), r.Header)
	}
	return t, err
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

// audience reads Fairlane-Tenant. Every tenant must exist: a trigger for one that does not
// would be accepted and reach nobody.
// A tenant's own key implies it.
func (s *Server) audience(c *caller, h http.Header) (journal.Audience, error) {
	var a journal.Audience
	for _, line := range h.Values("Fairlane-Tenant") {
		for id := range strings.SplitSeq(line, ",") {
			switch id = strings.Trim(id, " \t"); {
			case id == "":
			case id == "*":
				a.Broadcast = true
			case len(a.Tenants) == maxAudience:
				return a, refuse(invalid, "Fairlane-Tenant", fmt.Sprintf("must list at most %d tenants", maxAudience))
			default:
				a.Tenants = append(a.Tenants, id)
			}
		}
	}
	if a.Broadcast == (len(a.Tenants) > 0) {
		return a, refuse(invalid, "Fairlane-Tenant", audienceRule)
	}
	slices.Sort(a.Tenants)
	a.Tenants = slices.Compact(a.Tenants)
	return a, s.exist(a.Tenants)
}

func (s *Server) exist(tenants []string) error {
	for _, id := range tenants {
		if !validTenantID(id) {
			return refuse(invalid, "Fairlane-Tenant", audienceRule+"; an id is "+tenantIDRule)
		}
		if t, ok := s.registry.Tenant(id); !ok || t.Deleted {
			return refuse(unknownTenant, "Fairlane-Tenant", "names "+id+", which does not exist; nothing was stored")
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
		part(a.Name)
		part(a.Value)
	}
	h.Write(t.Payload)
	h.Sum(sum[:0])
	return sum
}
