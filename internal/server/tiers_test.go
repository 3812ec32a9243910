package server

import (
	"strings"
	"testing"

	"github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

func (s *service) putTier(status int, name, body string) {
	s.t.Helper()
	s.must(status, s.do("PUT", "/v1/tiers/"+name, strings.NewReader(body)))
}

func (s *service) tierOf(name string) (v tierView) {
	s.t.Helper()
	s.must(200, s.do("GET", "/v1/tiers/"+name, nil)).into(s.t, &v)
	return v
}

// restarted is the service, stopped and started again on its directory.
func (s *service) restarted(edit func(*Config)) *service {
	s.t.Helper()
	if err := s.Stop(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return start(s.t, s.config.Dir, edit)
}

// A tier that the API makes is in force at once and after a restart, and a change of it refills nothing.
func TestATierByTheAPI(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.putTier(201, "gold", `{"rate":"1/h","burst":3}`)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","tier":"gold"}`)))
	sub := s.subscribe("acme", url, "").ID
	for range 5 {
		s.must(202, s.post("acme", "x"))
	}
	for range 3 {
		next(t, got)
	}
	until(t, "two parked", func() bool { return s.account().Parked == 2 })
	for _, body := range []string{`{"rate":"2/h","burst":50}`, `{"rate":"1/h","burst":3}`, `{"rate":"2/h","burst":50,"cap":5,"subscriptions":1,"inbound":{"rate":"9/m"}}`} {
		s.putTier(200, "gold", body)
	}
	s.must(202, s.post("acme", "x"))
	until(t, "read", func() bool { return s.account().Offered == 6 })
	if a := s.account(); a.Parked != 3 || a.Delivered != 3 {
		t.Errorf("a change of tier refilled the bucket: %+v", a)
	}
	inForce := func() {
		t.Helper()
		if l := s.laneOf(sub); l.Rate != "1/30m" || l.Burst != 50 || l.Cap != 5 {
			t.Errorf("in force: %+v", l)
		}
		if v := s.tierOf("gold"); v.Rate != "2/h" || v.Subscriptions != 1 || v.Inbound == nil || v.Inbound.Burst != 1 || v.Configured {
			t.Errorf("%+v", v)
		}
		a := s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"`+url+`","topics":["a"]}`))
		if p := a.problem(t); a.status != 422 || p.Field != "tenant" {
			t.Errorf("one subscription too many: %d %s", a.status, a.body)
		}
	}
	inForce()
	s = s.restarted(nil)
	inForce()
	if _, err := s.Reload(s.config); err != nil {
		t.Fatal(err)
	}
	inForce()
}

// A tier in use stays, one of the configuration is the configuration's, and what is wrong is refused by field.
func TestTiersThatCannotBeChanged(t *testing.T) {
	s := start(t, "", nil)
	s.putTier(201, "gold", `{"name":"gold","weight":3,"cap_auto":{"min":2,"max":9},"backlog":1048576}`)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","tier":"gold"}`)))
	refused := func(status int, field, rule, method, name, body string) {
		t.Helper()
		var sent *strings.Reader
		a := answer{}
		if sent = strings.NewReader(body); method == "DELETE" {
			a = s.do(method, "/v1/tiers/"+name, nil)
		} else {
			a = s.do(method, "/v1/tiers/"+name, sent)
		}
		if p := a.problem(t); a.status != status || p.Field != field || !strings.Contains(p.Rule, rule) {
			t.Errorf("%s %s %s: %d %s", method, name, body, a.status, a.body)
		}
	}
	refused(409, "name", "is the tier of tenant acme", "DELETE", "gold", "")
	refused(409, "name", "tiers.pro", "DELETE", "pro", "")
	refused(409, "name", "tiers.default", "PUT", "default", "{}")
	refused(404, "", "", "DELETE", "none", "")
	for body, field := range map[string]string{
		`{"name":"other"}`: "name", `{"weight":0}`: "weight", `{"rate":"5"}`: "rate", `{"burst":5}`: "burst", `{"rate":0,"burst":5}`: "burst", `{"cap":0}`: "cap",
		`{"cap_auto":{"min":2}}`: "cap_auto.max", `{"cap_auto":{"min":2,"max":1}}`: "cap_auto.max", `{"backlog":1}`: "backlog", `{"subscriptions":0}`: "subscriptions",
		`{"inbound":{"rate":"1"}}`: "inbound.rate", `{"inbound":{"burst":1}}`: "inbound.burst", `{"inbound":{"share":0}}`: "inbound.share", `{"colour":1}`: "colour", `{"rate":null}`: "rate",
		`{"rate":"1/366d","burst":1000000000}`: "rate",
	} {
		refused(422, field, "", "PUT", "gold", body)
	}
	refused(422, "name", "1 to 64", "PUT", "Gold", "{}")
	if v := s.tierOf("gold"); v.Weight != 3 || v.CapAuto.Max != 9 || v.Backlog != 1<<20 {
		t.Errorf("a refusal changed it: %+v", v)
	}
	s.must(200, s.do("PATCH", "/v1/tenants/acme", strings.NewReader(`{"tier":"pro"}`)))
	s.must(204, s.do("DELETE", "/v1/tiers/gold", nil))
	s.must(404, s.do("GET", "/v1/tiers/gold", nil))
	s.must(422, s.do("PATCH", "/v1/tenants/acme", strings.NewReader(`{"tier":"gold"}`)))
	s = s.restarted(nil)
	s.must(404, s.do("GET", "/v1/tiers/gold", nil))
}

