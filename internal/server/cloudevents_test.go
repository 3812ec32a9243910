package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// sample is an event with data that a decoder would rewrite.
func sample(id string) cloudevents.Event {
	e := cloudevents.NewEvent()
	e.SetID(id)
	e.SetSource("https://shop.test/orders?a=b c")
	e.SetType("orders.created")
	e.SetSubject("ü \"quoted\" 100%")
	e.SetTime(time.Date(2026, 12, 1, 0, 0, 0, 123456000, time.UTC))
	e.SetExtension("region", "eu")
	e.SetExtension("fairlanetenant", "acme")
	if err := e.SetData("application/json", []byte(`{"total":1.10,"n":12345678901234567890}`)); err != nil {
		panic(err)
	}
	return e
}

// sdk is the official client, sending with the admin key.
func (s *service) sdk(path string) (cloudevents.Client, context.Context) {
	s.t.Helper()
	c, err := cloudevents.NewClientHTTP(cehttp.WithTarget(s.URL()+path), cehttp.WithHeader("Authorization", "Bearer "+testKey))
	if err != nil {
		s.t.Fatal(err)
	}
	return c, s.t.Context()
}

// The official Go SDK in its three modes: the data arrives byte for byte, and the same event sent again is
// delivered once.
func TestTheOfficialSDKInThreeModes(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, "")
	until(t, "ready for keys", func() bool { return s.do("GET", "/readyz", nil).status == 200 })
	client, ctx := s.sdk("/v1/triggers")
	toTopic, _ := s.sdk("/v1/triggers/orders.created")
	batch := func(events ...cloudevents.Event) answer {
		req, err := cehttp.NewHTTPRequestFromEvents(ctx, s.URL()+"/v1/triggers", events)
		if err != nil {
			t.Fatal(err)
		}
		return s.do("POST", "/v1/triggers", req.Body, "Content-Type: "+req.Header.Get("Content-Type"))
	}
	send := func(c cloudevents.Client, ctx context.Context, e cloudevents.Event) {
		t.Helper()
		if res := c.Send(ctx, e); !cloudevents.IsACK(res) {
			t.Errorf("%v", res)
		}
	}
	for mode, post := range map[string]func(id string){
		"structured":        func(id string) { send(client, cloudevents.WithEncodingStructured(ctx), sample(id)) },
		"binary":            func(id string) { send(client, cloudevents.WithEncodingBinary(ctx), sample(id)) },
		"binary to a topic": func(id string) { send(toTopic, cloudevents.WithEncodingBinary(ctx), sample(id)) },
		"batch": func(id string) {
			var v receiptsView
			s.must(202, batch(sample(id))).into(t, &v)
			if len(v.Items) != 1 || v.Items[0].ID == "" {
				t.Errorf("%+v", v)
			}
		},
	} {
		post(mode)
		d := next(t, got)
		if string(d.body) != `{"total":1.10,"n":12345678901234567890}` || d.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %s %q", mode, d.header.Get("Content-Type"), d.body)
		}
		post(mode) // again
	}
	s.must(202, s.post("acme", "last"))
	if d := next(t, got); string(d.body) != "last" {
		t.Errorf("an event was delivered twice: %q", d.body)
	}
}

