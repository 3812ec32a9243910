package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// trigger is one that was acknowledged.
type trigger struct {
	id       string
	position uint64
	tenants  []string
	n        int
}

// load posts triggers of 900 bytes until it is stopped, whatever the service does.
type load struct {
	service *service
	topic   string
	every   atomic.Int64 // nanoseconds between the posts of one producer
	running sync.WaitGroup
	cancel  context.CancelFunc

	mu       sync.Mutex
	acked    map[string]trigger // by id
	inDoubt  int                // posts without an answer: they may be stored
	repeats  int                // posts that were recognised by their key after they had been acknowledged
	refused  map[string]int     // by status
	problems []error
}

// startLoad runs a producer for each audience. Every second one uses idempotency keys and repeats
// what was not acknowledged.
func startLoad(t *testing.T, s *service, every time.Duration, audiences ...[]string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(s)
	l.cancel = cancel
	l.every.Store(int64(every))
	for i, to := range audiences {
		l.running.Go(func() { l.produce(ctx, i, to, i%2 == 1) })
	}
	t.Cleanup(l.stop)
	return l
}

func newLoad(s *service) *load {
	return &load{service: s, topic: "orders.created", acked: make(map[string]trigger), refused: make(map[string]int)}
}

// stop ends the load; what is being posted is finished.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

func (l *load) produce(ctx context.Context, producer int, to []string, keyed bool) {
	for n := 0; l.wait(ctx); n++ {
		key := ""
		if keyed {
			key = fmt.Sprintf("p%d-%d", producer, n)
		}
		for !l.post(to, producer, n, key) && keyed {
			if !l.wait(ctx) {
				l.doubt()
				return
			}
		}
		if keyed && n%8 == 7 { // by mistake, once more
			l.post(to, producer, n, key)
		}
	}
}

// wait reports whether the load goes on.
func (l *load) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(l.every.Load())):
		return true
	}
}

func (l *load) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inDoubt++
}

// payload names its trigger; postedOf reads the name.
func payload(producer, n int) []byte {
	return fmt.Appendf(nil, `{"trigger":"%d/%d","pad":"%s"}`, producer, n, strings.Repeat("x", 860))
}

func postedOf(body []byte) string {
	var p struct{ Trigger string }
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.Trigger
}

// post reports whether the trigger was acknowledged. A post that has begun is not cut.
func (l *load) post(to []string, producer, n int, key string) bool {
	header := http.Header{"Fairlane-Tenant": {strings.Join(to, ",")}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	var out struct {
		ID       string
		Position uint64
	}
	status, err := l.service.do(context.Background(), "POST", "/v1/triggers/"+l.topic, header, payload(producer, n), &out)

	l.mu.Lock()
	defer l.mu.Unlock()
	if (status == 0 || status >= 500) && key == "" {
		l.inDoubt++
	}
	switch {
	case status == 0:
	case status == http.StatusAccepted && err == nil && out.ID != "":
		old, again := l.acked[out.ID]
		switch {
		case again && key != "" && old.n == n && old.position == out.Position:
			l.repeats++
		case again:
			l.problems = append(l.problems, fmt.Errorf("id %s was given to two triggers: %d of %v, %d of %v", out.ID, old.n, old.tenants, n, to))
		}
		l.acked[out.ID] = trigger{out.ID, out.Position, to, n}
		return true
	case status == http.StatusAccepted:
		l.problems = append(l.problems, errors.Join(errors.New("acknowledged without an id"), err))
	default:
		l.refused[http.StatusText(status)]++
		if status < 500 && status != http.StatusTooManyRequests {
			l.problems = append(l.problems, err)
		}
	}
	return false
}

// outcome returns what was acknowledged, and how much is in doubt.
func (l *load) outcome(t *testing.T) (acked map[string]trigger, inDoubt int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.problems[:min(len(l.problems), 5)] {
		t.Error(err)
	}
	t.Logf("posted: %d acknowledged, %d without an answer, %d repeats recognised, refused %v", len(l.acked), l.inDoubt, l.repeats, l.refused)
	return maps.Clone(l.acked), l.inDoubt
}
