package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/sim"
)

const good = `
about: a test
duration: 10s
drain: 1m
slots: 4
columns: [a_p99_ms, jain]
literature: {a_p99_ms: {fair: 20}}
groups:
  a:
    tenants: 2
    arrivals: [{kind: constant, rate: 10/s}]
    endpoint: {latency: {fixed: 20ms}}
  b:
    arrivals: [{kind: poisson, rate: 6.1/s, from: 1s, to: 5s}]
policies:
  fair: {about: shipped}
  other: {order: arrival, all: {cap: 4}, groups: {b: {rate: 10/m, deny: queue}}}
tables:
  one: {}
  two: {groups: {a: {endpoint: {latency: {fixed: 40ms}}}}}
`

func TestAUsersFileRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "mine" || len(r.Rows) != 4 || r.Rows[2].Table != "two" || r.Rows[2].Policy != "fair" {
		t.Fatalf("name %q, rows %+v", s.Name, r.Rows)
	}
	for i, want := range []float64{20, 20, 40, 40} {
		if got := r.Rows[i].Figures["a_p99_ms"]; got != want {
			t.Errorf("row %d: p99 %v ms, want %v", i, got, want)
		}
	}
	if q := r.Rows[1].Figures["b_p50_ms"]; q < 1000 {
		t.Errorf("a policy's own rate has no effect: p50 %v ms", q)
	}
}

// One seed prints the same bytes, another does not.
func TestOneSeedPrintsTheSameBytes(t *testing.T) {
	print := func(seed uint64) []byte {
		s, err := Parse("mine.yaml", []byte(good))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if a := print(7); !bytes.Equal(a, print(7)) || bytes.Equal(a, print(8)) {
		t.Error("one seed must give one result, another seed another")
	}
	var shape struct {
		Scenario string
		Seed     uint64
		Rows     []struct {
			Policy  string
			Figures map[string]float64
		}
	}
	d := json.NewDecoder(bytes.NewReader(print(7)))
	if err := d.Decode(&shape); err != nil || shape.Scenario != "mine" || shape.Seed != 7 || len(shape.Rows) != 4 || len(shape.Rows[0].Figures) < 20 {
		t.Errorf("%v, %+v", err, shape)
	}
}

// Every mistake is refused with file, line, field and rule.
func TestEveryMistakeIsRefusedWithLineFieldAndRule(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"slots: 4", "slots: 0", "mine.yaml:5:1: slots: must be a whole number from 1 to 1000000, found \"0\""},
		{"slots: 4", "slot: 4", "mine.yaml:5:1: slot: is unknown; known here: name, about, kind"},
		{"slots: 4", "slots: 4\nslots: 5", "mine.yaml:6:1: slots: must stand once; it stands in line 5 too"},
		{"duration: 10s", "duration: 10", "mine.yaml:3:1: duration: must be a duration with a unit (20ms, 15s, 2h) from 1ms to 720h0m0s, found \"10\""},
		{"duration: 10s\n", "", "duration: must be given"},
		{"rate: 10/s", "rate: -1/s", "mine.yaml:11:33: groups.a.arrivals[0].rate: must be a rate above 0"},
		{"rate: 10/s", "rate: 0", "groups.a.arrivals[0].rate: must be a rate above 0"},
		{"kind: constant, rate", "kind: often, rate", "groups.a.arrivals[0].kind: must be one of constant, poisson"},
		{"{kind: constant, rate: 10/s}", "{kind: sine, rate: 10/s}", "groups.a.arrivals[0].period: must be given for kind sine"},
		{"{kind: constant, rate: 10/s}", "{kind: constant}", "groups.a.arrivals[0].rate: must be given for kind constant"},
		{"[{kind: constant, rate: 10/s}]", "[]", "groups.a.arrivals: must be a list of 1 to 1000 mappings"},
		{"    arrivals: [{kind: constant, rate: 10/s}]\n", "", "groups.a.arrivals: must have at least one process"},
		{"from: 1s, to: 5s", "from: 6s, to: 5s", "groups.b.arrivals[0].from: must be before its end"},
		{"{fixed: 20ms}", "{fixed: 20ms, mean: 1s, p99: 2s}", "groups.a.endpoint.latency: must have one form"},
		{"{fixed: 20ms}", "{mean: 20ms}", "must have both mean and p99"},
		{"{fixed: 20ms}", "{mean: 20ms, p99: 1s}", "p99 from 1 to 14 times the mean"},
		{"tenants: 2", "tenants: 200000", "groups.a.tenants: must be a whole number from 1 to 100000"},
		{"tenants: 2", "tenants: 2\n    subscriptions: 60000", "groups: must have at most 100000 subscriptions in all"},
		{"order: arrival", "order: random", "policies.other.order: must be one of fair, arrival"},
		{"rate: 10/m, deny: queue", "deny: queue", "needs a rate that is a number"},
		{"groups: {b: {rate", "groups: {c: {rate", "policies.other.groups.c: must be one of the groups: a, b"},
		{"cap: 4", "cpa: 4", "policies.other.all.cpa: is unknown"},
		{"jain]", "jane]", "columns: must be figures of this scenario, found \"jane\""},
		{"{fair: 20}", "{fare: 20}", "literature.a_p99_ms.fare: must be one of the policies: fair, other"},
		{"slots: 4", "slots: [4", "is not valid YAML"},
		{"slots: 4", "slots: &x 4", "found an anchor"},
		{"about: a test", "kind: slots", "tenants: must name at least one tenant"},
		{"about: a test", "kind: limiter", "limiter: must have a limit and a window"},
		{"about: a test", "measure: {from: 5s, to: 4s}", "measure: must end after it begins"},
		{"about: a test", "about: a test\x00", "must be text in UTF-8"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%q is not in the file", c.old)
		}
		_, err := Parse("mine.yaml", []byte(strings.Replace(good, c.old, c.new, 1)))
		var p Problems
		if !errors.As(err, &p) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s:\n%v\nwant %s", c.old, c.new, err, c.want)
		}
	}
}

