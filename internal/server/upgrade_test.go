package server

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
)

// Directories of the first release's format: two tenants with five subscriptions, which at the end had
// delivered 7, had 7 rejected, kept 5 for retries, 7 on a paused lane and 1 on one that a 410 had
// disabled. One was stopped, the other killed.
var firstFormat = []string{"format1-stopped.tar.gz", "format1-killed.tar.gz"}

// What the first release wrote opens, is all there, and goes on.
func TestTheFirstFormatOpens(t *testing.T) {
	for _, archive := range firstFormat {
		t.Run(strings.TrimSuffix(archive, ".tar.gz"), func(t *testing.T) {
			sent := &recorder{}
			s := start(t, unpack(t, archive), func(c *Config) {
				c.Sender = sent // and a quarter GiB, where the directory was made with 20
				c.Profile.Horizon = 366 * 24 * time.Hour
				c.History, c.KeepDead = 100*365*24*time.Hour, 100*365*24*time.Hour
			})
			a := s.account()
			if a.Offered != 27 || a.Delivered < 7 || a.Dead < 7 || !a.Balanced {
				t.Errorf("account %+v", a)
			}
			var subs page[subscriptionView]
			s.must(200, s.do("GET", "/v1/subscriptions", nil)).into(t, &subs)
			if len(subs.Items) != 5 {
				t.Fatalf("%d subscriptions", len(subs.Items))
			}
			first, paused := subs.Items[0], subs.Items[3]
			if first.Tenant != "acme" || first.Rate != "100/s" || first.Burst != 200 || *first.Cap != 7 ||
				first.URL != "http://127.0.0.1:19191/ok" || subs.Items[4].Disabled != "gone" || !paused.Paused {
				t.Errorf("subscriptions %+v", subs.Items)
			}
			if time.Since(first.Created) > 365*24*time.Hour {
				t.Skip("what waits in the recorded directory has passed the longest horizon: record it anew")
			}
			resumeAndCompare(t, s, sent, paused.ID)
			goesOn(t, s, sent)
		})
	}
}

// resumeAndCompare lets the paused lane go and holds what it sends to what was posted.
func resumeAndCompare(t *testing.T, s *service, sent *recorder, id string) {
	t.Helper()
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+id, strings.NewReader(`{"paused":false}`)))
	until(t, "what was parked is delivered", func() bool { a := s.laneOf(id).Account; return a.Delivered == 7 && a.Parked == 0 })
	all := sent.all()
	for _, want := range []string{`{"n": 1,  "e":1.0}`, `{"n": 5,  "e":1.0}`, `{"all":true}`, `{"gone":true}`} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("%s was not sent, of\n%s", want, all)
		}
	}
}

// goesOn posts a new trigger and waits for it.
func goesOn(t *testing.T, s *service, sent *recorder) {
	t.Helper()
	s.must(202, s.do("POST", "/v1/triggers/order.new", strings.NewReader("new"), "Fairlane-Tenant: acme"))
	until(t, "a new trigger arrives", func() bool { return strings.Contains(sent.all(), "new\n") })
}

// What this release writes into a directory of the first format, the first release's reader of records
// accepts: every record says that it is of that format.
func TestTheFirstFormatIsWrittenUntilToldOtherwise(t *testing.T) {
	dir := unpack(t, firstFormat[0])
	s := start(t, dir, func(c *Config) { c.Sender = &recorder{} })
	s.must(200, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"name":"renamed"}`)))
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	blocks, _ := filepath.Glob(filepath.Join(dir, "streams/jetstream/*/streams/KV_REGISTRY/msgs/*.blk"))
	found := 0
	for _, b := range blocks {
		data, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		found += strings.Count(string(data), `{"v":1,"id":"acme","name":"renamed"`)
	}
	if found == 0 { // twice: without and with its position
		t.Errorf("the renamed tenant's record stands %d times in format 1", found)
	}
}

// unpack returns a copy of a recorded directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", filepath.Join("testdata", archive), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// recorder is a sender that notes what it is given, a line each, and succeeds.
type recorder struct {
	mu   sync.Mutex
	sent strings.Builder
}

func (r *recorder) Send(_ context.Context, q *delivery.Request) delivery.Outcome {
	if q.Start != nil && !q.Start() {
		return delivery.Outcome{Result: engine.Result{Kind: engine.NotSent}, Reason: delivery.ReasonCut}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent.Write(append(q.Payload, '\n'))
	return delivery.Outcome{Result: engine.Result{Kind: engine.OK}, Status: 200, Sent: true, Reason: delivery.ReasonStatus}
}

func (r *recorder) Close() {}

func (r *recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent.String()
}
