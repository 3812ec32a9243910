package server

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// key makes one and returns its secret.
func (s *service) key(fields string) string {
	s.t.Helper()
	var k struct{ Secret string }
	s.must(201, s.do("POST", "/v1/keys", strings.NewReader(`{`+fields+`}`))).into(s.t, &k)
	return k.Secret
}

// as sends a request with another key than the admin's.
func (s *service) as(key, method, path, body string, headers ...string) answer {
	s.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	auth := "Authorization: Bearer " + key
	if key == "" {
		auth = "Authorization: "
	}
	return s.do(method, path, in, append([]string{auth}, headers...)...)
}

// rights says what each role gets from each route: a for administrators, p for producers, t for tenants,
// - for nobody's key. A route without a row fails the test.
var rights = map[string]string{
	"GET /healthz":                                 "apt-",
	"GET /readyz":                                  "apt-",
	"GET /openapi.json":                            "apt-",
	"GET /metrics":                                 "a",
	"POST /v1/triggers":                            "apt",
	"POST /v1/triggers/{topic}":                    "apt",
	"GET /v1/tenants":                              "a",
	"POST /v1/tenants":                             "a",
	"GET /v1/tenants/{id}":                         "at",
	"PUT /v1/tenants/{id}":                         "a",
	"PATCH /v1/tenants/{id}":                       "a",
	"POST /v1/tenants/{id}/links/revoke":           "a",
	"GET /v1/tiers":                                "a",
	"GET /v1/tiers/{name}":                         "a",
	"PUT /v1/tiers/{name}":                         "a",
	"DELETE /v1/tiers/{name}":                      "a",
	"DELETE /v1/tenants/{id}":                      "a",
	"GET /v1/subscriptions":                        "at",
	"POST /v1/subscriptions":                       "at",
	"GET /v1/subscriptions/{id}":                   "at",
	"PATCH /v1/subscriptions/{id}":                 "at",
	"DELETE /v1/subscriptions/{id}":                "at",
	"POST /v1/subscriptions/{id}/rotate":           "at",
	"POST /v1/subscriptions/{id}/test":             "at",
	"GET /v1/subscriptions/{id}/parked":            "at",
	"GET /v1/subscriptions/{id}/deliveries":        "at",
	"POST /v1/apply":                               "a",
	"GET /v1/dead":                                 "at",
	"POST /v1/dead/purge":                          "at",
	"GET /v1/subscriptions/{id}/dead":              "at",
	"GET /v1/subscriptions/{id}/dead/{trigger}":    "at",
	"DELETE /v1/subscriptions/{id}/dead/{trigger}": "at",
	"GET /v1/replays":                              "at",
	"POST /v1/replays":                             "at",
	"GET /v1/replays/{id}":                         "at",
	"POST /v1/replays/{id}/cancel":                 "at",
	"POST /v1/replays/{id}/resume":                 "at",
	"POST /v1/triggers/{id}/resend":                "at",
	"GET /v1/triggers/{id}":                        "at",
	"GET /v1/lanes":                                "at",
	"GET /v1/lanes/{subscription}":                 "at",
	"GET /v1/account":                              "at",
	"GET /v1/keys":                                 "a",
	"POST /v1/keys":                                "a",
	"GET /v1/keys/{id}":                            "a",
	"POST /v1/keys/{id}/rotate":                    "a",
	"DELETE /v1/keys/{id}":                         "a",
	"GET /v1/audit":                                "a",
}

// Every role against every route: who may not is told so, by 401 or 403, and who may gets another answer.
// A tenant's key learns of every id that is not its own that there is nothing of it.
func TestEveryRoleAgainstEveryRoute(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	keys := map[byte]string{
		'a': testKey,
		'p': s.key(`"id":"orders","role":"producer"`),
		't': s.key(`"id":"portal","role":"tenant","tenants":["acme"]`),
		'-': "",
	}
	for i := range routes {
		rt := &routes[i]
		may, known := rights[rt.pattern()]
		if !known {
			t.Errorf("%s has no row in rights", rt.pattern())
			continue
		}
		for letter, key := range keys {
			a := s.as(key, rt.method, fillPath(rt.path, "nothing"), "")
			refused := a.status == 401 || a.status == 403 || letter == 't' && a.status == 404 && strings.Contains(string(a.body), nothingThere)
			allowed := strings.IndexByte(may, letter) >= 0
			if letter == 't' && allowed && strings.Contains(rt.path, "{") {
				continue // 404 either way: TestATenantSeesItsOwn
			}
			if refused == allowed {
				t.Errorf("%s with %c: %d %s, may %q", rt.pattern(), letter, a.status, a.body, may)
			}
		}
	}
	for pattern := range rights {
		if !slices.Contains(Patterns(), pattern) {
			t.Errorf("%s is no route", pattern)
		}
	}
}

