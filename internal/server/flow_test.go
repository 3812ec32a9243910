package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// laneOf reads GET /v1/lanes/{subscription}.
func (s *service) laneOf(id string) laneView {
	s.t.Helper()
	var v laneView
	s.must(200, s.do("GET", "/v1/lanes/"+id, nil)).into(s.t, &v)
	return v
}

// Field case 10.
func TestRateZeroParksAndARateFreesAtOnce(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	for _, paused := range []string{`"rate":0`, `"rate":"0"`, `"cap":0`, `"paused":true`} {
		sub := s.subscribe("acme", url, ","+paused)
		for i := range 3 {
			s.must(202, s.post("acme", fmt.Sprint(i)))
		}
		until(t, paused+": three parked", func() bool { return s.laneOf(sub.ID).Account.Parked == 3 })
		if len(got) != 0 {
			t.Errorf("%s: %d sent", paused, len(got))
		}
		s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(`{"rate":"500/s","burst":10,"cap":16,"paused":false}`)))
		for range 3 {
			next(t, got)
		}
		until(t, paused+": all delivered", func() bool { a := s.laneOf(sub.ID).Account; return a.Delivered == 3 && a.Parked == 0 && a.Balanced })
		s.must(204, s.do("DELETE", "/v1/subscriptions/"+sub.ID, nil))
	}
}

func TestTheEndpointSeesItsLimitAndWhatRemains(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	sub := s.subscribe("acme", url, `,"rate":"1/h","burst":40`)
	if l := s.laneOf(sub.ID); l.Rate != "1/h" || l.Burst != 40 || l.Remaining != 40 || l.Cap != 16 {
		t.Errorf("lane %+v", l)
	}
	for left := 39; left > 36; left-- {
		s.must(202, s.post("acme", "x"))
		d := next(t, got)
		if d.header.Get("Ratelimit-Limit") != "40" || d.header.Get("Ratelimit-Remaining") != strconv.Itoa(left) {
			t.Errorf("limit %q, remaining %q, want %d", d.header.Get("Ratelimit-Limit"), d.header.Get("Ratelimit-Remaining"), left)
		}
	}
	if l := s.laneOf(sub.ID); l.Remaining != 37 {
		t.Errorf("lane %+v", l)
	}
	free := s.subscribe("acme", url, `,"rate":"unlimited"`)
	if l := s.laneOf(free.ID); l.Rate != "unlimited" || l.Remaining != -1 || l.Burst != 0 {
		t.Errorf("lane %+v", l)
	}
}

// Every delivery is in exactly one state, of every lane, tenant and the platform, at any
// instant at which somebody looks.
func TestTheAccountBalancesWhileEverythingHappens(t *testing.T) {
	s := start(t, "", nil)
	good, got := endpoint(t, 200)
	bad, _ := endpoint(t, 400)
	gone, _ := endpoint(t, 410)
	for _, id := range []string{"a", "b", "c"} {
		s.tenant(id)
	}
	s.subscribe("a", good, "")
	s.subscribe("a", bad, "")
	paused := s.subscribe("b", good, `,"rate":0`)
	s.subscribe("b", good, `,"rate":"1/h","burst":2,"on_limit":"drop"`)
	s.subscribe("c", gone, "")
	for i := range 20 {
		s.must(202, s.post("*", fmt.Sprint(i)))
		if a := s.account(); !a.Balanced {
			t.Fatalf("after %d: %+v", i, a)
		}
	}
	want := account{Offered: 100, Delivered: 22, Dead: 20, Dropped: 18, Parked: 40, Balanced: true}
	until(t, "all settled", func() bool { return s.account().account == want })
	s.must(204, s.do("DELETE", "/v1/subscriptions/"+paused.ID, nil))
	want.Parked, want.Cancelled = 20, 20
	until(t, "cancelled", func() bool { return s.account().account == want })
	var sum account
	for _, tn := range s.account().Tenants.Items {
		if !tn.Balanced {
			t.Errorf("%+v", tn)
		}
		sum.Offered += tn.Offered
		sum.Delivered += tn.Delivered
		sum.Dead += tn.Dead
	}
	if sum.Offered != 100 || sum.Delivered != 22 || sum.Dead != 20 {
		t.Errorf("tenants' sum %+v", sum)
	}
	if len(got) != 22 {
		t.Errorf("%d received", len(got))
	}
}

