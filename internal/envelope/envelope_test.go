package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var event = Event{ID: "msg_1", Topic: "order.paid", Position: 4711, Accepted: time.Unix(1700000000, 123456789)}

func TestATemplateIsFilledWithWholeValues(t *testing.T) {
	const text = `{"s":{schema},"i":{id},"t":{topic},"at":{time},"p":{position},"d":{payload},"again":[{payload}], "literal": "{ not a placeholder }"}`
	e, err := New("order/2", "application/json", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ contentType, payload, data string }{
		{"application/json", `{"b":9007199254740993,"a":1E400}`, `{"b":9007199254740993,"a":1E400}`}, // not rewritten
		{"application/vnd.x+json; charset=utf-8", " [1]\n", " [1]\n"},
		{"", `"x"`, `"x"`},
		{"application/json", `{broken`, `"{broken"`},
		{"text/plain", `{"a":1}`, `"{\"a\":1}"`},
		{"text/plain", "caf\u00e9 <&> \u2028\x00", `"café <&> \u2028\u0000"`},
		{"text/plain", "", `""`},
		{"application/octet-stream", "\xff\xfe", `"//4="`},
	} {
		body, media := e.Render(&event, c.contentType, []byte(c.payload))
		want := `{"s":"order/2","i":"msg_1","t":"order.paid","at":"2023-11-14T22:13:20.123456789Z","p":4711,"d":` + c.data + `,"again":[` + c.data + `], "literal": "{ not a placeholder }"}`
		if string(body) != want || media != "application/json" || !json.Valid(body) {
			t.Errorf("%q of %q:\n%s\n%s", c.payload, c.contentType, body, want)
		}
	}
}

func TestCloudEventsKeepThePayloadAndWhatTheProducerSaid(t *testing.T) {
	ev := event
	ev.Attributes = []Attribute{{"source", "/shop"}, {"subject", "7"}, {"specversion", "0.3"}, {"Upper", "x"}, {"data", "x"}, {"datacontenttype", "x"}, {"id", "theirs"}}
	body, media := ForCloudEvents().Render(&ev, "application/json", []byte(`{"n":9007199254740993}`))
	want := `{"specversion":"1.0","id":"theirs","source":"/shop","type":"order.paid","time":"2023-11-14T22:13:20.123456789Z","subject":"7","datacontenttype":"application/json","data":{"n":9007199254740993}}`
	if string(body) != want || media != "application/cloudevents+json; charset=utf-8" {
		t.Errorf("%s %s\nwant %s", media, body, want)
	}
	body, _ = ForCloudEvents().Render(&event, "", []byte("\xff"))
	if !strings.HasSuffix(string(body), `"source":"urn:fairlane","type":"order.paid","time":"2023-11-14T22:13:20.123456789Z","data_base64":"/w=="}`) {
		t.Errorf("bytes: %s", body)
	}
}

// Whatever is posted, the body is JSON, says the payload, and is the same each time.
func TestAnyPayloadFitsIntoEveryEnvelope(t *testing.T) {
	own, err := New("1", "", `{"data":{payload}}`)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.Just([]byte(`{"a":[1,2,{"b":null}]}`))).Draw(t, "payload")
		contentType := rapid.SampledFrom([]string{"", "application/json", "text/plain", "\x00"}).Draw(t, "type")
		for _, e := range []*Envelope{own, ForCloudEvents()} {
			before := bytes.Clone(payload)
			body, _ := e.Render(&event, contentType, payload)
			again, _ := e.Render(&event, contentType, payload)
			if !bytes.Equal(before, payload) || !bytes.Equal(body, again) {
				t.Fatal("the payload was changed, or two renderings differ")
			}
			var got struct {
				Data       json.RawMessage
				DataBase64 []byte `json:"data_base64"`
			}
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			if !says(got.Data, got.DataBase64, payload) {
				t.Fatalf("%q does not say %q", body, payload)
			}
		}
	})
}

func says(data json.RawMessage, raw, payload []byte) bool {
	var text string
	if json.Unmarshal(data, &text) == nil && (text == string(payload) || text == base64.StdEncoding.EncodeToString(payload)) {
		return true
	}
	var a, b any
	same := json.Unmarshal(data, &a) == nil && json.Unmarshal(payload, &b) == nil && reflect.DeepEqual(a, b)
	return same || bytes.Equal(raw, payload)
}

func TestWrongTemplatesAreRefused(t *testing.T) {
	for _, c := range []struct {
		schema, media, text string
		want                error
	}{
		{"", "", "{payload}", ErrSchema},
		{"a b", "", "{payload}", ErrSchema},
		{strings.Repeat("a", 65), "", "{payload}", ErrSchema},
		{"1", "json", "{payload}", ErrContentType},
		{"1", "a/b\r\nX: y", "{payload}", ErrContentType},
		{"1", "", "", ErrTemplate},
		{"1", "", "{id}", ErrTemplate},
		{"1", "", "{payload}{Payload}", ErrTemplate},
		{"1", "", "{payload}" + strings.Repeat(" ", MaxTemplate), ErrTemplate},
	} {
		if _, err := New(c.schema, c.media, c.text); !errors.Is(err, c.want) {
			t.Errorf("%+.60v: %v, want %v", c, err, c.want)
		}
	}
	for _, bad := range []string{"", "raw", "cloudevents", "A", "-a", "a b", strings.Repeat("a", 65)} {
		if ValidName(bad) {
			t.Errorf("name %q", bad)
		}
	}
}
