package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/config"
)

func deployed(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

// What is in deploy/ starts commands that exist, with flags that they know.
func TestDeployedCommandsExist(t *testing.T) {
	lines := deployed(t, "systemd/fairlane.service", `(?m)^Exec\w+=/usr/local/bin/fairlane (.*)$`)
	for _, list := range deployed(t, "container/Dockerfile", `(?m)^CMD (.*)$`) {
		var args []string
		if err := json.Unmarshal([]byte(list), &args); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Join(args, " "))
	}
	if len(lines) != 3 {
		t.Fatalf("commands: %q", lines)
	}
	for _, line := range lines {
		cmd, rest, err := newRoot().Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil && (cmd.Args == nil || !cmd.HasParent()) {
			t.Errorf("%s: is no command", line)
		}
		if err == nil && cmd.Args != nil {
			err = cmd.Args(cmd, cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A stop is given the time that it may take: what is in flight may finish, then the last outcomes and a checkpoint.
func TestTheUnitLetsTheServiceStop(t *testing.T) {
	const lastWrites = 25 * time.Second // docs/operating.md, "Stop"
	got := deployed(t, "systemd/fairlane.service", `(?m)^TimeoutStopSec=(\d+)$`)
	if len(got) != 1 {
		t.Fatalf("TimeoutStopSec: %q", got)
	}
	if s, _ := strconv.Atoi(got[0]); time.Duration(s)*time.Second < config.Default().Server.StopGrace+lastWrites {
		t.Errorf("%s s are less than the grace and %v", got[0], lastWrites)
	}
}
