package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/client"
)

// items walks a list and returns one member of each item.
func (s *service) items(path, member string) (out []string) {
	s.t.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for after := ""; ; {
		var p struct {
			Items []map[string]any
			Next  string
		}
		s.must(200, s.do("GET", path+after, nil)).into(s.t, &p)
		for _, item := range p.Items {
			out = append(out, fmt.Sprint(item[member]))
		}
		if p.Next == "" {
			return out
		}
		after = join + "after=" + p.Next
	}
}

// A test trigger reaches the one subscription, whatever it asks for, and nobody else; its topic is nobody's.
func TestATestTriggerIsForOneSubscription(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	other, stray := endpoint(t, 200)
	s.tenant("acme")
	sub := s.subscribe("acme", url, "")
	s.subscribe("acme", other, "")
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(`{"topics":["nothing"]}`)))
	r, _ := receiptOf(t, s.must(202, s.do("POST", "/v1/subscriptions/"+sub.ID+"/test", nil)))
	d := next(t, got)
	if string(d.body) != `{"type":"fairlane.test","subscription":"`+sub.ID+`"}` || d.header.Get("Webhook-Id") != r.ID || d.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %q %v", d.body, d.header)
	}
	s.must(202, s.do("POST", "/v1/subscriptions/"+sub.ID+"/test", strings.NewReader("mine"), "Content-Type: text/plain"))
	if d := next(t, got); string(d.body) != "mine" || d.header.Get("Content-Type") != "text/plain" {
		t.Errorf("got %q", d.body)
	}
	s.must(422, s.do("POST", "/v1/triggers/fairlane.test."+sub.ID, strings.NewReader("x"), "Fairlane-Tenant: acme"))
	s.must(202, s.post("acme", "last"))
	if d := next(t, stray); string(d.body) != "last" {
		t.Errorf("another subscription got the test: %q", d.body)
	}
	until(t, "counted", func() bool { a := s.account(); return a.Delivered == 3 && a.Balanced })
}

// A subscription that is created twice with one idempotency key is one.
func TestASubscriptionIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	s.tenant("acme")
	create := func(s *service, key, topic string) answer {
		return s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"http://127.0.0.1:9/","topics":["`+topic+`"]}`), "Idempotency-Key: "+key)
	}
	var first, again, other subscriptionView
	s.must(201, create(s, "k", "a")).into(t, &first)
	s.must(201, create(s, "l", "a")).into(t, &other)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir, nil)
	a := s.must(201, create(s, "k", "a"))
	a.into(t, &again)
	if again.ID != first.ID || other.ID == first.ID || again.Secret != "" || a.header.Get("Fairlane-Repeat") != "true" {
		t.Errorf("first %+v, again %+v, other %+v", first, again, other)
	}
	if p := s.must(422, create(s, "k", "b")).problem(t); p.Type != "urn:fairlane:problem:idempotency-key-conflict" {
		t.Errorf("%+v", p)
	}
	if got := s.items("/v1/subscriptions", "id"); !slices.Equal(got, []string{first.ID, other.ID}) {
		t.Errorf("got %v", got)
	}
	s.must(204, s.do("DELETE", "/v1/subscriptions/"+first.ID, nil))
	s.must(409, create(s, "k", "a"))
}

func TestWhatIsParkedIsListed(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	sub := s.subscribe("acme", "http://127.0.0.1:9/", `,"paused":true`)
	var want []string
	for range 5 {
		r, _ := receiptOf(t, s.must(202, s.post("acme", "x")))
		want = append(want, fmt.Sprint(float64(r.Position)))
	}
	until(t, "parked", func() bool { return s.account().Parked == 5 })
	path := "/v1/subscriptions/" + sub.ID + "/parked"
	if got := s.items(path+"?limit=2", "position"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := s.items(path+"?reason=pause,rate", "reason"); len(got) != 5 || got[0] != "pause" {
		t.Errorf("got %v", got)
	}
	if got := s.items(path+"?reason=rate", "reason"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestListsAreFiltered(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 400)
	s.tenant("acme")
	sub := s.subscribe("acme", url, "")
	still := s.subscribe("acme", url, `,"paused":true`)
	began := time.Now().UTC().Add(-time.Second).Format(time.RFC3339Nano)
	s.must(202, s.post("acme", "x"))
	next(t, got)
	until(t, "dead and parked", func() bool { a := s.account(); return a.Dead == 1 && a.Parked == 1 })
	later := time.Now().UTC().Add(time.Minute).Format(time.RFC3339Nano)
	ledger := "/v1/subscriptions/" + sub.ID + "/deliveries"
	for path, want := range map[string]int{
		ledger + "?kind=dead":                          1,
		ledger + "?kind=delivered":                     0,
		ledger + "?reason=rejected&kind=dead":          1,
		ledger + "?reason=expired":                     0,
		ledger + "?since=" + began:                     1,
		ledger + "?until=" + began:                     0,
		ledger + "?since=" + later:                     0,
		"/v1/subscriptions?state=active":               1,
		"/v1/subscriptions?state=paused,disabled":      1,
		"/v1/lanes?reason=pause":                       1,
		"/v1/lanes?reason=breaker":                     0,
		"/v1/audit?since=" + began:                     3,
		"/v1/audit?until=" + began + "&limit=2":        0,
		"/v1/audit?since=" + later + "&until=" + later: 0,
	} {
		until(t, path, func() bool { return len(s.items(path, "at")) == want })
	}
	if got := s.items("/v1/subscriptions?state=paused", "id"); !slices.Equal(got, []string{still.ID}) {
		t.Errorf("paused: %v", got)
	}
	for _, path := range []string{ledger + "?kind=dad", ledger + "?reason=", ledger + "?since=yesterday", ledger + "?since=" + later + "&until=" + began,
		"/v1/subscriptions?state=off", "/v1/tenants?state=active", "/v1/lanes?reason=why"} {
		if a := s.do("GET", path, nil); a.status != 400 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// Another tier is other limits, and no refill; a suspended tenant's deliveries wait.
func TestATierChangesWithoutARefill(t *testing.T) {
	s := start(t, "", func(c *Config) {
		slow, fast := c.Tiers["default"], c.Tiers["pro"]
		slow.Name, slow.Rate, slow.Burst = "slow", "1/h", 3
		fast.Name, fast.Rate, fast.Burst = "fast", "1/h", 100
		c.Tiers["slow"], c.Tiers["fast"] = slow, fast
	})
	url, got := endpoint(t, 200)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","tier":"slow"}`)))
	s.subscribe("acme", url, "")
	for range 5 {
		s.must(202, s.post("acme", "x"))
	}
	for range 3 {
		next(t, got)
	}
	until(t, "two parked", func() bool { return s.account().Parked == 2 })
	for _, patch := range []string{`{"tier":"fast"}`, `{"tier":"slow"}`, `{"tier":"fast"}`, `{"suspended":true}`, `{"suspended":false}`} {
		s.must(200, s.do("PATCH", "/v1/tenants/acme", strings.NewReader(patch)))
	}
	s.must(202, s.post("acme", "x"))
	until(t, "read", func() bool { return s.account().Offered == 6 })
	if a := s.account(); a.Parked != 3 || a.Delivered != 3 {
		t.Errorf("a change of tier refilled the bucket: %+v", a)
	}
	if got := s.items("/v1/tiers", "name"); !slices.Equal(got, []string{"default", "fast", "pro", "slow", "tight"}) {
		t.Errorf("tiers %v", got)
	}
	s.must(409, s.do("PUT", "/v1/tiers/fast", strings.NewReader("{}")))
}

