package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

const (
	filterQuery = "tenant=acme&reason=expired&since=2026-01-31T12:00&until=2026-02-01"
	filterJSON  = `{"tenant":"acme","reasons":["expired"],"since":"2026-01-31T12:00:00Z","until":"2026-02-01T00:00:00Z"`
)

// The list of dead letters asks for what its form says, page by page, and its acts are offered when they are aimed.
func TestDeadReads(t *testing.T) {
	died := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := (&fixed{answers: map[string]any{"GET /v1/dead": client.Page[client.DeadLetter]{Next: "41", Items: []client.DeadLetter{
		{Trigger: "msg_1", Subscription: "s1", Tenant: "acme", Topic: "orders.created", Reason: "expired", Died: died, Attempts: 7, Replays: 1, Bytes: 900}}}}}).visit(t)
	page := f.reads("/ui/dead?"+filterQuery+"&after=40", "Replay these… Purge these…", "2026-01-02 03:04:05 msg_1 orders.created acme s1 expired : it could not be delivered in time 7 (1 replay) 900 B", "Next")
	f.asks("GET /v1/dead?limit=50&reason=expired&since=2026-01-31T12%3A00%3A00Z&tenant=acme&until=2026-02-01T00%3A00%3A00Z&after=40")
	for _, part := range []string{`tenant=acme&amp;until=2026-02-01T00%3A00%3A00Z&amp;after=41">Next`, `name="reason" value="expired"`, `name="until" value="2026-02-01T00:00:00Z"`} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %s: %s", part, page)
		}
	}
	if page := f.reads("/ui/dead?reason=expired", "Filter by a tenant or a subscription to replay or purge"); strings.Contains(page, "Replay these") {
		t.Error("acts on the dead letters of all tenants are offered")
	}
}

// Replay and purge count first, act on what was asked for and nothing else, and need the confirmation.
func TestDeadActs(t *testing.T) {
	f := (&fixed{answers: map[string]any{
		"POST /v1/replays": client.Replay{ID: "rpl_1", Selected: 3}, "POST /v1/dead/purge": client.Purged{Purged: 2},
		"DELETE /v1/subscriptions/s1/dead/msg_1": struct{}{}, "POST /v1/replays/rpl_1/cancel": struct{}{},
	}}).visit(t)
	f.reads("/ui/replays/count?"+filterQuery, "Replay 3 dead letters?", "of tenant acme for the reason expired")
	f.reads("/ui/dead/purge?"+filterQuery, "Purge 2 dead letters?", "accepted at or after 2026-01-31T12:00:00Z")
	for _, question := range []string{"replays/count", "dead/purge"} {
		if page := f.do("GET", "/ui/"+question+"?tenant=acme&reason=expired", nil).Body.String(); !strings.Contains(page, `href="/ui/dead?reason=expired&amp;tenant=acme"`) {
			t.Errorf("%s does not lead back to what it was asked of: %s", question, page)
		}
	}
	f.asked = f.asked[:2]
	f.asks("POST /v1/replays "+filterJSON+`,"dry_run":true}`, "POST /v1/dead/purge "+filterJSON+`,"dry_run":true}`)

	form := []string{"tenant", "acme", "reason", "expired", "since", "2026-01-31T12:00:00Z", "until", "2026-02-01T00:00:00Z", "rate", "15/s"}
	for _, refused := range []string{"/ui/dead/purge", "/ui/dead/s1/msg_1/delete", "/ui/tenants/acme/link/revoke", "/ui/lanes/s1/rotate"} {
		if to := f.act(refused, form...); to != "422 " {
			t.Errorf("%s without the confirmation: %s", refused, to)
		}
		if w := f.do("POST", refused, url.Values{"sure": {"yes"}}); w.Code != http.StatusForbidden {
			t.Errorf("%s without the token: %d", refused, w.Code)
		}
	}
	if to := f.act("/ui/replays/rpl_1/purge"); to != "404 " {
		t.Errorf("an act that is none: %s", to)
	}
	f.asks()
	sure := append(form, "sure", "yes")
	for _, c := range [][2]string{{"/ui/dead/replay", "303 /ui/replays/rpl_1"}, {"/ui/dead/s1/msg_1/delete", "303 /ui/dead?subscription=s1"}, {"/ui/replays/rpl_1/cancel", "303 /ui/replays/rpl_1"},
		{"/ui/dead/purge", "303 /ui/dead?reason=expired&since=2026-01-31T12%3A00%3A00Z&tenant=acme&until=2026-02-01T00%3A00%3A00Z"}} {
		if to := f.act(c[0], sure...); to != c[1] {
			t.Errorf("%s: %s, want %s", c[0], to, c[1])
		}
	}
	f.asks("POST /v1/replays "+filterJSON+`,"rate":"15/s"}`, "DELETE /v1/subscriptions/s1/dead/msg_1", "POST /v1/replays/rpl_1/cancel", "POST /v1/dead/purge "+filterJSON+"}")

	f.who = Who{Tenant: "acme"} // its acts are on its own, whatever it names
	f.act("/ui/dead/replay", "reason", "expired")
	f.asks(`POST /v1/replays {"tenant":"acme","reasons":["expired"]}`)
}

