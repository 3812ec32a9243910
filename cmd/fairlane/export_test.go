package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlane-dev/fairlane/sim/scenario"
)

type traceEntry struct {
	T                             float64
	Tenant, Subscription, Outcome string
	Size, Attempts                int
	Latency                       float64
}

// exportOf runs the command and reads what it printed, as strictly as the simulator does.
func exportOf(t *testing.T, args ...string) (text string, list []traceEntry) {
	t.Helper()
	text = ok(t, append([]string{"export"}, args...)...)
	if _, err := scenario.ReadTrace("trace.jsonl", strings.NewReader(text)); text != "" && err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var e traceEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return text, list
}

// settled waits until a running service's export tells of n deliveries that have ended.
func settled(t *testing.T, n int, args ...string) (list []traceEntry) {
	t.Helper()
	soon(t, fmt.Sprint(n, " deliveries have ended"), func() bool {
		_, list = exportOf(t, args...)
		ended := 0
		for _, e := range list {
			if e.Outcome != "parked" {
				ended++
			}
		}
		return ended == n
	})
	return list
}

// A running service and its directory tell the same, without a word of what was sent, and the simulator takes it.
func TestExportIsATraceWithoutPayloads(t *testing.T) {
	t.Setenv(adminKeyVar, "")
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/reject") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(endpoint.Close)
	dir := t.TempDir()
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	s.useKey(t)
	for tenant, path := range map[string]string{"acme": "/hook/SECRETPATH", "beta": "/reject"} {
		ok(t, "tenant", "create", tenant, "--server", s.url)
		ok(t, "subscription", "create", "--tenant", tenant, "--url", endpoint.URL+path, "--topic", "orders.>", "--server", s.url)
	}
	for range 5 {
		post(t, s.url, "acme, beta", "orders.paid", "SECRETBODY")
	}
	running := settled(t, 10, "--server", s.url)
	if one := settled(t, 5, "--server", s.url, "--tenant", "beta"); one[0].Tenant != "beta" || one[4].Tenant != "beta" {
		t.Errorf("--tenant beta: %+v", one)
	}
	if code, _, errs := command(t, "export", "--data", dir); code != exitFailed || !strings.Contains(errs, "--server") {
		t.Errorf("of a directory in use: %d %q", code, errs)
	}
	if code := s.stop(t); code != exitOK {
		t.Fatalf("exit %d: %s", code, s.errs)
	}
	text, stopped := exportOf(t, "--data", dir)
	if strings.Contains(text, "SECRET") || strings.Contains(text, "orders") || len(stopped) != 10 {
		t.Fatalf("the trace:\n%s", text)
	}
	want := map[string]string{"acme": "delivered", "beta": "dead"}
	for i, e := range stopped {
		if e.Size != 10 || e.Attempts != 1 || e.Latency <= 0 || e.Outcome != want[e.Tenant] || i > 0 && e.T < stopped[i-1].T {
			t.Errorf("line %d: %+v", i, e)
		}
		if math.Abs(e.T-running[i].T) > 5 {
			t.Errorf("line %d: offered at %f, while it ran at %f", i, e.T, running[i].T)
		}
	}
	if again, _ := exportOf(t, "--data", dir); again != text {
		t.Error("reading changed what is read")
	}
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, "sim", "trace", file, "--set", "acme:rate=1/s", "--set", "acme:burst=1"); !strings.HasPrefix(out, "10 deliveries of 2 tenants") {
		t.Error(out)
	}
}

func TestExportRefusesWhatItCannotRead(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "--data DIR or --server URL"},
		{[]string{"--data", empty, "--server", "http://127.0.0.1:1"}, exitUsage, "exclude each other"},
		{[]string{"--data", empty}, exitFailed, "holds no journal"},
	} {
		if code, _, errs := command(t, append([]string{"export"}, c.args...)...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d %q", c.args, code, errs)
		}
	}
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Errorf("export made %v", left)
	}
}
