package journal

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// markerLog stands for TRIGGERS: it hands out positions, and fails as a test wants.
type markerLog struct {
	mu      sync.Mutex
	last    Position
	markers map[Position]Marker
	fail    func(Marker) error // before the append
	lost    func(Marker) error // after it: the acknowledgement is lost
}

func newMarkerLog() *markerLog { return &markerLog{last: 1 << 8, markers: make(map[Position]Marker)} }

func (l *markerLog) append(_ context.Context, m Marker) (Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		if err := l.fail(m); err != nil {
			return 0, err
		}
	}
	l.last += 256
	l.markers[l.last] = m
	if l.lost != nil {
		if err := l.lost(m); err != nil {
			return 0, err
		}
	}
	return l.last, nil
}

// stand is a registry on a server of its own, which can be stopped and started again.
type stand struct {
	t   testing.TB
	dir string
	log *markerLog
	srv *server.Server
	nc  *nats.Conn
	*Registry
}

func newStand(t testing.TB) *stand {
	s := &stand{t: t, dir: t.TempDir(), log: newMarkerLog()}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *stand) start() {
	s.t.Helper()
	kv := s.serve()
	box, err := newSecretBox(s.dir, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.Registry, err = openRegistry(s.t.Context(), kv, box, s.log.append); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) serve() jetstream.KeyValue {
	s.t.Helper()
	srv, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: s.dir, NoSigs: true, NoLog: true, SyncAlways: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		s.t.Fatal("server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		s.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	s.srv, s.nc = srv, nc
	kv, err := js.CreateOrUpdateKeyValue(s.t.Context(), registryConfig)
	if err != nil {
		s.t.Fatal(err)
	}
	return kv
}

func (s *stand) stop() {
	if s.srv == nil {
		return
	}
	s.nc.Close()
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	s.srv = nil
}

func (s *stand) reopen() { s.t.Helper(); s.stop(); s.start() }

func (s *stand) putTenant(t Tenant) (Tenant, Position) {
	s.t.Helper()
	out, p, err := s.PutTenant(s.t.Context(), t)
	if err != nil {
		s.t.Fatal(err)
	}
	return out, p
}

func (s *stand) put(sub Subscription) (Subscription, Position) {
	s.t.Helper()
	out, p, err := s.PutSubscription(s.t.Context(), sub)
	if err != nil {
		s.t.Fatal(err)
	}
	return out, p
}

func topics(of ...string) []Version { return []Version{{Topics: of}} }

const exampleURL = "https://hooks.example.com/services/T0/B0/SECRETPATH?token=SECRETQ"

func example(tenant string) Subscription {
	return Subscription{
		Tenant: tenant, URL: exampleURL, Versions: topics("orders.>", "users.*"),
		Limits:   Limits{Rate: "20/s", Burst: 40, Cap: new(8), Timeout: 3 * time.Second, Attempts: 7, Drop: true},
		Secrets:  [][]byte{[]byte("SECRETKEYMATERIAL-first-one"), []byte("SECRETKEYMATERIAL-other-one")},
		Outcomes: map[string]string{"404": "gone"}, Paused: true, Disabled: "gone",
	}
}