// A batch is one pack, all of it or nothing.
func TestABatchOfEventsIsOnePack(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	until(t, "ready for keys", func() bool { return s.do("GET", "/readyz", nil).status == 200 })
	events := func(n int, bad string) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/s","type":"a.b","fairlanetenant":"acme","data":%d}`, i, i))
		}
		if bad != "" {
			list = append(list, bad)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	post := func(body string) answer {
		return s.do("POST", "/v1/triggers", strings.NewReader(body), "Content-Type: application/cloudevents-batch+json")
	}
	var v receiptsView
	s.must(202, post(events(256, ""))).into(t, &v)
	for i, r := range v.Items {
		if want := v.Items[0].Position + uint64(i); r.Position != want || r.Position>>8 != want>>8 {
			t.Fatalf("event %d stands at %d, want %d", i, r.Position, want)
		}
	}
	var again receiptsView
	s.must(202, post(events(256, ""))).into(t, &again)
	for i, r := range again.Items {
		if !r.Repeat || r.ID != v.Items[i].ID || r.Position != v.Items[i].Position {
			t.Fatalf("event %d again: %+v, was %+v", i, r, v.Items[i])
		}
	}
	if got := string(s.must(202, post("[]")).body); got != "{}\n" {
		t.Errorf("an empty batch: %s", got)
	}
	before := s.Journal().Status().LastPosition
	s.must(413, post(events(257, "")))
	s.must(413, post(events(1, fmt.Sprintf(`{"specversion":"1.0","id":"b","source":"/s","type":"a.b","fairlanetenant":"acme","data":"%s"}`, strings.Repeat("x", 520<<10)))))
	if p := s.must(422, post(events(3, `{"specversion":"1.0","id":"x","source":"/s","type":"a.b","fairlanetenant":"nobody"}`))).problem(t); p.Field != "[3].fairlanetenant" {
		t.Errorf("field %q", p.Field)
	}
	if at := s.Journal().Status().LastPosition; at != before {
		t.Errorf("something of a refused batch was stored: %d, was %d", at, before)
	}
}

func TestEventsAreRefusedByNameAndRule(t *testing.T) {
	s := start(t, "", func(c *Config) { c.MaxBody = 2000 })
	s.tenant("acme")
	const ok = `"specversion":"1.0","id":"1","source":"/s","type":"a.b","fairlanetenant":"acme"`
	for _, c := range []struct {
		headers, body string
		status        int
		field, rule   string
	}{
		{"Content-Type: text/plain", `x`, 415, "Content-Type", "application/cloudevents+json"},
		{"Content-Type: application/json", `{}`, 415, "Content-Type", "ce-specversion"},
		{"Content-Type: application/cloudevents+json\nContent-Encoding: gzip", `{}`, 415, "Content-Encoding", "identity"},
		{"Content-Type: application/cloudevents+json", `[]`, 400, "body", "JSON object"},
		{"Content-Type: application/cloudevents+json", `{}`, 422, "id", "missing"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"id":"2"}`, 422, "id", "once"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"Region":"eu"}`, 422, "Region", "lower-case"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"region":{}}`, 422, "region", "text, a whole number"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"subject":"a\u0000"}`, 422, "subject", "control"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"data":1,"data_base64":"eA=="}`, 422, "data_base64", "beside data"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"data_base64":"?"}`, 422, "data_base64", "base64"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"time":"yesterday"}`, 422, "time", "RFC 3339"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"datacontenttype":""}`, 422, "datacontenttype", "visible ASCII"},
		{"Content-Type: application/cloudevents+json", strings.Replace(`{`+ok+`}`, "1.0", "0.3", 1), 422, "specversion", `"1.0"`},
		{"Content-Type: application/cloudevents+json", strings.Replace(`{`+ok+`}`, "a.b", "a b", 1), 422, "type", "topic"},
		{"Content-Type: application/cloudevents+json", strings.Replace(`{`+ok+`}`, "acme", "nobody", 1), 422, "fairlanetenant", "does not exist"},
		{"Content-Type: application/cloudevents+json\nFairlane-Tenant: acme", `{` + ok + `}`, 422, "fairlanetenant", "beside"},
		{"Content-Type: application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"/s","type":"a.b"}`, 422, "Fairlane-Tenant", "a tenant's id"},
		{"Content-Type: application/cloudevents+json", `{` + ok + `,"data":"` + strings.Repeat("x", 2001) + `"}`, 413, "", ""},
		{"Content-Type: application/cloudevents-batch+json", `{}`, 400, "body", "array"},
		{"Content-Type: application/cloudevents-batch+json\nIdempotency-Key: k", `[]`, 400, "Idempotency-Key", "absent"},
		{"Ce-Specversion: 1.0", `x`, 422, "ce-id", "missing"},
		{"Ce-Specversion: 1.0\nCe-Id: 1\nCe-Source: /s\nCe-Type: a.b\nCe-Subject: a%ff", `x`, 422, "ce-subject", "UTF-8"},
		{"Ce-Specversion: 1.0\nCe-Id: 1\nCe-Id: 2\nCe-Source: /s\nCe-Type: a.b", `x`, 422, "ce-id", "once"},
		{"Ce-Specversion: 1.0\nCe-Id: 1\nCe-Source: /s\nCe-Type: a.b\nCe-Datacontenttype: text/plain", `x`, 422, "ce-datacontenttype", "Content-Type"},
		{"Ce-Specversion: 1.0\nCe-Id: 1\nCe-Source: /s\nCe-Type: a.b\nCe-A_b: x", `x`, 422, "ce-a_b", "lower-case"},
	} {
		a := s.do("POST", "/v1/triggers", strings.NewReader(c.body), strings.Split(c.headers, "\n")...)
		p := a.problem(t)
		if a.status != c.status || c.field != "" && p.Field != c.field || !strings.Contains(p.Rule, c.rule) {
			t.Errorf("%q %.80s: %s", c.headers, c.body, a.body)
		}
	}
	if a := s.account(); a.Offered != 0 {
		t.Errorf("something was stored: %+v", a)
	}
}

