package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	binary  string // the command, built by TestMain
	torture = flag.Bool("torture", false, "ten times as many kills")
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "fairlane-torture-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "fairlane")
	build := exec.Command("go", "build", "-o", binary, "github.com/fairlane-dev/fairlane/cmd/fairlane")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the command does not build: %v\n%s", err, out)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

const (
	adminKey   = "torture-admin-key-0123456789"
	startLimit = 30 * time.Second // to readiness
)

// configuration makes what is slow by design quick: retries, breakers, the stop.
const configuration = `
server: {listen: "%s", stop_grace: 2s}
data: {dir: "%s", max_bytes: 2GiB, ballast: 0B}
delivery:
  timeout: 5s
  retry: {quick: {attempts: 4, base: 20ms}, slow: [1s]}
  breaker: {consecutive: 5, open: 1s, open_max: 2s}
  network: {allow: ["127.0.0.0/8"]}
tiers:
  default: {rate: unlimited, cap: 16, backlog: 1GiB}
`

// service is the command with one data directory and one address, over several processes.
type service struct {
	t      *testing.T
	dir    string // data and configuration
	addr   string
	client *http.Client

	mu   sync.Mutex
	log  bytes.Buffer // of all its processes
	cmd  *exec.Cmd
	done chan struct{} // the process has ended
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, dir: t.TempDir(), addr: freeAddr(t)}
	s.client = &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256},
		Timeout:   10 * time.Second,
	}
	text := fmt.Sprintf(configuration, s.addr, s.data())
	if err := os.WriteFile(s.config(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("log of the service, its end:\n%s", s.logTail(8<<10))
		}
	})
	return s
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *service) data() string   { return filepath.Join(s.dir, "data") }
func (s *service) config() string { return filepath.Join(s.dir, "fairlane.yaml") }

// Write takes the log of the service's processes.
func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *service) logTail(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.log.Bytes()
	return string(b[max(0, len(b)-n):])
}

// command is the service's process, not started.
func (s *service) command() *exec.Cmd {
	cmd := exec.Command(binary, "serve", "--config", s.config())
	cmd.Env = append(os.Environ(), "FAIRLANE_ADMIN_KEY="+adminKey)
	cmd.Stdout, cmd.Stderr = s, s
	return cmd
}

// start runs a process, which is not ready yet.
func (s *service) start() {
	s.t.Helper()
	s.cmd, s.done = s.command(), make(chan struct{})
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) { cmd.Wait(); close(done) }(s.cmd, s.done)
}

// startReady starts and returns how long it took to be ready.
func (s *service) startReady() time.Duration {
	s.t.Helper()
	begin := time.Now()
	s.start()
	if !s.awaitReady(startLimit) {
		s.t.Fatalf("not ready after %v; its log:\n%s", startLimit, s.logTail(4<<10))
	}
	return time.Since(begin)
}

// awaitReady reports whether the process becomes ready within limit. It ends early with the process.
func (s *service) awaitReady(limit time.Duration) bool {
	return poll(limit, func() bool {
		select {
		case <-s.done:
			s.t.Fatalf("the process ended; its log:\n%s", s.logTail(4<<10))
		default:
		}
		resp, err := s.client.Get("http://" + s.addr + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// kill is one kill -9: what happened before from was before it, and until to the process may still
// have run.
type kill struct{ from, to time.Duration }

// kill returns when the process is gone.
func (s *service) kill() kill {
	k := kill{from: now()}
	if s.cmd != nil {
		s.cmd.Process.Kill()
		<-s.done
	}
	k.to = now()
	return k
}

func (s *service) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// awaitExit reports whether the process ends within limit.
func (s *service) awaitExit(limit time.Duration) bool {
	select {
	case <-s.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// poll asks until f holds or limit is over; it reports which.
func poll(limit time.Duration, f func() bool) bool {
	end := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if f() {
			return true
		}
		select {
		case <-end:
			return false
		case <-tick.C:
		}
	}
}

// do sends an API request and reads the answer into out, unless that is nil.
func (s *service) do(ctx context.Context, method, path string, header http.Header, body []byte, out any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	req.Header.Set("Content-Type", "application/json")
	for name, v := range header {
		req.Header[name] = v
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	if out == nil {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.Unmarshal(answer, out)
}

// must is do for requests that have to succeed.
func (s *service) must(method, path string, in, out any) {
	s.t.Helper()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.do(s.t.Context(), method, path, nil, body, out); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) putTenant(id string) {
	s.t.Helper()
	s.must("PUT", "/v1/tenants/"+id, map[string]any{"name": strings.ToUpper(id)}, nil)
}

// subscribe creates a subscription to topic and returns its id.
func (s *service) subscribe(tenant, url, topic string, extra map[string]any) string {
	s.t.Helper()
	in := map[string]any{"tenant": tenant, "url": url, "topics": []string{topic}}
	for k, v := range extra {
		in[k] = v
	}
	var out struct{ ID string }
	s.must("POST", "/v1/subscriptions", in, &out)
	return out.ID
}

// metric returns one sample of /metrics, by its name.
func (s *service) metric(name string) float64 {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return v
		}
	}
	s.t.Fatalf("no metric %s: %s", name, resp.Status)
	return 0
}

// account is the service's account of a lane, a tenant or all.
type account struct {
	Offered, Delivered, Parked, Dead, Cancelled, Dropped uint64
	InFlight                                             uint64 `json:"in_flight"`
	Balanced                                             bool
}

func (a account) sum() uint64 {
	return a.Delivered + a.Parked + a.Dead + a.InFlight + a.Cancelled + a.Dropped
}

func (a account) plus(b account) account {
	a.Offered += b.Offered
	a.Delivered += b.Delivered
	a.Parked += b.Parked
	a.Dead += b.Dead
	a.Cancelled += b.Cancelled
	a.Dropped += b.Dropped
	a.InFlight += b.InFlight
	return a
}

type lane struct {
	Subscription, Tenant, Breaker, Blocked string
	Account                                account
}

// lanes returns every lane's status by subscription.
func (s *service) lanes() map[string]lane {
	s.t.Helper()
	var page struct {
		Items []lane
		Next  string
	}
	s.must("GET", "/v1/lanes?limit=1000", nil, &page)
	out := make(map[string]lane)
	for _, l := range page.Items {
		out[l.Subscription] = l
	}
	return out
}

// checkAccounts fails the test unless the platform's, every tenant's and every lane's account balances.
func (s *service) checkAccounts(when string) map[string]lane {
	s.t.Helper()
	var all struct {
		account
		Tenants struct {
			Items []struct {
				Tenant string
				account
			}
		}
	}
	s.must("GET", "/v1/account?limit=1000", nil, &all)
	check := func(what string, a account) {
		if !a.Balanced || a.Offered != a.sum() {
			s.t.Errorf("%s: the account of %s does not balance: %+v", when, what, a)
		}
	}
	check("the platform", all.account)
	var tenants account
	for _, t := range all.Tenants.Items {
		check("tenant "+t.Tenant, t.account)
		tenants = tenants.plus(t.account)
	}
	tenants.Balanced = all.Balanced
	if tenants != all.account {
		s.t.Errorf("%s: the tenants' accounts sum up to %+v, the platform's is %+v", when, tenants, all.account)
	}
	lanes := s.lanes()
	for _, l := range lanes {
		check("subscription "+l.Subscription, l.Account)
	}
	return lanes
}
