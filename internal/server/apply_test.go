package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// applies sends POST /v1/apply and returns what it did, as "+ tenant acme" and "~ subscription acme/orders rate,url".
func (s *service) applies(t *testing.T, body string) (did string, v planView) {
	t.Helper()
	s.must(200, s.do("POST", "/v1/apply", strings.NewReader(body))).into(t, &v)
	var list []string
	for _, c := range v.Changes {
		text := map[string]string{actCreate: "+", actChange: "~", actRemove: "-"}[c.Act] + " " + c.Kind + " " + strings.Trim(c.Tenant+"/"+c.Name, "/")
		var fields []string
		for _, f := range c.Fields {
			fields = append(fields, f.Field)
		}
		list = append(list, strings.TrimSpace(text+" "+strings.Join(fields, ",")))
	}
	return fmt.Sprintf("%s; %d unchanged", strings.Join(list, "; "), v.Unchanged), v
}

const (
	applyAcme = `{"id":"acme","name":"Acme","tier":"pro","grants":["news.>"]}`
	applyAll  = `{"tenant":"acme","name":"orders","url":"https://acme.test/hook","topics":["order.>"],"match":{"region":"eu"},
		"rate":"20/s","cap":4,"timeout":"5s","attempts":9,"on_limit":"drop","order":"key","on_dead":"stop","lane":"all",
		"outcomes":{"404":"rejected"},"signature":{"profile":"svix"},"signature_beside":{"profile":"template","header":"X-Sig","secrets":["text:b"]},
		"secrets":["text:a"],"headers":{"X-Team":"a"},"optional_headers":["position"],"envelope":"cloudevents"}`
)

// Twice changes nothing the second time, with every field there is; and each field that differs is found.
func TestApplyChangesWhatDiffers(t *testing.T) {
	s := start(t, "", nil)
	body := func(tenants, subs, more string) string {
		return `{"tenants":[` + tenants + `],"subscriptions":[` + subs + `]` + more + `}`
	}
	all := func(old, new string) string { return strings.Replace(applyAll, old, new, 1) }
	for _, step := range []struct{ name, body, did string }{
		{"dry", body(applyAcme, applyAll, `,"dry_run":true`), "+ tenant acme; + subscription acme/orders; 0 unchanged"},
		{"first", body(applyAcme, applyAll, ""), "+ tenant acme; + subscription acme/orders; 0 unchanged"},
		{"twice", body(applyAcme, applyAll, ""), "; 2 unchanged"},
		{"tenant alone", body(applyAcme, "", ""), "; 1 unchanged"},
		{"rate", body("", all(`20/s`, `30/s`), ""), "~ subscription acme/orders burst,rate; 0 unchanged"},
		{"rate back", body("", applyAll, ""), "~ subscription acme/orders burst,rate; 0 unchanged"},
		{"secret", body("", all(`text:a`, `text:c`), ""), "~ subscription acme/orders secrets; 0 unchanged"},
		{"second secret", body("", all(`text:b`, `text:d`), ""), "~ subscription acme/orders secrets,signature_beside.secrets; 0 unchanged"},
		{"header", body("", all(`"X-Team":"a"`, `"X-Team":"b"`), ""), "~ subscription acme/orders signature_beside.secrets,headers; 0 unchanged"},
		{"what is absent has its default", body("", `{"tenant":"acme","name":"orders","url":"https://acme.test/hook","topics":["order.>"],"order":"key","lane":"all"}`, ""),
			"~ subscription acme/orders attempts,burst,cap,envelope,header_names,match,on_dead,on_limit,optional_headers,outcomes,rate,signature,signature_beside,timeout,signature_beside.secrets,headers; 0 unchanged"},
		{"but for secrets", body("", `{"tenant":"acme","name":"orders","url":"https://acme.test/hook","topics":["order.>"],"order":"key","lane":"all","secrets":["text:a"]}`, ""), "; 1 unchanged"},
		{"tenant", body(`{"id":"acme"}`, "", ""), "~ tenant acme grants,name,tier; 0 unchanged"},
		{"two more", body(`{"id":"beta"}`, `{"tenant":"beta","name":"x","url":"https://b.test/","topics":[">"]},{"tenant":"beta","name":"y","url":"https://b.test/","topics":[">"]}`, ""),
			"+ tenant beta; + subscription beta/x; + subscription beta/y; 0 unchanged"},
		{"prune", body(`{"id":"beta"}`, `{"tenant":"beta","name":"y","url":"https://b.test/","topics":[">"]},{"tenant":"beta","name":"z","url":"https://b.test/","topics":[">"]}`, `,"prune":true`),
			"- subscription beta/x; + subscription beta/z; 2 unchanged"},
		{"a name is free again", body("", `{"tenant":"beta","name":"x","url":"https://b.test/","topics":[">"]}`, ""), "+ subscription beta/x; 0 unchanged"},
	} {
		if did, _ := s.applies(t, step.body); did != step.did {
			t.Errorf("%s: %s, want %s", step.name, did, step.did)
		}
	}
}

