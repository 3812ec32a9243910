package server

import (
	"reflect"
	"strings"
	"testing"
)

// What a producer says in headers is what a filter sees; names are those of CloudEvents, and nonsense is refused
// before anything is stored.
func TestAttributesComeFromHeaders(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	url, got := endpoint(t, 200)
	s.subscribe("acme", url+"/eu", `,"match":{"region":"eu"}`)
	s.subscribe("acme", url+"/key", `,"match":{"partitionkey":"user 7"}`)
	s.must(202, s.post("acme", "1", "Fairlane-Attribute-Region: eu"))
	s.must(202, s.post("acme", "2", "fairlane-attribute-region: us"))
	s.must(202, s.post("acme", "3", "Fairlane-Order-Key: user 7"))
	s.must(202, s.post("acme", "4", "Fairlane-Attribute-PartitionKey: user 7", "Fairlane-Attribute-Region: eu"))
	bodies := map[string]int{}
	for range 4 {
		bodies[string(next(t, got).body)]++
	}
	if want := map[string]int{"1": 1, "3": 1, "4": 2}; !reflect.DeepEqual(bodies, want) {
		t.Errorf("delivered %v, want %v", bodies, want)
	}
	position := s.Journal().Status().LastPosition
	for _, headers := range [][]string{
		{"Fairlane-Attribute-Re_gion: eu"}, {"Fairlane-Attribute-: eu"}, {"Fairlane-Attribute-Region: é"},
		{"Fairlane-Order-Key: " + strings.Repeat("x", 257)},
		{"Fairlane-Order-Key: a", "Fairlane-Attribute-Partitionkey: a"},
		{"Fairlane-Attribute-" + strings.Repeat("a", 65) + ": x"},
	} {
		if a := s.post("acme", "x", headers...); a.status != 400 {
			t.Errorf("%q: %d", headers, a.status)
		}
	}
	many := []string{}
	for i := range 17 {
		many = append(many, "Fairlane-Attribute-A"+string(rune('a'+i))+": x")
	}
	s.must(400, s.post("acme", "x", many...))
	if now := s.Journal().Status().LastPosition; now != position {
		t.Error("a refused post was stored")
	}
	s.must(202, s.post("acme", "5", "Idempotency-Key: k", "Fairlane-Attribute-Region: a"))
	s.must(422, s.post("acme", "5", "Idempotency-Key: k", "Fairlane-Attribute-Region: b"))
}

// A subscription's order and lane are its own for good; match, on_dead and grants can be changed and taken back.
func TestMatchOrderLaneAndGrantsAreFields(t *testing.T) {
	s := start(t, "", nil)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme"}`)))
	sub := s.subscribe("acme", "http://127.0.0.1:9/x", `,"order":"key","lane":"backend-1","match":{"region":"eu"}`)
	at := "/v1/subscriptions/" + sub.ID
	show := func() map[string]any { return fields(t, s.must(200, s.do("GET", at, nil))) }
	if v := show(); v["order"] != "key" || v["lane"] != "backend-1" || v["on_dead"] != "continue" || !reflect.DeepEqual(v["match"], map[string]any{"region": "eu"}) {
		t.Errorf("created: %v", v)
	}
	s.must(200, s.do("PATCH", at, strings.NewReader(`{"on_dead":"stop","match":{"region":"us","kind":"a"}}`)))
	if v := show(); v["on_dead"] != "stop" || len(v["match"].(map[string]any)) != 2 || len(v["topics"].([]any)) != 1 {
		t.Errorf("patched: %v", v)
	}
	s.must(200, s.do("PATCH", at, strings.NewReader(`{"on_dead":null,"match":null}`)))
	if v := show(); v["on_dead"] != "continue" || v["match"] != nil {
		t.Errorf("reset: %v", v)
	}
	for _, patch := range []string{`{"order":"subscription"}`, `{"lane":"x"}`, `{"match":{"Region":"eu"}}`, `{"match":{"region":1}}`, `{"match":[]}`, `{"on_dead":"skip"}`} {
		s.must(422, s.do("PATCH", at, strings.NewReader(patch)))
	}
	for _, more := range []string{`"order":"none"`, `"lane":""`, `"lane":"a b"`, `"lane":null`} {
		s.must(422, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"http://127.0.0.1:9/x","topics":[">"],`+more+`}`)))
	}
	grants := func(want ...any) {
		t.Helper()
		if v := fields(t, s.must(200, s.do("GET", "/v1/tenants/acme", nil))); !reflect.DeepEqual(v["grants"], append([]any{}, want...)) {
			t.Errorf("grants %v, want %v", v["grants"], want)
		}
	}
	grants()
	s.must(200, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"grants":["a.*","b.>"]}`)))
	grants("a.*", "b.>")
	s.must(200, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"name":"x"}`))) // unlike other fields, grants that are absent stay
	grants("a.*", "b.>")
	s.must(200, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"grants":[]}`)))
	grants()
	s.must(422, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"grants":["a..b"]}`)))
}
