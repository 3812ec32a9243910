package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimTraceShowsTenantsBeforeAndAfter(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `{"t": %v, "tenant": "noisy", "subscription": "s", "outcome": "delivered", "latency": 0.1}`+"\n", float64(i)/100)
		fmt.Fprintf(&b, `{"t": %v, "tenant": "quiet", "subscription": "s", "outcome": "delivered", "latency": 0.05}`+"\n", float64(i)/100)
	}
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	text, _ := simOutput(t, exitOK, "trace", file, "--set", "noisy:rate=10/s")
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(lines[0], "2000 deliveries of 2 tenants in 10 s") || !strings.HasPrefix(lines[3], `"noisy"`) {
		t.Errorf("the tenant that changes most must come first:\n%s", text)
	}
	text, _ = simOutput(t, exitOK, "trace", file, "--set", "noisy:rate=10/s", "--json")
	var r traceReport
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	noisy, quiet := r.Tenants[0], r.Tenants[1]
	if noisy.Before.P99 > 110 || noisy.After.P99 < 10_000 || noisy.After.Delivered != 1000 || quiet.Before != quiet.After {
		t.Errorf("%+v", r)
	}
	plot := filepath.Join(t.TempDir(), "trace.svg")
	simOutput(t, exitOK, "trace", file, "--set", "noisy:rate=10/s", "--plot", plot)
	if b, err := os.ReadFile(plot); err != nil || !strings.Contains(string(b), "noisy") || !strings.Contains(string(b), "after") {
		t.Errorf("the picture: %v", err)
	}
	simOutput(t, exitUsage, "trace", file, "--plot", "trace.pdf")
	if _, why := simOutput(t, exitUsage, "trace", file, "--set", "nobody:cap=1"); !strings.Contains(why, "no tenant") {
		t.Error(why)
	}
	simOutput(t, exitFailed, "trace", file+".missing")
}
