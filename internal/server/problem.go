package server

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// code names a kind of refusal. The names are stable: clients tell problems apart by them
// (the last part of the problem's type).
type code string

const (
	badRequest       code = "bad-request"
	unauthorized     code = "unauthorized"
	forbidden        code = "forbidden"
	notFound         code = "not-found"
	methodNotAllowed code = "method-not-allowed"
	slowBody         code = "slow-body"
	conflict         code = "conflict"
	gone             code = "gone"
	tooLarge         code = "too-large"
	unsupportedMedia code = "unsupported-media-type"
	unsupportedCode  code = "unsupported-content-encoding"
	invalid          code = "invalid"
	unknownTenant    code = "unknown-tenant"
	keyConflict      code = "idempotency-key-conflict"
	overQuota        code = "over-quota"
	overInbound      code = "over-inbound-rate"
	overConcurrency  code = "over-concurrency"
	busy             code = "busy"
	internal         code = "internal"
	unavailable      code = "unavailable"
	full             code = "full"
	stopping         code = "stopping"
)

// table is the one place where a code gets its status.
var table = map[code]struct {
	status int
	title  string
}{
	badRequest:       {http.StatusBadRequest, "The request is malformed"},
	unauthorized:     {http.StatusUnauthorized, "No valid key was presented"},
	forbidden:        {http.StatusForbidden, "The key's role may not do this"},
	notFound:         {http.StatusNotFound, "There is no such resource"},
	methodNotAllowed: {http.StatusMethodNotAllowed, "The resource does not support this method"},
	slowBody:         {http.StatusRequestTimeout, "The body arrived too slowly"},
	conflict:         {http.StatusConflict, "The request conflicts with what exists"},
	gone:             {http.StatusGone, "The resource is no longer kept"},
	tooLarge:         {http.StatusRequestEntityTooLarge, "The body is too large"},
	unsupportedMedia: {http.StatusUnsupportedMediaType, "The media type is not supported here"},
	unsupportedCode:  {http.StatusUnsupportedMediaType, "The content encoding is not supported"},
	invalid:          {http.StatusUnprocessableEntity, "A value breaks a rule"},
	unknownTenant:    {http.StatusUnprocessableEntity, "The tenant does not exist"},
	keyConflict:      {http.StatusUnprocessableEntity, "The idempotency key was used for another request"},
	overQuota:        {http.StatusTooManyRequests, "The tenant's backlog is over its quota"},
	overInbound:      {http.StatusTooManyRequests, "The tenant posts faster than its tier allows"},
	overConcurrency:  {http.StatusTooManyRequests, "Too many of these run for the tenant"},
	busy:             {http.StatusServiceUnavailable, "Too many requests wait"},
	internal:         {http.StatusInternalServerError, "The service failed"},
	unavailable:      {http.StatusServiceUnavailable, "The log does not answer"},
	full:             {http.StatusServiceUnavailable, "The log or its disk is full"},
	stopping:         {http.StatusServiceUnavailable, "The service is stopping or starting"},
}

// fieldRule is one field and the rule that it breaks.
type fieldRule struct {
	Field string `json:"field"`
	Rule  string `json:"rule"`
}

// problem is a refusal, as an error inside and as RFC 9457 outside. It holds no secret, no
// payload and no URL of an endpoint.
type problem struct {
	code    code
	detail  string
	fields  []fieldRule   // the first is shown as field and rule
	retryIn time.Duration // > 0: Retry-After
	allow   string        // 405
	close   bool          // the connection cannot be used again
	cause   error         // for the log
}

func (p *problem) Error() string { return string(p.code) + ": " + p.detail }
func (p *problem) Unwrap() error { return p.cause }

// refuse makes a problem about one field.
func refuse(c code, field, rule string) *problem {
	return &problem{code: c, detail: field + " " + rule, fields: []fieldRule{{field, rule}}}
}

// body is a problem on the wire.
type body struct {
	Type   string      `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail,omitempty"`
	Field  string      `json:"field,omitempty"`
	Rule   string      `json:"rule,omitempty"`
	Errors []fieldRule `json:"errors,omitempty"` // all, when more than one
}

