package server

import (
	"fmt"
	"strings"
	"testing"
)

// badCall is something wrong that a caller can send.
type badCall struct {
	method, path string
	headers      string // "Name: value", joined by newlines; an empty value removes the default
	body         string
	status       int
	code, field  string
	rule         string // part of the rule, or of the detail where no field is named
}

const (
	okTenant = "Fairlane-Tenant: acme"
	asJSON   = "Content-Type: application/json"
)

func badTriggers() []badCall {
	long := strings.Repeat("a", 257)
	post := func(path, headers string, status int, code, field, rule string) badCall {
		return badCall{"POST", path, headers, "x", status, code, field, rule}
	}
	const at = "/v1/triggers/a.b"
	return []badCall{
		post(at, "", 422, "invalid", "Fairlane-Tenant", "a tenant's id, a list of them"),
		post(at, "Fairlane-Tenant: ,", 422, "invalid", "Fairlane-Tenant", "a tenant's id"),
		post(at, "Fairlane-Tenant: acme, *", 422, "invalid", "Fairlane-Tenant", "or * for all"),
		post(at, "Fairlane-Tenant: a b", 422, "invalid", "Fairlane-Tenant", "1 to 128 letters"),
		post(at, "Fairlane-Tenant: ../x", 422, "invalid", "Fairlane-Tenant", "1 to 128 letters"),
		post(at, "Fairlane-Tenant: "+strings.Repeat("a", 129), 422, "invalid", "Fairlane-Tenant", "1 to 128 letters"),
		post(at, "Fairlane-Tenant: nobody", 422, "unknown-tenant", "Fairlane-Tenant", "names nobody, which does not exist"),
		post(at, "Fairlane-Tenant: acme,nobody", 422, "unknown-tenant", "Fairlane-Tenant", "names nobody"),
		post(at, "Fairlane-Tenant: acme\nFairlane-Tenant: nobody", 422, "unknown-tenant", "Fairlane-Tenant", "names nobody"),
		post(at, "Fairlane-Tenant: removed", 422, "unknown-tenant", "Fairlane-Tenant", "names removed"),
		post(at, "Fairlane-Tenant: "+tenantList(1001), 422, "invalid", "Fairlane-Tenant", "at most 1000"),
		post("/v1/triggers/"+long, okTenant, 422, "invalid", "topic", "at most 256 bytes"),
		post("/v1/triggers/a..b", okTenant, 422, "invalid", "topic", "joined by dots"),
		post("/v1/triggers/a.*", okTenant, 422, "invalid", "topic", "letters, digits"),
		post("/v1/triggers/a.%3E", okTenant, 422, "invalid", "topic", "letters, digits"),
		post("/v1/triggers/a%2Fb", okTenant, 422, "invalid", "topic", "letters, digits"),
		post("/v1/triggers/a%00b", okTenant, 422, "invalid", "topic", "letters, digits"),
		post("/v1/triggers/%C3%BC", okTenant, 422, "invalid", "topic", "letters, digits"),
		post("/v1/triggers/", okTenant, 404, "not-found", "", "no route"),
		post("/v1/triggers/a/b", okTenant, 404, "not-found", "", "no route"),
		post("/v1//triggers/a", okTenant, 404, "not-found", "", "no route"),
		post("/v1/./triggers/a", okTenant, 404, "not-found", "", "no route"),
		post("/v1/triggers", okTenant, 415, "unsupported-media-type", "Content-Type", "cloudevents"),
		post(at+"?dry=1", okTenant, 400, "bad-request", "query", "empty"),
		post(at, okTenant+"\nContent-Encoding: gzip", 415, "unsupported-content-encoding", "Content-Encoding", "identity"),
		post(at, okTenant+"\nContent-Encoding: identity, gzip", 415, "unsupported-content-encoding", "Content-Encoding", "identity"),
		post(at, okTenant+"\nContent-Encoding: identity\nContent-Encoding: br", 415, "unsupported-content-encoding", "Content-Encoding", "identity"),
		post(at, okTenant+"\nContent-Type: a/b\nContent-Type: c/d", 400, "bad-request", "Content-Type", "once"),
		post(at, okTenant+"\nContent-Type: "+long, 400, "bad-request", "Content-Type", "256"),
		post(at, okTenant+"\nContent-Type: t\xc3\xa9xt/plain", 400, "bad-request", "Content-Type", "visible ASCII"),
		post(at, okTenant+"\nIdempotency-Key: a\nIdempotency-Key: a", 400, "bad-request", "Idempotency-Key", "once"),
		post(at, okTenant+"\nIdempotency-Key: a, b", 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: \"a", 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: \"", 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: \"\"", 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: \"a\";p=1", 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: a\\b", 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: "+strings.Repeat("k", 256), 400, "bad-request", "Idempotency-Key", "255"),
		post(at, okTenant+"\nIdempotency-Key: k\xc3\xbc", 400, "bad-request", "Idempotency-Key", "255"),
		{"POST", at, okTenant, strings.Repeat("x", 2001), 413, "too-large", "body", "at most 2000 bytes"},
		{"DELETE", at, okTenant, "", 405, "method-not-allowed", "", "Allow"},
		{"PUT", at, okTenant, "", 405, "method-not-allowed", "", "Allow"},
	}
}

