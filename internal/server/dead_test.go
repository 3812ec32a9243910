package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/client"
)

// fickle is an endpoint whose answer can be changed.
type fickle struct {
	url    string
	status atomic.Int64
	seen   atomic.Int64
}

func newFickle(t *testing.T, status int) *fickle {
	t.Helper()
	f := &fickle{}
	f.status.Store(int64(status))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.seen.Add(1)
		w.WriteHeader(int(f.status.Load()))
	}))
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

// deadAndReplayed makes a subscription of acme with n dead letters.
func (s *service) dead(to *fickle, n int) (sub string, ids []string) {
	s.t.Helper()
	sub = s.subscribe("acme", to.url, "").ID
	for i := range n {
		r, _ := receiptOf(s.t, s.must(202, s.post("acme", fmt.Sprintf(`{"n":%d}`, i), "Content-Type: application/json")))
		ids = append(ids, r.ID)
	}
	until(s.t, "all dead", func() bool { return s.laneOf(sub).Account.Dead == uint64(n) })
	return sub, ids
}

func (s *service) replayIs(id, state string) replayView {
	s.t.Helper()
	var v replayView
	until(s.t, state, func() bool {
		s.must(200, s.do("GET", "/v1/replays/"+id, nil)).into(s.t, &v)
		return v.State == state
	})
	return v
}

func TestDeadLettersAreListedShownReplayedAndPurged(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	to := newFickle(t, 422)
	sub, ids := s.dead(to, 5)
	var p page[deadView]
	for _, path := range []string{"/v1/dead", "/v1/dead?tenant=acme&subscription=" + sub, "/v1/subscriptions/" + sub + "/dead?reason=rejected,expired"} {
		s.must(200, s.do("GET", path, nil)).into(t, &p)
		if len(p.Items) != 5 || p.Next != "" {
			t.Fatalf("%s: %d items, next %q", path, len(p.Items), p.Next)
		}
	}
	d := p.Items[0]
	if !slices.Contains(ids, d.Trigger) || d.Subscription != sub || d.Tenant != "acme" || d.Topic != "a.b" || d.Bytes != 7 || d.Reason != "rejected" ||
		d.Class != "endpoint" || d.FirstReason != "rejected" || d.Deaths != 1 || d.Attempts != 1 || d.Replays != 0 || time.Since(d.Died) > time.Minute {
		t.Errorf("%+v", d)
	}
	var got []string
	for after := ""; ; after = "&after=" + p.Next {
		p = page[deadView]{}
		s.must(200, s.do("GET", "/v1/dead?limit=2"+after, nil)).into(t, &p)
		for _, no := range []string{p.Next + "x", p.Next + ".1", "%20" + p.Next, "%2B" + p.Next, "0" + p.Next, p.Next + "%20"} {
			if a := s.do("GET", "/v1/dead?after="+no, nil); p.Next != "" && (a.status != 400 || a.problem(t).Field != "after") {
				t.Errorf("after=%s: %d %s", no, a.status, a.body)
			}
		}
		for _, i := range p.Items {
			got = append(got, i.Trigger)
		}
		if p.Next == "" {
			break
		}
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(ids))) { // two may die in another order than they came
		t.Errorf("paged %v, want %v", got, ids)
	}
	for _, name := range []string{d.Trigger, fmt.Sprint(d.Position)} {
		var v deadLetterView
		s.must(200, s.do("GET", "/v1/subscriptions/"+sub+"/dead/"+name, nil)).into(t, &v)
		payload, _ := base64.StdEncoding.DecodeString(v.Payload)
		want := fmt.Sprintf(`{"n":%d}`, slices.Index(ids, d.Trigger))
		if string(payload) != want || v.Headers["Content-Type"] != "application/json" || v.Headers["webhook-id"] != d.Trigger || !v.HistoryWhole ||
			len(v.History) != 1 || v.History[0].Kind != "dead" || v.History[0].Status != 422 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	var dry, run replayView
	s.must(200, s.do("POST", "/v1/replays", strings.NewReader(`{"subscription":"`+sub+`","dry_run":true}`))).into(t, &dry)
	if dry.Selected != 5 || !dry.DryRun || dry.ID != "" {
		t.Errorf("dry run %+v", dry)
	}
	s.must(204, s.do("DELETE", "/v1/subscriptions/"+sub+"/dead/"+ids[4], nil))
	s.must(404, s.do("DELETE", "/v1/subscriptions/"+sub+"/dead/"+ids[4], nil))
	to.status.Store(200)
	a := s.must(201, s.do("POST", "/v1/replays", strings.NewReader(`{"subscription":"`+sub+`"}`)))
	a.into(t, &run)
	if a.header.Get("Location") != "/v1/replays/"+run.ID || run.Selected != 4 || run.Tenant != "acme" {
		t.Errorf("%+v", run)
	}
	if v := s.replayIs(run.ID, "done"); v.Delivered != 4 || v.Taken != 4 || v.Left+v.Skipped+v.Waiting+v.DiedAgain+v.Cancelled != 0 {
		t.Errorf("%+v", v)
	}
	s.must(409, s.do("POST", "/v1/replays/"+run.ID+"/resume", nil))
	var list page[replayView]
	s.must(200, s.do("GET", "/v1/replays?tenant=acme", nil)).into(t, &list)
	if len(list.Items) != 1 || list.Items[0].ID != run.ID {
		t.Errorf("%+v", list)
	}
	want := account{Offered: 5, Delivered: 4, Cancelled: 1, Balanced: true}
	until(t, "the account", func() bool { return s.laneOf(sub).Account == want })
	var fate completionView
	until(t, "what became of the first", func() bool {
		s.must(200, s.do("GET", "/v1/triggers/"+ids[0], nil)).into(t, &fate)
		return len(fate.Fates) == 1 && fate.Fates[0].State == "delivered"
	})
	if !fate.Complete || !fate.Whole || fate.ID != ids[0] || fate.Topic != "a.b" {
		t.Errorf("%+v", fate)
	}
	s.must(404, s.do("GET", "/v1/triggers/msg_pnone", nil))
	var purged purgeView
	s.must(200, s.do("POST", "/v1/dead/purge", strings.NewReader(`{"tenant":"acme","dry_run":true}`))).into(t, &purged)
	if purged.Purged != 0 || !purged.DryRun {
		t.Errorf("%+v", purged)
	}
}

