package apply

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func testEnv(name string) (string, bool) { return "value of " + name, name == "KNOWN" }

// write puts files into a directory, and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFilesBecomeWhatTheAPIReads(t *testing.T) {
	dir := write(t, map[string]string{
		"b.yaml": "subscriptions:\n- tenant: acme\n  name: orders\n  rate: 20/s\n  cap: 4\n  paused: false\n" +
			"  outcomes: {404: rejected}\n  secrets: [\"${KNOWN}\", '${file:keys/old.txt}']\n  headers:\n    X-Team: ${KNOWN}\n    X-Price: $ {5}\n",
		"a/more.yml":   "# two documents\ntenants: [{id: acme, name: \"${KNOWN}\", grants: [\"a.>\"]}]\n---\ntenants:\n  - {id: beta}\n",
		"keys/old.txt": "text:old\n",
		".hidden.yaml": "nonsense",
		"a/readme.txt": "nonsense",
	})
	s, err := Read([]string{dir}, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{
		Tenants: `[{"grants":["a.>"],"id":"acme","name":"${KNOWN}"},{"id":"beta"}]`,
		Subscriptions: `[{"cap":4,"headers":{"X-Price":"$ {5}","X-Team":"value of KNOWN"},"name":"orders","outcomes":{"404":"rejected"},` +
			`"paused":false,"rate":"20/s","secrets":["value of KNOWN","text:old"],"tenant":"acme"}]`,
	} {
		got, err := s.JSON(kind)
		if err != nil {
			t.Fatal(err)
		}
		if got = []byte(strings.ReplaceAll(string(got), `\u003e`, ">")); string(got) != want {
			t.Errorf("%s:\n%s, want\n%s", kind, got, want)
		}
	}
}

// What the service says of a field is shown with its place.
func TestProblemsOfTheServiceGetTheirPlace(t *testing.T) {
	dir := write(t, map[string]string{"x.yaml": "tenants:\n- id: acme\n  tier: gold\nsubscriptions:\n- tenant: acme\n  name: orders\n  signature:\n    profile: other\n"})
	s, err := Read([]string{dir}, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "x.yaml")
	for field, want := range map[string]string{
		"tenants[0].tier":                      file + `:3:3: tenant "acme": tier: R`,
		"subscriptions[0].signature.profile":   file + `:8:5: subscription "acme/orders": signature.profile: R`,
		"subscriptions[0].signature.separator": file + `:7:3: subscription "acme/orders": signature.separator: R`,
		"subscriptions[0].url":                 file + `:5:3: subscription "acme/orders": url: R`,
		"subscriptions[0]":                     file + `:5:3: subscription "acme/orders": R`,
		"subscriptions[7].url":                 `: subscriptions[7].url: R`,
		"body":                                 `: body: R`,
	} {
		if got := s.Problem(field, "R").Error(); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
}

// Everything that is wrong is said at once, with line and column, and never what may be a secret.
func TestWrongFilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"syntax":       {"tenants: [", "x.yaml:1:10: is not valid YAML"},
		"list":         {"- id: acme", "x.yaml:1:1: must be a mapping with tiers, tenants or subscriptions"},
		"unknown":      {"tenant: []", "x.yaml:1:1: tenant: is unknown; known here: tiers, tenants, subscriptions"},
		"tier twice":   {"tiers:\n- {name: a}\n- {name: a, cap: 2}", `x.yaml:3:4: tier "a": must stand once; it stands in `},
		"no list":      {"tenants: {id: acme}", "x.yaml:1:10: tenants: must be a list"},
		"no mapping":   {"tenants: [acme]", "x.yaml:1:11: tenants: must be a list of mappings"},
		"kind twice":   {"tenants: []\ntenants: []", "x.yaml:2:1: tenants: must stand once in a document"},
		"key twice":    {"tenants:\n- id: a\n  id: b", "x.yaml:3:3: id: must stand once; it stands in line 2 too"},
		"object twice": {"tenants:\n- id: a\n---\ntenants:\n- id: a", `x.yaml:5:3: tenant "a": must stand once; it stands in `},
		"sub twice":    {"subscriptions:\n- {tenant: a, name: b}\n- {tenant: a, name: b}", `x.yaml:3:4: subscription "a/b": must stand once; it stands in `},
		"empty":        {"tenants:\n- id:\n", "x.yaml:2:7: id: must not be empty"},
		"empty doc":    {"tenants: []\n---\n---\ntenants:\n- id: a\n", "x.yaml: must not hold an empty document"},
		"empty first":  {"---\n---\ntenants:\n- id: a\n", "x.yaml: must not hold an empty document"},
		"anchor":       {"tenants:\n- id: &a b\n", "x.yaml:2:7: id: must be a plain value"},
		"secret":       {"subscriptions:\n- {name: b, secrets: [whsec_HIDDEN]}", "x.yaml:2:23: secrets[0]: must be ${NAME}"},
		"beside":       {"subscriptions:\n- {name: b, signature_beside: {secrets: [whsec_HIDDEN]}}", "x.yaml:2:42: signature_beside.secrets[0]: must be ${NAME}"},
		"key":          {"subscriptions:\n- {name: b, client_certificate: {key: whsec_HIDDEN}}", "x.yaml:2:39: client_certificate.key: must be ${NAME}"},
		"not set":      {"subscriptions:\n- {name: b, secrets: [\"${GONE}\"]}", "x.yaml:2:23: secrets[0]: is ${GONE}, which is not set"},
		"no file":      {"subscriptions:\n- {name: b, secrets: [\"${file:gone}\"]}", "gone, which cannot be read: no such file or directory"},
		"not UTF-8":    {"\xff", "x.yaml: must be text in UTF-8"},
	} {
		_, err := Read([]string{write(t, map[string]string{"x.yaml": c.text})}, testEnv)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "HIDDEN") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
	if _, err := Read([]string{t.TempDir()}, testEnv); err == nil || !strings.Contains(err.Error(), "holds no .yaml or .yml file") {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestEnvFile(t *testing.T) {
	read := func(text string) (func(string) (string, bool), error) {
		return EnvFile(filepath.Join(write(t, map[string]string{"s.env": text}), "s.env"), testEnv)
	}
	env, err := read("# secrets\n\nA=x=y\r\nB=\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "x=y", "B": "", "KNOWN": "value of KNOWN"} {
		if got, ok := env(name); got != want || !ok {
			t.Errorf("%s is %q, %v", name, got, ok)
		}
	}
	for _, text := range []string{"HIDDEN", "A=1\nA=HIDDEN", "file:x=HIDDEN"} {
		if _, err := read(text); err == nil || strings.Contains(err.Error(), "HIDDEN") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A file with thousands of objects is read in a moment, and stays JSON.
func TestManyObjects(t *testing.T) {
	var b strings.Builder
	b.WriteString("subscriptions:\n")
	for range 3000 {
		b.WriteString("- tenant: acme\n  name: n" + strconv.Itoa(b.Len()) + "\n  url: https://acme.test/hook\n  topics: [\"order.>\"]\n")
	}
	s, err := Read([]string{write(t, map[string]string{"x.yaml": b.String()})}, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	data, err := s.JSON(Subscriptions)
	var list []map[string]any
	if err != nil || json.Unmarshal(data, &list) != nil || len(list) != 3000 {
		t.Errorf("%v, %d objects", err, len(list))
	}
}
