package server

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/topic"
)

// CloudEvents 1.0 over HTTP: https://github.com/cloudevents/spec, http-protocol-binding.md.
const (
	eventMedia      = "application/cloudevents+json"
	eventBatchMedia = "application/cloudevents-batch+json"
	tenantExtension = "fairlanetenant"

	maxEventAttributes = 64
	maxAttributeBytes  = 16 << 10 // of one event, names and values
	eventOverhead      = 64 << 10 // of a structured event's JSON beside its data
)

// event is a CloudEvent taken apart: what is passed on is data as it stands.
type event struct {
	attributes  []journal.Attribute // all but datacontenttype and our extension, by name
	tenants     string              // our extension; "" if absent
	contentType string
	data        []byte
}

// attribute returns a value, "" if absent.
func (e *event) attribute(name string) string {
	for _, a := range e.attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// ingestEvents takes CloudEvents: POST /v1/triggers, structured, batched or binary.
func (s *Server) ingestEvents(w http.ResponseWriter, r *http.Request) (err error) {
	defer func(start time.Time) { s.metrics.posted(start, err) }(time.Now())
	r, end := s.trace.ingest(r)
	defer func() { end(err) }()
	if s.stopping.Load() {
		return fanout.ErrStopped
	}
	if err := checkEncoding(r); err != nil {
		return err
	}
	media, err := eventMode(r)
	if err != nil {
		return err
	}
	switch media {
	case eventMedia:
		return s.ingestStructured(w, r)
	case eventBatchMedia:
		return s.ingestBatch(w, r)
	}
	return s.ingestOne(w, r, "")
}

// eventMode tells the three modes apart: a media type of CloudEvents, or "" for binary.
func eventMode(r *http.Request) (string, error) {
	values := r.Header.Values("Content-Type")
	media := ""
	if len(values) == 1 {
		media, _, _ = mime.ParseMediaType(values[0])
	}
	switch {
	case media == eventMedia || media == eventBatchMedia:
		return media, nil
	case r.Header.Get("Ce-Specversion") != "":
		return "", nil
	}
	return "", refuse(unsupportedMedia, "Content-Type", "must be "+eventMedia+" or "+eventBatchMedia+", or any with the headers of a binary event (ce-specversion, ce-id, ce-source, ce-type)")
}

func (s *Server) ingestStructured(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	raw, err := readBody(w, r, s.maxBody/3*4+eventOverhead, s.pace)
	if err != nil {
		return err
	}
	t, err := s.structured(r, raw, "", key)
	if err != nil {
		return err
	}
	if err := s.rate(callerOf(r), 1); err != nil {
		return err
	}
	return s.append(w, r, t)
}

// ingestBatch takes all or nothing: what is accepted becomes durable in one pack.
func (s *Server) ingestBatch(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Idempotency-Key") != "" {
		return refuse(badRequest, "Idempotency-Key", "must be absent: each event of a batch has its own, made of source and id")
	}
	raw, err := readBody(w, r, s.maxBody/3*4+eventOverhead, s.pace)
	if err != nil {
		return err
	}
	var items []json.RawMessage
	if !utf8.Valid(raw) || json.Unmarshal(raw, &items) != nil || items == nil {
		return refuse(badRequest, "body", "must be a JSON array of events")
	}
	ts := make([]*journal.Trigger, len(items))
	for i, item := range items {
		if ts[i], err = s.structured(r, item, fmt.Sprintf("[%d].", i), ""); err != nil {
			return err
		}
		s.stamp(r, ts[i])
	}
	receipts, err := s.appendBatch(r, ts)
	if err != nil {
		return err
	}
	v := receiptsView{Items: []receiptView{}}
	for _, one := range receipts {
		v.Items = append(v.Items, receiptView{one.ID, uint64(one.Position), one.Repeat})
	}
	return reply(w, http.StatusAccepted, v)
}

// appendBatch stores events in the turn of the first one's tenant.
func (s *Server) appendBatch(r *http.Request, ts []*journal.Trigger) (receipts []journal.Receipt, err error) {
	if len(ts) == 0 {
		return s.journal.AppendBatch(r.Context(), ts)
	}
	if err := s.rate(callerOf(r), len(ts)); err != nil {
		return nil, err
	}
	bytes := 0
	for _, t := range ts {
		bytes += len(t.Payload)
	}
	err = s.inTurn(r, ts[0], bytes, func() (err error) {
		receipts, err = s.journal.AppendBatch(r.Context(), ts)
		return err
	})
	return receipts, err
}

// receiptsView answers one event as receiptView does, and a batch by its items.
type receiptsView struct {
	ID       string        `json:"id,omitempty"`
	Position uint64        `json:"position,omitempty"`
	Items    []receiptView `json:"items,omitempty"`
}

// structured makes a trigger of one event in JSON; at stands before the names of its fields in a refusal.
func (s *Server) structured(r *http.Request, raw []byte, at, key string) (*journal.Trigger, error) {
	o, rule := parseObject(raw, at)
	if rule != "" {
		return nil, refuse(badRequest, strings.TrimSuffix("body"+at, "."), rule)
	}
	e := &event{contentType: "application/json"}
	for _, name := range o.order {
		e.member(o, name, o.fields[name])
	}
	e.dataOf(o)
	if len(o.problems) > 0 {
		return nil, o.refusal()
	}
	return s.eventTrigger(r, e, "", key, at)
}

// member takes one member of a structured event.
func (e *event) member(o *object, name string, raw json.RawMessage) {
	if name == "data" || name == "data_base64" || string(raw) == "null" {
		return
	}
	value, ok := text(raw)
	if !ok {
		if _, number := whole(raw); !number && string(raw) != "true" && string(raw) != "false" {
			o.bad(name, "must be text, a whole number, true or false")
			return
		}
		value = string(raw)
	}
	e.add(o, name, value)
}

