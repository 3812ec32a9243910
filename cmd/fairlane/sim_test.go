package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func simOutput(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(context.Background(), append([]string{"sim"}, args...), &out, &errs); got != code {
		t.Fatalf("fairlane sim %v: exit code %d, want %d: %s", args, got, code, errs.String())
	}
	return out.String(), errs.String()
}

func TestSimListNamesEveryScenario(t *testing.T) {
	text, _ := simOutput(t, exitOK, "list")
	for _, name := range []string{"burst", "none global hold queue drop defer fair", "black-hole", "outage"} {
		if !strings.Contains(text, name) {
			t.Errorf("%q is missing in\n%s", name, text)
		}
	}
	text, _ = simOutput(t, exitOK, "list", "--json")
	var list []struct {
		Scenario, About string
		Policies        []string
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) < 11 || len(list[0].Policies) == 0 || list[0].About == "" {
		t.Errorf("%v: %s", err, text)
	}
}

func TestSimRunPrintsATableOrJSON(t *testing.T) {
	text, _ := simOutput(t, exitOK, "run", "noisy-neighbour")
	for _, want := range []string{"quiet_median_ms", "970 (982)", "work-conserving", "In brackets"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	text, _ = simOutput(t, exitOK, "run", "black-hole", "--json", "--seed", "3", "--policy", "cap")
	var r struct {
		Scenario string
		Seed     uint64
		Rows     []struct {
			Table, Policy string
			Figures       map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if r.Scenario != "black-hole" || r.Seed != 3 || len(r.Rows) != 2 || r.Rows[0].Policy != "cap" || r.Rows[1].Table != "others-300" {
		t.Errorf("%+v", r)
	}
}

func TestSimShowIsWhereAUserBegins(t *testing.T) {
	text, _ := simOutput(t, exitOK, "show", "window-edge")
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	mine, _ := simOutput(t, exitOK, "run", file)
	theirs, _ := simOutput(t, exitOK, "run", "window-edge")
	if mine != strings.Replace(theirs, "window-edge:", "mine:", 1) {
		t.Errorf("a copy runs differently:\n%s\n%s", mine, theirs)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(text, "limit: 120", "limit: many", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	_, why := simOutput(t, exitFailed, "run", file)
	if !strings.Contains(why, "mine.yaml:") || !strings.Contains(why, "limiter.limit: must be a whole number from 1 to 1000000, found \"many\"") {
		t.Error(why)
	}
}

func TestSimRunDraws(t *testing.T) {
	dir := t.TempDir()
	for name, magic := range map[string]string{"a.svg": "<?xml", "b.png": "\x89PNG"} {
		file := filepath.Join(dir, name)
		simOutput(t, exitOK, "run", "black-hole", "--plot", file)
		if b, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(b, []byte(magic)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []string{"noisy-neighbour", "window-edge", "fan-out-tail", "clock-step"} {
		simOutput(t, exitOK, "run", s, "--plot", filepath.Join(dir, s+".svg"))
	}
	_, why := simOutput(t, exitUsage, "run", "black-hole", "--plot", "x.gif")
	if !strings.Contains(why, ".svg or .png") {
		t.Error(why)
	}
}

func TestSimSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{exitUsage, []string{"run"}, "1 arg"},
		{exitFailed, []string{"run", "nothing"}, "sim list"},
		{exitFailed, []string{"run", "black-hole", "--policy", "nobody"}, "shared, cap, breaker"},
		{exitFailed, []string{"show", "nothing"}, "no scenario"},
		{exitUsage, []string{"run", "burst", "--seed", "-1"}, "seed"},
	} {
		if _, why := simOutput(t, c.code, c.args...); !strings.Contains(why, c.want) {
			t.Errorf("%v: %s", c.args, why)
		}
	}
}

// A run that is interrupted ends at once, with an error.
func TestSimRunCanBeInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"sim", "run", "burst"}, &out, &errs); code != exitFailed || out.Len() > 0 {
		t.Errorf("code %d, printed %q", code, out.String())
	}
}