// A dead letter has its first and its last cause, and its replay selects it alone.
func TestLetterReads(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)
	d := client.DeadLetterDetail{Payload: []byte("<b>hello</b>"), HistoryWhole: true, DeadLetter: client.DeadLetter{Trigger: "msg_1", Tenant: "acme", Topic: "t", Bytes: 12, Accepted: &at,
		FirstReason: "expired", FirstDied: at.Add(time.Minute), Reason: "rejected", Died: at.Add(time.Hour), Deaths: 2, Replays: 1, Attempts: 5}}
	f := (&fixed{answers: map[string]any{"GET /v1/subscriptions/s1/dead/msg_1": &d}}).visit(t)
	page := f.reads("/ui/dead/s1/msg_1", "Died first 2026-01-02 03:05:05 UTC: expired", "Died last 2026-01-02 04:04:05 UTC: rejected", "Attempts 5; deaths: 2; replays: 1", "Payload, 12 B", "As text", "<b>hello</b>", "History, newest first")
	for _, part := range []string{`name="since" value="2026-01-02T03:04:05.000678Z"`, `name="until" value="2026-01-02T03:04:05.000679Z"`, "&lt;b&gt;hello"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %s: %s", part, page)
		}
	}
	d.Deaths = 1
	if page := f.reads("/ui/dead/s1/msg_1", "Died 2026-01-02 04:04:05 UTC: rejected"); strings.Contains(page, "Died first") {
		t.Error("one death is told twice")
	}
}

// Replays are listed the newest first, each figure under its name; one that is done stands still.
func TestReplaysRead(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := client.Replay{ID: "rpl_2", Tenant: "acme", Subscription: "s1", State: "running", Rate: "15/s", Selected: 21, Delivered: 1, DiedAgain: 2, Waiting: 3, Left: 4, Skipped: 5, Cancelled: 6, Created: &at}
	f := (&fixed{answers: map[string]any{"GET /v1/replays": client.Page[client.Replay]{Items: []client.Replay{{ID: "rpl_1", State: "done", Tenant: "acme"}, r}}, "GET /v1/replays/rpl_2": &r}}).visit(t)
	f.reads("/ui/replays", "rpl_2 2026-01-02 03:04:05 running acme s1 21 1 2 3 4 rpl_1 done acme")
	page := f.reads("/ui/replays/rpl_2", "running; at most 15/s", "Selected 21 Delivered 1 Died again 2 Waiting 3 Left 4 Skipped 5 Cancelled 6 Cancel what is left")
	r.State = "done"
	if done := f.reads("/ui/replays/rpl_2", "done"); !strings.Contains(page, "data-live") || strings.Contains(done, "data-live") || strings.Contains(done, "Cancel what is left") {
		t.Error("a running replay stands still, or one that is done goes on")
	}
}

// A link is good for as long as was asked for and no longer, and looks unless it is told to act.
func TestLinkLife(t *testing.T) {
	f := (&fixed{answers: map[string]any{"GET /v1/tenants/acme": client.Tenant{ID: "acme"}}}).visit(t)
	made := func(query string) (path string, ok bool) {
		_, rest, ok := strings.Cut(f.reads("/ui/tenants/acme/link?"+query, "Link for acme"), `href="/ui/t/`)
		text, _, _ := strings.Cut(rest, "/")
		return text, ok
	}
	for _, c := range []struct {
		query string
		life  time.Duration
		acts  bool
	}{{"life=1h", time.Hour, false}, {"life=1d&may=see", 24 * time.Hour, false}, {"life=7d&may=act", 7 * 24 * time.Hour, true}, {"life=90d&may=anything", 90 * 24 * time.Hour, false}} {
		text, _ := made(c.query)
		now := time.Now()
		l, ok := f.u.openLink(text, now.Add(c.life-time.Minute))
		if !ok || l.acts != c.acts || l.tenant != "acme" {
			t.Errorf("%s: %+v, good %v before its end", c.query, l, ok)
		}
		if _, ok := f.u.openLink(text, now.Add(c.life)); ok {
			t.Errorf("%s: good after its end", c.query)
		}
	}
	for _, none := range []string{"", "life=", "life=1y", "life=876000h"} {
		if text, ok := made(none); ok {
			t.Errorf("%q makes the link %s", none, text)
		}
	}
	if page := f.reads("/ui/tenants/acme/link?life=7d&may=act", "for acting too"); !strings.Contains(page, `value="7d" selected`) || !strings.Contains(page, `value="act" selected`) {
		t.Error("the form forgets what was asked for")
	}
}