// add takes one attribute by its name without "ce-".
func (e *event) add(o *object, name, value string) {
	switch {
	case name == "" || len(name) > 64 || strings.ContainsFunc(name, notAttribute):
		o.bad(name, "must be named by lower-case letters and digits, at most 64")
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		o.bad(name, "must not have control characters")
	case name == "datacontenttype":
		if e.contentType = value; value == "" || len(value) > maxContentType || strings.ContainsFunc(value, notVisible) {
			o.bad(name, fmt.Sprintf("must be 1 to %d bytes of visible ASCII", maxContentType))
		}
	case name == tenantExtension:
		if e.tenants = value; value == "" {
			o.bad(name, audienceRule)
		}
	default:
		e.attributes = append(e.attributes, journal.Attribute{Name: name, Value: value})
	}
}

func notAttribute(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// dataOf takes the data of a structured event: the JSON as it stands, the text where the content type is
// not JSON, or the bytes of data_base64.
func (e *event) dataOf(o *object) {
	raw, has := o.fields["data"]
	encoded, hasBytes := o.fields["data_base64"]
	switch {
	case has && hasBytes:
		o.bad("data_base64", "must not stand beside data")
	case hasBytes:
		s, ok := text(encoded)
		data, err := base64.StdEncoding.DecodeString(s)
		if !ok || err != nil {
			o.bad("data_base64", "must be text in base64")
		}
		e.data = data
	case has:
		e.data = bytes.Clone(raw)
		if s, ok := text(raw); ok && !isJSON(e.contentType) {
			e.data = []byte(s)
		}
	default:
		e.data = []byte{}
	}
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// binaryEvent reads the attributes of a binary event from its headers; nil if r is none.
func binaryEvent(r *http.Request) (*event, error) {
	if r.Header.Get("Ce-Specversion") == "" {
		return nil, nil
	}
	e, o := &event{}, &object{path: "ce-"}
	for name, values := range r.Header {
		name, ours := strings.CutPrefix(strings.ToLower(name), "ce-")
		switch {
		case !ours:
		case len(values) > 1:
			o.bad(name, "must stand once")
		case name == "datacontenttype":
			o.bad(name, "must be absent: it is Content-Type")
		default:
			value, ok := headerText(values[0])
			if !ok {
				o.bad(name, "must be UTF-8, percent-encoded or not")
				continue
			}
			e.add(o, name, value)
		}
	}
	if len(o.problems) > 0 {
		slices.SortFunc(o.problems, func(a, b fieldRule) int { return strings.Compare(a.Field, b.Field) })
		return nil, o.refusal()
	}
	return e, nil
}

// headerText undoes the quotes and the percent-encoding of an attribute in a header.
func headerText(v string) (string, bool) {
	if inner, quoted := strings.CutPrefix(v, `"`); quoted && strings.HasSuffix(inner, `"`) {
		v = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(strings.TrimSuffix(inner, `"`))
	}
	if out, err := url.PathUnescape(v); err == nil {
		v = out // the official SDK for Go sends a lone % as it stands
	}
	return v, utf8.ValidString(v)
}

// eventTrigger makes a trigger of an event: its topic is the path's, else its type; its idempotency key is
// the header's, else source and id, which by the standard name one event.
func (s *Server) eventTrigger(r *http.Request, e *event, path, key, at string) (*journal.Trigger, error) {
	c := callerOf(r)
	more, err := attributes(r.Header)
	if err != nil {
		return nil, err
	}
	o := &object{path: at}
	e.attributes = append(e.attributes, more...)
	e.check(o)
	t := &journal.Trigger{Topic: cmp.Or(path, e.attribute("type")), ContentType: e.contentType, Producer: c.id, Key: key, Payload: e.data, Attributes: e.attributes}
	if path == "" && (topic.Own(t.Topic) || !topic.Valid(t.Topic)) {
		o.bad("type", "must be a topic: "+topic.Rule)
	}
	if len(o.problems) > 0 {
		return nil, o.refusal()
	}
	lines, field := r.Header.Values("Fairlane-Tenant"), "Fairlane-Tenant"
	if e.tenants != "" {
		if len(lines) > 0 {
			return nil, refuse(invalid, at+tenantExtension, "must not stand beside the header Fairlane-Tenant")
		}
		lines, field = []string{e.tenants}, at+tenantExtension
	}
	if t.Audience, err = s.audience(c, lines, field); err != nil {
		return nil, err
	}
	if t.Key == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(e.attribute("source")), e.attribute("source"), e.attribute("id")))
		t.Key = "cloudevent-" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return t, s.pressure(t.Audience)
}

// check holds an event against the standard's rules, and sorts its attributes.
func (e *event) check(o *object) {
	slices.SortFunc(e.attributes, func(a, b journal.Attribute) int { return strings.Compare(a.Name, b.Name) })
	size := 0
	for i, a := range e.attributes {
		size += len(a.Name) + len(a.Value)
		if i > 0 && e.attributes[i-1].Name == a.Name {
			o.bad(a.Name, "must stand once, in the event or in a header of ours")
		}
	}
	if len(e.attributes) > maxEventAttributes || size > maxAttributeBytes {
		o.bad("attributes", fmt.Sprintf("must be at most %d, of %d bytes together", maxEventAttributes, maxAttributeBytes))
	}
	for _, name := range []string{"id", "source", "type"} {
		if e.attribute(name) == "" {
			o.bad(name, "is missing or empty")
		}
	}
	if e.attribute("specversion") != "1.0" {
		o.bad("specversion", `must be "1.0"`)
	}
	if at := e.attribute("time"); at != "" {
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
			o.bad("time", "must be an instant of RFC 3339")
		}
	}
}
