package journal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Field case 62.
func TestErrorsOfBadInputNameFieldAndRuleNeverTheValue(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	long := strings.Repeat("SECRETPATH", 500)
	many := slices.Repeat([]string{"t"}, maxTopics+1)
	outcomes := maps.Collect(func(yield func(string, string) bool) {
		for i := range maxOutcomes + 1 {
			if !yield(fmt.Sprint(i), "x") {
				return
			}
		}
	})
	sub := func(edit func(*Subscription)) error {
		x := Subscription{Tenant: "acme", URL: "u", Versions: topics("a")}
		edit(&x)
		_, _, err := s.PutSubscription(t.Context(), x)
		return err
	}
	tenant := func(x Tenant) error { _, _, err := s.PutTenant(t.Context(), x); return err }
	for _, c := range []struct {
		field string
		err   error
	}{
		{"url", sub(func(x *Subscription) { x.URL = "" })},
		{"url", sub(func(x *Subscription) { x.URL = long })},
		{"url", sub(func(x *Subscription) { x.URL = "http://a/SECRETPATH\x00" })},
		{"topics", sub(func(x *Subscription) { x.Versions = topics(many...) })},
		{"topics[1]", sub(func(x *Subscription) { x.Versions = topics("a", "") })},
		{"topics[0]", sub(func(x *Subscription) { x.Versions = topics(long) })},
		{"secrets[0]", sub(func(x *Subscription) { x.Secrets = [][]byte{make([]byte, secretMax+1)} })},
		{"secrets", sub(func(x *Subscription) { x.Secrets = make([][]byte, maxSecrets+1) })},
		{"secrets[1]", sub(func(x *Subscription) { x.Secrets = [][]byte{[]byte("SECRETPATH"), {}} })},
		{"headers", sub(func(x *Subscription) { x.Requests.Headers = make([]Attribute, maxHeaders+1) })},
		{"headers[0]", sub(func(x *Subscription) { x.Requests.Headers = []Attribute{{"", "SECRETPATH"}} })},
		{"headers", sub(func(x *Subscription) { x.Requests.Headers = []Attribute{{"X", long + long + long + long}} })},
		{"signature", sub(func(x *Subscription) { x.Requests.Signature.Header = long })},
		{"signature_beside", sub(func(x *Subscription) { x.Requests.Beside = &Beside{Signature: Signature{Value: long}} })},
		{"pairs[0]", sub(func(x *Subscription) { x.Requests.Pairs = [][]byte{[]byte("SECRETPATH")} })},
		{"certificate", sub(func(x *Subscription) { x.Requests.Certificate = make([]byte, maxPEM+1) })},
		{"limits.rate", sub(func(x *Subscription) { x.Limits.Rate = long })},
		{"outcomes", sub(func(x *Subscription) { x.Outcomes = outcomes })},
		{"outcomes", sub(func(x *Subscription) { x.Outcomes = map[string]string{"200": long} })},
		{"disabled", sub(func(x *Subscription) { x.Disabled = long })},
		{"id", sub(func(x *Subscription) { x.ID = "sub_SECRETPATH" })},
		{"id", sub(func(x *Subscription) { x.ID = "sub_" + strings.Repeat("A", 20) })},
		{"id", tenant(Tenant{})},
		{"id", tenant(Tenant{ID: "*"})},
		{"id", tenant(Tenant{ID: "a,b"})},
		{"id", tenant(Tenant{ID: ".."})},
		{"id", tenant(Tenant{ID: strings.Repeat("a", maxTenantID+1)})},
		{"name", tenant(Tenant{ID: "x", Name: long})},
		{"name", tenant(Tenant{ID: "x", Name: "\xff"})},
		{"tier", tenant(Tenant{ID: "x", Tier: long})},
		{"grants", tenant(Tenant{ID: "x", Grants: []Grant{{Topics: slices.Repeat([]string{"t"}, maxGrants+1)}}})},
	} {
		var field *FieldError
		if !errors.As(c.err, &field) || field.Field != c.field || field.Rule == "" {
			t.Errorf("%v, want a rule of %s", c.err, c.field)
		} else if strings.Contains(c.err.Error(), "SECRETPATH") {
			t.Errorf("the error repeats the value: %v", c.err)
		}
	}
	if len(s.Tenants()) != 1 || len(s.Subscriptions()) != 0 || len(s.log.markers) != 1 {
		t.Error("something was stored")
	}
}

// A subscription whose topics change again and again, while nothing may be forgotten, comes to an end.
func TestRecordTooLargeIsRefusedAndHarmsNothing(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	big := make([]string, maxTopics)
	for i := range big {
		big[i] = fmt.Sprintf("%0*d", maxTopic, i)
	}
	sub, _ := s.put(Subscription{Tenant: "acme", URL: "u", Versions: topics(big...)})
	var err error
	var n int
	for n = 0; err == nil && n < 100; n++ {
		next := sub.clone()
		slices.Reverse(next.Versions[len(next.Versions)-1].Topics)
		if next, _, err = s.PutSubscription(t.Context(), next); err == nil {
			sub = next
		}
	}
	var field *FieldError
	if !errors.As(err, &field) || field.Field != "record" || n < 3 {
		t.Fatalf("after %d changes: %v", n, err)
	}
	sub.Versions = topics("small")
	s.setFloor(s.log.last)
	if sub, _ = s.put(sub); len(sub.Versions) != 2 {
		t.Errorf("%d versions after the floor has passed", len(sub.Versions))
	}
}
