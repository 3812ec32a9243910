package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxJSON bounds the body of a request that carries an object.
const maxJSON = 256 << 10

// object is a JSON object, read strictly: names are exact, each stands once, and what nobody
// asked for is refused. Problems are collected, so that one answer names all of them.
type object struct {
	path     string // "" or "outcomes."
	fields   map[string]json.RawMessage
	order    []string // as sent
	asked    []string
	sum      [sha256.Size]byte // of what was sent
	patch    bool              // null resets a field to its default
	problems []fieldRule
}

// readObject reads the request's body. patch is for PATCH (JSON merge patch, RFC 7396).
func (s *Server) readObject(w http.ResponseWriter, r *http.Request, patch bool) (*object, error) {
	return s.readSized(w, r, patch, maxJSON)
}

// readSized is readObject of at most that many bytes.
func (s *Server) readSized(w http.ResponseWriter, r *http.Request, patch bool, most int) (*object, error) {
	if err := checkJSONHeaders(r, patch); err != nil {
		return nil, err
	}
	data, err := readBody(w, r, most, s.pace)
	if err != nil {
		return nil, err
	}
	o, rule := parseObject(data, "")
	if rule != "" {
		return nil, refuse(badRequest, "body", rule)
	}
	o.patch, o.sum = patch, sha256.Sum256(data)
	callerOf(r).fields = o.order
	return o, nil
}

func checkJSONHeaders(r *http.Request, patch bool) error {
	if err := checkEncoding(r); err != nil {
		return err
	}
	types := r.Header.Values("Content-Type")
	if len(types) == 0 {
		return nil
	}
	media, _, _ := strings.Cut(types[0], ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if len(types) == 1 && (media == "application/json" || patch && media == "application/merge-patch+json") {
		return nil
	}
	return refuse(unsupportedMedia, "Content-Type", "must be application/json")
}

// parseObject takes one object apart; rule says what is wrong with data as a whole.
func parseObject(data []byte, path string) (o *object, rule string) {
	if !utf8.Valid(data) {
		return nil, "must be UTF-8"
	}
	o = &object{path: path, fields: map[string]json.RawMessage{}}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, "must be a JSON object"
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, syntaxRule(d, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, syntaxRule(d, err)
		}
		o.add(key.(string), value)
	}
	if _, err := d.Token(); err != nil {
		return nil, syntaxRule(d, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, "must end after the object"
	}
	return o, ""
}

func syntaxRule(d *json.Decoder, err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "must be a JSON object; it ends early"
	}
	return fmt.Sprintf("must be a JSON object; it is wrong near byte %d", d.InputOffset())
}

func (o *object) add(name string, value json.RawMessage) {
	if _, twice := o.fields[name]; twice {
		o.bad(name, "must stand once")
		return
	}
	o.fields[name] = value
	o.order = append(o.order, name)
}

func (o *object) bad(name, rule string) {
	if len(o.problems) < maxProblems {
		o.problems = append(o.problems, fieldRule{strings.TrimSuffix(o.path+clip(name), "."), rule})
	}
}

// clip bounds a name that the caller chose, for the answer.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}

// has reports whether the field was sent.
func (o *object) has(name string) bool { _, ok := o.fields[name]; return ok }

// read hands the field to parse, if it was sent; parse returns "" or what the value must be.
// null is refused, except in a patch of a field that has a default, which reset restores.
func (o *object) read(name string, reset func(), parse func(json.RawMessage) string) {
	o.asked = append(o.asked, name)
	raw, sent := o.fields[name]
	switch {
	case !sent:
	case string(raw) != "null":
		if rule := parse(raw); rule != "" {
			o.bad(name, "must be "+rule)
		}
	case o.patch && reset != nil:
		reset()
	case o.patch:
		o.bad(name, "must not be null: it has no default")
	default:
		o.bad(name, "must not be null; leave it out for the default")
	}
}

// require refuses an object without the field.
func (o *object) require(names ...string) {
	for _, name := range names {
		if !o.has(name) {
			o.bad(name, "is missing")
		}
	}
}

// err is what is wrong with the object, unknown fields included; nil if nothing is.
func (o *object) err() error {
	for _, name := range o.order {
		if !slices.Contains(o.asked, name) {
			o.bad(name, "is unknown; known here: "+strings.Join(o.asked, ", "))
		}
	}
	if len(o.problems) == 0 {
		return nil
	}
	return o.refusal()
}

// refusal names all problems; there is one.
func (o *object) refusal() *problem {
	p := refuse(invalid, o.problems[0].Field, o.problems[0].Rule)
	p.fields = o.problems
	return p
}

// text parses a JSON string.
func text(raw json.RawMessage) (s string, ok bool) {
	if raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// whole parses a JSON number without fraction and exponent.
func whole(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// texts parses a list of strings.
func texts(raw json.RawMessage) (list []string, ok bool) {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, false
	}
	for _, item := range items {
		s, ok := text(item)
		if !ok {
			return nil, false
		}
		list = append(list, s)
	}
	return list, true
}

// parseText makes a parser of a string field.
func parseText(to *string, rule string, ok func(string) bool) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		s, is := text(raw)
		if !is || !ok(s) {
			return rule
		}
		*to = s
		return ""
	}
}

// parseWhole makes a parser of a whole number in a range.
func parseWhole(from, to int64, set func(int64)) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		n, is := whole(raw)
		if !is || n < from || n > to {
			return fmt.Sprintf("a whole number from %d to %d", from, to)
		}
		set(n)
		return ""
	}
}

// parseBool makes a parser of true or false.
func parseBool(to *bool) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		switch string(raw) {
		case "true":
			*to = true
		case "false":
			*to = false
		default:
			return "true or false"
		}
		return ""
	}
}