func tenantList(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("t%d", i)
	}
	return strings.Join(ids, ",")
}

func badTenants() []badCall {
	post := func(body string, status int, code, field, rule string) badCall {
		return badCall{"POST", "/v1/tenants", asJSON, body, status, code, field, rule}
	}
	return []badCall{
		post(``, 400, "bad-request", "body", "JSON object"),
		post(`[]`, 400, "bad-request", "body", "JSON object"),
		post(`null`, 400, "bad-request", "body", "JSON object"),
		post(`"x"`, 400, "bad-request", "body", "JSON object"),
		post(`{`, 400, "bad-request", "body", "ends early"),
		post(`{"id":"a"`, 400, "bad-request", "body", "ends early"),
		post(`{"id" "a"}`, 400, "bad-request", "body", "near byte"),
		post(`{"id":'a'}`, 400, "bad-request", "body", "near byte"),
		post(`{"id":"a"}{}`, 400, "bad-request", "body", "end after the object"),
		post(`{"id":"a"}x`, 400, "bad-request", "body", "end after the object"),
		post("{\"id\":\"\xff\"}", 400, "bad-request", "body", "UTF-8"),
		post(strings.Repeat(`{"id":`, 20000), 400, "bad-request", "body", "JSON object"),
		post(`{"id":"`+strings.Repeat("a", 300000)+`"}`, 413, "too-large", "body", "at most 262144"),
		post(`{}`, 422, "invalid", "id", "is missing"),
		post(`{"id":"b","id":"c"}`, 422, "invalid", "id", "once"),
		post(`{"id":"b","tire":"pro"}`, 422, "invalid", "tire", "is unknown; known here: id, name, tier, grants, suspended"),
		post(`{"ID":"b"}`, 422, "invalid", "id", "is missing"),
		post(`{"id":5}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":null}`, 422, "invalid", "id", "must not be null"),
		post(`{"id":""}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":"a b"}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":"*"}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":"a,b"}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":"b\u0000"}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":"`+strings.Repeat("a", 129)+`"}`, 422, "invalid", "id", "1 to 128 letters"),
		post(`{"id":"b","tier":"gold"}`, 422, "invalid", "tier", "one of default, pro, tight"),
		post(`{"id":"b","tier":1}`, 422, "invalid", "tier", "one of"),
		post(`{"id":"b","name":"`+strings.Repeat("n", 257)+`"}`, 422, "invalid", "name", "256"),
		post(`{"id":"b","name":"a\u0007"}`, 422, "invalid", "name", "control"),
		post(`{"id":"b","name":"\ud800"}`, 422, "invalid", "name", "control"),
		post(`{"id":"b","suspended":"yes"}`, 422, "invalid", "suspended", "true or false"),
		post(`{"id":"acme"}`, 409, "conflict", "id", "exists or was used"),
		post(`{"id":"removed"}`, 409, "conflict", "id", "never given again"),
		{"POST", "/v1/tenants?x=1", asJSON, `{"id":"b"}`, 400, "bad-request", "query", "empty"},
		{"POST", "/v1/tenants", "Content-Type: text/plain", `{"id":"b"}`, 415, "unsupported-media-type", "Content-Type", "application/json"},
		{"POST", "/v1/tenants", asJSON + "\n" + asJSON, `{"id":"b"}`, 415, "unsupported-media-type", "Content-Type", "application/json"},
		{"POST", "/v1/tenants", asJSON + "\nContent-Encoding: gzip", `{"id":"b"}`, 415, "unsupported-content-encoding", "Content-Encoding", "identity"},
		{"PUT", "/v1/tenants/a%20b", asJSON, `{}`, 422, "invalid", "id", "1 to 128"},
		{"PUT", "/v1/tenants/b", asJSON, `{"id":"c"}`, 422, "invalid", "id", "the path's"},
		{"PUT", "/v1/tenants/removed", asJSON, `{}`, 409, "conflict", "id", "never given again"},
		{"PUT", "/v1/tenants/b", asJSON, `{"x":1}`, 422, "invalid", "x", "unknown"},
		{"GET", "/v1/tenants/nobody", "", "", 404, "not-found", "", "nothing of this id"},
		{"GET", "/v1/tenants/removed", "", "", 404, "not-found", "", "nothing of this id"},
		{"DELETE", "/v1/tenants/nobody", "", "", 404, "not-found", "", "nothing of this id"},
		{"DELETE", "/v1/tenants/removed", "", "", 404, "not-found", "", "nothing of this id"},
		{"DELETE", "/v1/tenants/acme", "", "", 409, "conflict", "", "still has subscriptions"},
		{"PATCH", "/v1/tenants", asJSON, `{}`, 405, "method-not-allowed", "", "Allow"},
		{"GET", "/v1/tenants?limit=0", "", "", 400, "bad-request", "limit", "1 to 1000"},
		{"GET", "/v1/tenants?limit=1001", "", "", 400, "bad-request", "limit", "1 to 1000"},
		{"GET", "/v1/tenants?limit=x", "", "", 400, "bad-request", "limit", "1 to 1000"},
		{"GET", "/v1/tenants?limit=1&limit=2", "", "", 400, "bad-request", "limit", "once"},
		{"GET", "/v1/tenants?after=-1", "", "", 400, "bad-request", "after", "next"},
		{"GET", "/v1/tenants?after=", "", "", 400, "bad-request", "after", "next"},
		{"GET", "/v1/tenants?page=1", "", "", 400, "bad-request", "page", "unknown parameter"},
		{"GET", "/v1/tenants?tenant=acme", "", "", 400, "bad-request", "tenant", "unknown parameter"},
		{"GET", "/v1/tenants?a%ZZ", "", "", 400, "bad-request", "query", "well-formed"},
	}
}

