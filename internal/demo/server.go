package demo

import (
	"context"
	"crypto/rand"
	"net/netip"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/server"
)

// running is the real service.
type running struct {
	*server.Running
	adminKey string
}

// launchServer starts the real service on an embedded journal.
func launchServer(ctx context.Context, dir string, s settings) (service, error) {
	key := rand.Text()
	r, err := server.Start(ctx, server.Config{
		Dir:       dir,
		Listen:    "127.0.0.1:0",
		AdminKey:  key,
		MaxBytes:  1 << 30,
		StopGrace: 100 * time.Millisecond,
		Engine:    s.engine,
		Profile:   s.profile,
		Allow:     []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		return nil, err
	}
	return &running{r, key}, nil
}

func (r *running) url() string { return r.URL() }
func (r *running) key() string { return r.adminKey }
func (r *running) stopSends()  { r.Fanout().StopSends() }

func (r *running) stop(ctx context.Context) error { return r.Stop(ctx) }

func (r *running) account() map[string]engine.Counters {
	all := map[string]engine.Counters{}
	for _, t := range r.Fanout().Tenants() {
		all[t.TenantID] = t.Counters
	}
	return all
}

func (r *running) served() map[string]float64 {
	all := map[string]float64{}
	for _, t := range r.Fanout().Tenants() {
		all[t.TenantID] = t.Served
	}
	return all
}