func TestABacklogOverItsQuotaSlowsItsProducerOnly(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"full","tier":"tight","grants":[">"]}`)))
	s.tenant("other")
	s.subscribe("full", url, `,"rate":0`)
	s.subscribe("other", url, "")
	payload := strings.Repeat("x", 500)
	var refused answer
	accepted := uint64(0)
	until(t, "429", func() bool {
		if refused = s.post("full", payload); refused.status == 202 {
			accepted++
		}
		return refused.status == 429
	})
	if n, err := strconv.Atoi(refused.header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After %q", refused.header.Get("Retry-After"))
	}
	position := s.Journal().Status().LastPosition
	s.must(429, s.post("full", payload))
	if now := s.Journal().Status().LastPosition; now != position {
		t.Error("a refused post was stored")
	}
	s.must(202, s.post("other", "o"))
	s.must(202, s.post("full,other", "l"))
	s.must(202, s.post("*", "b"))
	for range 3 {
		next(t, got)
	}
	until(t, "what is over the quota is dead, and all balances", func() bool {
		a := s.account()
		return a.Balanced && a.Offered == accepted+5 && a.Delivered == 3 && a.Parked <= 4 && a.Parked+a.Dead == accepted+2 && a.Dead >= 2
	})
}

func TestTheLedgerHoldsWhatHappened(t *testing.T) {
	s := start(t, "", nil)
	answers := make(chan int, 2)
	answers <- 500
	answers <- 200
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(<-answers) }))
	t.Cleanup(srv.Close)
	s.tenant("acme")
	sub := s.subscribe("acme", srv.URL, "")
	first, _ := receiptOf(t, s.must(202, s.post("acme", "x")))
	var items []deliveryView
	read := func() {
		var p page[deliveryView]
		s.must(200, s.do("GET", "/v1/subscriptions/"+sub.ID+"/deliveries", nil)).into(t, &p)
		items = p.Items
	}
	until(t, "delivered", func() bool { read(); return len(items) > 0 && items[0].Kind == "delivered" })
	last := items[len(items)-1]
	if last.Kind != "failed" || last.Status != 500 || last.Attempt != 1 || last.Reason == "" || last.Due == nil {
		t.Errorf("the failure: %+v", last)
	}
	if d := items[0]; d.Status != 200 || d.Attempt != 2 || d.Position != first.Position || time.Since(d.At) > time.Minute {
		t.Errorf("the delivery: %+v", d)
	}
	var paged []deliveryView
	for after := ""; ; {
		var p page[deliveryView]
		s.must(200, s.do("GET", "/v1/subscriptions/"+sub.ID+"/deliveries?limit=1"+after, nil)).into(t, &p)
		paged = append(paged, p.Items...)
		if p.Next == "" {
			break
		}
		after = "&after=" + p.Next
	}
	if len(paged) != len(items) {
		t.Errorf("paged %d, whole %d", len(paged), len(items))
	}
}

func TestABroadcastReachesAllAndAListItsTenants(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	for _, id := range []string{"a", "b", "c"} {
		s.tenant(id)
		s.must(201, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"`+id+`","url":"`+url+`/`+id+`","topics":["a.*"]}`)))
	}
	for _, c := range []struct {
		topic, to string
		want      int
	}{{"a.b", "*", 3}, {"a.b", "a, c", 2}, {"a.b", "b,b", 1}, {"a.b.c", "*", 0}, {"b", "a", 0}} {
		before := s.account().Offered
		s.must(202, s.do("POST", "/v1/triggers/"+c.topic, strings.NewReader("x"), "Fairlane-Tenant: "+c.to))
		for range c.want {
			next(t, got)
		}
		s.must(202, s.post("a", "marker"))
		next(t, got)
		until(t, "offered", func() bool { return s.account().Offered >= before+uint64(c.want)+1 })
		if n := s.account().Offered - before - 1; n != uint64(c.want) {
			t.Errorf("%s to %s: %d offered", c.topic, c.to, n)
		}
	}
}

// Field case 96.
func TestAGoneEndpointIsDisabledAndTakenBackByAPerson(t *testing.T) {
	s := start(t, "", nil)
	gone, _ := endpoint(t, 410)
	back, got := endpoint(t, 200)
	s.tenant("acme")
	for what, patch := range map[string]string{"a new address": `{"url":"` + back + `"}`, "resuming, with one": `{"paused":false,"url":"` + back + `"}`} {
		sub := s.subscribe("acme", gone, "")
		first, _ := receiptOf(t, s.must(202, s.post("acme", what)))
		until(t, "disabled", func() bool {
			return fields(t, s.do("GET", "/v1/subscriptions/"+sub.ID, nil))["disabled"] == "gone"
		})
		if a := s.laneOf(sub.ID).Account; a.Parked != 1 || a.Dead != 0 || !a.Balanced {
			t.Errorf("%s: %+v", what, a)
		}
		if v := fields(t, s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(patch)))); v["disabled"] != nil {
			t.Errorf("%s: still disabled: %v", what, v)
		}
		if d := next(t, got); string(d.body) != what || d.header.Get("Webhook-Id") != first.ID {
			t.Errorf("%s: got %q", what, d.body)
		}
		s.must(204, s.do("DELETE", "/v1/subscriptions/"+sub.ID, nil))
	}
}
