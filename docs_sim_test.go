package fairlane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlane-dev/fairlane/sim/scenario"
)

func TestScenarioFieldsAreCurrent(t *testing.T) {
	var lines []string
	for _, f := range scenario.Fields() {
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", f.Path, f.Rule, f.About))
	}
	generated(t, "simulator.md", "scenario fields", rows("field | must be | meaning", lines))
}

// The printed tables are those of the shipped scenarios. The long ones are run with -update only.
func TestScenarioTablesAreCurrent(t *testing.T) {
	long := map[string]bool{"burst": true, "black-hole": true, "retry-storm": true, "many-keys": true, "outage": true}
	all, err := scenario.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if long[s.Name] && !*update {
			continue
		}
		r, err := s.Run(scenario.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := s.WriteText(&text, r); err != nil {
			t.Fatal(err)
		}
		generated(t, "simulator.md", "sim run "+s.Name, "\n```\n"+strings.TrimRight(text.String(), "\n")+"\n```\n\n")
	}
}

// The page's own scenario is one, and its mistakes are refused as it says.
func TestScenarioOfThePageRuns(t *testing.T) {
	var yaml, mistakes string
	for _, b := range blocks(page(t, "simulator.md")) {
		switch {
		case b.lang == "yaml":
			yaml = b.text
		case strings.HasPrefix(b.text, "mine.yaml:"):
			mistakes = b.text
		}
	}
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(scenario.Options{}); err != nil {
		t.Error(err)
	}
	wrong := strings.NewReplacer("slots: 100", "slots: none", "rate: 30/s", `rate: "30"`, "order: arrival, ", "").Replace(yaml)
	if _, err := scenario.Parse("mine.yaml", []byte(wrong)); err == nil || err.Error()+"\n" != mistakes {
		t.Errorf("the page says\n%sthe error is\n%v", mistakes, err)
	}
}