// fillPath puts id in the place of every wildcard.
func fillPath(path, id string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = id
		}
	}
	return strings.Join(parts, "/")
}

// estate is everything of one tenant that has an id.
func (s *service) estate(tenantID, url string) (ids []string) {
	s.t.Helper()
	sub := s.subscribe(tenantID, url, "")
	posted, _ := receiptOf(s.t, s.must(202, s.post(tenantID, "x")))
	keyed, _ := receiptOf(s.t, s.must(202, s.post(tenantID, "y", "Idempotency-Key: "+tenantID)))
	s.key(`"id":"` + tenantID + `-key","role":"tenant","tenants":["` + tenantID + `"]`)
	return []string{tenantID, sub.ID, posted.ID, fmt.Sprint(posted.Position), keyed.ID, fmt.Sprint(keyed.Position), tenantID + "-key"}
}

// A walk of every id of one tenant with another's key, over every route: each answers, byte for byte, what
// it answers for an id that was never given, and nothing is changed by it.
func TestNobodyLearnsWhetherAnothersIDExists(t *testing.T) {
	s := start(t, "", nil)
	url, _ := endpoint(t, 200)
	s.tenant("acme")
	s.tenant("beta")
	mine := s.key(`"id":"portal","role":"tenant","tenants":["acme"]`)
	ids := s.estate("beta", url)
	until(t, "delivered", func() bool { return s.account().Delivered == 2 })
	before := s.state()
	for i := range routes {
		rt := &routes[i]
		if !strings.Contains(rt.path, "{") || strings.Contains(rt.path, "{topic}") {
			continue
		}
		never := s.as(mine, rt.method, fillPath(rt.path, "sub_aaaaaaaaaaaaaaaaaaaa"), `{}`)
		if never.status != 404 && !strings.HasSuffix(rt.path, "/resend") { // whose body is judged first
			t.Errorf("%s of nothing: %d %s", rt.pattern(), never.status, never.body)
		}
		for _, id := range ids {
			a := s.as(mine, rt.method, fillPath(rt.path, id), `{}`)
			if a.status != never.status || string(a.body) != string(never.body) || !sameHeaders(a.header, never.header) {
				t.Errorf("%s of %s: %d %v %s\nof nothing: %d %v %s", rt.pattern(), id, a.status, a.header, a.body, never.status, never.header, never.body)
			}
		}
	}
	if after := s.state(); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	s.listsAreEmpty(mine)
	// In a header and in a body, too.
	for _, id := range []string{"beta", "nobody"} {
		a := s.as(mine, "POST", "/v1/triggers/a.b", "x", "Fairlane-Tenant: "+id)
		b := s.as(mine, "POST", "/v1/subscriptions", `{"tenant":"`+id+`","url":"`+url+`","topics":["a"]}`)
		if want := "names " + id + ", which does not exist"; a.status != 422 || b.status != 422 || !strings.Contains(string(a.body), want) || !strings.Contains(string(b.body), want) {
			t.Errorf("%s: %d %s\n%d %s", id, a.status, a.body, b.status, b.body)
		}
	}
}

// listsAreEmpty holds that a tenant without anything sees nothing, whatever it asks for.
func (s *service) listsAreEmpty(key string) {
	s.t.Helper()
	for _, path := range []string{"/v1/subscriptions", "/v1/lanes", "/v1/subscriptions?tenant=beta", "/v1/lanes?tenant=beta"} {
		if a := s.must(200, s.as(key, "GET", path, "")); string(a.body) != "{\"items\":[]}\n" {
			s.t.Errorf("%s: %s", path, a.body)
		}
	}
	if a := s.must(200, s.as(key, "GET", "/v1/account?tenant=beta", "")); strings.Contains(string(a.body), "beta") || strings.Contains(string(a.body), `:2,`) {
		s.t.Errorf("account: %s", a.body)
	}
}