// A filter that nobody knows is refused, not ignored: ignored, it would mean everything.
//
// Field case 52.
func TestUnknownFiltersAreRefused(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	sub := s.subscribe("acme", "http://127.0.0.1:1/", "").ID
	for _, c := range []struct {
		status            int
		path, body, field string
	}{
		{422, "/v1/replays", `{"subscription":"` + sub + `","topic":"x"}`, "topic"},
		{422, "/v1/replays", `{"subscription":"` + sub + `","reasons":["nonsense"]}`, "reasons"},
		{422, "/v1/replays", `{"subscription":"` + sub + `","reasons":["rate"]}`, "reasons"},
		{422, "/v1/replays", `{"subscription":"` + sub + `","since":"yesterday"}`, "since"},
		{422, "/v1/replays", `{"subscription":"` + sub + `","since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}`, "until"},
		{422, "/v1/replays", `{"subscription":"` + sub + `","rate":"15"}`, "rate"},
		{422, "/v1/replays", `{}`, "subscription"},
		{422, "/v1/dead/purge", `{"subscription":"` + sub + `","rate":"15/s"}`, "rate"},
		{422, "/v1/dead/purge", `{}`, "subscription"},
		{404, "/v1/replays", `{"subscription":"sub_none"}`, ""},
		{404, "/v1/replays", `{"subscription":"` + sub + `","tenant":"other"}`, ""},
		{404, "/v1/replays/rpl_none/cancel", ``, ""},
		{404, "/v1/triggers/msg_pnone/resend", `{"subscriptions":["` + sub + `"]}`, ""},
		{404, "/v1/triggers/77/resend", `{"subscriptions":["sub_none"]}`, ""},
		{422, "/v1/triggers/77/resend", `{"subscriptions":[]}`, "subscriptions"},
	} {
		a := s.do("POST", c.path, strings.NewReader(c.body))
		if p := a.problem(t); a.status != c.status || p.Field != c.field {
			t.Errorf("%s %s: %d, field %q, want %d, %q: %s", c.path, c.body, a.status, p.Field, c.status, c.field, a.body)
		}
	}
	for _, q := range []string{"topic=x", "reason=x", "since=now", "until=1", "tenant=/", "after=x", "after=1.2", "after=1.2.-3", "limit=0", "reason=rejected&reason=expired"} {
		a := s.do("GET", "/v1/dead?"+q, nil)
		if p := a.problem(t); a.status != 400 || p.Field != strings.SplitN(q, "=", 2)[0] {
			t.Errorf("%s: %d %s", q, a.status, a.body)
		}
	}
}

func TestAResendIsAnActOfItsOwn(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	to := newFickle(t, 200)
	sub := s.subscribe("acme", to.url, "").ID
	for _, key := range []string{"", "Idempotency-Key: k1"} {
		before := s.laneOf(sub).Account.Delivered
		r, _ := receiptOf(t, s.must(202, s.post("acme", "x", key)))
		until(t, "delivered", func() bool { return s.laneOf(sub).Account.Delivered == before+1 })
		body := `{"subscriptions":["` + sub + `"]}`
		for i, name := range []string{r.ID, fmt.Sprint(r.Position)} {
			var v resentView
			s.must(202, s.do("POST", "/v1/triggers/"+name+"/resend", strings.NewReader(body))).into(t, &v)
			if v.Position != uint64(r.Position) {
				t.Errorf("%+v", v)
			}
			until(t, "delivered again", func() bool { a := s.laneOf(sub).Account; return a.Delivered == before+uint64(i)+2 && a.Balanced })
		}
	}
	if n := to.seen.Load(); n != 6 {
		t.Errorf("%d requests, want 6", n)
	}
}

