package envelope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Names of the envelopes that are always there.
const (
	Raw         = "raw"
	CloudEvents = "cloudevents"
)

// MaxTemplate is the greatest length of a template in bytes.
const MaxTemplate = 16 << 10

var (
	name        = regexp.MustCompile(`\A[a-z0-9][a-z0-9_.-]{0,63}\z`)
	schema      = regexp.MustCompile(`\A[A-Za-z0-9._/-]{1,64}\z`)
	placeholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)
)

// NameRule is what ValidName holds.
const NameRule = "lower-case letters, digits, _ . and -, at most 64, and neither raw nor cloudevents"

// ValidName reports whether an operator's envelope may have that name.
func ValidName(s string) bool { return name.MatchString(s) && s != Raw && s != CloudEvents }

// Envelope makes bodies. Immutable, safe for concurrent use.
type Envelope struct {
	contentType string
	schema      string
	pieces      []piece // nil: a CloudEvent
}

// piece is literal text, or what a placeholder stands for.
type piece struct{ text, what string }

// Placeholders of a template. Each stands for a whole JSON value, text with its quotes.
var Placeholders = []string{"{id}", "{topic}", "{time}", "{position}", "{schema}", "{payload}"}

// Errors of New, by field.
var (
	ErrSchema      = errors.New("schema: must be 1 to 64 of A-Z a-z 0-9 . _ / -")
	ErrContentType = errors.New("content_type: must be a media type such as application/json")
	ErrTemplate    = errors.New("template")
)

// ForCloudEvents is the envelope of that name: structured mode, JSON.
func ForCloudEvents() *Envelope {
	return &Envelope{contentType: "application/cloudevents+json; charset=utf-8"}
}

// New makes an operator's envelope. A template is text with placeholders, which must hold {payload}.
// An empty content type is application/json.
func New(schemaVersion, contentType, template string) (*Envelope, error) {
	e := &Envelope{contentType: contentType, schema: schemaVersion}
	if e.contentType == "" {
		e.contentType = "application/json"
	}
	if _, _, err := mime.ParseMediaType(e.contentType); err != nil || !strings.Contains(e.contentType, "/") || strings.ContainsFunc(e.contentType, unprintable) {
		return nil, ErrContentType
	}
	if !schema.MatchString(schemaVersion) {
		return nil, ErrSchema
	}
	if len(template) > MaxTemplate {
		return nil, fmt.Errorf("%w: is longer than %d bytes", ErrTemplate, MaxTemplate)
	}
	return e, e.parse(template)
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

func (e *Envelope) parse(template string) error {
	payload, at := false, 0
	for _, m := range placeholder.FindAllStringIndex(template, -1) {
		what := template[m[0]:m[1]]
		if !known(what) {
			return fmt.Errorf("%w: %s is unknown; known here: %s", ErrTemplate, what, strings.Join(Placeholders, " "))
		}
		payload = payload || what == "{payload}"
		e.pieces = append(e.pieces, piece{text: template[at:m[0]]}, piece{what: what})
		at = m[1]
	}
	e.pieces = append(e.pieces, piece{text: template[at:]})
	if !payload {
		return fmt.Errorf("%w: must hold {payload}", ErrTemplate)
	}
	return nil
}

func known(what string) bool {
	for _, p := range Placeholders {
		if p == what {
			return true
		}
	}
	return false
}

// Schema is the version of an operator's envelope, "" for CloudEvents.
func (e *Envelope) Schema() string { return e.schema }

// Render returns the body and its content type. The payload is neither changed nor kept.
func (e *Envelope) Render(ev *Event, contentType string, payload []byte) (body []byte, media string) {
	b := make([]byte, 0, len(payload)+512)
	if e.pieces == nil {
		return cloudEvent(b, ev, contentType, payload), e.contentType
	}
	for _, p := range e.pieces {
		b = e.append(b, p, ev, contentType, payload)
	}
	return b, e.contentType
}

func (e *Envelope) append(b []byte, p piece, ev *Event, contentType string, payload []byte) []byte {
	switch p.what {
	case "{id}":
		return appendText(b, ev.ID)
	case "{topic}":
		return appendText(b, ev.Topic)
	case "{time}":
		return appendText(b, ev.Accepted.UTC().Format(time.RFC3339Nano))
	case "{position}":
		return strconv.AppendUint(b, ev.Position, 10)
	case "{schema}":
		return appendText(b, e.schema)
	case "{payload}":
		return appendPayload(b, formOf(contentType, payload), payload)
	}
	return append(b, p.text...)
}

func appendPayload(b []byte, f form, payload []byte) []byte {
	switch f {
	case asJSON:
		return append(b, payload...)
	case asText:
		return appendText(b, string(payload))
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, payload)
	return append(b, '"')
}

// cloudEvent is the JSON event format of CloudEvents 1.0.2.
func cloudEvent(b []byte, ev *Event, contentType string, payload []byte) []byte {
	b = append(b, '{')
	for i, a := range ev.CloudEvent() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, a.Name)
		b = append(b, ':')
		b = appendText(b, a.Value)
	}
	if contentType != "" {
		b = append(b, `,"datacontenttype":`...)
		b = appendText(b, contentType)
	}
	f := formOf(contentType, payload)
	if f == asBase64 {
		b = append(b, `,"data_base64":`...)
	} else {
		b = append(b, `,"data":`...)
	}
	return append(appendPayload(b, f, payload), '}')
}