func sameHeaders(a, b http.Header) bool {
	a, b = a.Clone(), b.Clone()
	a.Del("Date")
	b.Del("Date")
	return fmt.Sprint(a) == fmt.Sprint(b)
}

func TestATenantSeesItsOwn(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.tenant("beta")
	mine := s.key(`"id":"portal","role":"tenant","tenants":["acme"]`)
	var sub subscriptionView
	s.must(201, s.as(mine, "POST", "/v1/subscriptions", `{"url":"`+url+`","topics":["a.>"]}`)).into(t, &sub)
	if sub.Tenant != "acme" {
		t.Errorf("the key does not imply its tenant: %+v", sub)
	}
	s.must(202, s.as(mine, "POST", "/v1/triggers/a.b", "x"))
	next(t, got)
	until(t, "delivered", func() bool { return s.account().Delivered == 1 })
	for _, path := range []string{"/v1/tenants/acme", "/v1/subscriptions/" + sub.ID, "/v1/subscriptions/" + sub.ID + "/deliveries", "/v1/lanes/" + sub.ID} {
		s.must(200, s.as(mine, "GET", path, ""))
	}
	var v accountView
	s.must(200, s.as(mine, "GET", "/v1/account", "")).into(t, &v)
	if v.Delivered != 1 || len(v.Tenants.Items) != 1 || v.Tenants.Items[0].Tenant != "acme" {
		t.Errorf("account %+v", v)
	}
	s.must(200, s.as(mine, "PATCH", "/v1/subscriptions/"+sub.ID, `{"paused":true}`))
	s.must(204, s.as(mine, "DELETE", "/v1/subscriptions/"+sub.ID, ""))
	if a := s.as(mine, "DELETE", "/v1/tenants/acme", ""); a.status != 403 {
		t.Errorf("its own tenant: %d %s", a.status, a.body)
	}
	s.must(403, s.as(mine, "POST", "/v1/triggers/a.b", "x", "Fairlane-Tenant: *"))
	s.must(204, s.do("DELETE", "/v1/tenants/acme", nil))
	s.must(401, s.as(mine, "GET", "/v1/account", ""))
}

func TestAProducerPostsForWhomItMay(t *testing.T) {
	s := start(t, "", nil)
	for _, id := range []string{"acme", "beta", "gamma"} {
		s.tenant(id)
	}
	some := s.key(`"id":"some","role":"producer","tenants":["beta","acme"]`)
	all := s.key(`"id":"all","role":"producer"`)
	loud := s.key(`"id":"loud","role":"producer","tenants":["acme"],"broadcast":true`)
	for _, c := range []struct {
		key, audience string
		want          int
	}{
		{some, "acme", 202}, {some, "acme,beta", 202}, {some, "gamma", 422}, {some, "acme,gamma", 422}, {some, "*", 403}, {some, "", 422},
		{all, "gamma", 202}, {all, "*", 403}, {all, "nobody", 422},
		{loud, "*", 202}, {loud, "acme", 202}, {loud, "beta", 422},
	} {
		if a := s.as(c.key, "POST", "/v1/triggers/a.b", "x", "Fairlane-Tenant: "+c.audience); a.status != c.want {
			t.Errorf("for %q: %d %s, want %d", c.audience, a.status, a.body, c.want)
		}
	}
}