// A request with one error changes nothing at all, whichever rule it breaks; it names the object and the field.
func TestApplyWithOneErrorChangesNothing(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("gone")
	s.must(204, s.do("DELETE", "/v1/tenants/gone", nil))
	s.tenant("beta")
	s.subscribe("beta", "https://b.test/", `,"name":"fixed","order":"key"`)
	for range 63 {
		s.subscribe("beta", "https://b.test/", `,"lane":"full"`)
	}
	const good = `{"tenant":"acme","name":"good","url":"https://acme.test/","topics":[">"]}`
	sub := func(more string) string {
		return `{"tenants":[{"id":"acme"}],"subscriptions":[` + good + `,{"tenant":"acme","name":"bad","url":"https://acme.test/","topics":[">"],` + more + `}]}`
	}
	beta := func(more string) string {
		return `{"tenants":[{"id":"acme"}],"subscriptions":[` + good + `,{"tenant":"beta","url":"https://b.test/","topics":[">"],` + more + `}]}`
	}
	before := s.estateOf(t)
	for body, field := range map[string]string{
		`{"tenants":[{"id":"acme"},{"id":"acme"}]}`:                                            "tenants[1].id",
		`{"tenants":[{"id":"acme"},{"id":"gone"}]}`:                                            "tenants[1].id",
		`{"tenants":[{"id":"acme"},{"name":"x"}]}`:                                             "tenants[1].id",
		`{"tenants":[{"id":"acme","tier":"gold"}]}`:                                            "tenants[0].tier",
		`{"tenants":[{"id":"acme","colour":"red"}]}`:                                           "tenants[0].colour",
		`{"new_secrets":{"acme/a":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}`:                  "new_secrets",
		`{"new_secrets":{"acme/a":"text:x"}}`:                                                  "new_secrets",
		`{"new_secrets":["acme/a"]}`:                                                           "new_secrets",
		`{"tenants":[{"id":"acme"},7]}`:                                                        "tenants[1]",
		`{"tenants":{"id":"acme"}}`:                                                            "tenants",
		`{"tenants":[{"id":"acme","tier":"none"}],"tiers":[{"name":"gold"}]}`:                  "tenants[0].tier",
		`{"tenants":[{"id":"acme"}],"tiers":[{"name":"gold"},{"name":"pro"}]}`:                 "tiers[1].name",
		`{"tiers":[{"name":"gold"},{"name":"gold"}]}`:                                          "tiers[1].name",
		`{"tenants":[{"id":"acme","tier":"gold"}],"tiers":[{"name":"gold","burst":2}]}`:        "tiers[0].burst",
		`{"tiers":[{"name":"gold","inbound":{"burst":2}}]}`:                                    "tiers[0].inbound.burst",
		`{"subscriptions":[` + good + `]}`:                                                     "subscriptions[0].tenant",
		`{"tenants":[{"id":"acme"}],"subscriptions":[` + good + `,` + good + `]}`:              "subscriptions[1].name",
		`{"tenants":[{"id":"acme"}],"subscriptions":[{"tenant":"acme"}]}`:                      "subscriptions[0].name",
		`{"tenants":[{"id":"acme","tier":"gold"}],"subscriptions":[` + good + `]}`:             "tenants[0].tier",
		sub(`"rate":"fast"`):                                                                   "subscriptions[1].rate",
		sub(`"colour":"red"`):                                                                  "subscriptions[1].colour",
		sub(`"signature":{"profile":"template"}`):                                              "subscriptions[1].signature.header",
		sub(`"signature":{"profile":"template","header":"X-S"},"secrets":["text:a","text:b"]`): "subscriptions[1].signature.separator",
		sub(`"headers":{"Host":"x"}`):                                                          "subscriptions[1].headers.Host",
		sub(`"headers":{"X-A":"` + strings.Repeat("x", 9000) + `"}`):                           "subscriptions[1].headers",
		sub(`"envelope":"unknown"`):                                                            "subscriptions[1].envelope",
		sub(`"match":{"a b":"c"}`):                                                             "subscriptions[1].match",
		sub(`"client_certificate":{"certificate":"x","key":"y"}`):                              "subscriptions[1].client_certificate",
		beta(`"name":"fixed"`):                                                                 "subscriptions[1].order",
		beta(`"name":"a","lane":"full"},{"tenant":"beta","name":"b","lane":"full","url":"https://b.test/","topics":[">"]`): "subscriptions[1].lane",
	} {
		a := s.do("POST", "/v1/apply", strings.NewReader(body))
		if p := a.problem(t); a.status != 422 || p.Field != field {
			t.Errorf("%s: %d %s, want field %s", body, a.status, a.body, field)
		}
		if after := s.estateOf(t); after != before {
			t.Fatalf("%s changed something:\n%s\nfrom\n%s", body, after, before)
		}
	}
	// without the error all of it is done, the lane's last place included
	s.applies(t, beta(`"name":"a","lane":"full"`))
}

