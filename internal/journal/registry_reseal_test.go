package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
)

// openWith opens the registry in the stand's directory with these keys.
func (s *stand) openWith(key []byte, previous ...[]byte) error {
	s.t.Helper()
	s.stop()
	kv := s.serve()
	box, err := newSecretBox(s.dir, key, previous...)
	if err != nil {
		return err
	}
	s.Registry, err = openRegistry(s.t.Context(), kv, box, s.log.append)
	return err
}

// Every stored secret moves to the new key, by itself; then the old key is of no use to anybody.
func TestSecretsMoveToTheNewKey(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	var subs []Subscription
	for range 3 {
		sub, _ := s.put(full("acme"))
		subs = append(subs, sub)
	}
	first, second := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for _, step := range []struct {
		name      string
		key, last []byte
	}{{"from the kept key", first, nil}, {"from one configured to another", second, first}} {
		if err := s.openWith(step.key, step.last); err != nil {
			t.Fatal(step.name, err)
		}
		if n := len(s.stale()); n != 3 {
			t.Fatalf("%s: %d to do", step.name, n)
		}
		if err := s.resealOne(t.Context(), 0); err != nil { // and a crash
			t.Fatal(step.name, err)
		}
		if err := s.openWith(step.key, step.last); err != nil {
			t.Fatal(step.name, err)
		}
		(&Journal{reg: s.Registry, log: slog.New(slog.DiscardHandler)}).reseal(t.Context())
		if n := len(s.stale()); n != 0 {
			t.Errorf("%s: %d left", step.name, n)
		}
	}
	if err := s.openWith(second); err != nil {
		t.Fatal("without the previous key:", err)
	}
	for i, was := range subs {
		got, _ := s.Subscription(was.ID)
		got.Revision = was.Revision
		if !reflect.DeepEqual(got, was) {
			t.Errorf("subscription %d\ngot  %+v\nwant %+v", i, got, was)
		}
	}
	if err := s.openWith(first); !errors.Is(err, ErrSecretKey) || !strings.Contains(err.Error(), "data.previous_secret_keys") {
		t.Errorf("with the previous key alone: %v", err)
	}
}

// full is a subscription with everything that is stored encrypted.
func full(tenant string) Subscription {
	sub := example(tenant)
	sub.Requests = Requests{
		Signature: Signature{Profile: "template", Header: "X-Sig", Content: "{body}", Value: "{signature}", Algorithm: "hmac-sha256", Encoding: "hex"},
		Pairs:     [][]byte{bytes.Repeat([]byte("SECRETPAIR.."), 6)[:pairBytes]},
		Retired:   []Retired{{Key: []byte("SECRETRETIRED-key-material"), Until: createdNow()}},
		Beside:    &Beside{Signature{Profile: "svix"}, [][]byte{[]byte("SECRETBESIDE-key-material")}},
		Headers:   []Attribute{{"Authorization", "Bearer SECRETHEADER"}},
		Optional:  []string{"position"}, Envelope: "cloudevents",
		Certificate: []byte("SECRETCERT"), Key: []byte("SECRETCERTKEY"),
	}
	return sub
}

func TestRequestsAreKeptCopiedAndErased(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, _ := s.put(full("acme"))
	want, _ := s.Subscription(sub.ID)
	if !reflect.DeepEqual(want.Requests, full("acme").Requests) && len(want.Requests.Retired) == 0 {
		t.Fatalf("%+v", want.Requests)
	}
	r := &sub.Requests
	r.Pairs[0][0], r.Retired[0].Key[0], r.Beside.Secrets[0][0], r.Headers[0].Value, r.Optional[0], r.Key[0] = 'x', 'x', 'x', "x", "x", 'x'
	if got, _ := s.Subscription(sub.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("a caller changed what is kept: %+v", got.Requests)
	}
	s.reopen()
	got, _ := s.Subscription(sub.ID)
	if got.Revision = want.Revision; !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart\ngot  %+v\nwant %+v", got, want)
	}
	s.put(Subscription{ID: sub.ID, Deleted: true})
	s.reopen()
	if got, _ := s.Subscription(sub.ID); !got.Requests.IsZero() {
		t.Errorf("a deleted subscription keeps %+v", got.Requests)
	}
}
