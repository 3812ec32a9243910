// Package envelope wraps a payload for endpoints that need another body than the one that was posted:
// a CloudEvent, or an operator's template.
//
// What comes out depends on the trigger and the envelope alone, so that one rendering serves every
// subscription that chose the envelope, and every attempt.
package envelope

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Event is what is known of a trigger besides its payload.
type Event struct {
	ID         string
	Topic      string
	Position   uint64
	Accepted   time.Time
	Attributes []Attribute // CloudEvents attributes that the producer sent
}

// Attribute is one name and value.
type Attribute struct{ Name, Value string }

// defaultSource is the source of what was not posted as a CloudEvent.
const defaultSource = "urn:fairlane"

// CloudEvent returns the attributes of the event by CloudEvents 1.0.2, specversion first. What the
// producer sent wins over what is made up for it: id, source, type, time.
func (e *Event) CloudEvent() []Attribute {
	list := []Attribute{
		{"specversion", "1.0"}, {"id", e.ID}, {"source", defaultSource}, {"type", e.Topic},
		{"time", e.Accepted.UTC().Format(time.RFC3339Nano)},
	}
	for _, a := range e.Attributes {
		if !attributeName(a.Name) || a.Name == "specversion" || a.Name == "datacontenttype" || strings.HasPrefix(a.Name, "data_") || a.Name == "data" {
			continue
		}
		if i := slices.IndexFunc(list, func(b Attribute) bool { return b.Name == a.Name }); i >= 0 {
			list[i].Value = a.Value
			continue
		}
		list = append(list, a)
	}
	return list
}

// attributeName reports whether s is one that CloudEvents allows.
func attributeName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// form is how a payload may stand inside a JSON document.
type form uint8

const (
	asJSON   form = iota // as it is
	asText               // as a string
	asBase64             // bytes
)

// formOf says how: JSON by its type or without one, if it is JSON; else text, if it is UTF-8.
func formOf(contentType string, payload []byte) form {
	media, _, err := mime.ParseMediaType(contentType)
	if contentType == "" || err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")) {
		if json.Valid(payload) {
			return asJSON
		}
	}
	if utf8.Valid(payload) {
		return asText
	}
	return asBase64
}

// appendText appends s as a JSON string, with no more escapes than JSON needs.
func appendText(b []byte, s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string and a buffer: nothing to fail
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}
