package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startRedis runs a Redis that keeps nothing on disk.
func startRedis(t *testing.T) (addr string) {
	t.Helper()
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed: scripts/tools installs it")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(redis, "--port", port, "--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	waitFor(t, addr)
	return addr
}

// Two gates with one Redis admit a tenant's quota once.
func TestTwoGatesShareOneQuota(t *testing.T) {
	addr := startRedis(t)
	t.Setenv("GATE_REDIS", "redis://"+addr)
	path := gateDir(t, upstream(t).URL)
	text, _ := os.ReadFile(path)
	write(t, path, string(text)+`
  hour: {key: [tenant], limit: 25, window: 1h, store: redis}
redis: {url: "${GATE_REDIS}", deadline: 5s}
`)
	one, _, log := startGate(t, path)
	two, _, _ := startGate(t, path)
	passed := 0
	for i := range 60 {
		code, header, body := gateGet(t, []string{one, two}[i%2], "large")
		switch {
		case code == http.StatusOK:
			passed++
		case code != http.StatusTooManyRequests || !strings.Contains(body, `"policy":"hour"`) || header.Get("Retry-After") == "":
			t.Fatalf("%d %s", code, body)
		}
	}
	if passed != 25 {
		t.Errorf("%d passed of a quota of 25", passed)
	}
	if setting := log.find(t, `store of quotas.*(appendonly|maxmemory)`); setting != "appendonly" {
		t.Errorf("warned of %s", setting)
	}
}

// A store that is away holds up neither the start nor the check of the file; the log says that its settings are not known.
func TestAGateStartsWithoutItsStore(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	t.Setenv("GATE_REDIS", "redis://"+ln.Addr().String())
	path := gateDir(t, upstream(t).URL)
	text, _ := os.ReadFile(path)
	write(t, path, string(text)+`
  hour: {key: [tenant], limit: 25, window: 1h, store: redis, away: open}
redis: {url: "${GATE_REDIS}", deadline: 50ms}
`)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"gate", "check", path}, &out, &errs); code != exitOK {
		t.Errorf("%d %s", code, errs.String())
	}
	front, _, log := startGate(t, path)
	if code, _, body := gateGet(t, front, "small"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	ln.Close() // now it answers: nobody is there
	log.find(t, `its settings could not be checked`)
}