func TestAllMistakesAreReportedInOrder(t *testing.T) {
	text := strings.NewReplacer("slots: 4", "slots: 0", "order: arrival", "order: no").Replace(good)
	_, err := Parse("mine.yaml", []byte(text))
	var p Problems
	if !errors.As(err, &p) || len(p) != 2 || p[0].Line != 5 || p[1].Field != "policies.other.order" {
		t.Errorf("%v", err)
	}
}

// Nothing that stands in a file makes reading or running panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	files, err := filepath.Glob("files/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no files", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := Parse("x.yaml", text); err == nil && (len(s.policies) == 0 || s.Kind == "") {
			t.Error("a scenario without rows is accepted")
		}
	})
}

func TestShippedScenariosAreComplete(t *testing.T) {
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"burst": "none global hold queue drop defer fair", "black-hole": "shared cap breaker",
		"retry-storm": "per-request shared-pool budget", "herd": "none equal decorrelated full",
		"noisy-neighbour": "shared hard work-conserving", "fan-out-tail": "wait-for-all per-subscription without-pathological",
		"window-edge": "fixed sliding approximate bucket", "replicas": "independent partitioned shared",
		"clock-step": "wall monotonic", "many-keys": "by-subscription by-tenant", "outage": "",
	}
	if len(all) != len(want) {
		t.Errorf("%d scenarios, want %d", len(all), len(want))
	}
	for _, s := range all {
		rows, known := want[s.Name]
		if got := strings.Join(s.PolicyNames(), " "); !known || rows != "" && got != rows {
			t.Errorf("%s: policies %q, want %q", s.Name, got, rows)
		}
		if s.About == "" || len(s.Columns) == 0 {
			t.Errorf("%s: about and columns must be given", s.Name)
		}
		for _, p := range s.policies {
			if p.About == "" {
				t.Errorf("%s: policy %s says nothing about itself", s.Name, p.Name)
			}
		}
	}
}

func TestLoadSaysWhatThereIs(t *testing.T) {
	if _, err := Load("no-such"); err == nil || !strings.Contains(err.Error(), "sim list") {
		t.Error(err)
	}
	if _, err := Load("/no/such.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Source("no-such"); err == nil {
		t.Error("a source of nothing")
	}
}

func TestOnlyRunsOnePolicy(t *testing.T) {
	s, err := Parse("mine.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(Options{Only: "other"}); err != nil || len(r.Rows) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.Run(Options{Only: "none"}); err == nil || !strings.Contains(err.Error(), "fair, other") {
		t.Error(err)
	}
}

func TestProgressRisesAndCanStop(t *testing.T) {
	s, err := Parse("mine.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	last := -1.0
	_, err = s.Run(Options{Progress: func(row string, part float64) bool {
		last = part
		return row == "one, fair"
	}})
	if err == nil || last < 0 || last > 1 {
		t.Errorf("%v, %v", err, last)
	}
}

func TestEqualDefaultsAsTheService(t *testing.T) {
	g := newGroup("x")
	p := g.profile()
	if p.Cap != 16 || p.Timeout != 15*time.Second || p.Horizon != 72*time.Hour || p.NoBudget || p.Breaker.Off || !p.Rate.IsUnlimited() {
		t.Errorf("%+v", p)
	}
}

// Whoever drives a scenario himself gets the setup that Run uses.
func TestSetupIsThatOfARow(t *testing.T) {
	s, err := Parse("mine.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	setup, err := s.Setup("two", "other", 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := sim.Run(setup)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(Options{Seed: 1, Only: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if f.Jain != r.Rows[1].Figures["jain"] || f.Groups[0].Attempts != uint64(r.Rows[1].Figures["a_attempts"]) {
		t.Error("it runs differently")
	}
	if _, err := s.Setup("", "other", 1); err == nil {
		t.Error("a table that does not exist")
	}
}
