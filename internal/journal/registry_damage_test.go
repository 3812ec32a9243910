package journal

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestDamagedRegistryIsAnErrorNotAnEmptyOne(t *testing.T) {
	sub := func(n uint32) string { return recordKey(kindSubscription, n) }
	put := func(kv jetstream.KeyValue, key, value string) error {
		_, err := kv.PutString(t.Context(), key, value)
		return err
	}
	for name, c := range map[string]struct {
		damage func(kv jetstream.KeyValue) error
		says   string
	}{
		"removed":     {func(kv jetstream.KeyValue) error { return kv.Delete(t.Context(), sub(0)) }, "was removed"},
		"purged":      {func(kv jetstream.KeyValue) error { return kv.Purge(t.Context(), sub(0)) }, "was removed"},
		"cut":         {func(kv jetstream.KeyValue) error { return put(kv, sub(0), `{"v":1,`) }, "unexpected end"},
		"misplaced":   {func(kv jetstream.KeyValue) error { return put(kv, "tenant.0", `{"v":1,"number":1}`) }, "names itself tenant.1"},
		"newer":       {func(kv jetstream.KeyValue) error { return put(kv, "tenant.0", `{"v":2,"id":"acme"}`) }, "has format 2"},
		"foreign":     {func(kv jetstream.KeyValue) error { return put(kv, "x.1", `{"v":1}`) }, "unknown kind"},
		"gap":         {func(kv jetstream.KeyValue) error { return put(kv, "tenant.2", `{"v":1,"id":"z","number":2}`) }, "tenant.1 is missing"},
		"other's key": {func(kv jetstream.KeyValue) error { return moveSealed(t.Context(), kv, sub(0), sub(1)) }, "does not decrypt"},
	} {
		s := newStand(t)
		s.putTenant(Tenant{ID: "acme"})
		s.put(example("acme"))
		s.put(example("acme"))
		if err := c.damage(s.kv); err != nil {
			t.Fatal(err)
		}
		s.stop()
		_, err := openRegistry(t.Context(), s.serve(), mustBox(t, s.dir, nil), s.log.append)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// moveSealed puts the encrypted part of one record into another.
func moveSealed(ctx context.Context, kv jetstream.KeyValue, from, to string) error {
	a, err := kv.Get(ctx, from)
	if err != nil {
		return err
	}
	b, err := kv.Get(ctx, to)
	if err != nil {
		return err
	}
	cut := func(v []byte) (string, string) { x, y, _ := strings.Cut(string(v), `"sealed"`); return x, y }
	_, foreign := cut(a.Value())
	head, _ := cut(b.Value())
	_, err = kv.PutString(ctx, to, head+`"sealed"`+foreign)
	return err
}

func TestWrongKeyIsNamedAtOpen(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	s.put(example("acme"))
	s.stop()
	_, err := openRegistry(t.Context(), s.serve(), mustBox(t, t.TempDir(), nil), s.log.append)
	if !errors.Is(err, ErrSecretKey) || !strings.Contains(err.Error(), "data.secret_key") {
		t.Fatalf("opened with another key: %v", err)
	}
}

func BenchmarkRegistryLoad50000(b *testing.B) {
	s := newStand(b)
	fillRegistry(b, s, 50_000)
	s.stop()
	kv := s.serve()
	box, err := newSecretBox(s.dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := openRegistry(b.Context(), kv, box, s.log.append)
		if err != nil || len(r.Subscriptions()) != 50_000 {
			b.Fatal(err)
		}
	}
}

// fillRegistry stores records without waiting for each.
func fillRegistry(b *testing.B, s *stand, n int) {
	b.Helper()
	s.putTenant(Tenant{ID: "acme"})
	s.stop()
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: s.dir, NoSigs: true, NoLog: true})
	if err != nil {
		b.Fatal(err)
	}
	srv.Start()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		b.Fatal(err)
	}
	s.srv, s.nc = srv, nc
	for i := range n {
		rec := &subscriptionRecord{Subscription: example("acme")}
		rec.ID, rec.Lane, rec.Versions = newSubscriptionID(), uint32(i), []Version{{From: 512, Topics: []string{"orders.>"}, Active: true}}
		value, err := rec.encode(s.box)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := js.PublishAsync("$KV."+registryBucket+"."+rec.key(), value); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}