// What is passed on in each mode, and what of an event is kept beside its data.
func TestAnEventIsTakenApart(t *testing.T) {
	for name, c := range map[string]struct {
		headers, body string
		data, media   string
	}{
		"json as it stands": {"Content-Type: application/cloudevents+json; charset=utf-8", `"data": {"a": 1.10 }`, `{"a": 1.10 }`, "application/json"},
		"text":              {"Content-Type: application/cloudevents+json", `"datacontenttype":"text/plain","data":"a\u00fc"`, "aü", "text/plain"},
		"a JSON string":     {"Content-Type: application/cloudevents+json", `"data":"a\u00fc"`, `"a\u00fc"`, "application/json"},
		"bytes":             {"Content-Type: application/cloudevents+json", `"datacontenttype":"image/png","data_base64":"AP8="`, "\x00\xff", "image/png"},
		"nothing":           {"Content-Type: application/cloudevents+json", `"subject":null`, "", "application/json"},
	} {
		f := &fake{}
		s, _, _ := serveFake(t, f)
		body := `{"specversion":"1.0","id":"1","source":"/s","type":"a.b","region":"eu","n":5,"ok":true,"fairlanetenant":"acme,beta",` + c.body + `}`
		a := serveOnce(s, "/v1/triggers", body, c.headers)
		if a.Code != 202 {
			t.Fatalf("%s: %d %s", name, a.Code, a.Body)
		}
		got := f.stored[0]
		if string(got.Payload) != c.data || got.ContentType != c.media {
			t.Errorf("%s: %q %q", name, got.ContentType, got.Payload)
		}
		want := []journal.Attribute{{Name: "id", Value: "1"}, {Name: "n", Value: "5"}, {Name: "ok", Value: "true"}, {Name: "region", Value: "eu"}, {Name: "source", Value: "/s"}, {Name: "specversion", Value: "1.0"}, {Name: "type", Value: "a.b"}}
		if fmt.Sprint(got.Attributes) != fmt.Sprint(want) || fmt.Sprint(got.Audience.Tenants) != "[acme beta]" || got.Topic != "a.b" {
			t.Errorf("%s: %v %v %s", name, got.Attributes, got.Audience, got.Topic)
		}
	}
}

func serveOnce(s *Server, path, body, headers string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, path, bytes.NewBufferString(body))
	req.Header.Set("Authorization", "Bearer "+testKey)
	for line := range strings.SplitSeq(headers, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, req)
	return w
}
