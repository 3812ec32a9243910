package fairlane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/server"
)

// Packages of the receivers' libraries that requests are verified with, pinned.
const npmPackages = "standardwebhooks@1.1.1 svix@2.5.0"

// signed is a request as an endpoint got it, for a verifier in another language.
type signed struct {
	Name    string            `json:"name"`
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
	Good    bool              `json:"good"`
}

// Every verifier of receiving.md takes what the service sends, and refuses what it did not send.
func TestReceiversVerifyWithTheCodeOfThePage(t *testing.T) {
	requests := signedRequests(t)
	code := map[string]string{}
	for _, b := range blocks(page(t, "receiving.md")) {
		for mark, name := range map[string]string{
			"func receive(": "receive.go", `"standardwebhooks"`: "receive.mjs", "def verify(": "verify.py", `from "svix"`: "svix.mjs", "func verifyV1a(": "v1a.go",
		} {
			if strings.Contains(b.text, mark) && b.lang != "" && (b.lang == "go") == strings.HasSuffix(name, ".go") {
				code[name] = b.text
			}
		}
	}
	if len(code) != 5 {
		t.Fatalf("the page has %d pieces of code", len(code))
	}
	t.Run("go", func(t *testing.T) { verifyInGo(t, code, requests) })
	t.Run("node", func(t *testing.T) { verifyInNode(t, code, requests) })
	t.Run("python", func(t *testing.T) { verifyInPython(t, code, requests) })
}

// signedRequests posts triggers to a running service, for subscriptions of each profile, and returns
// what the endpoint got, with changed copies that are not good.
func signedRequests(t *testing.T) (all []signed) {
	got := make(chan signed, 100)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s := signed{Name: strings.TrimPrefix(r.URL.Path, "/"), Headers: map[string]string{}, Good: true}
		for name, values := range r.Header {
			s.Headers[strings.ToLower(name)] = values[0]
		}
		s.Body, _ = io.ReadAll(r.Body)
		got <- s
	}))
	t.Cleanup(endpoint.Close)
	service, err := server.Start(context.Background(), server.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", AdminKey: adminKey, MaxBytes: 256 << 20, StopGrace: time.Second,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	const pair = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	const old, fresh = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	call(t, service.URL(), "/v1/tenants", `{"id":"acme"}`)
	secrets := map[string][]string{"standard": {fresh, old}, "svix": {fresh, old}, "v1a": {pair}}
	for name, keys := range secrets {
		profile := strings.Replace(name, "v1a", "standard", 1)
		list, _ := json.Marshal(keys)
		call(t, service.URL(), "/v1/subscriptions", fmt.Sprintf(`{"tenant":"acme","url":%q,"topics":[">"],"secrets":%s,"signature":{"profile":%q}}`,
			endpoint.URL+"/"+name, list, profile))
	}
	for _, m := range codeWord.FindAllStringSubmatch(page(t, "receiving.md"), -1) { // templates that the page proposes
		if strings.HasPrefix(m[1], `{"profile":`) {
			call(t, service.URL(), "/v1/subscriptions", fmt.Sprintf(`{"tenant":"acme","url":%q,"topics":["none"],"signature":%s}`, endpoint.URL, m[1]))
		}
	}
	bodies := []string{`{"order":7,"n":9007199254740993}`, "", "{\"text\":\r\n \"caf\u00e9 cafe\u0301 \u2028 \U0001F60A \\ud83d\\ude0a\"}\r\n"}
	for _, body := range bodies {
		call(t, service.URL(), "/v1/triggers/order.paid", body)
	}
	for range len(bodies) * len(secrets) {
		select {
		case s := <-got:
			for _, key := range secrets[s.Name] { // either key of a rotation is enough
				s.Secret = key
				all = append(all, s)
			}
			all = append(all, spoilt(s)...)
		case <-time.After(20 * time.Second):
			t.Fatal("no delivery")
		}
	}
	return all
}

// spoilt are copies that must be refused.
func spoilt(s signed) []signed {
	s.Good = false
	body, secret, late := s, s, s
	body.Body = append(bytes.Clone(s.Body), ' ')
	secret.Secret = s.Secret[:len(s.Secret)-8] + "AAAAAAA="
	if s.Name == "v1a" { // the public half comes from the pair's end
		secret.Secret = "whsk_" + strings.Repeat("A", 86) + "=="
	}
	late.Headers = map[string]string{}
	for k, v := range s.Headers {
		if strings.HasSuffix(k, "-timestamp") {
			v = strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)
		}
		late.Headers[k] = v
	}
	return []signed{body, secret, late}
}

