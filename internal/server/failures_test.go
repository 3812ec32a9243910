package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

func TestEachErrorOfTheLogHasItsStatus(t *testing.T) {
	f := &fake{}
	_, call, logs := serveFake(t, f)
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
	}{
		{journal.ErrFull, 503, "full", "30"},
		{journal.ErrLowDisk, 503, "full", "30"},
		{fmt.Errorf("x: %w: y", journal.ErrUnavailable), 503, "unavailable", "2"},
		{fmt.Errorf("x: %w: y: %w", journal.ErrUnavailable, journal.ErrFull), 503, "unavailable", "2"},
		{journal.ErrStarting, 503, "stopping", "1"},
		{context.DeadlineExceeded, 503, "unavailable", "2"},
		{journal.ErrKeyConflict, 422, "idempotency-key-conflict", ""},
		{journal.ErrTooLarge, 413, "too-large", ""},
		{errors.New("something at /var/lib/secret-dir"), 500, "internal", ""},
	} {
		f.append = func(context.Context, *journal.Trigger) (journal.Receipt, error) { return journal.Receipt{}, c.err }
		a := call("POST", "/v1/triggers/a", okTenant)
		p := a.problem(t)
		if a.status != c.status || p.Type != "urn:fairlane:problem:"+c.code || a.header.Get("Retry-After") != c.retry {
			t.Errorf("%v: %d, Retry-After %q, %s", c.err, a.status, a.header.Get("Retry-After"), a.body)
		}
		if strings.Contains(string(a.body), "secret-dir") {
			t.Errorf("an answer tells what is inside: %s", a.body)
		}
	}
	if !strings.Contains(logs.String(), "secret-dir") {
		t.Error("the cause is not in the log")
	}
}

func TestErrorsOfTheRegistryHaveTheirStatus(t *testing.T) {
	f := &fake{}
	_, call, _ := serveFake(t, f)
	for _, c := range []struct {
		err    error
		status int
		field  string
	}{
		{fmt.Errorf("%w: x", fanout.ErrNotFound), 404, ""},
		{fmt.Errorf("%w: x", fanout.ErrInUse), 409, ""},
		{fmt.Errorf("%w: x", journal.ErrInUse), 409, ""},
		{fmt.Errorf("%w: x", journal.ErrGone), 409, ""},
		{fmt.Errorf("%w: rate: too fast", fanout.ErrInvalid), 422, ""},
		{&journal.FieldError{Field: "topics", Rule: "has 300 entries"}, 422, "topics"},
		{journal.ErrUnavailable, 503, ""},
		{journal.ErrTrimmed, 410, ""},
	} {
		f.write = c.err
		a := call("DELETE", "/v1/tenants/acme")
		if p := a.problem(t); a.status != c.status || p.Field != c.field {
			t.Errorf("%v: %d %s", c.err, a.status, a.body)
		}
	}
}

// Every code that is used stands in the table, with a status that is an error.
func TestEveryCodeHasAStatus(t *testing.T) {
	for c, row := range table {
		if row.status < 400 || row.title == "" {
			t.Errorf("%s: %+v", c, row)
		}
	}
}

// Field case 62.
func TestAPanicTellsNothing(t *testing.T) {
	_, call, logs := serveFake(t, &fake{})
	a := call("GET", "/v1/lanes/sub_x")
	if a.status != 500 {
		t.Errorf("status %d", a.status)
	}
	a.problem(t)
	if all := string(a.body) + logs.String(); strings.Contains(all, "SECRETPATH") || !strings.Contains(all, "panicked") {
		t.Error(all)
	}
	if a := call("GET", "/healthz"); a.status != 200 {
		t.Errorf("after a panic: %d", a.status)
	}
}

