package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// book is an endpoint that writes down what it gets.
type book struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]int
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{got: map[string]int{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got[string(body)]++
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *book) has() (bodies []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for body := range b.got {
		bodies = append(bodies, body)
	}
	slices.Sort(bodies)
	return bodies
}

// api calls a served instance and returns the answer.
func (s *started) api(t *testing.T, method, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv(adminKeyVar))
	req.Header.Set("Fairlane-Tenant", "acme")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, answer)
	}
	return answer
}

var variable = regexp.MustCompile(`sub_\w+|\d+(T\d+\.\d+Z)?`)

// The log is damaged in two places; the service refuses to open it and names the command; that shows what it
// would do, does it, and then everything else is delivered.
//
// Field case 78.
func TestRepairLetsTheServiceOpenAndDeliverTheRest(t *testing.T) {
	t.Setenv(adminKeyVar, "an-admin-key-for-this-test")
	endpoint, dir := newBook(t), filepath.Join(t.TempDir(), "data")
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	ok(t, "tenant", "create", "acme", "--server", s.url)
	var made struct{ ID string }
	if err := json.Unmarshal(s.api(t, http.MethodPost, "/v1/subscriptions", `{"tenant":"acme","url":"`+endpoint.URL+`","topics":["a"],"paused":true}`), &made); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 20 {
		body := fmt.Sprintf("payload-%02d", i)
		s.api(t, http.MethodPost, "/v1/triggers/a", body)
		if i != 7 && i != 12 {
			want = append(want, body)
		}
	}
	soon(t, "all are parked", func() bool { // what is not read yet is in no account
		return strings.Contains(string(s.api(t, http.MethodGet, "/v1/account", "")), `"parked":20`)
	})
	if code := s.stop(t); code != exitOK {
		t.Fatal(s.errs)
	}
	spoil(t, dir, "payload-07", "payload-12")

	code, _, errs := command(t, "serve", "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	hint := "fairlane repair --data " + dir
	if code != exitFailed || !strings.Contains(errs, "damaged") || !strings.Contains(errs, hint) {
		t.Fatalf("exit %d: %s", code, errs)
	}
	inDocs(t, errs, dir)
	dry := ok(t, "repair", "--data", dir)
	if !strings.Contains(dry, "acme "+made.ID+": 2 waiting, lost: ") || !strings.Contains(dry, hint+" --yes") {
		t.Error(dry)
	}
	inDocs(t, dry, dir)
	var report struct {
		Lost    []struct{ Tenant, Subscription, State string }
		Account map[string]int
		Applied bool
	}
	if err := json.Unmarshal([]byte(ok(t, "repair", "--data", dir, "--json")), &report); err != nil || len(report.Lost) != 2 || report.Account["dropped"] != 2 || report.Account["parked"] != 18 || report.Applied {
		t.Errorf("%+v, %v", report, err)
	}
	inDocs(t, ok(t, "repair", "--data", dir, "--yes"), dir)
	if out := ok(t, "repair", "--data", dir); out != "nothing is damaged\n" {
		t.Error(out)
	}

	s = startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	s.api(t, http.MethodPatch, "/v1/subscriptions/"+made.ID, `{"paused":false}`)
	soon(t, "the rest is delivered", func() bool { return slices.Equal(endpoint.has(), want) })
	if metrics := string(s.api(t, http.MethodGet, "/metrics", "")); !strings.Contains(metrics, "\nfairlane_account_gap 0\n") || !strings.Contains(metrics, `fairlane_account{state="dropped"} 2`) {
		t.Error("the account does not balance")
	}
	if code := s.stop(t); code != exitOK {
		t.Error(s.errs)
	}
}

// spoil changes a byte of each of the payloads in the log.
func spoil(t *testing.T, dir string, payloads ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "streams/jetstream/*/streams/TRIGGERS/msgs/*.blk"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range payloads {
		i := bytes.Index(data, []byte(p))
		if i < 0 {
			t.Fatalf("%s is not there", p)
		}
		data[i] ^= 1
	}
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// inDocs looks for every line of what was printed in the operator's page, numbers aside.
func inDocs(t *testing.T, printed, dir string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(s string) string {
		return variable.ReplaceAllString(strings.ReplaceAll(s, dir, "/var/lib/fairlane"), "0")
	}
	lines := strings.Split(plain(string(page)), "\n")
	for line := range strings.Lines(plain(printed)) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(lines, line) && !strings.HasPrefix(line, "time=") {
			t.Errorf("docs/operating.md does not have %q of\n%s", line, printed)
		}
	}
}
