package server

import (
	"bytes"
	"io"
	"net/http"
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
