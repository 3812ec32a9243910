package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// fields decodes an answer into its members.
func fields(t *testing.T, a answer) map[string]any {
	t.Helper()
	m := map[string]any{}
	a.into(t, &m)
	return m
}

func TestTenantsComeAndGo(t *testing.T) {
	s := start(t, "", nil)
	a := s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","name":"Acme Inc","tier":"pro"}`), asJSON))
	if a.header.Get("Location") != "/v1/tenants/acme" {
		t.Errorf("Location %q", a.header.Get("Location"))
	}
	got := fields(t, s.must(200, s.do("GET", "/v1/tenants/acme", nil)))
	if got["created"] == nil {
		t.Error("created is missing")
	}
	delete(got, "created")
	if want := map[string]any{"id": "acme", "name": "Acme Inc", "tier": "pro", "suspended": false, "grants": []any{}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	s.must(200, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"name":"New"}`)))
	if got := fields(t, s.do("GET", "/v1/tenants/acme", nil)); got["name"] != "New" || got["tier"] != "default" {
		t.Errorf("PUT replaces, what is absent has its default: %v", got)
	}
	s.must(201, s.do("PUT", "/v1/tenants/beta", strings.NewReader(`{"id":"beta"}`)))
	s.must(204, s.do("DELETE", "/v1/tenants/acme", nil))
	s.must(404, s.do("GET", "/v1/tenants/acme", nil))
	if list := string(s.do("GET", "/v1/tenants", nil).body); strings.Contains(list, "acme") || !strings.Contains(list, "beta") {
		t.Errorf("list: %s", list)
	}
}

func TestListsArePaged(t *testing.T) {
	s := start(t, "", nil)
	for i := range 7 {
		s.tenant(fmt.Sprintf("t%d", i))
		s.subscribe(fmt.Sprintf("t%d", i%2), "http://127.0.0.1:9/", "")
	}
	s.must(204, s.do("DELETE", "/v1/tenants/t5", nil))
	walk := func(path, key string) (ids []string, pages int) {
		for after := ""; ; pages++ {
			var p struct {
				Items []map[string]any
				Next  string
			}
			s.must(200, s.do("GET", path+after, nil)).into(t, &p)
			for _, item := range p.Items {
				ids = append(ids, fmt.Sprint(item[key]))
			}
			if p.Next == "" {
				return ids, pages + 1
			}
			after = "&after=" + p.Next
		}
	}
	if ids, pages := walk("/v1/tenants?limit=2", "id"); strings.Join(ids, " ") != "t0 t1 t2 t3 t4 t6" || pages != 3 {
		t.Errorf("%v in %d pages", ids, pages)
	}
	if ids, _ := walk("/v1/subscriptions?limit=2&tenant=t0", "tenant"); strings.Join(ids, " ") != "t0 t0 t0 t0" {
		t.Errorf("%v", ids)
	}
	all, _ := walk("/v1/subscriptions?limit=3", "id")
	lanes, _ := walk("/v1/lanes?limit=3", "subscription")
	if len(all) != 7 || !reflect.DeepEqual(all, lanes) {
		t.Errorf("subscriptions %v, lanes %v", all, lanes)
	}
	if ids, _ := walk("/v1/lanes?limit=1&tenant=t1", "tenant"); strings.Join(ids, " ") != "t1 t1 t1" {
		t.Errorf("%v", ids)
	}
	var empty struct{ Items []any }
	s.do("GET", "/v1/lanes?tenant=nobody", nil).into(t, &empty)
	if empty.Items == nil {
		t.Error("an empty list is null")
	}
}

func TestASubscriptionShowsItsSecretOnce(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	sub := s.subscribe("acme", "http://127.0.0.1:9/hook", "")
	if !strings.HasPrefix(sub.Secret, "whsec_") {
		t.Errorf("no secret: %+v", sub)
	}
	const mine = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	own := s.must(201, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"http://127.0.0.1:9/","topics":["a"],"secrets":["`+mine+`"]}`)))
	later := s.do("GET", "/v1/subscriptions", nil)
	one := s.do("GET", "/v1/subscriptions/"+sub.ID, nil)
	patched := s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(`{"secrets":["`+mine+`"]}`)))
	for _, a := range []answer{own, later, one, patched} {
		if strings.Contains(string(a.body), "whsec_") || strings.Contains(string(a.body), `"secret`) {
			t.Errorf("a secret is shown: %s", a.body)
		}
	}
}

