package server

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// A tenant posts as fast as its tier lets it; the operator's producers are not held to that, and a tier
// that changes holds for the next post, without a refill.
func TestATenantsOwnPostsGoByTheRateOfItsTier(t *testing.T) {
	s := start(t, "", func(c *Config) {
		c.Tiers["default"] = fanout.Tier{Name: "default", Inbound: fanout.Inbound{Rate: "1/h", Burst: 3}}
		c.Tiers["pro"] = fanout.Tier{Name: "pro", Inbound: fanout.Inbound{Rate: "1/h", Burst: 5}}
		c.Tiers["tight"] = fanout.Tier{Name: "tight", Inbound: fanout.Inbound{Rate: "0"}}
	})
	s.tenant("acme")
	key := s.key(`"id":"own","role":"tenant","tenants":["acme"]`)
	own := func() answer { return s.as(key, "POST", "/v1/triggers/a.b", "x") }
	for range 3 {
		s.must(202, own())
	}
	refused := s.must(429, own())
	p := refused.problem(t)
	if after, _ := strconv.Atoi(refused.header.Get("Retry-After")); after < 3500 || after > 3600 ||
		!strings.HasSuffix(p.Type, "over-inbound-rate") || !strings.Contains(p.Detail, "tier default") {
		t.Errorf("%v %+v", refused.header, p)
	}
	url, _ := endpoint(t, 200)
	s.must(429, s.as(key, "POST", "/v1/subscriptions/"+s.subscribe("acme", url, "").ID+"/test", "x")) // a test is a post
	for range 10 {
		s.must(202, s.post("acme", "by the operator"))
	}
	s.must(200, s.do("PATCH", "/v1/tenants/acme", strings.NewReader(`{"tier":"pro"}`)))
	s.must(429, own()) // whole tokens are kept: there are none
	s.must(200, s.do("PATCH", "/v1/tenants/acme", strings.NewReader(`{"tier":"tight"}`)))
	s.must(403, own())
}

// A batch costs what it holds, and is taken or refused whole.
func TestABatchCostsWhatItHolds(t *testing.T) {
	s := start(t, "", func(c *Config) {
		c.Tiers["default"] = fanout.Tier{Name: "default", Inbound: fanout.Inbound{Rate: "1/h", Burst: 3}}
	})
	s.tenant("acme")
	key := s.key(`"id":"own","role":"tenant","tenants":["acme"]`)
	batch := func(from, n int) answer {
		var events []string
		for i := range n {
			events = append(events, `{"specversion":"1.0","id":"`+strconv.Itoa(from+i)+`","source":"/s","type":"a.b"}`)
		}
		return s.as(key, "POST", "/v1/triggers", "["+strings.Join(events, ",")+"]", "Content-Type: application/cloudevents-batch+json")
	}
	s.must(403, batch(0, 4)) // never fits
	s.must(202, batch(0, 2))
	s.must(429, batch(10, 2))
	s.must(202, batch(20, 1))
}

// One tenant's flood waits for the log in its own queue: a post for another goes next.
func TestAFloodOfPostsWaitsBehindAnothersTurn(t *testing.T) {
	const flood = 4 * handOver
	hold, taken := make(chan struct{}), make(chan string, flood+1)
	f := &fake{append: func(_ context.Context, tr *journal.Trigger) (journal.Receipt, error) {
		taken <- tr.Audience.Tenants[0]
		<-hold
		return journal.Receipt{ID: "id", Position: 1}, nil
	}}
	srv, call, _ := serveFake(t, f)
	end := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(end) // before the server waits for its requests
	var posts sync.WaitGroup
	post := func(tenant string) {
		if got := call("POST", "/v1/triggers/a.b", "Fairlane-Tenant: "+tenant); got.status != 202 {
			t.Errorf("%s: %d %s", tenant, got.status, got.body)
		}
	}
	for range flood {
		posts.Go(func() { post("beta") })
	}
	for range handOver {
		<-taken
	}
	posts.Go(func() { post("acme") })
	until(t, "acme's post waits", func() bool { _, n := srv.door.slots.Tenant("acme"); return n == 1 })
	hold <- struct{}{} // one place falls free
	if who := <-taken; who != "acme" {
		t.Error("acme's post waits behind the flood")
	}
	end()
	posts.Wait()
}
