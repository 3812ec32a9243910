package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/admit/httpadmit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/admit/policyfile"
	"github.com/fairlane-dev/fairlane/admit/redisquota"
)

// gate is a door and what its file says.
type gate struct {
	path string
	log  *slog.Logger
	door *httpadmit.Door
	file *policyfile.File
	stop func() // ends the fetching of keys

	checks sync.WaitGroup // of the store's settings, in the background

	tokens *identity.Tokens // nil: none

	store   atomic.Pointer[redisquota.Store] // nil: none
	handler atomic.Pointer[http.Handler]     // of the file in force
}

// loaded is a file with all that it names, checked and not yet in force.
type loaded struct {
	file     *policyfile.File
	settings httpadmit.Settings
	store    *redisquota.Store
	tokens   *identity.Tokens
	fetch    *identity.Fetcher // nil: tokens' keys are in a file
}

// openGate reads the file and makes the gate.
func openGate(ctx context.Context, path string, log *slog.Logger) (*gate, error) {
	g := &gate{path: path, log: log, stop: func() {}}
	l, err := g.load(ctx)
	if err != nil {
		return nil, err
	}
	g.door = httpadmit.New(l.settings, mathrand.New(mathrand.NewPCG(seed(), seed())), l.file.Keys)
	g.commit(ctx, l)
	return g, nil
}

