package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// traced is a replay of docs/simulator.md and what the page says that it prints.
var traced = regexp.MustCompile("```sh\n(fairlane sim trace .*)\n```\n```(?:text|json)\n((?s:.*?))```\n")

// Every replay of docs/simulator.md prints what the page says.
func TestTracesOfTheSimulatorPageAreCurrent(t *testing.T) {
	t.Chdir("../..")
	const page = "docs/simulator.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	now := traced.ReplaceAllStringFunc(string(text), func(block string) string {
		m := traced.FindStringSubmatch(block)
		commands++
		out := ok(t, strings.Fields(m[1])[1:]...)
		if out != m[2] && !*update {
			t.Errorf("%s prints\n%s\nthe page says\n%s", m[1], out, m[2])
		}
		return strings.TrimSuffix(block, m[2]+"```\n") + out + "```\n"
	})
	if commands != 2 {
		t.Errorf("%d replays on the page", commands)
	}
	if *update {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The flags of every export of the page exist.
func TestExportsOfTheSimulatorPageAreUnderstood(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(text)) {
		args, ok := strings.CutPrefix(line, "fairlane export ")
		if !ok {
			continue
		}
		commands++
		args, _, _ = strings.Cut(args, ">")
		if err := newExportCmd().ParseFlags(strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if commands != 2 {
		t.Errorf("%d exports on the page", commands)
	}
}