// Field case 99.
func TestAPatchChangesWhatItNamesAndNullRestoresTheDefault(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	sub := s.subscribe("acme", "http://127.0.0.1:9/hook", `,"rate":"20/s","burst":40,"cap":16,"timeout":"15s","attempts":5,"on_limit":"drop","outcomes":{"404":"rejected"},"paused":true`)
	path := "/v1/subscriptions/" + sub.ID
	want := map[string]any{
		"id": sub.ID, "tenant": "acme", "url": "http://127.0.0.1:9/hook", "topics": []any{">"}, "rate": "20/s", "burst": 40.0, "cap": 16.0,
		"timeout": "15s", "attempts": 5.0, "on_limit": "drop", "outcomes": map[string]any{"404": "rejected"}, "paused": true,
	}
	check := func(what, patch string, changes map[string]any) {
		t.Helper()
		for k, v := range changes {
			if want[k] = v; v == nil {
				delete(want, k)
			}
		}
		got := fields(t, s.must(200, s.do("PATCH", path, strings.NewReader(patch), "Content-Type: application/merge-patch+json")))
		again := fields(t, s.must(200, s.do("GET", path, nil)))
		delete(got, "created")
		delete(again, "created")
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(again, want) {
			t.Errorf("%s:\n got %v\nread %v\nwant %v", what, got, again, want)
		}
	}
	check("nothing", `{}`, nil)
	check("one field", `{"cap":0}`, map[string]any{"cap": 0.0})
	check("a rate keeps its burst", `{"rate":"100/s"}`, map[string]any{"rate": "100/s"})
	check("a burst alone", `{"burst":7}`, map[string]any{"burst": 7.0})
	check("no burst is one second's worth", `{"burst":null}`, map[string]any{"burst": 100.0})
	check("unlimited has no burst", `{"rate":"unlimited"}`, map[string]any{"rate": "unlimited", "burst": nil})
	check("a slow rate", `{"rate":"1/h"}`, map[string]any{"rate": "1/h", "burst": 1.0})
	check("paused rate", `{"rate":0}`, map[string]any{"rate": "0", "burst": nil})
	check("topics and url", `{"topics":["a.*","b"],"url":"http://127.0.0.1:9/other"}`, map[string]any{"topics": []any{"a.*", "b"}, "url": "http://127.0.0.1:9/other"})
	check("null", `{"rate":null,"cap":null,"timeout":null,"attempts":null,"on_limit":null,"outcomes":null,"paused":null}`,
		map[string]any{"rate": nil, "cap": nil, "timeout": nil, "attempts": nil, "outcomes": nil, "on_limit": "defer", "paused": false})
	s.must(204, s.do("DELETE", path, nil))
	s.must(404, s.do("GET", path, nil))
	s.must(404, s.do("PATCH", path, strings.NewReader(`{}`)))
}

// A subscription and its tenant survive a restart, and so does the admin's view of them.
func TestARestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	sub := s.subscribe("acme", url, `,"rate":"50/s","paused":true`)
	first, _ := receiptOf(t, s.must(202, s.post("acme", "kept")))
	until(t, "parked", func() bool { return s.account().Parked == 1 })
	before := s.state()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir, nil)
	if after := s.state(); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	if a := s.account(); a.Parked != 1 || !a.Balanced {
		t.Errorf("account %+v", a)
	}
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(`{"paused":false}`)))
	if d := next(t, got); string(d.body) != "kept" || d.header.Get("Webhook-Id") != first.ID {
		t.Errorf("got %q, id %q", d.body, d.header.Get("Webhook-Id"))
	}
}

func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"id":"a","n":1,"b":true,"l":["x"],"o":{"a":"b"}}`))
	f.Add([]byte(`{"id":"a","id":"b"} `))
	f.Add([]byte(`{"id":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, rule := parseObject(data, "")
		if (o == nil) == (rule == "") {
			t.Fatalf("%v, %q", o, rule)
		}
		if rule != "" {
			return
		}
		var loose map[string]json.RawMessage
		if err := json.Unmarshal(data, &loose); err != nil {
			t.Fatalf("accepted what is no JSON: %v", err)
		}
		for name := range loose {
			o.read(name, nil, func(raw json.RawMessage) string {
				text(raw)
				whole(raw)
				texts(raw)
				return ""
			})
			if string(o.fields[name]) != string(loose[name]) && len(o.problems) == 0 {
				t.Fatalf("%q: %s is not %s", name, o.fields[name], loose[name])
			}
		}
		o.err()
	})
}