func seed() uint64 {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// reload reads everything anew; if any of it is wrong, nothing changes.
func (g *gate) reload(ctx context.Context) {
	l, err := g.load(ctx)
	if err != nil {
		g.log.Error("reload refused, the old policies stay in force", "error", err.Error())
		return
	}
	if l.file.Listen != g.file.Listen || l.file.Admin != g.file.Admin || l.file.Keys != g.file.Keys {
		g.log.Warn("listen, admin and counters are read at the start only")
	}
	g.commit(ctx, l)
	g.log.Info("reloaded", "file", g.path)
}

// load reads the file, and all that it names.
func (g *gate) load(ctx context.Context) (*loaded, error) {
	f, err := policyfile.Load(g.path, nil)
	if err != nil {
		return nil, err
	}
	l := &loaded{file: f}
	resolver := &identity.Resolver{Domain: f.Identity.Domain, Header: f.Identity.Agree}
	if name := f.Identity.KeyFile; name != "" {
		keys, err := policyfile.LoadKeys(name)
		if err != nil {
			return nil, err
		}
		keys.Header = f.Identity.KeyHeader
		resolver.Sources = append(resolver.Sources, keys)
	}
	if err := l.loadTokens(resolver); err != nil {
		return nil, err
	}
	if err := g.firstKeys(ctx, l); err != nil {
		return nil, err
	}
	if l.store, err = g.storeFor(f.Redis); err != nil {
		return nil, err
	}
	l.settings = httpadmit.Settings{
		Gate: f.Gate, Identity: resolver, DefaultTier: f.DefaultTier, Anonymous: f.Identity.Anonymous,
		TierOf:  func(tenant string) (string, bool) { t, ok := f.Tenants[tenant]; return t, ok },
		Proxies: f.Proxies, Slots: f.Slots, Wait: f.Wait, Stall: f.Stall, Timeout: f.Timeout,
		Answers: httpadmit.Answers{Draft: f.Draft, Older: f.Older, Spread: f.Spread},
	}
	if l.store != nil {
		l.settings.Shared = l.store
	}
	return l, nil
}

func (l *loaded) loadTokens(r *identity.Resolver) error {
	id := &l.file.Identity
	if id.JWTKeys == "" && id.JWKS == "" {
		return nil
	}
	claims := identity.Claims{Tenant: id.Tenant, User: id.User, Tier: id.Tier, Issuer: id.Issuer, Audience: id.Audience}
	if id.JWKS != "" {
		l.fetch = identity.NewFetcher(id.JWKS)
		l.tokens = identity.NewTokens(claims, l.fetch.Want)
		r.Sources = append(r.Sources, l.tokens)
		return nil
	}
	data, err := os.ReadFile(id.JWTKeys)
	if err != nil {
		return fmt.Errorf("keys of tokens: %w", err)
	}
	set, err := identity.ParseKeys(data)
	if err != nil {
		return fmt.Errorf("%s: %w", id.JWTKeys, err)
	}
	l.tokens = identity.NewTokens(claims, nil)
	l.tokens.SetKeys(set)
	r.Sources = append(r.Sources, l.tokens)
	return nil
}

// firstKeys gives the tokens of a reload keys to begin with: those that are held, if the address is the
// same, else what a new one says now. At the start there are none.
func (g *gate) firstKeys(ctx context.Context, l *loaded) error {
	switch {
	case l.fetch == nil || g.file == nil:
		return nil
	case g.file.Identity.JWKS == l.file.Identity.JWKS:
		l.tokens.SetKeys(g.tokens.Keys())
		return nil
	}
	set, err := l.fetch.Fetch(ctx)
	if err != nil {
		return fmt.Errorf("keys of tokens: %w", err)
	}
	l.tokens.SetKeys(set)
	return nil
}

// storeFor returns the store in force if its settings are the same, else a new one.
func (g *gate) storeFor(r policyfile.Redis) (*redisquota.Store, error) {
	switch {
	case r.URL == "":
		return nil, nil
	case g.store.Load() != nil && r == g.file.Redis:
		return g.store.Load(), nil
	}
	return redisquota.Open(redisquota.Config{URL: r.URL, Prefix: r.Prefix, Deadline: r.Deadline, Replicas: r.Replicas})
}

// commit puts what was loaded in force.
func (g *gate) commit(ctx context.Context, l *loaded) {
	for _, w := range l.file.Warnings {
		g.log.Warn("policies", "warning", w.Error())
	}
	old := g.store.Swap(l.store)
	g.file, g.tokens = l.file, l.tokens
	g.door.Reload(l.settings)
	h := g.routes()
	g.handler.Store(&h)
	g.stop()
	g.stop = startFetch(ctx, l, g.log)
	if old != nil && old != l.store {
		old.Close()
	}
	if l.store != nil {
		g.checks.Go(func() { checkStore(ctx, l.store, g.log) })
	}
}

// checkStore logs with what settings of its server a store would lose quotas.
func checkStore(ctx context.Context, s *redisquota.Store, log *slog.Logger) {
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	warnings, err := s.Check(asking)
	for _, w := range warnings {
		log.Warn("store of quotas", "warning", w)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("store of quotas: its settings could not be checked", "error", err.Error())
	}
}

// startFetch keeps the keys of tokens fresh; call what it returns to end that.
func startFetch(ctx context.Context, l *loaded, log *slog.Logger) (stop func()) {
	if l.fetch == nil {
		return func() {}
	}
	l.fetch.Failed = func(err error) { log.Warn("keys of tokens", "error", err.Error()) }
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{}) // closed by the goroutine that fetches
	go func() {
		defer close(ended)
		l.fetch.Run(ctx, l.tokens)
	}()
	return func() { cancel(); <-ended }
}

func (g *gate) close() {
	g.stop()
	if s := g.store.Load(); s != nil {
		s.Close()
	}
	g.checks.Wait()
}

// routes is the handler of the file in force.
func (g *gate) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/check", g.door.Check())
	if g.file.Upstream != nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 256 // there is one host
		transport.Proxy = nil
		transport.DisableCompression = true // else it asks for gzip where the caller did not, and unpacks
		failed := func(r *http.Request, err error) {
			g.log.Warn("the service did not answer", "method", r.Method, "error", err.Error())
		}
		proxy := g.door.Middleware(g.door.Proxy(g.file.Upstream, transport, failed))
		if len(g.file.Proxies.Trusted) == 0 {
			return proxy // nobody may ask: /check is the service's own
		}
		return checkOr{mux, proxy}
	}
	return mux
}

// checkOr serves /check itself and forwards the rest as it came: a mux would
// redirect paths that are not clean.
type checkOr struct{ check, proxy http.Handler }

func (c checkOr) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/check" {
		c.check.ServeHTTP(w, r)
		return
	}
	c.proxy.ServeHTTP(w, r)
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*g.handler.Load()).ServeHTTP(w, r) }