func TestPressureSlowsTheSource(t *testing.T) {
	f := &fake{over: map[string]time.Duration{}}
	_, call, _ := serveFake(t, f)
	f.over["acme"] = 1500 * time.Millisecond
	for _, c := range []struct {
		to     string
		status int
	}{{"acme", 429}, {"beta", 202}, {"acme,beta", 202}, {"*", 202}} {
		a := call("POST", "/v1/triggers/a", "Fairlane-Tenant: "+c.to)
		if a.status != c.status {
			t.Errorf("%s: %d %s", c.to, a.status, a.body)
		}
		if c.status == 429 && a.header.Get("Retry-After") != "2" {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
	f.over["beta"] = 0
	a := call("POST", "/v1/triggers/a", "Fairlane-Tenant: acme,beta")
	if p := a.problem(t); a.status != 429 || p.Type != "urn:fairlane:problem:over-quota" || a.header.Get("Retry-After") != "1" {
		t.Errorf("all over: %d, %v, %s", a.status, a.header, a.body)
	}
	if n := len(f.stored); n != 3 {
		t.Errorf("%d stored", n)
	}
}

func TestRetryAfterIsWholeSecondsAndNeverEarly(t *testing.T) {
	for d, want := range map[time.Duration]string{1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90", time.Hour - 1: "3600"} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
		if n, err := strconv.Atoi(want); err != nil || time.Duration(n)*time.Second < d {
			t.Errorf("%v: %s is early", d, want)
		}
	}
}

func TestHealthAndReadiness(t *testing.T) {
	f := &fake{}
	s, call, _ := serveFake(t, f)
	check := func(path string, status int, body string) {
		t.Helper()
		a := call("GET", path, "Authorization: ")
		if a.status != status || strings.TrimSpace(string(a.body)) != body {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	check("/healthz", 200, `{"status":"ok"}`)
	check("/readyz", 200, `{"ready":true}`)
	f.ready = fmt.Errorf("block 7 of /var/lib/x: %w", journal.ErrDamaged)
	check("/healthz", 200, `{"status":"ok"}`)
	check("/readyz", 503, `{"ready":false,"reason":"journal: damaged"}`)
	f.ready = fmt.Errorf("a: %w", errors.New("b"))
	check("/readyz", 503, `{"ready":false,"reason":"not ready; the cause is in the log"}`)
	f.ready = nil
	s.Stopping()
	check("/readyz", 503, `{"ready":false,"reason":"stopping"}`)
	if a := call("POST", "/v1/triggers/a", okTenant); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("a post while stopping: %d %v", a.status, a.header)
	}
	if len(f.stored) != 0 {
		t.Error("stored while stopping")
	}
}

func TestTheKeyIsAskedForEverywhere(t *testing.T) {
	f := &fake{}
	_, call, _ := serveFake(t, f)
	for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer " + testKey[:len(testKey)-1], "Basic " + testKey, testKey, "Bearer " + testKey + " x"} {
		for _, route := range []string{"POST /v1/triggers/a", "GET /v1/tenants", "PUT /v1/tenants/a", "DELETE /v1/subscriptions/x", "GET /v1/lanes", "GET /v1/account", "GET /v1/x", "PATCH /v1/tenants/a"} {
			method, path, _ := strings.Cut(route, " ")
			if a := call(method, path, "Authorization: "+auth, okTenant); a.status != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d", route, auth, a.status)
			}
		}
	}
	if a := call("POST", "/v1/triggers/a", "Authorization: bearer  "+testKey, okTenant); a.status != 202 {
		t.Errorf("the scheme's case or blanks matter: %d %s", a.status, a.body)
	}
	if a := call("GET", "/v1/account", "Authorization: Bearer "+testKey, "X: y"); a.status != 200 {
		t.Errorf("the key: %d", a.status)
	}
}

// Who takes no triggers is not ready for them.
func TestAFullDiskIsNotReady(t *testing.T) {
	s := start(t, "", func(c *Config) { c.Ballast = 1 << 60 })
	if r := s.do("GET", "/readyz", nil); r.status != 503 || !strings.Contains(string(r.body), "free space") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/healthz", nil); r.status != 200 {
		t.Errorf("health: %d", r.status)
	}
}
