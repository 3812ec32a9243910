package ui_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
	"github.com/fairlane-dev/fairlane/internal/server"
)

// everyPage is each page that an administrator has, of a service with the demo's tenants.
func (s *service) everyPage(dead string) []string {
	return []string{
		"/", "/lanes", "/lanes?q=steady&sort=parked", "/lanes/" + s.subs["picky"], "/lanes/" + s.subs["noisy"], "/lanes/" + s.subs["failing"],
		"/dead", "/dead?tenant=picky&reason=rejected", "/dead/" + s.subs["picky"] + "/" + dead, "/dead/purge?tenant=picky",
		"/replays", "/replays/count?subscription=" + s.subs["picky"], "/trigger", "/trigger?id=" + dead,
		"/tenants/picky", "/tenants/noisy", "/tenants/picky/link?life=1h", "/what-if",
	}
}

// Every page shows without a script, under a policy that lets nothing else run, and shows what enemies wrote
// as text.
func TestPagesShow(t *testing.T) {
	s := start(t, nil)
	s.demo()
	s.post("noisy", 40, "x")
	s.post("failing", 3, "x")
	s.rude()
	dead := s.dead()
	b := s.browser()
	b.get("/").has(t, 200, "Sign in")
	b.signIn(adminKey).has(t, 200, "Overview")
	for _, page := range s.everyPage(dead) {
		p := b.get("/ui"+page).has(t, 200, "<main")
		if strings.Contains(p.text, "<script>") || strings.Contains(p.text, " style=") || strings.Contains(p.text, "onerror=\"") || strings.Contains(p.text, "ZgotmplZ") {
			t.Errorf("%s: has what the policy refuses, or raw text of a payload: %s", page, p.text)
		}
		csp := p.header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", page, csp)
		}
	}
	b.get("/ui/dead/"+s.subs["picky"]+"/"+dead).has(t, 200, "document.title=", "&lt;script&gt;", "rejected")
	b.get("/ui/lanes/"+s.subs["noisy"]).has(t, 200, "the agreed rate is used up", "the last in about")
	b.get("/ui/lanes/"+s.subs["rude"]).has(t, 200, "&lt;b&gt;no&lt;/b&gt; [31m", "400")
	b.get("/ui/nowhere").has(t, 404, "There is nothing here")
}

// The page of calculators says what package plan says, and names what it refuses.
func TestWhatIf(t *testing.T) {
	s := start(t, nil)
	b := s.browser()
	b.signIn(adminKey)
	b.get("/ui/what-if").has(t, 200, "<td>C</td><td>3</td><td>900</td><td>825</td><td>no, its share</td>", "275 for each weight", "0.703")
	b.get("/ui/what-if?of=shares&capacity=5000&want0=1000&weight1=2").has(t, 200, "nobody gets less than it wants", `name="want0" value="1000"`, "<td>A</td><td>1</td><td>1,000</td><td>1,000</td><td>yes</td>")
	b.get("/ui/what-if?of=shares&weight0=1.5&want1=much").has(t, 200, "B wants must be a number")
	b.get("/ui/what-if?of=shares&weight0=1.5").has(t, 200, "tenants[0].weight 1.5: must be a whole number from 1 to 1000")
	b.get("/ui/what-if?of=bucket&refill=100&capacity=100&burst=150&idle=1").has(t, 200, "<dt>Admitted of the burst</dt><dd><b>100</b></dd>", "<dt>Denied of the burst</dt><dd><b>50</b></dd>")
}

