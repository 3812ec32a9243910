package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// passing is what differs from run to run on the page: ids, positions, times.
var passing = regexp.MustCompile(`(msg_p|sub_|rpl_)[0-9a-z]+|\d{4}-\d\d-\d\dT[0-9:.]+Z|(?m:^position +\d+)`)

func lasting(text string) string {
	text = passing.ReplaceAllStringFunc(text, func(s string) string { return passing.FindStringSubmatch(s)[1] })
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}

// Every command of dead-letters.md prints what the page says.
func TestTheDeadLettersPageIsAsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/dead-letters.md")
	if err != nil {
		t.Fatal(err)
	}
	var status atomic.Int64
	status.Store(422)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(endpoint.Close)
	t.Setenv(adminKeyVar, "dead-letters-page-0123456789")
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	call := func(args ...string) []string { return append(args, "--server", s.url) }
	ok(t, call("tenant", "create", "acme")...)
	vars := map[string]string{"sub": strings.Fields(ok(t, call("sub", "create", "--tenant", "acme", "--url", endpoint.URL, "--topic", "orders.>")...))[1]}
	for range 3 {
		id := post(t, s.url, "acme", "orders.created", `{"total":2}`)
		if vars["trigger"] == "" {
			vars["trigger"] = id
		}
	}
	awaitDead(t, call("dead", "ls", "--json"), 3)
	command := ""
	blocks := regexp.MustCompile("(?s)```(sh|text)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		if b[1] == "sh" {
			command = b[2]
			continue
		}
		words := strings.Fields(os.Expand(command, func(name string) string { return vars[name] }))
		if strings.Contains(command, "dead replay") && !strings.Contains(command, "dry-run") {
			status.Store(200)
		}
		got := ok(t, call(words[1:]...)...)
		for deadline := time.Now().Add(20 * time.Second); words[1] == "trigger" && words[2] == "show" && lasting(got) != lasting(b[2]) && time.Now().Before(deadline); {
			got = ok(t, call(words[1:]...)...) // the ledger is written a flush later
		}
		if lasting(got) != lasting(b[2]) {
			t.Errorf("%s\ngot\n%s\nthe page says\n%s", command, got, b[2])
		}
	}
	if len(blocks) < 10 {
		t.Errorf("only %d blocks on the page", len(blocks))
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// What cannot be undone, and what names nothing, is asked for first.
func TestPurgeAsksFirst(t *testing.T) {
	for _, args := range [][]string{{"dead", "purge", "--tenant", "acme"}, {"dead", "purge", "--yes"}, {"dead", "replay"}, {"trigger", "show"}} {
		if code, _, errs := command(t, args...); code != exitUsage {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
}

func post(t *testing.T, base, tenant, topic, body string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+"/v1/triggers/"+topic, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv(adminKeyVar))
	req.Header.Set("Fairlane-Tenant", tenant)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out.ID == "" {
		t.Fatalf("post: %s, %v", resp.Status, err)
	}
	return out.ID
}

func awaitDead(t *testing.T, list []string, n int) {
	t.Helper()
	soon(t, fmt.Sprint(n, " are dead"), func() bool {
		var all []json.RawMessage
		err := json.Unmarshal([]byte(ok(t, list...)), &all)
		return err == nil && len(all) == n
	})
}
