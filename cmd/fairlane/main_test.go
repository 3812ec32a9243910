package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output is what a command prints; it may be read while the command runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command runs one and returns exit code, stdout and stderr.
func command(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, errs output
	code := run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// ok runs a command that must succeed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := command(t, args...)
	if code != exitOK {
		t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
	}
	return out
}

// soon waits for what a command that runs reaches by itself.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}

// started is `fairlane serve` in this process.
type started struct {
	url    string
	out    *output
	errs   *output
	cancel context.CancelFunc
	code   chan int
}

var listening = regexp.MustCompile(`listening on (http\S+),`)

func startServe(t *testing.T, args ...string) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &started{out: &output{}, errs: &output{}, cancel: cancel, code: make(chan int, 1)}
	go func() { s.code <- run(ctx, append([]string{"serve"}, args...), s.out, s.errs) }()
	t.Cleanup(cancel)
	soon(t, "serve listens", func() bool {
		if len(s.code) > 0 {
			t.Fatalf("serve ended with %d: %s", <-s.code, s.errs)
		}
		m := listening.FindStringSubmatch(s.out.String())
		if m != nil {
			s.url = m[1]
		}
		return m != nil
	})
	return s
}

// useKey gives the commands that follow the admin key that --dev printed, and returns it.
func (s *started) useKey(t *testing.T) string {
	_, line, _ := strings.Cut(s.out.String(), "export "+adminKeyVar+"=")
	key, _, _ := strings.Cut(line, "\n")
	t.Setenv(adminKeyVar, key)
	return key
}

// stop ends it as SIGTERM does, and returns the exit code.
func (s *started) stop(t *testing.T) int {
	t.Helper()
	s.cancel()
	select {
	case code := <-s.code:
		return code
	case <-time.After(20 * time.Second):
		t.Fatal("serve does not stop")
		return -1
	}
}

func TestServeTakesATriggerToItsEndpointAndStops(t *testing.T) {
	t.Setenv(adminKeyVar, "")
	got := make(chan string, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Webhook-Id") }))
	t.Cleanup(endpoint.Close)
	dir := t.TempDir()
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	key := s.useKey(t)
	call := func(args ...string) []string { return append(args, "--server", s.url) }
	if out := ok(t, call("tenant", "create", "acme", "--name", "Acme")...); out != "created acme\n" {
		t.Errorf("create: %q", out)
	}
	out := ok(t, call("subscription", "create", "--tenant", "acme", "--url", endpoint.URL+"/SECRETPATH", "--topic", "a.>", "--rate", "20/s", "--cap", "4")...)
	if !regexp.MustCompile(`\Acreated sub_\w+\nsecret  whsec_\S+  \(not shown again\)\n\z`).MatchString(out) {
		t.Errorf("create: %q", out)
	}
	id := strings.Fields(out)[1]
	if out := ok(t, call("tenant", "ls")...); !regexp.MustCompile(`(?m)^acme +default +Acme$`).MatchString(out) {
		t.Errorf("ls: %q", out)
	}
	if out := ok(t, call("sub", "ls", "--tenant", "acme")...); !strings.Contains(out, id) || strings.Contains(out, "SECRETPATH") || !strings.Contains(out, "20/s") {
		t.Errorf("ls: %q", out)
	}
	var list []struct{ ID, Tenant string }
	if err := json.Unmarshal([]byte(ok(t, call("sub", "ls", "--json")...)), &list); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("ls --json: %v, %v", list, err)
	}
	post(t, s.url, "acme", "a.b", "x")
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Fatal("no delivery")
	}
	if out := ok(t, call("sub", "rm", id)...); out != "removed "+id+"\n" {
		t.Errorf("rm: %q", out)
	}
	if code, _, errs := command(t, call("tenant", "rm", "nobody")...); code != exitFailed || !strings.Contains(errs, "nothing of this id") {
		t.Errorf("rm: %d %q", code, errs)
	}
	ok(t, call("tenant", "rm", "acme")...)
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, s.errs)
	}
	if strings.Contains(s.errs.String(), key) {
		t.Error("the key is in the log")
	}
	again := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	if out := ok(t, "tenant", "ls", "--json", "--server", again.url); out != "[]\n" {
		t.Errorf("after a restart: %q", out)
	}
	if code, _, errs := command(t, "serve", "--dev", "--listen", "127.0.0.1:0", "--data", dir); code != exitFailed || !strings.Contains(errs, "in use") {
		t.Errorf("a second process on one directory: %d %q", code, errs)
	}
	if code := again.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, again.errs)
	}
}

