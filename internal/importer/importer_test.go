package importer

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/internal/apply"
)

var update = flag.Bool("update", false, "rewrite testdata/*.want")

var july = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)

// exports are the samples.
var exports = map[string]func() (*Result, error){
	"svix.want":      func() (*Result, error) { return Svix("testdata/svix") },
	"svix-file.want": func() (*Result, error) { return Svix("testdata/svix.json") },
	"convoy.want":    func() (*Result, error) { return Convoy("testdata/convoy.json", july) },
}

// What an export becomes is reviewed line by line.
func TestExportsBecomeFiles(t *testing.T) {
	for name, read := range exports {
		r, err := read()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := fmt.Sprintf("%s--- secrets\n%s--- notes\n", r.File, r.Secrets)
		for _, n := range r.Notes {
			got += fmt.Sprintf("%s: %s: %s\n", n.Object, n.Field, n.Note)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what comes now; run with -update and review it:\n%s", path, got)
		}
	}
}

// Secrets, and values of headers, stand in the file of secrets alone.
func TestFilesAndNotesHoldNoSecret(t *testing.T) {
	for name, read := range exports {
		r, err := read()
		if err != nil {
			t.Fatal(err)
		}
		notes, err := json.Marshal(r.Notes)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(r.Secrets)) {
			_, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			_, secret, prefixed := strings.Cut(value, ":")
			if !prefixed {
				secret = value
			}
			if secret != "" && secret != "orders" && strings.Contains(string(r.File)+string(notes), secret) {
				t.Errorf("%s: %q is shown", name, secret)
			}
		}
	}
}

// No export is taken for whole that is not, and what is wrong with it is named without what stands there.
func TestWrongExportsAreRefused(t *testing.T) {
	const project, none = `"project":{"uid":"p"}`, `"endpoints":[],"subscriptions":[]`
	for text, want := range map[string]string{
		`svix {"apps":[]}`: "applications: is missing",
		`svix {"applications":{"data":[],"done":false}}`:                                 "one page of several",
		`svix {"applications":[{"id":"a","endpoints":{"data":[],"done":false}}]}`:        "application a: endpoints: is one page of several",
		`svix {"applications":[{"id":"a"},{"id":"b","uid":"a"}]}`:                        "application b: its tenant's id, a, is that of application a",
		`svix {"applications":[{"id":"a b"}]}`:                                           "has neither a uid nor an id that can be a tenant's",
		`svix {"applications":[{"id":"a","endpoints":[{"secret":{"key":["HIDDEN"]}}]}]}`: "is not the JSON that was expected",
		`svix {"applications":"HIDDEN"}`:                                                 "is not the JSON that was expected",
		`svix {`:                                                                         "near byte",
		`convoy {` + none + `}`:                                                          "project: is missing",
		`convoy {` + project + `,"endpoints":[]}`:                                        "subscriptions: is missing",
		`convoy {` + project + `,"endpoints":{"content":[],"pagination":{"has_next_page":true}},"subscriptions":[]}`: "endpoints: is one page of several",
		`convoy {"project":{"type":"incoming"},` + none + `}`:                                                        "is an incoming one",
		`convoy {` + project + `,"endpoints":[{"uid":"a b"}],"subscriptions":[]}`:                                    "has neither an owner_id nor a uid",
		`convoy {` + project + `,"endpoints":[{"secrets":["HIDDEN"]}],"subscriptions":[]}`:                           "is not the JSON that was expected",
	} {
		kind, text, _ := strings.Cut(text, " ")
		path := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		read := Svix
		if kind == "convoy" {
			read = func(path string) (*Result, error) { return Convoy(path, july) }
		}
		_, err := read(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "HIDDEN") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A directory's pages are read as one list, and the last must be there.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	page := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Svix(dir); err == nil || !strings.Contains(err.Error(), "applications.json: is missing") {
		t.Errorf("an empty directory: %v", err)
	}
	page("applications.1.json", `{"data":[{"id":"app_1"}],"done":false}`)
	if _, err := Svix(dir); err == nil || !strings.Contains(err.Error(), "the last page is missing") {
		t.Errorf("the first page alone: %v", err)
	}
	page("applications.2.json", `{"data":[{"id":"app_2"}],"done":true}`)
	if r, err := Svix(dir); err != nil || r.Tenants != 2 {
		t.Errorf("both pages: %v, %v", r, err)
	}
}

// An endpoint of more event types than one subscription takes gets several, which share its limits.
func TestManyTopics(t *testing.T) {
	w := newWork()
	s := subscription{Tenant: "acme", Name: "orders", URL: "https://acme.test"}
	for i := range 130 {
		s.Topics = append(s.Topics, fmt.Sprintf("t.%d", i))
	}
	w.subscribe(s)
	var got []string
	for _, s := range w.Subscriptions {
		got = append(got, fmt.Sprintf("%s %s %d", s.Name, s.Lane, len(s.Topics)))
	}
	if fmt.Sprint(got) != "[orders orders 64 orders.2 orders 64 orders.3 orders 2]" {
		t.Error(got)
	}
}

// Whatever stands in an export, the files are read back as they were meant.
func TestFilesAreReadBack(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(\? )?[ -~äß€]{0,20}`)
		w := newWork()
		name := text.Draw(t, "name")
		id := w.id("o", "uid", text.Draw(t, "uid"), rapid.SampledFrom([]string{"1", "true", "null", "0x1", "1e3", "_", "007"}).Draw(t, "id"))
		w.Tenants = []tenant{{ID: id, Name: name}}
		s := subscription{Tenant: id, Name: "s", URL: text.Draw(t, "url"), Topics: []string{">", "a.*"}, Rate: "10/60s", Signature: &signature{Profile: "svix"}}
		value := text.Draw(t, "value")
		s.Secrets = []string{w.secret("S "+id, "text:"+value)}
		w.subscribe(s)
		r, err := w.result("a test")
		if err != nil {
			t.Fatal(err)
		}
		file, secrets := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "x.env")
		for path, data := range map[string][]byte{file: r.File, secrets: r.Secrets} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		env, err := apply.EnvFile(secrets, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		set, err := apply.Read([]string{file}, env)
		if err != nil {
			t.Fatalf("%v\n%s", err, r.File)
		}
		var tenants []struct{ ID, Name string }
		var subs []struct {
			Tenant, URL     string
			Topics, Secrets []string
		}
		for kind, into := range map[string]any{apply.Tenants: &tenants, apply.Subscriptions: &subs} {
			data, err := set.JSON(kind)
			if err == nil {
				err = json.Unmarshal(data, into)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, r.File)
			}
		}
		if tenants[0].ID != id || tenants[0].Name != name || subs[0].Tenant != id || subs[0].URL != s.URL ||
			subs[0].Topics[0] != ">" || subs[0].Secrets[0] != "text:"+value {
			t.Fatalf("%+v %+v, from\n%s", tenants, subs, r.File)
		}
	})
}
