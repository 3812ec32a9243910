package server

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// conformance holds traffic against the document; one for the whole package.
var conformance = sync.OnceValues(func() (validator.Validator, error) {
	d, err := libopenapi.NewDocument(openAPI("test"))
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(d)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return v, nil
})

var conforming sync.Mutex

// conform holds one answer, and the request if it was accepted, against the document. Every request that a
// test of this package sends comes by here.
func conform(t *testing.T, req *http.Request, sent string, a answer) {
	t.Helper()
	v, err := conformance()
	if err != nil {
		t.Fatal(err)
	}
	conforming.Lock()
	defer conforming.Unlock()
	resp := &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)), Request: req}
	copied := req.Clone(t.Context())
	copied.Body = io.NopCloser(strings.NewReader(sent))
	bytesAsTheyAre := strings.HasPrefix(req.URL.Path, "/v1/triggers") || strings.HasSuffix(req.URL.Path, "/test")
	if copied.Header.Get("Content-Type") == "" {
		copied.Header.Set("Content-Type", "application/json") // which may be left out
	}
	ok, problems := v.ValidateHttpResponse(copied, resp)
	if ok && a.status/100 == 2 && sent != "" && !bytesAsTheyAre {
		copied.Body = io.NopCloser(strings.NewReader(sent))
		ok, problems = v.ValidateHttpRequest(copied)
	}
	if !ok {
		for _, p := range problems {
			if p.IsPathMissingError() || p.IsOperationMissingError() {
				continue // every route is in the document: TestTheDocumentIsValidAndHasEveryRoute
			}
			t.Errorf("%s %s: %d: not as the document says: %s %s", req.Method, req.URL.Path, a.status, p.Message, p.Reason)
			for _, s := range p.SchemaValidationErrors {
				t.Errorf("  %s: %s", s.KeywordLocation, s.Reason)
			}
		}
	}
}

func TestTheDocumentIsValidAndHasEveryRoute(t *testing.T) {
	v, err := conformance()
	if err != nil {
		t.Fatal(err)
	}
	if ok, problems := v.ValidateDocument(); !ok {
		for _, p := range problems {
			t.Errorf("%s: %s %v", p.Message, p.Reason, p.SchemaValidationErrors)
		}
	}
	s := start(t, "", nil)
	a := s.must(200, s.as("", "GET", "/openapi.json", ""))
	var d struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	a.into(t, &d)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("version %q", d.OpenAPI)
	}
	for i := range routes {
		if d.Paths[routes[i].path][strings.ToLower(routes[i].method)] == nil {
			t.Errorf("%s is missing", routes[i].pattern())
		}
	}
}

// What may be null is so in the document, and nothing else is: null restores a default in a patch, and is refused
// elsewhere.
func TestTheDocumentSaysWhatMayBeNull(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	sub := s.subscribe("acme", "https://acme.test/", "").ID
	v, err := conformance()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, base string
		in                 any
	}{
		{"PATCH", "/v1/tenants/acme", "", tenantPatch{}},
		{"PATCH", "/v1/subscriptions/" + sub, "", subscriptionPatch{}},
		{"PUT", "/v1/tenants/acme", "", tenantIn{}},
		{"POST", "/v1/subscriptions", `"tenant":"acme","url":"https://acme.test/","topics":["a"],`, subscriptionIn{}},
	} {
		nulls := 0
		for _, name := range members(reflect.TypeOf(c.in)) {
			if strings.Contains(c.base, `"`+name+`":`) {
				continue
			}
			body := "{" + c.base + `"` + name + `":null}`
			taken := s.do(c.method, c.path, strings.NewReader(body)).status/100 == 2
			req, err := http.NewRequest(c.method, s.URL()+c.path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+testKey)
			req.Header.Set("Content-Type", "application/json")
			conforming.Lock()
			documented, _ := v.ValidateHttpRequest(req)
			conforming.Unlock()
			if documented != taken {
				t.Errorf("%s %s %s: taken %t, by the document %t", c.method, c.path, body, taken, documented)
			}
			if taken {
				nulls++
			}
		}
		if patch := c.method == "PATCH"; patch != (nulls > 0) {
			t.Errorf("%s %s takes %d nulls", c.method, c.path, nulls)
		}
	}
}