func TestRequestsLookAsTheFlagsSay(t *testing.T) {
	t.Setenv(adminKeyVar, "0123456789abcdef0123")
	got := make(chan http.Header, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(endpoint.Close)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	conf := file("fairlane.yaml", "server: {listen: \"127.0.0.1:0\"}\ndata: {ballast: 0B, dir: "+dir+"/data}\ncapacity: {slots: 50}\nenvelopes: {e: {schema: e/1, template: \"[{payload}]\"}}\n")
	s := startServe(t, "--dev", "--config", conf)
	call := func(args ...string) []string { return append(args, "--server", s.url) }
	ok(t, call("tenant", "create", "acme")...)
	create := []string{"subscription", "create", "--tenant", "acme", "--url", endpoint.URL, "--topic", ">"}
	out := ok(t, call(append(create, "--signature", "svix", "--signature-beside", `{"profile":"template","header":"X-Sig"}`,
		"--secret-file", file("secrets", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), "--header", "X-Plain: a: b", "--header", "@"+file("headers", "Authorization: Bearer x\n"),
		"--optional-header", "position", "--envelope", "e")...)...)
	id := strings.Fields(out)[1]
	post(t, s.url, "acme", "a.b", "1")
	select {
	case h := <-got:
		for name, value := range map[string]string{"X-Plain": "a: b", "Authorization": "Bearer x", "Fairlane-Schema": "e/1", "Webhook-Id": ""} {
			if h.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, h.Get(name), value)
			}
		}
		if h.Get("Svix-Signature") == "" || len(h.Get("X-Sig")) != 64 || h.Get("Fairlane-Position") == "" {
			t.Errorf("headers: %v", h)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no delivery")
	}
	out = ok(t, call("sub", "rotate", id, "--kind", "v1a", "--overlap", "1h")...)
	if code, _, errs := command(t, call("sub", "rotate", id, "--overlap", "1h")...); code != exitFailed || !strings.Contains(errs, "separator") {
		t.Errorf("the second signature has room for one: %d, %q", code, errs)
	}
	if !regexp.MustCompile(`\Arotated \w+\npublic  whpk_\S+\n\z`).MatchString(out) {
		t.Errorf("rotate: %q", out)
	}
	for args, want := range map[string]string{"--header|x": "Name: value", "--client-cert|x": "belong together", "--signature|{": "neither", "--secret-file|none": "no such file"} {
		name, value, _ := strings.Cut(args, "|")
		if code, _, errs := command(t, call(append(create, name, value)...)...); code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
	file("fairlane.yaml", "capacity: {slots: 0}\n")
	hup := func(want string) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		soon(t, want+" is logged", func() bool { return strings.Contains(s.errs.String(), want) })
	}
	hup("capacity.slots: must be")
	file("fairlane.yaml", "server: {listen: \"127.0.0.1:1\"}\ndata: {ballast: 0B, dir: "+dir+"/data}\n")
	hup("envelope: ") // in use: it cannot be taken out
	file("fairlane.yaml", "server: {listen: \"127.0.0.1:1\"}\ndata: {ballast: 0B, dir: "+dir+"/data}\nenvelopes: {e: {schema: e/2, template: \"[{payload}]\"}}\n")
	hup("settings=server.listen")
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, s.errs)
	}
}

func TestServeRefusesWhatItCannotServe(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("capacity: {slots: 0}\nlimiter: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	address := strings.TrimPrefix(taken.URL, "http://")
	for _, c := range []struct {
		key  string
		args []string
		code int
		says string
	}{
		{"", []string{"serve"}, exitFailed, "set FAIRLANE_ADMIN_KEY or"},
		{"short", []string{"serve"}, exitFailed, "at least 16 characters"},
		{"", []string{"serve", "--dev", "--listen", ":8080"}, exitUsage, "loopback only"},
		{"", []string{"serve", "--dev", "--listen", "0.0.0.0:8080"}, exitUsage, "loopback only"},
		{"", []string{"serve", "--dev", "--listen", "8080"}, exitUsage, "loopback only"},
		{"", []string{"serve", "--log", "xml"}, exitUsage, "text or json"},
		{"", []string{"serve", "extra"}, exitUsage, "unknown command"},
		{"", []string{"serve", "--nope"}, exitUsage, "unknown flag"},
		{"", []string{"nope"}, exitUsage, "unknown command"},
		{"", []string{"serve", "--config", filepath.Join(dir, "none.yaml")}, exitFailed, "no such file"},
		{"", []string{"serve", "--config", bad}, exitFailed, "bad.yaml:1:12: capacity.slots: must be a whole number from 1 to 1000000"},
		{"", []string{"serve", "--config", bad}, exitFailed, "bad.yaml:2:1: limiter: is unknown"},
		{"0123456789abcdef", []string{"serve", "--listen", address, "--data", filepath.Join(dir, "d")}, exitFailed, "address already in use"},
		{"0123456789abcdef", []string{"serve", "--listen", "127.0.0.1:0", "--data", bad}, exitFailed, "bad.yaml"},
		{"", []string{"tenant", "ls"}, exitFailed, "FAIRLANE_ADMIN_KEY is set"},
		{"x", []string{"tenant", "ls", "--server", taken.URL}, exitFailed, "answered 404"},
		{"x", []string{"tenant", "create"}, exitUsage, "accepts 1 arg"},
		{"x", []string{"sub", "create", "--tenant", "a"}, exitFailed, `required flag(s) "topic", "url" not set`},
	} {
		t.Setenv(adminKeyVar, c.key)
		code, _, errs := command(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.args, code, errs, c.code, c.says)
		}
	}
}

