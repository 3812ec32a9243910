package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTiersByCommand(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.yaml")
	text := "server: {listen: \"127.0.0.1:0\"}\ndata: {dir: " + dir + "/d, max_bytes: 256MiB, ballast: 0B}\n" +
		"tiers: {pro: {weight: 3, cap_auto: {min: 2, max: 9}, backlog: 20GiB, inbound: {share: 6}}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := regexp.MustCompile("(?s)```sh\n(fairlane tier [^`]*)```\n```text\n(.*?)```").FindStringSubmatch(string(api))
	if page == nil {
		t.Fatal("docs/api.md has no example")
	}
	t.Setenv(keyVar, "")
	t.Setenv(adminKeyVar, "a-key-of-the-tiers-test")
	s := startServe(t, "--config", path)
	call := func(args ...string) []string { return append(append([]string{"tier"}, args...), "--server", s.url) }
	gold := "tier           gold\nweight         2\nrate           100/s\nburst          500\ncap            1 (auto 1 to 8)\n" +
		"backlog        3GiB\nsubscriptions  7\ninbound        20/s, burst 60, share 4\nset by         API\n"
	full := []string{"put", "gold", "--weight", "2", "--rate", "100/s", "--burst", "500", "--cap", "1", "--cap-auto-max", "8", "--backlog", "3GiB",
		"--subscriptions", "7", "--inbound-rate", "20/s", "--inbound-burst", "60", "--inbound-share", "4"}
	if out := ok(t, call(full...)...); out != gold {
		t.Errorf("put:\n%s", out)
	}
	if out := ok(t, call("show", "gold")...); out != gold {
		t.Errorf("show:\n%s", out)
	}
	if out := ok(t, call(strings.Fields(page[1])[2:]...)...); out != page[2] {
		t.Errorf("docs/api.md prints\n%s\nnot\n%s", page[2], out)
	}
	ok(t, call(full...)...)
	want := "NAME     WEIGHT  RATE       BURST  CAP               BACKLOG  SUBSCRIPTIONS  INBOUND                  SET BY\n" +
		"default  1       unlimited  -      16                2GiB     1000           unlimited                configuration\n" +
		"gold     2       100/s      500    1 (auto 1 to 8)   3GiB     7              20/s, burst 60, share 4  API\n" +
		"pro      3       unlimited  -      16 (auto 2 to 9)  20GiB    1000           unlimited, share 6       configuration\n"
	if out := ok(t, call("ls")...); out != want {
		t.Errorf("ls:\n%s", out)
	}
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(ok(t, call("ls", "--json")...)), &list); err != nil || len(list) != 3 || list[1].Name != "gold" {
		t.Errorf("ls --json: %v, %v", list, err)
	}
	var put struct{ Rate, Burst any }
	if err := json.Unmarshal([]byte(ok(t, call("put", "gold", "--rate", "0", "--json")...)), &put); err != nil || put.Rate != "0" {
		t.Errorf("put --json: %+v, %v", put, err)
	}
	for want, args := range map[string][]string{
		"tiers.pro":    {"put", "pro"},
		"(409)":        {"rm", "default"},
		"(404)":        {"show", "none"},
		"cap_auto.max": {"put", "gold", "--cap-auto-min", "3"},
		"rate must be": {"put", "gold", "--rate", "5"},
		"name must be": {"put", "Gold"},
	} {
		if code, _, errs := command(t, call(args...)...); code != exitFailed || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
	if out := ok(t, call("rm", "gold")...); out != "removed gold\n" {
		t.Errorf("rm: %q", out)
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, s.errs)
	}
}

// What the API would take for "absent" is refused before anything is sent.
func TestATierTakesNoZeroForTheDefault(t *testing.T) {
	for _, flag := range []string{"--weight=0", "--burst=0", "--cap=0", "--cap=-1", "--cap-auto-min=0", "--cap-auto-max=0", "--subscriptions=0",
		"--inbound-burst=0", "--inbound-share=x", "--backlog=0B", "--backlog=20", "--backlog=20GB"} {
		name, _, _ := strings.Cut(flag, "=")
		if code, _, errs := command(t, "tier", "put", "gold", flag); code != exitUsage || !strings.Contains(errs, name) || !strings.Contains(errs, "must be a") {
			t.Errorf("%s: %d %q", flag, code, errs)
		}
	}
}