// badSubscriptions are refused alike by POST and, where the field can be patched, by PATCH.
func badSubscriptions(url, id string) []badCall {
	base := `{"tenant":"acme","url":"` + url + `","topics":["a.>"],`
	var calls []badCall
	with := func(more, field, rule string) {
		calls = append(calls,
			badCall{"POST", "/v1/subscriptions", asJSON, base + more + `}`, 422, "invalid", field, rule},
			badCall{"PATCH", "/v1/subscriptions/" + id, asJSON, `{` + more + `}`, 422, "invalid", field, rule})
	}
	with(`"rate_limt":"1/s"`, "rate_limt", "is unknown; known here:")
	with(`"concurrency":1.5`, "concurrency", "is unknown")
	with(`"rate":"10"`, "rate", `such as "20/s"`)
	with(`"rate":10`, "rate", "text such as")
	with(`"rate":-1`, "rate", "text such as")
	with(`"rate":"-1/s"`, "rate", "text such as")
	with(`"rate":1e308`, "rate", "text such as")
	with(`"rate":"1e308/s"`, "rate", "text such as")
	with(`"rate":"NaN/s"`, "rate", "text such as")
	with(`"rate":"1000000001/s"`, "rate", "text such as")
	with(`"rate":""`, "rate", "text such as")
	with(`"rate":{}`, "rate", "text such as")
	with(`"rate":"1/s","rate":"2/s"`, "rate", "must stand once")
	with(`"rate":"1/366d","burst":1000000000`, "rate", "does not fit its burst")
	with(`"rate":"1/s","burst":0`, "burst", "from 1 to 1000000000")
	with(`"rate":"1/s","burst":-1`, "burst", "from 1")
	with(`"rate":"1/s","burst":1.5`, "burst", "whole number")
	with(`"rate":"1/s","burst":1e3`, "burst", "whole number")
	with(`"rate":"1/s","burst":"5"`, "burst", "whole number")
	with(`"rate":"1/s","burst":99999999999999999999`, "burst", "whole number")
	with(`"rate":"unlimited","burst":5`, "burst", "needs a rate that is a number")
	with(`"rate":0,"burst":5`, "burst", "needs a rate that is a number")
	with(`"cap":-1`, "cap", "from 0 to 100000")
	with(`"cap":1.5`, "cap", "whole number")
	with(`"cap":100001`, "cap", "from 0 to 100000")
	with(`"cap":"5"`, "cap", "whole number")
	with(`"timeout":"30"`, "timeout", "with a unit")
	with(`"timeout":30`, "timeout", "with a unit")
	with(`"timeout":"0s"`, "timeout", `from "10ms"`)
	with(`"timeout":"-1s"`, "timeout", `from "10ms"`)
	with(`"timeout":"11m"`, "timeout", `to "10m"`)
	with(`"attempts":0`, "attempts", "from 1")
	with(`"attempts":-1`, "attempts", "from 1")
	with(`"on_limit":"queue"`, "on_limit", "defer or drop")
	with(`"on_limit":1`, "on_limit", "defer or drop")
	with(`"outcomes":{"404":"maybe"}`, "outcomes", "classes (delivered")
	with(`"outcomes":{"999":"rejected"}`, "outcomes", "statuses")
	with(`"outcomes":{"404":1}`, "outcomes", "classes")
	with(`"outcomes":[]`, "outcomes", "an object")
	with(`"outcomes":{"404":"rejected","404":"slow"}`, "outcomes.404", "must stand once")
	with(`"secrets":[]`, "secrets", "1 to 8 secrets")
	with(`"secrets":"whsec_x"`, "secrets", "a list")
	with(`"secrets":["whsec_MfKQ9r8G"]`, "secrets", "24 to 64 bytes")
	with(`"secrets":["hwsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]`, "secrets", "whsec_")
	with(`"secrets":[1]`, "secrets", "whsec_")
	with(`"secrets":null`, "secrets", "must not be null")
	with(`"paused":1`, "paused", "true or false")
	patch := func(body string, status int, code, field, rule string) {
		calls = append(calls, badCall{"PATCH", "/v1/subscriptions/" + id, asJSON, body, status, code, field, rule})
	}
	patch(`{"tenant":"acme"}`, 422, "invalid", "tenant", "is unknown")
	patch(`{"id":"sub_x"}`, 422, "invalid", "id", "is unknown")
	patch(`{"url":null}`, 422, "invalid", "url", "no default")
	patch(`{"topics":null}`, 422, "invalid", "topics", "no default")
	patch(`{"burst":5}`, 422, "invalid", "burst", "needs a rate")
	patch(`x`, 400, "bad-request", "body", "JSON object")
	for _, f := range []string{"rate", "burst", "cap", "timeout", "attempts", "on_limit", "outcomes", "paused"} {
		calls = append(calls, badCall{"POST", "/v1/subscriptions", asJSON, base + `"` + f + `":null}`, 422, "invalid", f, "must not be null; leave it out"})
	}
	return append(calls, badEndpoints(id)...)
}