// Field case 99.
func TestCheckConfigShowsWhatIsInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("capacity: {slots: 77}\ntiers: {default: {inbound: {rate: 20/s}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, "check-config", path); out != "ok\n" {
		t.Errorf("%q", out)
	}
	printed := ok(t, "check-config", path, "--print")
	if !strings.Contains(printed, "slots: 77 ") || !strings.Contains(printed, "timeout: 15s ") {
		t.Error(printed)
	}
	if err := os.WriteFile(path, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := ok(t, "check-config", path, "--print"); again != printed {
		t.Errorf("the print-out reads back differently:\n%s", again)
	}
	if err := os.WriteFile(path, []byte("delivery:\n  timeout: 30\n  tiemout: 30s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := command(t, "check-config", path)
	if code != exitFailed || !strings.Contains(errs, ":2:3: delivery.timeout: must be a duration") || !strings.Contains(errs, ":3:3: delivery.tiemout: is unknown") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestServeReadsItsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.yaml")
	text := "server: {listen: \"127.0.0.1:0\", admin_key: \"${SOME_KEY}\", open_metrics: true}\ndata: {dir: " + dir + "/d, max_bytes: 256MiB, ballast: 0B}\ncapacity: {slots: 77}\ntiers: {gold: {rate: 5/s}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(adminKeyVar, "")
	t.Setenv("SOME_KEY", "the-key-from-the-file")
	s := startServe(t, "--config", path, "--log", "json")
	resp, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var metrics bytes.Buffer
	metrics.ReadFrom(resp.Body)
	resp.Body.Close()
	if !strings.Contains(metrics.String(), "\nfairlane_slots 77\n") {
		t.Error("the file's slots are not in force")
	}
	t.Setenv(adminKeyVar, "the-key-from-the-file")
	ok(t, "tenant", "create", "acme", "--tier", "gold", "--server", s.url)
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, s.errs)
	}
	if strings.Contains(s.out.String(), "export") {
		t.Error("a key that was given is printed")
	}
}

// The first administrator's key is made on the data directory, and makes the others.
func TestKeysByCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(adminKeyVar, "")
	secretOf := func(out string) string {
		_, rest, _ := strings.Cut(out, "secret  ")
		secret, _, _ := strings.Cut(rest, " ")
		return secret
	}
	admin := secretOf(ok(t, "key", "create", "ops", "--admin", "--data", dir))
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", dir)
	t.Setenv(keyVar, admin)
	call := func(args ...string) []string { return append(args, "--server", s.url) }
	ok(t, call("tenant", "create", "acme")...)
	first := secretOf(ok(t, call("key", "create", "portal", "--tenant", "acme")...))
	second := secretOf(ok(t, call("key", "rotate", "portal", "--overlap", "1h")...))
	if out := ok(t, call("key", "ls")...); !strings.Contains(out, "rotating until") || !regexp.MustCompile(`(?m)^ops +admin +\(all\) +yes +active`).MatchString(out) || strings.Contains(out, "flk_") {
		t.Error(out)
	}
	for _, secret := range []string{first, second} {
		t.Setenv(keyVar, secret)
		ok(t, call("sub", "ls")...)
		if code, _, errs := command(t, call("key", "ls")...); code != exitFailed || !strings.Contains(errs, "403") {
			t.Errorf("a tenant lists keys: %d %q", code, errs)
		}
	}
	t.Setenv(keyVar, admin)
	if out := ok(t, call("key", "revoke", "portal")...); out != "revoked portal\n" {
		t.Error(out)
	}
	if code, _, errs := command(t, "key", "create", "late", "--admin", "--data", dir); code != exitFailed || !strings.Contains(errs, "in use") {
		t.Errorf("beside a running service: %d %q", code, errs)
	}
	for _, args := range [][]string{{"key", "create", "x"}, {"key", "create", "x", "--admin", "--producer"}, {"key", "create", "x", "--producer", "--data", dir}} {
		if code, _, _ := command(t, args...); code != exitUsage {
			t.Errorf("%v: exit %d", args, code)
		}
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, s.errs)
	}
}