// estateOf is all that is stored of tenants and subscriptions.
func (s *service) estateOf(t *testing.T) string {
	t.Helper()
	r := s.journal.Registry()
	out, err := json.Marshal([]any{r.Tenants(), r.Subscriptions(), r.Revision()})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// What is in force beside the request stays: a rotation's overlap, a pause by hand, what the service disabled.
func TestApplyLeavesWhatItDoesNotSay(t *testing.T) {
	s := start(t, "", nil)
	const body = `{"tenants":[{"id":"acme"}],"subscriptions":[{"tenant":"acme","name":"a","url":"https://acme.test/","topics":[">"]}]}`
	_, v := s.applies(t, body)
	if !strings.HasPrefix(v.Changes[1].Secret, "whsec_") {
		t.Errorf("the secret that was made is not shown: %+v", v.Changes[1])
	}
	path := "/v1/subscriptions/" + v.Changes[1].ID
	s.must(200, s.do("POST", path+"/rotate", strings.NewReader(`{"overlap":"1h"}`)))
	s.must(200, s.do("PATCH", path, strings.NewReader(`{"paused":true}`)))
	s.must(200, s.do("PUT", "/v1/tenants/acme", strings.NewReader(`{"suspended":true}`)))
	if did, _ := s.applies(t, body); did != "; 2 unchanged" {
		t.Error(did)
	}
	// what it says is done, and what it does not say stays
	did, _ := s.applies(t, strings.Replace(body, `"topics":[">"]`, `"topics":["a"],"paused":false`, 1))
	if did != "~ subscription acme/a paused,topics; 1 unchanged" {
		t.Error(did)
	}
	var now subscriptionView
	s.must(200, s.do("GET", path, nil)).into(t, &now)
	if now.OverlapUntil == nil || now.Paused || now.Name != "a" {
		t.Errorf("%+v", now)
	}
}

// What is written again after the plan was made keeps what the service itself has changed meanwhile.
func TestApplyKeepsWhatTheServiceChangedMeanwhile(t *testing.T) {
	s := start(t, "", nil)
	const url = "https://acme.test/"
	s.tenant("acme")
	id := s.subscribe("acme", url, `,"name":"a"`).ID
	o, rule := parseObject([]byte(`{"tenant":"acme","name":"a","url":"`+url+`","topics":["b"]}`), "")
	if rule != "" {
		t.Fatal(rule)
	}
	old, _ := s.server.registry.Named("acme", "a")
	d := &planned{o: o, exists: true, old: old, next: s.server.desired(o, "acme", "a", old)}
	old.Disabled = "gone"
	if _, err := s.server.fanout.PutSubscription(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest("POST", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&plan{s: s.server}).writeSubscription(r, &change{sub: d}); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.server.registry.Subscription(id); now.Disabled != "gone" || now.Topics()[0] != "b" {
		t.Errorf("%q, %q", now.Disabled, now.Topics())
	}
}

// A name is unique in its tenant, given once, and never changed.
func TestNamesOfSubscriptions(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	s.tenant("beta")
	const url = "https://acme.test/"
	first := s.subscribe("acme", url, `,"name":"a"`)
	s.subscribe("beta", url, `,"name":"a"`)
	second := s.subscribe("acme", url, "")
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/subscriptions", `{"tenant":"acme","name":"a","url":"` + url + `","topics":[">"]}`, 422},
		{"POST", "/v1/subscriptions", `{"tenant":"acme","name":"a b","url":"` + url + `","topics":[">"]}`, 422},
		{"PATCH", "/v1/subscriptions/" + second.ID, `{"name":"a"}`, 422},
		{"PATCH", "/v1/subscriptions/" + second.ID, `{"name":"b"}`, 200},
		{"PATCH", "/v1/subscriptions/" + second.ID, `{"name":"c"}`, 422},
		{"PATCH", "/v1/subscriptions/" + second.ID, `{"rate":"1/s"}`, 200},
		{"DELETE", "/v1/subscriptions/" + first.ID, ``, 204},
		{"POST", "/v1/subscriptions", `{"tenant":"acme","name":"a","url":"` + url + `","topics":[">"]}`, 201},
	} {
		if a := s.do(c.method, c.path, strings.NewReader(c.body)); a.status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.body, a.status, a.body)
		}
	}
}

