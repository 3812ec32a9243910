package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite what docs/planning.md says that its commands print")

// printed is a command of a page and what the page says that it prints.
var printed = regexp.MustCompile("```sh\n(fairlane plan .*)\n```\n```(?:text|json)\n((?s:.*?))```\n")

// Every command of docs/planning.md prints what the page says.
func TestPlanningPageIsCurrent(t *testing.T) {
	const page = "../../docs/planning.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	now := printed.ReplaceAllStringFunc(string(text), func(block string) string {
		m := printed.FindStringSubmatch(block)
		commands++
		_, out, errs := command(t, strings.Fields(m[1])[1:]...)
		if now := out + errs; now != m[2] {
			if !*update {
				t.Errorf("%s prints\n%s\nthe page says\n%s", m[1], now, m[2])
			}
			return strings.TrimSuffix(block, m[2]+"```\n") + now + "```\n"
		}
		return block
	})
	if commands < 8 {
		t.Errorf("%d commands on the page", commands)
	}
	if *update {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