// The secret changes, the id does not: a keyed post is the same over a rotation, and another producer's
// is another.
func TestAKeyRotatesWithOverlapAndIsRevokedAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	s.tenant("acme")
	first := s.key(`"id":"orders","role":"producer"`)
	other := s.key(`"id":"other","role":"producer"`)
	post := func(key string) (receipt, bool) {
		return receiptOf(t, s.must(202, s.as(key, "POST", "/v1/triggers/a.b", "x", "Fairlane-Tenant: acme", "Idempotency-Key: k")))
	}
	one, _ := post(first)
	if two, _ := post(other); two.ID == one.ID {
		t.Error("two producers share an id")
	}
	rotate := func(overlap string) string {
		var k struct{ Secret string }
		s.must(200, s.do("POST", "/v1/keys/orders/rotate", strings.NewReader(`{"overlap":"`+overlap+`"}`))).into(t, &k)
		return k.Secret
	}
	second := rotate("1h")
	for _, key := range []string{first, second} {
		if again, repeat := post(key); again != one || !repeat {
			t.Errorf("got %+v, repeat %v, want %+v", again, repeat, one)
		}
	}
	third := rotate("1h") // two secrets live: the oldest goes
	if a := s.as(first, "GET", "/v1/account", ""); a.status != 401 {
		t.Errorf("the oldest of three: %d", a.status)
	}
	post(second)
	fourth := rotate("0s")
	for _, key := range []string{second, third} {
		s.must(401, s.as(key, "POST", "/v1/triggers/a.b", "x", "Fairlane-Tenant: acme"))
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir, nil)
	until(t, "the index of keys", func() bool { return s.do("GET", "/readyz", nil).status == 200 })
	if again, repeat := post(fourth); again != one || !repeat {
		t.Errorf("after a restart: got %+v, repeat %v, want %+v", again, repeat, one)
	}
	s.must(204, s.do("DELETE", "/v1/keys/orders", nil))
	s.must(204, s.do("DELETE", "/v1/keys/orders", nil))
	s.must(401, s.as(fourth, "POST", "/v1/triggers/a.b", "x", "Fairlane-Tenant: acme"))
	s.must(409, s.do("POST", "/v1/keys", strings.NewReader(`{"id":"orders","role":"producer"}`)))
	s.must(409, s.do("POST", "/v1/keys/orders/rotate", strings.NewReader(`{}`)))
}

func TestASecretOfAKeyIsShownOnceAndStoredNowhere(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	secret := s.key(`"id":"ops","role":"admin"`)
	s.must(200, s.as(secret, "GET", "/v1/tenants", ""))
	for _, path := range []string{"/v1/keys", "/v1/keys/ops", "/v1/audit"} {
		if a := s.must(200, s.do("GET", path, nil)); strings.Contains(string(a.body), secret) || strings.Contains(string(a.body), `"secret"`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.logs.String(), secret) || filesContain(t, dir, secret) {
		t.Error("the secret is kept")
	}
	// Nothing is configured: the key in the directory is enough.
	s = start(t, dir, func(c *Config) { c.AdminKey = "" })
	s.must(200, s.as(secret, "GET", "/v1/tenants", ""))
	s.must(401, s.as("", "GET", "/v1/tenants", ""))
	s.must(401, s.do("GET", "/v1/tenants", nil))
}

func TestEveryActOfAnAdministratorIsOnRecord(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	began := time.Now().Add(-time.Second)
	s.tenant("acme")
	sub := s.subscribe("acme", "http://127.0.0.1:9/SECRETPATH", "")
	ops := s.key(`"id":"ops","role":"admin"`)
	s.must(200, s.as(ops, "PATCH", "/v1/subscriptions/"+sub.ID, `{"rate":"5/s","url":"http://127.0.0.1:9/OTHERPATH"}`))
	s.must(422, s.as(ops, "PATCH", "/v1/subscriptions/"+sub.ID, `{"rate":"5"}`))
	s.must(202, s.post("acme", "x"))
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir, nil)
	s.must(204, s.do("DELETE", "/v1/subscriptions/"+sub.ID, nil))
	var got []string
	for after := ""; ; {
		var p page[actView]
		a := s.must(200, s.do("GET", "/v1/audit?limit=2"+after, nil))
		a.into(t, &p)
		if strings.Contains(string(a.body), "PATH") {
			t.Errorf("a value is on record: %s", a.body)
		}
		for _, act := range p.Items {
			got = append(got, fmt.Sprint(act.Key, " ", act.Method, " ", act.Path, " ", act.Fields, " ", act.Status))
			if act.At.Before(began) || act.At.After(time.Now()) {
				t.Errorf("at %v", act.At)
			}
		}
		if p.Next == "" {
			break
		}
		after = "&after=" + p.Next
	}
	want := []string{
		"admin DELETE /v1/subscriptions/" + sub.ID + " [] 204",
		"ops PATCH /v1/subscriptions/" + sub.ID + " [rate url] 200",
		"admin POST /v1/keys/ops [id role] 201",
		"admin POST /v1/subscriptions/" + sub.ID + " [tenant url topics] 201",
		"admin POST /v1/tenants/acme [id grants] 201",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What cannot be put on record is not acknowledged.
func TestAnActWithoutARecordIsNotAcknowledged(t *testing.T) {
	s, call, _ := serveFake(t, &fake{})
	s.access.(*fakeAccess).audit = journal.ErrUnavailable
	if a := call("DELETE", "/v1/tenants/acme"); a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func filesContain(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || strings.Contains(string(data), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