// The typed client's calls about dead letters, replays and triggers.
func TestTheTypedClientOnDeadLetters(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	to := newFickle(t, 422)
	sub, ids := s.dead(to, 3)
	c, ctx := &client.Client{Base: s.URL(), Key: testKey}, t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mine := client.Selection{Tenant: "acme", Subscription: sub, Reasons: []string{"rejected", "expired"}, Since: "2020-01-02T03:04:05Z", Until: "2100-01-01T00:00:00Z"}
	count := func(sel client.Selection) (n int) {
		for d, err := range c.DeadLetters(ctx, sel) {
			check(err)
			if !slices.Contains(ids, d.Trigger) || d.Subscription != sub {
				t.Errorf("%+v", d)
			}
			n++
		}
		return n
	}
	early := mine
	early.Until = "2020-01-03T00:00:00Z"
	if all, none := count(mine), count(early); all != 3 || none != 0 {
		t.Errorf("listed %d and %d", all, none)
	}
	d, err := c.DeadLetter(ctx, sub, ids[0])
	check(err)
	if string(d.Payload) != `{"n":0}` || len(d.History) != 1 || d.History[0].Status != 422 {
		t.Errorf("%+v", d)
	}
	counted := mine
	counted.DryRun = true
	dry, err := c.StartReplay(ctx, counted)
	check(err)
	would, err := c.Purge(ctx, counted)
	check(err)
	if dry.Selected != 3 || dry.ID != "" || would != (client.Purged{Purged: 3, DryRun: true}) {
		t.Errorf("dry runs: %+v, %+v", dry, would)
	}
	check(c.PurgeOne(ctx, sub, ids[2]))
	paced := mine
	paced.Rate = "15/s"
	var p *client.Problem
	if _, err := c.Purge(ctx, paced); !asProblem(err, &p) || p.Field != "rate" {
		t.Errorf("a purge with a rate: %v", err)
	}
	_, err = c.PatchSubscription(ctx, sub, map[string]any{"paused": true})
	check(err)
	run, err := c.StartReplay(ctx, paced)
	check(err)
	cancelled, err := c.CancelReplay(ctx, run.ID)
	check(err)
	if cancelled.State != "cancelled" || cancelled.Selected != 2 || cancelled.Rate != "15/s" {
		t.Errorf("%+v", cancelled)
	}
	to.status.Store(200)
	_, err = c.PatchSubscription(ctx, sub, map[string]any{"paused": false})
	check(err)
	_, err = c.ResumeReplay(ctx, run.ID)
	check(err)
	until(t, "replayed", func() bool {
		r, err := c.Replay(ctx, run.ID)
		check(err)
		return r.State == "done" && r.Delivered == 2
	})
	for r, err := range c.Replays(ctx, "acme") {
		check(err)
		if r.ID != run.ID {
			t.Errorf("%+v", r)
		}
	}
	until(t, "known", func() bool {
		v, err := c.Completion(ctx, ids[0])
		check(err)
		return v.Complete && len(v.Deliveries) == 1 && v.Deliveries[0].State == "delivered" && v.Deliveries[0].Attempt == 2
	})
	again, err := c.Resend(ctx, ids[0], sub)
	check(err)
	if again.Trigger != ids[0] || again.Position != d.Position || !slices.Equal(again.Subscriptions, []string{sub}) {
		t.Errorf("%+v", again)
	}
	test, err := c.TestSubscription(ctx, sub)
	check(err)
	until(t, "sent again, and tested", func() bool { return to.seen.Load() == 3+2+2 })
	until(t, "the test's end", func() bool {
		v, err := c.Completion(ctx, test.ID)
		check(err)
		return v.Complete
	})
	gone, err := c.Purge(ctx, mine)
	if check(err); gone.Purged != 0 {
		t.Errorf("%+v", gone)
	}
}

// What a tenant lets be counted at once is bounded: 429 names the rule and when to come again.
func TestDryRunsAtOnceAreBounded(t *testing.T) {
	s := start(t, "", nil)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme"}`)))
	s.subscribe("acme", newFickle(t, 200).url, "")
	for _, path := range []string{"/v1/replays", "/v1/dead/purge"} {
		var refused atomic.Pointer[answer]
		for round := 0; refused.Load() == nil && round < 200; round++ {
			var many sync.WaitGroup
			for range 40 {
				many.Go(func() {
					a := s.do("POST", path, strings.NewReader(`{"tenant":"acme","dry_run":true}`))
					if a.status == 429 {
						refused.Store(&a)
					} else if a.status != 200 {
						t.Errorf("%s: %d %s", path, a.status, a.body)
					}
				})
			}
			many.Wait()
		}
		a := refused.Load()
		if a == nil {
			t.Fatalf("%s: none was refused", path)
		}
		if p := a.problem(t); p.Type != "urn:fairlane:problem:over-concurrency" || p.Field != "tenant" || !strings.HasPrefix(p.Rule, "has 4 selections") || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v %s", path, a.header, a.body)
		}
	}
}