// badEndpoints are wrong URLs, topics and paths of subscriptions.
func badEndpoints(id string) []badCall {
	var calls []badCall
	for url, rule := range map[string]string{
		`5`:                          "text",
		`""`:                         "http",
		`"acme.test/hook"`:           "http://",
		`"ftp://acme.test/"`:         "http://",
		`"https://"`:                 "host",
		`"https://u:p@acme.test/"`:   "user or password",
		`"https://acme.test:0/"`:     "port",
		`"https://acme.test:99999/"`: "port",
		`"https://ac me.test/"`:      "visible ASCII",
		`"https://acme.test/\n"`:     "visible ASCII",
		`"https://acme.test/ü"`:      "visible ASCII",
		`"http://10.0.0.1/"`:         "address not allowed",
		`"http://169.254.169.254/"`:  "address not allowed",
		`"http://[::1]/"`:            "address not allowed",
		`"http://0x7f.1/"`:           "host",
		`"https://acme.test/` + strings.Repeat("a", 9000) + `"`: "longer",
	} {
		calls = append(calls, badCall{"POST", "/v1/subscriptions", asJSON, `{"tenant":"acme","topics":["a"],"url":` + url + `}`, 422, "invalid", "url", rule})
	}
	for topics, rule := range map[string]string{
		`[]`:                                   "1 to 64 patterns",
		`"a"`:                                  "a list",
		`[1]`:                                  "a list",
		`[""]`:                                 "letters, digits",
		`["a..b"]`:                             "letters, digits",
		`["a.>.b"]`:                            "also >",
		`["a b"]`:                              "letters, digits",
		`["a","a"]`:                            "different patterns",
		`["a","b*"]`:                           "letters, digits",
		`["` + strings.Repeat("a", 257) + `"]`: "256 bytes",
		`["` + strings.Repeat(`a","`, 64) + `b"]`: "1 to 64",
	} {
		calls = append(calls, badCall{"POST", "/v1/subscriptions", asJSON, `{"tenant":"acme","url":"https://acme.test/","topics":` + topics + `}`, 422, "invalid", "topics", rule})
	}
	return append(calls,
		badCall{"POST", "/v1/subscriptions", asJSON, `{}`, 422, "invalid", "tenant", "is missing"},
		badCall{"POST", "/v1/subscriptions", asJSON, `{"tenant":"nobody","url":"https://acme.test/","topics":["a"]}`, 422, "unknown-tenant", "tenant", "names nobody"},
		badCall{"POST", "/v1/subscriptions", asJSON, `{"tenant":"removed","url":"https://acme.test/","topics":["a"]}`, 422, "unknown-tenant", "tenant", "names removed"},
		badCall{"GET", "/v1/subscriptions/sub_nope", "", "", 404, "not-found", "", "nothing of this id"},
		badCall{"PATCH", "/v1/subscriptions/sub_nope", asJSON, `{}`, 404, "not-found", "", "nothing of this id"},
		badCall{"DELETE", "/v1/subscriptions/sub_nope", "", "", 404, "not-found", "", "nothing of this id"},
		badCall{"GET", "/v1/subscriptions/sub_nope/deliveries", "", "", 404, "not-found", "", "nothing of this id"},
		badCall{"GET", "/v1/subscriptions/" + id + "/deliveries?limit=0", "", "", 400, "bad-request", "limit", "1 to 1000"},
		badCall{"GET", "/v1/subscriptions/" + id + "/", "", "", 404, "not-found", "", "no route"},
		badCall{"GET", "/v1/subscriptions?tenant=a%20b", "", "", 400, "bad-request", "tenant", "1 to 128"},
		badCall{"GET", "/v1/lanes/sub_nope", "", "", 404, "not-found", "", "nothing of this id"},
		badCall{"GET", "/v1/lanes?after=x", "", "", 400, "bad-request", "after", "next"},
		badCall{"GET", "/v1/account?x", "", "", 400, "bad-request", "x", "unknown parameter"},
		badCall{"POST", "/v1/lanes", asJSON, `{}`, 405, "method-not-allowed", "", "Allow"},
		badCall{"GET", "/v1/nothing", "", "", 404, "not-found", "", "no route"},
		badCall{"GET", "/", "", "", 404, "not-found", "", "no route"},
		badCall{"GET", "/favicon.ico", "", "", 404, "not-found", "", "no route"},
		badCall{"POST", "/healthz", "", "", 405, "method-not-allowed", "", "Allow"},
		badCall{"GET", "/v1/tenants", "Authorization: ", "", 401, "unauthorized", "", "Bearer"},
		badCall{"GET", "/v1/tenants", "Authorization: Bearer wrong", "", 401, "unauthorized", "", "Bearer"},
		badCall{"GET", "/v1/tenants", "Authorization: Basic " + testKey, "", 401, "unauthorized", "", "Bearer"},
		badCall{"GET", "/v1/tenants", "Authorization: Bearer " + testKey + "x", "", 401, "unauthorized", "", "Bearer"},
		badCall{"GET", "/v1/nothing", "Authorization: Bearer wrong", "", 401, "unauthorized", "", "Bearer"},
		badCall{"POST", "/v1/triggers/a", "Authorization: Bearer wrong\n" + okTenant, "x", 401, "unauthorized", "", "Bearer"},
		badCall{"GET", "/metrics", "Authorization: Bearer wrong", "", 401, "unauthorized", "", "Bearer"},
	)
}