// A tenant's own key lowers the limits of its tier, and does not raise them.
func TestATenantStaysWithinItsTier(t *testing.T) {
	s := start(t, "", nil)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","tier":"pro"}`))) // 100/s, burst 500, cap 32
	key := s.key(`"id":"portal","role":"tenant","tenants":["acme"]`)
	base := `{"url":"http://127.0.0.1:9/","topics":["a"],`
	for fields, want := range map[string]int{
		`"rate":"100/s","burst":500,"cap":32`: 201, `"rate":"0"`: 201, `"rate":"10/m"`: 201, `"cap":0`: 201, `"timeout":"1s"`: 201,
		`"rate":"101/s"`: 422, `"rate":"unlimited"`: 422, `"rate":"50/s","burst":501`: 422, `"cap":33`: 422,
	} {
		if a := s.as(key, "POST", "/v1/subscriptions", base+fields+`}`); a.status != want {
			t.Errorf("%s: %d %s", fields, a.status, a.body)
		}
		if a := s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme",`+base[1:]+fields+`}`)); a.status != 201 {
			t.Errorf("the administrator, %s: %d %s", fields, a.status, a.body)
		}
	}
}

// The typed client's types have the members of what the API answers and reads.
func TestTheClientsTypesAreTheAPIs(t *testing.T) {
	for _, pair := range [][2]any{
		{client.Tenant{}, tenantView{}}, {client.NewTenant{}, tenantIn{}}, {client.Subscription{}, subscriptionView{}},
		{client.NewSubscription{}, subscriptionIn{}}, {client.Delivery{}, deliveryView{}}, {client.Terms{}, account{}}, {client.Lane{}, laneView{}},
		{client.Account{}, accountView{}}, {client.TenantAccount{}, tenantAccount{}}, {client.Key{}, keyView{}}, {client.KeySecret{}, secretView{}},
		{client.NewKey{}, keyIn{}}, {client.Act{}, actView{}}, {client.Receipt{}, receiptView{}}, {client.Tier{}, tierView{}}, {client.NewTier{}, tierIn{}}, {client.CapAuto{}, capAutoView{}}, {client.Inbound{}, inboundView{}}, {client.Desired{}, applyIn{}}, {client.Change{}, changeView{}},
		{client.Parked{}, parkedView{}}, {client.Signature{}, signatureView{}}, {client.Certificate{}, certificateView{}}, {client.Problem{}, body{}}, {client.Page[int]{}, page[int]{}},
		{client.Selection{}, replayIn{}}, {client.DeadLetter{}, deadView{}}, {client.DeadLetterDetail{}, deadLetterView{}},
		{client.Replay{}, replayView{}}, {client.Completion{}, completionView{}}, {client.Fate{}, fateView{}},
		{client.Purged{}, purgeView{}}, {client.Resent{}, resentView{}}, {client.Rotation{}, rotateIn{}},
	} {
		got, want := members(reflect.TypeOf(pair[0])), members(reflect.TypeOf(pair[1]))
		if !slices.Equal(got, want) {
			t.Errorf("%T has %v\n%T has %v", pair[0], got, pair[1], want)
		}
	}
}

