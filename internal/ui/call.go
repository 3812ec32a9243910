package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// apiError is why something was not done: a problem of the API's, or one of the pages' own.
type apiError struct {
	Status int
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Field string `json:"field"`
		Rule  string `json:"rule"`
	} `json:"errors"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Title, e.Detail) }

// errNothing is what an address says that has no page, or none for this visitor.
var errNothing = &apiError{Status: http.StatusNotFound, Title: "There is nothing here", Detail: "the address names nothing that you may see"}

// call asks the API with the visitor's authority. in is sent as JSON unless nil; the answer goes into out
// unless nil. A refusal is an *apiError.
func (u *UI) call(v *visit, method, path string, in, out any) error {
	body := []byte{}
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(v.Context(), method, path, bytes.NewReader(body))
	if err != nil {
		return errNothing // a path that nobody but a person with an odd address asks for
	}
	r.RemoteAddr, r.Host = v.RemoteAddr, v.Host
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if v.link != nil {
		r = u.o.As(r, v.link.tenant)
	} else {
		r.Header.Set("Authorization", "Bearer "+v.key)
	}
	a := &recorded{header: http.Header{}, status: http.StatusOK}
	u.o.API.ServeHTTP(a, r)
	return a.into(out)
}

// recorded is an answer of the API in this process.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *recorded) Header() http.Header         { return a.header }
func (a *recorded) WriteHeader(status int)      { a.status = status }
func (a *recorded) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *recorded) into(out any) error {
	if a.status >= 400 {
		e := &apiError{}
		if json.Unmarshal(a.body.Bytes(), e) != nil || e.Title == "" {
			e.Title = http.StatusText(a.status)
		}
		e.Status = a.status
		return e
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(a.body.Bytes(), out)
}

// path joins segments that came from outside into a path of the API.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(escapePath(s))
	}
	return b.String()
}

// asProblem is how err is shown.
func asProblem(err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	return &apiError{Status: http.StatusInternalServerError, Title: "This page could not be made", Detail: "try again; if it stays so, the service's log has the cause"}
}
