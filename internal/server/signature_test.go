package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// verifies checks a delivery by the official library; prefix is that of the header names.
func verifies(t *testing.T, d received, prefix, secret string) error {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	for _, part := range []string{"id", "timestamp", "signature"} {
		h.Set("webhook-"+part, d.header.Get(prefix+"-"+part))
	}
	return w.Verify(d.body, h)
}

const importedSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// What was chosen by API is what the endpoint gets, is shown without its secrets, and can be taken back.
func TestASubscriptionChoosesHowItsRequestsLook(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	s.tenant("acme")
	url, got := endpoint(t, 200)
	sub := s.subscribe("acme", url, `,"secrets":["`+importedSecret+`"],"signature":{"profile":"svix"},
		"signature_beside":{"profile":"template","header":"X-Old","content":"{timestamp}.{body}","value":"t={timestamp},v1={signature}","secrets":["text:SECRETTEXT"]},
		"headers":{"Authorization":"Bearer SECRETHEADER","X-Plain":"yes"},"optional_headers":["position","cloudevents"],"envelope":"cloudevents","rate":"20/s"`)
	s.must(202, s.post("acme", `{"n":9007199254740993}`, "Content-Type: application/json"))
	d := next(t, got)
	if err := verifies(t, d, "svix", importedSecret); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(d.header.Get("X-Old"), "t="+d.header.Get("Svix-Timestamp")+",v1=") || d.header.Get("Webhook-Id") != "" {
		t.Errorf("headers %v", d.header)
	}
	if d.header.Get("Authorization") != "Bearer SECRETHEADER" || d.header.Get("X-Plain") != "yes" ||
		d.header.Get("Ce-Type") != "a.b" || d.header.Get("Fairlane-Position") == "" {
		t.Errorf("headers %v", d.header)
	}
	if ct := d.header.Get("Content-Type"); !strings.HasPrefix(ct, "application/cloudevents+json") || !strings.Contains(string(d.body), `"data":{"n":9007199254740993}`) {
		t.Errorf("%s %s", ct, d.body)
	}
	document := string(s.must(200, s.do("GET", "/openapi.json", nil)).body)
	for _, name := range []string{"signature_beside", "timestamp_header", "optional_headers", "client_certificate", "header_names", "overlap_until", "/v1/subscriptions/{id}/rotate"} {
		if !strings.Contains(document, `"`+name+`":`) {
			t.Errorf("openapi.json does not have %s", name)
		}
	}
	path := "/v1/subscriptions/" + sub.ID
	shown := s.must(200, s.do("GET", path, nil))
	for _, part := range []string{`"signature":{"profile":"svix"}`, `"header":"X-Old"`, `"header_names":["Authorization","X-Plain"]`,
		`"optional_headers":["cloudevents","position"]`, `"envelope":"cloudevents"`} {
		if !strings.Contains(string(shown.body), part) {
			t.Errorf("%s is not shown: %s", part, shown.body)
		}
	}
	if strings.Contains(string(shown.body), "SECRET") || strings.Contains(string(shown.body), "whsec") {
		t.Errorf("a secret is shown: %s", shown.body)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	inFiles(t, dir, "SECRET")
	s = start(t, dir, nil)
	s.must(202, s.post("acme", `{}`))
	if d := next(t, got); verifies(t, d, "svix", importedSecret) != nil || d.header.Get("Authorization") != "Bearer SECRETHEADER" {
		t.Errorf("after a restart: %v", d.header)
	}
	s.must(200, s.do("PATCH", path, strings.NewReader(`{"signature":null,"signature_beside":null,"headers":null,"optional_headers":null,"envelope":null}`)))
	s.must(202, s.post("acme", `plain`))
	d = next(t, got)
	if err := verifies(t, d, "webhook", importedSecret); err != nil || string(d.body) != "plain" || d.header.Get("Authorization") != "" || d.header.Get("X-Old") != "" {
		t.Errorf("taken back: %v, %v %s", err, d.header, d.body)
	}
}

// Field case 56. What waits at a rotation is signed, when it goes, with what is in force then.
func TestRotationWithMessagesOnTheirWay(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	url, got := endpoint(t, 200)
	sub := s.subscribe("acme", url, `,"rate":0`)
	path := "/v1/subscriptions/" + sub.ID
	rotate := func(body string) subscriptionView {
		t.Helper()
		var v subscriptionView
		s.must(200, s.do("POST", path+"/rotate", strings.NewReader(body))).into(t, &v)
		return v
	}
	// patch changes it, and sends one trigger.
	send := func(patch string) received {
		t.Helper()
		s.must(200, s.do("PATCH", path, strings.NewReader(patch)))
		s.must(202, s.post("acme", "x"))
		return next(t, got)
	}
	s.must(202, s.post("acme", "waits"))
	until(t, "parked", func() bool { return s.account().Parked == 1 })
	second := rotate(`{"overlap":"1h"}`)
	if second.Secret == "" || second.OverlapUntil == nil || time.Until(*second.OverlapUntil) > time.Hour {
		t.Errorf("%+v", second)
	}
	d := send(`{"rate":"unlimited"}`)
	next(t, got) // the two come in any order
	for i, secret := range []string{sub.Secret, second.Secret} {
		if err := verifies(t, d, "webhook", secret); err != nil {
			t.Errorf("secret %d within the overlap: %v", i, err)
		}
	}
	third := rotate(`{"overlap":"1h"}`)
	d = send(`{}`)
	for i, secret := range []string{sub.Secret, second.Secret, third.Secret} {
		if err := verifies(t, d, "webhook", secret); err != nil {
			t.Errorf("secret %d after a second rotation: %v", i, err)
		}
	}
	rotate(`{"overlap":"1h"}`)
	last := rotate(`{}`)
	s.must(409, s.do("POST", path+"/rotate", strings.NewReader(`{}`))) // more would overlap than may
	d = send(`{"overlap_until":null}`)
	if verifies(t, d, "webhook", last.Secret) != nil || verifies(t, d, "webhook", third.Secret) == nil || verifies(t, d, "webhook", sub.Secret) == nil {
		t.Errorf("after the end of the overlap: %s", d.header.Get("Webhook-Signature"))
	}
	at := rotate(`{"overlap":"0s"}`)
	if d = send(`{}`); at.OverlapUntil != nil || verifies(t, d, "webhook", last.Secret) == nil || verifies(t, d, "webhook", at.Secret) != nil {
		t.Errorf("without an overlap: %s", d.header.Get("Webhook-Signature"))
	}
	pair := rotate(`{"kind":"v1a"}`)
	d = send(`{}`)
	if sig := d.header.Get("Webhook-Signature"); pair.Secret != "" || len(pair.PublicKeys) != 1 || !strings.Contains(sig, " v1a,") || verifies(t, d, "webhook", at.Secret) != nil {
		t.Errorf("a key pair beside the secret: %+v, %s", pair.PublicKeys, sig)
	}
}

// Field case 61.
func TestWrongRequestSettingsAreRefusedBeforeTheyAreStored(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	for more, field := range map[string]string{
		`"headers":{"X-A":"a\r\nX-Evil: 1"}`:                           "headers.X-A",
		`"headers":{"X-A":7}`:                                          "headers.X-A",
		`"headers":{"Content-Length":"1"}`:                             "headers.Content-Length",
		`"headers":{"weBhook-signature":"v1,forged"}`:                  "headers.weBhook-signature",
		`"headers":[]`:                                                 "headers",
		`"signature":{"profile":"github"}`:                             "signature.profile",
		`"signature":{}`:                                               "signature.profile",
		`"signature":{"profile":"standard","heder":"X"}`:               "signature.heder",
		`"signature":{"profile":"template"}`:                           "signature.header",
		`"signature":"svix"`:                                           "signature",
		`"signature_beside":{"profile":"standard"}`:                    "signature_beside",
		`"signature_beside":{"profile":"svix","secrets":["SECRET"]}`:   "signature_beside.secrets",
		`"optional_headers":["all"]`:                                   "optional_headers",
		`"envelope":"nowhere"`:                                         "envelope",
		`"client_certificate":{"certificate":"SECRET"}`:                "client_certificate.key",
		`"client_certificate":{"certificate":"SECRET","key":"SECRET"}`: "client_certificate",
		`"secrets":["text:"]`:                                          "secrets",
		`"secrets":["whpk_SECRET"]`:                                    "secrets",
		`"secrets":[]`:                                                 "secrets",
		`"overlap_until":"2030-01-01T00:00:00Z"`:                       "overlap_until",
		`"signature":{"profile":"template","header":"X"},"secrets":["text:a","text:b"]`: "signature.separator",
	} {
		a := s.must(422, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"http://127.0.0.1:9/","topics":["a"],`+more+`}`)))
		if p := a.problem(t); p.Field != field || strings.Contains(string(a.body), "SECRET") {
			t.Errorf("%s: %s", more, a.body)
		}
	}
	var list page[subscriptionView]
	if s.must(200, s.do("GET", "/v1/subscriptions", nil)).into(t, &list); len(list.Items) != 0 {
		t.Errorf("stored: %+v", list.Items)
	}
	one := s.subscribe("acme", "http://127.0.0.1:9/", `,"signature":{"profile":"template","header":"X-Sig"}`)
	for body, field := range map[string]string{`{"overlap":"1h"}`: "overlap", `{"overlap":"31d"}`: "overlap", `{"kind":"v2"}`: "kind", `{"kin":"v1"}`: "kin", `{"kind":"v1a","overlap":"0s"}`: "signature.profile"} {
		if a := s.must(422, s.do("POST", "/v1/subscriptions/"+one.ID+"/rotate", strings.NewReader(body))); a.problem(t).Field != field {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	s.must(404, s.do("POST", "/v1/subscriptions/sub_nowhere/rotate", strings.NewReader(`{}`)))
}