// Field case 7.
// Field case 10.
// Field case 57.
// Field case 62.
// Field case 99.
func TestEverythingWrongIsRefusedByNameAndStoresNothing(t *testing.T) {
	s := start(t, "", func(c *Config) { c.MaxBody = 2000 })
	s.tenant("acme")
	s.tenant("removed")
	s.must(204, s.do("DELETE", "/v1/tenants/removed", nil))
	url, got := endpoint(t, 200)
	sub := s.subscribe("acme", url, `,"rate":"unlimited"`)
	id := sub.ID
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+id, strings.NewReader(`{"rate":null}`)))
	before, position := s.state(), s.Journal().Status().LastPosition
	for _, group := range [][]badCall{badTriggers(), badTenants(), badSubscriptions(url, id)} {
		for _, c := range group {
			s.refused(c)
		}
	}
	if after := s.state(); after != before {
		t.Errorf("something was stored:\n%s\n%s", before, after)
	}
	if p := s.Journal().Status().LastPosition; p != position {
		t.Errorf("the log grew from %d to %d", position, p)
	}
	if len(got) > 0 {
		t.Errorf("%d deliveries", len(got))
	}
	if strings.Contains(s.logs.String(), "panic") {
		t.Error(s.logs.String())
	}
}

// state is all that the registry shows.
func (s *service) state() string {
	return string(s.do("GET", "/v1/tenants", nil).body) + string(s.do("GET", "/v1/subscriptions", nil).body)
}