func (p *problem) status() int { return table[p.code].status }

// write sends p. Nothing has been written before.
func (p *problem) write(w http.ResponseWriter) {
	row := table[p.code]
	b := body{Type: "urn:fairlane:problem:" + string(p.code), Title: row.title, Status: row.status, Detail: p.detail}
	if len(p.fields) > 0 {
		b.Field, b.Rule = p.fields[0].Field, p.fields[0].Rule
	}
	if len(p.fields) > 1 {
		b.Errors = p.fields
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	p.headers(h)
	w.WriteHeader(row.status)
	out, _ := json.Marshal(b) // strings and numbers always marshal
	w.Write(append(out, '\n'))
}

func (p *problem) headers(h http.Header) {
	if p.retryIn > 0 {
		h.Set("Retry-After", wholeSeconds(p.retryIn))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.close {
		h.Set("Connection", "close")
	}
	switch p.code {
	case unauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="fairlane"`)
	case unsupportedCode:
		h.Set("Accept-Encoding", "identity")
	}
}

// wholeSeconds is delay-seconds of RFC 9110 10.2.3: never early, never 0.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(1, math.Ceil(d.Seconds()))), 10)
}

// problemOf gives every error its code.
func problemOf(err error) *problem {
	var p *problem
	var field *journal.FieldError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &field):
		return refuse(invalid, field.Field, field.Rule)
	case errors.Is(err, journal.ErrKeyConflict):
		return refuse(keyConflict, "Idempotency-Key", "was used before for another method, path, audience, content type or body")
	case errors.Is(err, journal.ErrTooLarge):
		return &problem{code: tooLarge, detail: "it does not fit into the log: a batch is at most 256 events and 512 KiB together", cause: err}
	case errors.Is(err, fanout.ErrNotFound), errors.Is(err, journal.ErrNotFound):
		return &problem{code: notFound, detail: nothingThere, cause: err}
	case errors.Is(err, fanout.ErrInUse), errors.Is(err, journal.ErrInUse):
		return &problem{code: conflict, detail: "the tenant still has subscriptions", cause: err}
	case errors.Is(err, journal.ErrGone):
		return &problem{code: conflict, detail: "the id was used before and is never given again", cause: err}
	case errors.Is(err, fanout.ErrConflict):
		return &problem{code: conflict, detail: strings.TrimPrefix(err.Error(), fanout.ErrConflict.Error()+": "), cause: err}
	case errors.Is(err, fanout.ErrBusy):
		p := refuse(overConcurrency, "tenant", strings.TrimPrefix(err.Error(), fanout.ErrBusy.Error()+": "))
		p.retryIn = time.Second
		return p
	case errors.Is(err, fanout.ErrInvalid):
		return &problem{code: invalid, detail: err.Error(), cause: err}
	}
	return lasting(err)
}

// lasting gives a code to what the caller can only wait out.
func lasting(err error) *problem {
	switch {
	case errors.Is(err, journal.ErrTrimmed):
		return &problem{code: gone, detail: "the log no longer holds it", cause: err}
	case errors.Is(err, journal.ErrUnavailable): // in doubt, whatever else it is
		return inDoubt(err)
	case errors.Is(err, journal.ErrFull), errors.Is(err, journal.ErrLowDisk):
		return &problem{code: full, detail: "nothing was stored", retryIn: 30 * time.Second, cause: err}
	case errors.Is(err, journal.ErrStarting), errors.Is(err, fanout.ErrStopped):
		return &problem{code: stopping, detail: "nothing was stored", retryIn: time.Second, cause: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return inDoubt(err)
	}
	return &problem{code: internal, detail: "the cause is in the service's log", cause: err}
}

func inDoubt(err error) *problem {
	return &problem{code: unavailable, detail: "whether it was stored is not known; send it again, with an Idempotency-Key to be safe", retryIn: 2 * time.Second, cause: err}
}