func members(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous && name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// What the strict reader asks for is what the document says that may be sent.
func TestTheDocumentNamesEveryFieldThatIsRead(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	sub := s.subscribe("acme", "http://127.0.0.1:9/", "")
	s.key(`"id":"ops","role":"admin"`)
	for i := range routes {
		rt := &routes[i]
		if rt.in == nil || rt.in == any(payload{}) {
			continue
		}
		path := rt.path
		for prefix, id := range map[string]string{"/v1/tenants/": "acme", "/v1/subscriptions/": sub.ID, "/v1/keys/": "ops"} {
			if strings.HasPrefix(path, prefix) {
				path = fillPath(path, id)
			}
		}
		p := s.do(rt.method, path, strings.NewReader(`{"zz":1}`)).problem(t)
		rules := p.Errors
		if len(rules) == 0 {
			rules = []fieldRule{{p.Field, p.Rule}}
		}
		_, known, ok := strings.Cut(rules[slices.IndexFunc(rules, func(f fieldRule) bool { return f.Field == "zz" })].Rule, "known here: ")
		if !ok {
			t.Errorf("%s: %+v", rt.pattern(), p)
			continue
		}
		read := strings.Split(known, ", ")
		slices.Sort(read)
		if documented := members(reflect.TypeOf(rt.in)); !slices.Equal(read, documented) {
			t.Errorf("%s reads %v\nits type has %v", rt.pattern(), read, documented)
		}
	}
}

// The typed client, over the whole of a small life.
func TestTheTypedClient(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	c, ctx := &client.Client{Base: s.URL() + "/", Key: testKey}, t.Context()
	_, err := c.CreateTenant(ctx, client.NewTenant{ID: "acme", Tier: "pro"})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	for id, err := range c.Tenants(ctx) {
		check(err)
		if id.ID != "acme" {
			t.Errorf("%+v", id)
		}
	}
	sub, err := c.CreateSubscription(ctx, client.NewSubscription{Tenant: "acme", URL: url, Topics: []string{"a.>"}, Rate: "20/s"})
	check(err)
	if sub.Secret == "" || sub.Burst != 20 {
		t.Errorf("%+v", sub)
	}
	key, err := c.CreateKey(ctx, client.NewKey{ID: "orders", Role: "producer", Tenants: []string{"acme"}})
	check(err)
	until(t, "ready", func() bool { return s.do("GET", "/readyz", nil).status == 200 })
	orders := &client.Client{Base: s.URL(), Key: key.Secret}
	for i := range 2 {
		r, err := orders.Post(ctx, client.Trigger{Topic: "a.b", Tenants: []string{"acme"}, Payload: []byte("x"), Key: "k"})
		check(err)
		if r.Repeat != (i == 1) {
			t.Errorf("post %d: %+v", i, r)
		}
	}
	next(t, got)
	until(t, "delivered", func() bool { return s.account().Delivered == 1 })
	for d, err := range c.Deliveries(ctx, sub.ID) {
		check(err)
		if d.Kind != "delivered" || d.Status != 200 {
			t.Errorf("%+v", d)
		}
	}
	sub, err = c.PatchSubscription(ctx, sub.ID, map[string]any{"rate": nil, "cap": 3})
	check(err)
	if sub.Rate != "" || *sub.Cap != 3 {
		t.Errorf("%+v", sub)
	}
	a, err := c.Account(ctx)
	check(err)
	if a.Delivered != 1 || len(a.Tenants.Items) != 1 {
		t.Errorf("%+v", a)
	}
	check(c.DeleteSubscription(ctx, sub.ID))
	_, err = c.Subscription(ctx, sub.ID)
	var p *client.Problem
	if !asProblem(err, &p) || p.Code() != "not-found" || p.Status != 404 {
		t.Errorf("%v", err)
	}
	check(c.RevokeKey(ctx, "orders"))
	if _, err = orders.Post(ctx, client.Trigger{Topic: "a.b", Tenants: []string{"acme"}}); !asProblem(err, &p) || p.Code() != "unauthorized" {
		t.Errorf("%v", err)
	}
	away := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(away.Close)
	if err := (&client.Client{Base: away.URL}).DeleteTenant(ctx, "a"); err == nil || err.Error() != "the service answered 404 Not Found" {
		t.Errorf("%v", err)
	}
}

func asProblem(err error, p **client.Problem) bool {
	var ok bool
	*p, ok = err.(*client.Problem) //nolint:errorlint // it is returned as it is
	return ok
}