// A write that fails says how far it came, and the same request does the rest; every change is in the record of acts.
func TestApplyIsFinishedByRepeating(t *testing.T) {
	s := start(t, "", nil)
	const body = `{"tenants":[{"id":"acme"},{"id":"beta"}],"subscriptions":[{"tenant":"acme","name":"a","url":"https://acme.test/","topics":[">"]}]}`
	inner := s.server.fanout
	s.server.fanout = &failing{Fanout: inner, after: 1}
	a := s.do("POST", "/v1/apply", strings.NewReader(body))
	if p := a.problem(t); a.status != 503 || !strings.HasPrefix(p.Detail, "1 of 3 changes are made; apply again to do the rest") {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.server.fanout = inner
	if did, _ := s.applies(t, body); did != "+ tenant beta; + subscription acme/a; 1 unchanged" {
		t.Error(did)
	}
	var acts page[actView]
	s.must(200, s.do("GET", "/v1/audit", nil)).into(t, &acts)
	var got []string
	for _, act := range acts.Items {
		got = append(got, act.Method+" "+strings.SplitAfter(act.Path, "sub_")[0])
	}
	want := "[POST /v1/apply PUT /v1/subscriptions/sub_ PUT /v1/tenants/beta POST /v1/apply PUT /v1/tenants/acme]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A secret of the request signs what is new and names none; what exists, or names its own, keeps that.
func TestApplyTakesSecretsForWhatIsNew(t *testing.T) {
	s := start(t, "", nil)
	const secret, other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx"
	body := func(more, secret string) string {
		return `{"tenants":[{"id":"acme"}],"subscriptions":[{"tenant":"acme","name":"a","url":"https://acme.test/","topics":[">"]},
			{"tenant":"acme","name":"b","url":"https://acme.test/","topics":[">"],"secrets":["text:own"]}` + more + `],
			"new_secrets":{"acme/a":"` + secret + `","acme/b":"` + secret + `"}}`
	}
	if _, v := s.applies(t, body("", secret)); v.Changes[1].Secret != secret || v.Changes[2].Secret != "" {
		t.Errorf("%+v", v.Changes)
	}
	if did, v := s.applies(t, body(`,{"tenant":"acme","name":"c","url":"https://acme.test/","topics":[">"]}`, other)); did != "+ subscription acme/c; 3 unchanged" || len(v.Changes[0].Secret) < 40 {
		t.Errorf("%s: %+v", did, v.Changes)
	}
	for name, want := range map[string]string{"a": secret, "b": "text:own"} {
		sub, _ := s.server.registry.Named("acme", name)
		key, _, err := delivery.ParseKey(want)
		if err != nil || len(sub.Secrets) != 1 || !bytes.Equal(sub.Secrets[0], key) {
			t.Errorf("%s has other secrets: %v", name, err)
		}
	}
}

// A caller that goes while a change is made does not keep it out of the record.
func TestApplyRecordsWhatItDidForACallerThatHasGone(t *testing.T) {
	s := start(t, "", nil)
	inner := s.server.fanout
	ctx, goes := context.WithCancel(t.Context())
	s.server.fanout = &left{inner, goes}
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL()+"/v1/apply", strings.NewReader(`{"tenants":[{"id":"acme"},{"id":"beta"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testKey)
	if resp, err := s.http.Do(r); err == nil {
		resp.Body.Close()
		t.Fatal("the caller has not gone")
	}
	var acts page[actView]
	for len(acts.Items) == 0 || acts.Items[0].Path != "/v1/apply" {
		s.must(200, s.do("GET", "/v1/audit", nil)).into(t, &acts)
	}
	if len(acts.Items) != 2 || acts.Items[1].Path != "/v1/tenants/acme" {
		t.Errorf("%+v", acts.Items)
	}
}

// left is what a caller leaves when its tenant is stored.
type left struct {
	Fanout
	goes func()
}

func (l *left) PutTenant(ctx context.Context, t journal.Tenant) (journal.Tenant, error) {
	stored, err := l.Fanout.PutTenant(ctx, t)
	l.goes()
	<-ctx.Done() // the server has seen it
	return stored, err
}

// failing lets some writes pass.
type failing struct {
	Fanout
	after int
}

func (f *failing) PutTenant(ctx context.Context, t journal.Tenant) (journal.Tenant, error) {
	if f.after--; f.after < 0 {
		return t, journal.ErrUnavailable
	}
	return f.Fanout.PutTenant(ctx, t)
}

// Thousands of objects at once are planned in one go.
func TestApplyMany(t *testing.T) {
	s := start(t, "", func(c *Config) { c.Tiers["default"] = fanout.Tier{Name: "default", Subscriptions: 5000} })
	var b bytes.Buffer
	b.WriteString(`{"dry_run":true,"tenants":[{"id":"acme"}],"subscriptions":[`)
	for i := range 5000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"tenant":"acme","name":"n%d","lane":"l%d","url":"https://acme.test/","topics":["order.>"]}`, i, i/60)
	}
	b.WriteString(`]}`)
	if _, v := s.applies(t, b.String()); len(v.Changes) != 5001 {
		t.Errorf("%d changes", len(v.Changes))
	}
}

// A tenant's bound holds for the API and for files; a file that goes over it changes nothing.
func TestATenantsSubscriptionsAreBounded(t *testing.T) {
	s := start(t, "", func(c *Config) { c.Tiers["two"] = fanout.Tier{Name: "two", Subscriptions: 2} })
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"acme","tier":"two"}`)))
	one := func(name string) string {
		return `{"tenant":"acme","name":"` + name + `","url":"https://acme.test/","topics":["a"]}`
	}
	s.must(201, s.do("POST", "/v1/subscriptions", strings.NewReader(one("a"))))
	over := s.do("POST", "/v1/apply", strings.NewReader(`{"subscriptions":[`+one("a")+`,`+one("b")+`,`+one("c")+`]}`))
	if p := over.problem(t); over.status != 422 || p.Field != "subscriptions[1].tenant" || len(p.Errors) != 2 {
		t.Errorf("%d %+v", over.status, p)
	}
	if got := s.items("/v1/subscriptions", "name"); len(got) != 1 {
		t.Errorf("there are %v", got)
	}
	did, _ := s.applies(t, `{"tenants":[{"id":"acme","tier":"two"}],"subscriptions":[`+one("b")+`,`+one("c")+`],"prune":true}`)
	if did != "- subscription acme/a; + subscription acme/b; + subscription acme/c; 1 unchanged" {
		t.Error(did)
	}
	a := s.do("POST", "/v1/subscriptions", strings.NewReader(one("d")))
	if p := a.problem(t); a.status != 422 || p.Field != "tenant" || p.Rule != "may have 2 subscriptions by its tier, and has them" {
		t.Errorf("%d %+v", a.status, p)
	}
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+s.items("/v1/subscriptions", "id")[0], strings.NewReader(`{"rate":"5/s"}`)))
	// a file that raises the tier may use it
	did, _ = s.applies(t, `{"tenants":[{"id":"acme"}],"subscriptions":[`+one("d")+`]}`)
	if did != "~ tenant acme tier; + subscription acme/d; 0 unchanged" {
		t.Error(did)
	}
}
