package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// unread is a client that reads nothing of its answer.
type unread struct {
	*httptest.ResponseRecorder
	begun, read chan struct{}
	once        sync.Once
}

func (c *unread) Write(b []byte) (int, error) {
	c.once.Do(func() { close(c.begun) })
	<-c.read
	return c.ResponseRecorder.Write(b)
}

// neighbours are two tenants with a subscription each, and their keys.
func (s *service) neighbours() (evil, good string, key map[string]string) {
	s.tenant("evil")
	s.tenant("good")
	evil, good = s.subscribe("evil", "https://evil.test/hook", "").ID, s.subscribe("good", "https://good.test/hook", "").ID
	key = map[string]string{}
	for _, id := range []string{"evil", "good"} {
		key[id] = s.key(fmt.Sprintf(`"id":"k-%s","role":"tenant","tenants":[%q]`, id, id))
	}
	return evil, good, key
}

// Row D6, and tenants are hostile to each other. Changes of the registry are made one at a time; one whose client does
// not read the answer keeps nobody else's waiting.
func TestAChangeWhoseAnswerIsNotReadHoldsNobodyUp(t *testing.T) {
	s := start(t, "", nil)
	evil, good, key := s.neighbours()
	for name, change := range map[string][2]string{
		"patch":  {"PATCH", "/v1/subscriptions/" + evil},
		"rotate": {"POST", "/v1/subscriptions/" + evil + "/rotate"},
		"create": {"POST", "/v1/subscriptions"},
	} {
		body := `{}`
		if name == "create" {
			body = `{"url":"https://evil.test/b","topics":["t"]}`
		}
		c := &unread{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), read: make(chan struct{})}
		r := httptest.NewRequest(change[0], change[1], strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+key["evil"])
		var ended sync.WaitGroup
		ended.Go(func() { s.server.Handler().ServeHTTP(c, r) })
		<-c.begun
		if running, waiting := s.server.changes.Load(); running+waiting > 0 {
			t.Errorf("%s: its answer is not read, and %d change, %d wait", name, running, waiting)
		} else if a := s.as(key["good"], "PATCH", "/v1/subscriptions/"+good, `{"rate":"5/s"}`); a.status != http.StatusOK {
			t.Errorf("beside %s: %d %s", name, a.status, a.body)
		}
		close(c.read)
		ended.Wait()
		if c.Code/100 != 2 {
			t.Errorf("%s: %d %s", name, c.Code, c.Body)
		}
	}
}

// Tenants take turns at changes: a flood of one's does not come before another's first.
func TestTenantsTakeTurnsAtChanges(t *testing.T) {
	s := start(t, "", nil)
	evil, good, key := s.neighbours()
	const flood = 20
	var mu sync.Mutex
	var order []string
	var ended sync.WaitGroup
	change := func(tenant, sub string) {
		ended.Go(func() {
			a := s.as(key[tenant], "PATCH", "/v1/subscriptions/"+sub, `{"rate":"5/s"}`)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprint(tenant, a.status))
		})
	}
	wait := func(n int) {
		for {
			if _, waiting := s.server.changes.Load(); waiting == n {
				return
			}
		}
	}
	release, err := s.server.changes.Acquire(t.Context(), fair.Claim{Tenant: "evil", Share: 1, Weight: 1}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i := range flood {
		change("evil", evil)
		wait(i + 1)
	}
	change("good", good)
	wait(flood + 1)
	release()
	ended.Wait()
	at := -1
	for i, who := range order {
		if who == "good200" {
			at = i
		}
	}
	if at < 0 || at > 5 {
		t.Errorf("the other tenant's only change came as %d: %v", at, order)
	}
}