// A tier that the configuration names, too, is the configuration's, until it drops it.
func TestTheConfigurationsTierComesFirst(t *testing.T) {
	s := start(t, "", nil)
	s.putTier(201, "gold", `{"cap":5}`)
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","tier":"gold"}`)))
	named := s.config
	named.Tiers = map[string]fanout.Tier{"default": {Name: "default"}, "gold": {Name: "gold", Cap: 7}}
	if _, err := s.Reload(named); err != nil {
		t.Fatal(err)
	}
	if v := s.tierOf("gold"); v.Cap != 7 || !v.Configured {
		t.Errorf("%+v", v)
	}
	s.must(409, s.do("PUT", "/v1/tiers/gold", strings.NewReader(`{"cap":6}`)))
	named.Tiers = map[string]fanout.Tier{"default": {Name: "default"}}
	if _, err := s.Reload(named); err != nil {
		t.Fatal(err)
	}
	if v := s.tierOf("gold"); v.Cap != 5 || v.Configured {
		t.Errorf("%+v", v)
	}
}

// Files make tiers before the tenants that are in them; the second time nothing changes.
func TestApplyMakesTiers(t *testing.T) {
	s := start(t, "", nil)
	body := `{"tiers":[{"name":"gold","rate":"5/s","subscriptions":1}],"tenants":[{"id":"acme","tier":"gold"}],
		"subscriptions":[{"tenant":"acme","name":"a","url":"https://acme.test/","topics":["a"]}]}`
	if did, _ := s.applies(t, strings.Replace(body, `{"tiers"`, `{"dry_run":true,"tiers"`, 1)); did != "+ tier gold; + tenant acme; + subscription acme/a; 0 unchanged" {
		t.Error(did)
	}
	s.must(404, s.do("GET", "/v1/tiers/gold", nil))
	for _, step := range []struct{ body, did string }{
		{body, "+ tier gold; + tenant acme; + subscription acme/a; 0 unchanged"},
		{body, "; 3 unchanged"},
		{strings.Replace(body, "5/s", "6/s", 1), "~ tier gold burst,rate; 2 unchanged"},
	} {
		if did, _ := s.applies(t, step.body); did != step.did {
			t.Errorf("%s, want %s", did, step.did)
		}
	}
	c := &client.Client{Base: s.URL(), Key: testKey}
	v, err := c.PutTier(t.Context(), client.NewTier{Name: "tin", Rate: "3/s", CapAuto: &client.CapAuto{Max: 4}, Inbound: &client.Inbound{Rate: "2/s"}})
	if err != nil || v.Burst != 3 || v.CapAuto.Max != 4 || v.Inbound.Burst != 2 || v.Subscriptions != 1000 {
		t.Errorf("%+v, %v", v, err)
	}
	if err := c.DeleteTier(t.Context(), "tin"); err != nil {
		t.Error(err)
	}
	var acts page[actView]
	s.must(200, s.do("GET", "/v1/audit?limit=2", nil)).into(t, &acts)
	if a := acts.Items[1]; a.Method != "PUT" || a.Path != "/v1/tiers/tin" || len(a.Fields) != 4 {
		t.Errorf("%+v", acts)
	}
}
