package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/promtest"
)

// runbook is the commands behind a mark of docs/operating.md.
func runbook(t *testing.T, mark string) []string {
	t.Helper()
	root, err := promtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "<!-- "+mark+" -->\n```sh\n")
	text, _, ok := strings.Cut(text, "\n```")
	if !ok {
		t.Fatalf("operating.md has no commands marked %q", mark)
	}
	return strings.Split(text, "\n")
}

// follow runs the commands, with systemctl's in this process.
func follow(t *testing.T, commands []string, data, backup string, stop, start func()) {
	t.Helper()
	for _, line := range commands {
		switch line {
		case "systemctl stop fairlane":
			stop()
		case "systemctl start fairlane":
			start()
		default:
			cmd := exec.Command("sh", "-ec", line)
			cmd.Env = append(os.Environ(), "data="+data, "backup="+backup)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
	}
}

// arrivals counts webhook-ids.
type arrivals struct {
	mu sync.Mutex
	by map[string]int
}

func (a *arrivals) serve(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.by[r.Header.Get("webhook-id")]++
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.by)
}

// twice is how many came more than once.
func (a *arrivals) twice() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.by {
		if times > 1 {
			n++
		}
	}
	return n
}

// loading posts to a tenant one after the other, to whatever service there is, until end is called.
type loading struct {
	mu    sync.Mutex
	s     *service // nil: stopped
	acked int
	quit  chan struct{}
	done  sync.WaitGroup
}

func (l *loading) to(s *service) { l.mu.Lock(); l.s = s; l.mu.Unlock() }

func (l *loading) run(tenant string) {
	l.done.Go(func() {
		for {
			select {
			case <-l.quit:
				return
			default:
			}
			l.mu.Lock()
			if l.s != nil && l.s.post(tenant, "load").status == 202 {
				l.acked++
			}
			l.mu.Unlock()
		}
	})
}

// The runbook's own commands, on a service under load: what was parked and dead at the backup is so after the
// restore, what was delivered does not come again, and the rest is delivered.
func TestTheRunbooksBackupRestores(t *testing.T) {
	dir := t.TempDir()
	data, backup := filepath.Join(dir, "data"), filepath.Join(dir, "fairlane.tar")
	s := start(t, data, nil)
	healthy, parked := &arrivals{by: map[string]int{}}, &arrivals{by: map[string]int{}}
	picky, _ := endpoint(t, 422)
	for tenant, sub := range map[string][2]string{"busy": {healthy.serve(t), ""}, "later": {parked.serve(t), `,"rate":0`}, "picky": {picky, ""}} {
		s.tenant(tenant)
		s.subscribe(tenant, sub[0], sub[1])
	}
	for range 20 {
		s.must(202, s.post("later,picky", "x"))
	}
	load := &loading{s: s, quit: make(chan struct{})}
	load.run("busy")
	until(t, "parked, dead and under load", func() bool {
		a := s.account()
		return a.Parked >= 20 && a.Dead == 20 && a.Delivered > 200
	})
	stop := func() {
		load.to(nil)
		if err := s.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	ackedAt, arrivedAt := 0, 0
	follow(t, runbook(t, "backup"), data, backup, func() {
		stop()
		ackedAt, arrivedAt = load.acked, healthy.count()
	}, func() { s = start(t, data, nil); load.to(s) })
	until(t, "it goes on", func() bool { return healthy.count() > arrivedAt+200 })
	s.must(202, s.post("later", "after the backup"))
	close(load.quit)
	load.done.Wait()

	lost := filepath.Join(dir, "lost")
	follow(t, runbook(t, "restore"), data, backup, func() {
		stop()
		if err := os.Rename(data, lost); err != nil { // the disaster
			t.Fatal(err)
		}
	}, func() { s = start(t, data, nil) })
	until(t, "all of the backup's load is delivered", func() bool { return s.laneAccount(t, "busy").Delivered == uint64(ackedAt) })
	if a := s.laneAccount(t, "later"); a.Parked != 20 || !a.Balanced {
		t.Errorf("parked: %+v", a)
	}
	if a := s.laneAccount(t, "picky"); a.Dead != 20 || !a.Balanced {
		t.Errorf("dead: %+v", a)
	}
	if n := healthy.twice(); n > ackedAt-arrivedAt {
		t.Errorf("%d came twice, though at most %d were waiting at the backup", n, ackedAt-arrivedAt)
	}
	var subs page[subscriptionView]
	s.must(200, s.do("GET", "/v1/subscriptions?tenant=later", nil)).into(t, &subs)
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+subs.Items[0].ID, strings.NewReader(`{"rate":"unlimited"}`)))
	until(t, "what was parked arrives", func() bool { return s.laneAccount(t, "later").Delivered == 20 })
	if parked.count() != 20 || parked.twice() != 0 {
		t.Errorf("%d arrived, %d of them twice", parked.count(), parked.twice())
	}
}