// A session's cookie is for this service's pages alone; it ends with its time, with the sign-out and with the key.
func TestSessionEnds(t *testing.T) {
	f := (&fixed{}).visit(t)
	c := f.cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/ui/" {
		t.Errorf("the cookie: %+v", c)
	}
	r := httptest.NewRequest("GET", "/ui/", nil)
	r.AddCookie(c)
	for after, want := range map[time.Duration]bool{0: true, sessionLife - time.Minute: true, sessionLife: false} {
		if _, ok := f.u.sessions.of(r, time.Now().Add(after)); ok != want {
			t.Errorf("after %v: good %v", after, ok)
		}
	}
	back := f.do("POST", "/ui/sign-in", url.Values{"key": {"k"}, "to": {"/lanes?sort=dead"}})
	if got := back.Header().Get("Location"); got != "/ui/lanes?sort=dead" {
		t.Errorf("signed in to %q", got)
	}
	f = (&fixed{}).visit(t) // the sign-in ended the first session
	if !f.u.still(&visit{key: "k"}) {
		t.Error("a live page ends while its key is good")
	}
	f.who = Who{Tenant: "acme"}
	if f.u.still(&visit{key: "k"}) {
		t.Error("a live page goes on for another")
	}
	f.who, f.unknown = Who{}, true
	if f.u.still(&visit{key: "k"}) {
		t.Error("a live page goes on with a revoked key")
	}
	f.unknown = false
	f.do("POST", "/ui/sign-out", nil)
	if w := f.do("GET", "/ui/", nil); w.Code != http.StatusSeeOther {
		t.Errorf("signed out, and the cookie opens a page: %d", w.Code)
	}
}

// A stream sends a part again when it has changed, and only then; when too many are open, a page stands still.
func TestStreamSendsWhatChanged(t *testing.T) {
	f := (&fixed{answers: map[string]any{"GET /v1/replays": client.Page[client.Replay]{}}}).visit(t)
	p, sent := &page{make: (*UI).replays}, map[string]string{}
	push := func() string {
		w := httptest.NewRecorder()
		if err := f.u.push(w, &visit{Request: httptest.NewRequest("GET", "/replays", nil), base: "/ui", key: "k"}, p, sent); err != nil {
			t.Fatal(err)
		}
		return w.Body.String()
	}
	if first, again := push(), push(); !strings.Contains(first, "None yet") || strings.Contains(again, "data:") {
		t.Errorf("sent %q, then %q", first, again)
	}
	f.answers["GET /v1/replays"] = client.Page[client.Replay]{Items: []client.Replay{{ID: "rpl_new"}}}
	if changed := push(); !strings.Contains(changed, "rpl_new") {
		t.Errorf("what changed is not sent: %q", changed)
	}
	for range maxStreams {
		f.u.streams <- struct{}{}
	}
	if w := f.do("GET", "/ui/replays", nil, "Accept", "text/event-stream"); w.Code != http.StatusNoContent {
		t.Errorf("one stream too many: %d", w.Code)
	}
}

// The calculators take their own figures in the units they name, and their pictures draw what their tables say.
func TestWhatIfReads(t *testing.T) {
	f := (&fixed{lanes: []fanout.LaneStatus{laneOf("a", 1, engine.Counters{}, engine.None)}}).visit(t)
	f.reads("/ui/what-if", "Tokens before the burst 120 Admitted of the burst 120 Denied of the burst 180 Offered steadily 12,000 At most let through of that 7,440 Held back, at least 4,560",
		"fixed 120 120 240 240 0 s", "Slots that a hanging endpoint holds, without a cap 1,000 (83.3 %) Slots that it holds, with the cap 16 (1.33 %)",
		"Attempts a request, without the budget 4 Attempts a request, with it 1.02", "One delivery, median 8 ms", "C 3 900 825 no, its share", "Deliveries a second 5,000")
	f.reads("/ui/what-if?of=retries&rate=100&for=30&capacity=7", "Capacity (tokens)", "At most let through of that 7,440", "Attempts a second, without the budget 400", "Level 275 for each weight")
	page := f.reads("/ui/what-if?of=shares&capacity=100&want0=100&want1=100&want2=0&weight2=1", "50 of 100")
	one := frame{4, 110}
	if bar := fmt.Sprintf(`class="before" x="%.1f" y="%.1f"`, one.x(0.2), one.y(50)); !strings.Contains(page, bar) {
		t.Errorf("no bar %s", bar)
	}
	level := frame{9, 240}
	if line := fmt.Sprintf(`class="level" points="%.1f,%.1f %.1f,%.1f %.1f,%.1f`, level.x(0), level.y(0), level.x(1), level.y(120), level.x(1), level.y(0)); !strings.Contains(page, line) {
		t.Errorf("no line %s: %s", line, page)
	}
	if start := fmt.Sprintf(`class="steady" points="%.1f,%.1f %.1f,%.1f `, level.x(0), level.y(240), level.x(9./steps), level.y(240-80*9./steps)); !strings.Contains(page, start) {
		t.Errorf("the steady offer does not begin with %s", start)
	}
}

// Durations are rounded, and of one that has passed nothing is said to come.
func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", 56 * time.Microsecond: "0.06 ms", 2960 * time.Microsecond: "3.0 ms", 59_800 * time.Millisecond: "60 s", 119 * time.Minute: "119 min", 179 * time.Minute: "3 h", 71 * time.Hour: "3 days"} {
		if got := brief(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	past, soon := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	if again(nil) != "" || again(&past) != "" || again(&soon) != "again in 60 min" {
		t.Errorf("again: %q %q %q", again(nil), again(&past), again(&soon))
	}
}