func (s *service) refused(c badCall) {
	s.t.Helper()
	var headers []string
	if c.headers != "" {
		headers = strings.Split(c.headers, "\n")
	}
	a := s.do(c.method, c.path, strings.NewReader(c.body), headers...)
	name := fmt.Sprintf("%s %.60s %.80q %.90s", c.method, c.path, c.headers, c.body)
	if a.status != c.status {
		s.t.Errorf("%s: status %d, want %d: %s", name, a.status, c.status, a.body)
		return
	}
	p := a.problem(s.t)
	if p.Type != "urn:fairlane:problem:"+c.code || p.Field != c.field {
		s.t.Errorf("%s: %s", name, a.body)
	}
	if !strings.Contains(p.Rule+p.Detail, c.rule) {
		s.t.Errorf("%s: want %q in %s", name, c.rule, a.body)
	}
	if c.status == 405 && a.header.Get("Allow") == "" || c.status == 401 && a.header.Get("WWW-Authenticate") == "" ||
		c.code == "unsupported-content-encoding" && a.header.Get("Accept-Encoding") != "identity" {
		s.t.Errorf("%s: headers %v", name, a.header)
	}
}

func TestAllWrongFieldsAreNamedAtOnce(t *testing.T) {
	s := start(t, "", nil)
	a := s.must(422, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":1,"rate":"x","cap":-1,"colour":"red"}`)))
	var fields []string
	for _, e := range a.problem(t).Errors {
		fields = append(fields, e.Field)
	}
	if got := strings.Join(fields, " "); got != "tenant rate cap url topics colour" {
		t.Errorf("named: %s", got)
	}
}

// Field case 7.
func TestACompressedBodyIsRefusedUnread(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	bomb := strings.Repeat("x", 1000) // whatever it would inflate to: it is not looked at
	for _, encoding := range []string{"gzip", "br", "gzip, gzip", "deflate"} {
		for _, path := range []string{"/v1/triggers/a", "/v1/triggers", "/v1/tenants"} {
			a := s.must(415, s.do("POST", path, strings.NewReader(bomb), okTenant, "Content-Encoding: "+encoding))
			if a.header.Get("Accept-Encoding") != "identity" || a.problem(t).Field != "Content-Encoding" {
				t.Errorf("%s %s: %v %s", path, encoding, a.header, a.body)
			}
			s.must(401, s.as("", "POST", path, bomb, okTenant, "Content-Encoding: "+encoding))
		}
	}
}

// An answer does not grow with how much is wrong.
func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `"x%d":1,`, i)
	}
	s := start(t, "", nil)
	a := s.must(422, s.do("POST", "/v1/subscriptions", strings.NewReader(`{`+b.String()+`"url":1}`)))
	if p := a.problem(t); len(p.Errors) != maxProblems {
		t.Errorf("%d problems in %d bytes, want %d", len(p.Errors), len(a.body), maxProblems)
	}
}