// A session is a cookie that scripts and other sites cannot use; acts need the session's token; a revoked key
// ends it.
func TestSignIn(t *testing.T) {
	s := start(t, nil)
	s.demo()
	b := s.browser()
	b.get("/ui/lanes?sort=dead").has(t, 200, "Sign in", `value="/lanes?sort=dead"`)
	b.signIn("wrong").has(t, 401, "No page opens with this key")
	b.send("/ui/sign-in", url.Values{"key": {adminKey}, "to": {"//evil.example/"}}).has(t, 200, "Overview")
	for _, c := range b.Jar.Cookies(must(url.Parse(s.URL() + "/ui/"))) {
		if c.Value == adminKey || c.Value == "" {
			t.Errorf("the cookie holds %q", c.Value)
		}
	}
	lane := "/ui/lanes/" + s.subs["steady"]
	b.send(lane+"/test", url.Values{}).has(t, 403, "too old")
	b.do("POST", lane+"/test", url.Values{"token": {b.get(lane).token(t)}}, "Sec-Fetch-Site: cross-site").has(t, 403)
	b.send(lane+"/test", url.Values{"token": {b.get(lane).token(t)}}).has(t, 200, "Trigger", s.subs["steady"])
	b.send("/ui/sign-out", nil).has(t, 200, "Sign in")
	b.get("/ui/").has(t, 200, "Sign in")

	own := s.browser()
	own.signIn(s.key("k", "tenant", "picky")).has(t, 200, "picky")
	s.api("DELETE", "/v1/keys/k", "", nil)
	own.get("/ui/").has(t, 200, "Sign in")
	own.signIn(s.key("p", "producer", "picky")).has(t, 401)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// link makes a signed link to a tenant's page, for an hour.
func (b *browser) link(tenant, may string) string {
	b.s.t.Helper()
	p := b.get("/ui/tenants/"+tenant+"/link?life=1h&may="+may).has(b.s.t, 200, "/ui/t/")
	_, rest, _ := strings.Cut(p.text, `href="/ui/t/`)
	text, _, _ := strings.Cut(rest, `/"`)
	return "/ui/t/" + text
}

// Revoking the links of a tenant ends every one made before, of that tenant alone, the live page of one too, and
// for good; it needs a confirmation and is in the record of acts.
func TestLinksAreRevoked(t *testing.T) {
	dir := t.TempDir()
	run := func() *service {
		return start(t, func(c *server.Config) { c.Dir = dir })
	}
	s := run()
	s.register("acme", "http://127.0.0.1:9", "")
	s.register("beta", "http://127.0.0.1:9", "")
	admin, guest := s.browser(), s.browser()
	admin.signIn(adminKey)
	see, act, other := admin.link("acme", "see"), admin.link("acme", "act"), admin.link("beta", "see")
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second) // for a stream that does not end
	defer end()
	live, err := http.NewRequestWithContext(ctx, "GET", s.URL()+see+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	live.Header.Set("Accept", "text/event-stream")
	stream, err := guest.Do(live)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()

	form := url.Values{"token": {admin.get("/ui/tenants/acme/link").token(t)}}
	admin.send("/ui/tenants/acme/link/revoke", form).has(t, 422, "Nothing was revoked")
	guest.get(see+"/").has(t, 200, "acme")
	form.Set("sure", "yes")
	guest.send(act+"/tenants/acme/link/revoke", url.Values{"token": {guest.get(act + "/").token(t)}, "sure": {"yes"}}).has(t, 404)
	admin.send("/ui/tenants/acme/link/revoke", form).has(t, 200, "No link that was made before opens anything")
	if _, err := io.ReadAll(stream.Body); err != nil { // it ends
		t.Errorf("the live page of a revoked link: %v", err)
	}
	var acts struct {
		Items []struct{ Method, Path, Key string }
	}
	if s.api("GET", "/v1/audit?limit=1", "", &acts); len(acts.Items) != 1 || acts.Items[0].Path != "/v1/tenants/acme/links/revoke" {
		t.Errorf("the record of acts has %v", acts)
	}
	renewed := admin.link("acme", "see")
	s.api("PUT", "/v1/tenants/acme", `{"name":"Acme"}`, nil) // replaces what a caller may set alone
	check := func(s *service) {
		t.Helper()
		guest := s.browser()
		guest.get(see+"/").has(t, 404, "There is nothing here")
		guest.get(act+"/").has(t, 404, "There is nothing here")
		guest.get(other+"/").has(t, 200, "beta")
		guest.get(renewed+"/").has(t, 200, "Acme")
	}
	check(s)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(run())
}

// A tenant's key and a signed link show the tenant's own pages, and of every other what they show of what
// never was.
func TestTenantSeesItsOwn(t *testing.T) {
	s := start(t, nil)
	s.demo()
	dead := s.dead()
	admin := s.browser()
	admin.signIn(adminKey)
	link := func(may string) string { return admin.link("picky", may) }
	key := s.browser()
	key.signIn(s.key("k", "tenant", "picky"))
	for _, v := range []struct {
		name, base string
		b          *browser
	}{{"key", "/ui", key}, {"link", link("see"), s.browser()}} {
		t.Run(v.name, func(t *testing.T) {
			v.b.get(v.base+"/").has(t, 200, "picky", "Backlog", dead)
			for _, page := range []string{"/lanes/" + s.subs["picky"], "/dead", "/dead/" + s.subs["picky"] + "/" + dead, "/trigger?id=" + dead, "/what-if", "/replays"} {
				p := v.b.get(v.base+page).has(t, 200)
				for _, other := range []string{"noisy", "blackhole", s.subs["steady"], "tenants/"} {
					if strings.Contains(p.text, other) {
						t.Errorf("%s shows %q: %s", page, other, p.text)
					}
				}
			}
			for _, page := range []string{"/lanes", "/lanes/" + s.subs["steady"], "/tenants/steady", "/tenants/picky", "/dead?tenant=steady",
				"/dead?subscription=" + s.subs["steady"], "/trigger?id=" + s.post("steady", 1, "x"), "/tenants/picky/link?life=1h"} {
				if p := v.b.get(v.base + page); p.status != 404 {
					t.Errorf("%s: %d, want 404", page, p.status)
				}
			}
		})
	}
	see, act := link("see"), link("act")
	guest := s.browser()
	test := "/lanes/" + s.subs["picky"] + "/test"
	token := guest.get(act + "/lanes/" + s.subs["picky"]).token(t)
	guest.send(act+test, url.Values{"token": {token}}).has(t, 200, "Trigger")
	guest.send(see+test, url.Values{"token": {token}}).has(t, 403)
	guest.send(act+"/lanes/"+s.subs["steady"]+"/test", url.Values{"token": {token}}).has(t, 404)
	guest.get(see[:len(see)-1]+"/").has(t, 404)
	guest.get(strings.Replace(see, ".see.", ".act.", 1)+"/").has(t, 404)
}

// A secret is rotated after the question, and shown once.
func TestRotate(t *testing.T) {
	s := start(t, nil)
	s.register("acme", "http://127.0.0.1:9", "")
	b := s.browser()
	b.signIn(adminKey)
	lane := "/ui/lanes/" + s.subs["acme"]
	form := url.Values{"token": {b.get(lane).token(t)}, "overlap": {"1h"}}
	b.send(lane+"/rotate", form).has(t, 422, "Nothing was changed")
	form.Set("sure", "yes")
	b.send(lane+"/rotate", form).has(t, 200, "New secret", "whsec_", "for 1h requests carry signatures by the old one")
	if p := b.get(lane); strings.Contains(p.text, "whsec_") {
		t.Errorf("a secret is shown again: %s", p.text)
	}
}

// Sites that the configuration names may frame a signed link, and nothing else.
func TestFrames(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Frames = []string{"https://console.example.com"} })
	s.register("acme", "http://127.0.0.1:9", "")
	b := s.browser()
	b.signIn(adminKey)
	for page, ancestors := range map[string]string{"/ui/": "'none'", "/ui/tenants/acme": "'none'", "/ui/assets/live.js": "'none'", b.link("acme", "see") + "/": "https://console.example.com"} {
		csp := b.get(page).header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") || !strings.HasSuffix(csp, "frame-ancestors "+ancestors) {
			t.Errorf("%s: policy %q", page, csp)
		}
	}
}