func call(t *testing.T, base, path, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/v1/triggers/") {
		req.Header.Set("Fairlane-Tenant", "acme")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if out, _ := io.ReadAll(resp.Body); resp.StatusCode > 299 {
		t.Fatalf("%s: %s %s", path, resp.Status, out)
	}
}

// run gives the requests to a program that answers "true" or "false" for each, a line each.
func run(t *testing.T, requests []signed, dir, name string, args ...string) {
	t.Helper()
	in, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(requests) || len(lines) == 0 {
		t.Fatalf("%d answers to %d requests: %s", len(lines), len(requests), out)
	}
	for i, r := range requests {
		if lines[i] != strconv.FormatBool(r.Good) {
			t.Errorf("%s, %q, secret %.12s...: %s, want %v", r.Name, r.Body, r.Secret, lines[i], r.Good)
		}
	}
}

// scratch is a directory below bin, where the module's own packages are found.
func scratch(t *testing.T, files map[string]string) string {
	t.Helper()
	if err := os.MkdirAll("bin", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("bin", "_receiving-") // not part of ./...
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func only(requests []signed, names ...string) (some []signed) {
	for _, r := range requests {
		for _, n := range names {
			if r.Name == n {
				some = append(some, r)
			}
		}
	}
	return some
}

const goDriver = `package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
)

func main() {
	var requests []struct {
		Name, Secret string
		Headers      map[string]string
		Body         []byte
	}
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		panic(err)
	}
	for _, q := range requests {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(q.Body))
		for k, v := range q.Headers {
			r.Header.Set(k, v)
		}
		if q.Name == "v1a" {
			pair, _ := base64.StdEncoding.DecodeString(q.Secret[len("whsk_"):])
			fmt.Println(verifyV1a("whpk_"+base64.StdEncoding.EncodeToString(pair[32:]), r.Header, q.Body) == nil)
			continue
		}
		w := httptest.NewRecorder()
		receive(q.Secret)(w, r)
		fmt.Println(w.Code == http.StatusNoContent)
	}
}
`

func verifyInGo(t *testing.T, code map[string]string, requests []signed) {
	dir := scratch(t, map[string]string{"main.go": goDriver, "receive.go": code["receive.go"], "v1a.go": code["v1a.go"]})
	run(t, only(requests, "standard", "v1a"), ".", "go", "run", "./"+dir)
}

const nodeDriver = `import { readFileSync } from "node:fs";
import { receive } from "./receive.mjs";
import { verify } from "./svix.mjs";

for (const q of JSON.parse(readFileSync(0))) {
  const body = Buffer.from(q.body ?? "", "base64");
  let good = true;
  if (q.name === "svix") {
    try {
      verify(q.secret, q.headers, body.toString("utf8"));
    } catch {
      good = false;
    }
  } else {
    const server = receive(q.secret).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const headers = {};
    for (const name of Object.keys(q.headers)) if (name.startsWith("webhook-")) headers[name] = q.headers[name];
    const url = "http://127.0.0.1:" + server.address().port;
    good = (await fetch(url, { method: "POST", headers, body })).status === 204;
    server.close();
    server.closeAllConnections();
  }
  console.log(good);
}
`

func verifyInNode(t *testing.T, code map[string]string, requests []signed) {
	dir := scratch(t, map[string]string{"main.mjs": nodeDriver, "receive.mjs": code["receive.mjs"], "svix.mjs": code["svix.mjs"]})
	modules := npmModules(t)
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	run(t, only(requests, "standard", "svix"), dir, "node", "main.mjs")
}

// npmModules installs the pinned packages once, below bin, and returns where they are.
func npmModules(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not installed: the npm packages standardwebhooks and svix have verified nothing", tool)
		}
	}
	dir, err := filepath.Abs(filepath.Join("bin", "npm", strings.NewReplacer("@", "-", " ", "_").Replace(npmPackages)))
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
		return modules
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"install", "--prefix", dir, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"}, strings.Fields(npmPackages)...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "npm", args...).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: npm install %s: %v: the packages have verified nothing\n%s", npmPackages, err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "installed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return modules
}

const pythonDriver = `import base64, json, sys
from verify import verify

for q in json.load(sys.stdin):
    try:
        verify(q["secret"], q["headers"], base64.b64decode(q["body"] or ""))
        print("true")
    except ValueError:
        print("false")
`

func verifyInPython(t *testing.T, code map[string]string, requests []signed) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: python3 is not installed: the Python of receiving.md has verified nothing")
	}
	dir := scratch(t, map[string]string{"main.py": pythonDriver, "verify.py": code["verify.py"]})
	run(t, only(requests, "standard"), dir, "python3", "-B", "main.py")
}