// A dead letter is counted, replayed after the question, and arrives; what is purged is gone.
func TestReplayAndPurge(t *testing.T) {
	s := start(t, nil)
	s.demo()
	dead := s.dead()
	b := s.browser()
	b.signIn(adminKey)
	letter := b.get("/ui/dead/"+s.subs["picky"]+"/"+dead).has(t, 200)
	dying := func(n string) {
		t.Helper()
		until(t, n+" dead", func() bool { return strings.Contains(b.get("/ui/dead/purge?tenant=picky").text, "Purge "+n+" dead") })
	}
	dying("2")
	s.picky.Become(receiver.OK(0))
	b.get("/ui/replays/count?subscription="+s.subs["picky"]).has(t, 200, "Nothing has been sent yet")
	form := url.Values{"token": {letter.token(t)}, "subscription": {s.subs["picky"]}}
	p := b.send("/ui/dead/replay", form).has(t, 200, "Replay")
	until(t, "replay done", func() bool { return strings.Contains(b.get(p.path).text, "done") })
	b.get("/ui/trigger?id="+dead).has(t, 200, "Complete", "revived", "delivered")

	s.picky.Become(receiver.Failing(422))
	s.post("picky", 3, "x")
	dying("3")
	b.get("/ui/dead?tenant=picky&reason=expired").has(t, 200, "None.")
	s.picky.Become(receiver.OK(0))
	form.Set("rate", "0.001/s")
	p = b.send("/ui/dead/replay", form).has(t, 200, "running")
	b.send(p.path+"/cancel", form).has(t, 200, "cancelled", "Go on")
	b.send(p.path+"/resume", form).has(t, 200, "running", "Cancel what is left")
	b.send(p.path+"/cancel", form).has(t, 200, "cancelled")

	noisy := url.Values{"token": {letter.token(t)}, "tenant": {"picky"}}
	b.send("/ui/dead/purge", noisy).has(t, 422, "Nothing was purged")
	noisy.Set("sure", "yes")
	b.send("/ui/dead/purge", noisy).has(t, 200, "None.")
	var acts struct{ Items []struct{ Path string } }
	s.api("GET", "/v1/audit", "", &acts)
	if len(acts.Items) < 2 || acts.Items[0].Path != "/v1/dead/purge" {
		t.Errorf("the record of acts lacks the purge: %v", acts)
	}
}
