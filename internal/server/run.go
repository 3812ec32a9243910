package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Config is everything the service is made of. Dir is required; each other zero value is its default.
type Config struct {
	Dir       string        // data directory
	Listen    string        // "host:port"; "" means ":8080", port 0 any free one
	Cert, Key string        // PEM files; both or none
	AdminKey  string        // opens everything; "" needs an administrator's key in Dir
	Version   string        // shown in metrics and to endpoints; "" means "dev"
	Logger    *slog.Logger  // nil discards
	StopGrace time.Duration // how long requests in flight may finish at Stop; 0 means 20s

	MaxBytes     int64    // log on disk; 0 means 20 GiB
	MaxBody      int      // one trigger's payload; 0 means 1 MiB, at most 6 MiB
	SecretKey    []byte   // 32 bytes that encrypt signing secrets; nil: made and kept in Dir
	PreviousKeys [][]byte // keys that SecretKey has replaced
	Ballast      int64    // bytes kept aside for a full disk; 0 is none

	Cluster *journal.Cluster // holds the log; nil: it is embedded

	History  time.Duration // how long settled triggers are kept; 0 means 3 days
	KeepDead time.Duration // how long dead letters are kept; 0 means 30 days

	Engine  engine.Config          // Slots, Order, HostLimit
	Profile engine.Profile         // defaults of every lane
	Tiers   map[string]fanout.Tier // the configuration's; nil: "default" alone, with its defaults
	Observe fanout.Observer        // told of every attempt, besides the metrics

	Allow                 []netip.Prefix                // addresses that deliveries may go to besides public ones
	NAT64                 []netip.Prefix                // the network's own; an address there is judged by the IPv4 address in it
	Proxy                 string                        // "host:port" of an egress proxy; "" is none
	ProxyUser             string                        // "user:password" for it
	ClientCert, ClientKey string                        // PEM files of the certificate shown to endpoints that ask; both or none
	Envelopes             map[string]*envelope.Envelope // the operator's, by name
	Sender                delivery.Sender               // nil: HTTP, guarded by Allow; Stop closes it either way

	Spans       sdktrace.SpanExporter // of posts and attempts; nil is none; Stop shuts it down
	OpenMetrics bool                  // GET /metrics without a key
	Frames      []string              // origins that may show a tenant's page in a frame
	Operator    string                // tenant that hears of events of every tenant; "" is none

	MetricsTop int // lanes and tenants with series of their own, by each ranking; 0 means 20, negative none

	roots *x509.CertPool // tests only: in place of the system's
}

// FromFile is the service that a configuration file describes; Version and Logger are the
// caller's.
func FromFile(c *config.Config) Config {
	return Config{
		Dir:          c.Data.Dir,
		Listen:       c.Server.Listen,
		Cert:         c.Server.Cert,
		Key:          c.Server.Key,
		AdminKey:     c.Server.AdminKey.Value(),
		StopGrace:    max(c.Server.StopGrace, time.Nanosecond), // 0 is none
		MaxBytes:     c.Data.MaxBytes,
		MaxBody:      int(c.Server.MaxBody),
		SecretKey:    c.Data.Key(),
		PreviousKeys: c.Data.PreviousKeys(),
		Ballast:      c.Data.Ballast,
		Cluster:      cluster(&c.NATS),
		History:      max(c.Retention.History, time.Nanosecond), // 0 is none
		KeepDead:     c.Retention.Dead,
		Engine:       c.Engine(),
		Profile:      c.Profile(),
		Tiers:        tiers(c),
		Allow:        c.Delivery.Allow,
		NAT64:        c.Delivery.NAT64,
		Proxy:        strings.TrimPrefix(c.Delivery.Proxy, "http://"),
		ProxyUser:    c.Delivery.ProxyUser.Value(),
		ClientCert:   c.Delivery.Cert,
		ClientKey:    c.Delivery.Key,
		Envelopes:    envelopes(c),
		Operator:     c.Server.Operator,
		OpenMetrics:  c.Server.OpenMetrics,
		Frames:       c.Server.Frames,
		MetricsTop:   cmp.Or(int(c.Server.MetricsTop), -1), // 0 is none
	}
}

func cluster(n *config.NATS) *journal.Cluster {
	if len(n.URLs) == 0 {
		return nil
	}
	return &journal.Cluster{
		URLs: n.URLs, Credentials: n.Credentials, User: n.User, Password: n.Password.Value(),
		CA: n.CA, Cert: n.Cert, Key: n.Key, Replicas: int(n.Replicas), Few: n.Few,
	}
}

// linkKey signs links to tenants' pages. It outlives a restart where there is a configured secret to make it of.
func (c Config) linkKey() []byte {
	switch {
	case len(c.SecretKey) > 0:
		return c.SecretKey
	case c.AdminKey != "":
		return []byte(c.AdminKey)
	}
	return nil
}

func tiers(c *config.Config) map[string]fanout.Tier {
	out := make(map[string]fanout.Tier, len(c.Tiers))
	for name, t := range c.Tiers {
		out[name] = fanout.Tier{Name: name, Weight: int(t.Weight), Rate: t.Rate, Burst: t.Burst, Cap: int(t.Cap), Backlog: t.Backlog, CapAuto: fanout.CapAuto{Min: int(t.CapAuto.Min), Max: int(t.CapAuto.Max)},
			Inbound: fanout.Inbound{Rate: t.Inbound.Rate, Burst: t.Inbound.Burst, Share: int(t.Inbound.Share)}, Subscriptions: int(t.Subscriptions)}
	}
	return out
}

// ErrNoAdmin says that nobody could administer the service.
var ErrNoAdmin = errors.New("no admin key: none is configured, and none is in the data directory")

// envelopes compiles those of the file, which has checked them.
func envelopes(c *config.Config) map[string]*envelope.Envelope {
	out := make(map[string]*envelope.Envelope, len(c.Envelopes))
	for name, e := range c.Envelopes {
		made, err := envelope.New(e.Schema, e.ContentType, e.Template)
		if err != nil {
			panic("server: an envelope that config.Load did not check: " + err.Error())
		}
		out[name] = made
	}
	return out
}

// Running is a started service.
type Running struct {
	config   Config
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
	server   *Server
	journal  *journal.Journal
	fanout   *fanout.Fanout
	sender   delivery.Sender
	tracer   *tracer
	guard    atomic.Pointer[delivery.Guard] // for URLs at registration
	reload   sync.Mutex                     // one Reload at a time

	endWatch context.CancelFunc
	loops    sync.WaitGroup
	failed   chan error // the listener's end, if Stop did not cause it, or the journal's
	stopOnce sync.Once
	stopErr  error
}

// Start opens the data directory, starts deliveries and listens. It returns when requests are
// answered; readiness (GET /readyz) may come later. ctx bounds the start alone. Stop it before
// the process ends.
func Start(ctx context.Context, c Config) (*Running, error) {
	c = c.withDefaults()
	if c.Dir == "" {
		return nil, errors.New("server: Dir is required")
	}
	if _, err := os.Stat(c.Dir); c.AdminKey == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoAdmin // before a directory is made that is of no use
	}
	r := &Running{config: c, log: c.Logger, failed: make(chan error, 2)}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.undo())
	}
	return r, nil
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, ":8080")
	c.Version = cmp.Or(c.Version, "dev")
	c.StopGrace = cmp.Or(c.StopGrace, 20*time.Second)
	c.MetricsTop = max(cmp.Or(c.MetricsTop, defaultTop), 0)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(c.Tiers) == 0 {
		c.Tiers = map[string]fanout.Tier{"default": {Name: "default"}}
	}
	return c
}

func (r *Running) start(ctx context.Context) (err error) {
	c := r.config
	if r.listener, err = listen(ctx, c); err != nil {
		return err
	}
	r.journal, err = journal.Open(ctx, journal.Options{
		Dir: c.Dir, Cluster: c.Cluster, MaxBytes: c.MaxBytes, MaxBody: c.MaxBody, SecretKey: c.SecretKey, Ballast: c.Ballast, Logger: c.Logger, History: c.History,
		Previous: c.PreviousKeys,
	})
	if err != nil {
		return err
	}
	if c.AdminKey == "" && !r.journal.Access().Admin() {
		return ErrNoAdmin
	}
	if r.sender = c.Sender; r.sender == nil {
		if r.sender, err = newSender(c); err != nil {
			return err
		}
	}
	r.allow(c.Allow)
	if r.tracer, err = newTracer(ctx, c.Spans, c.Version, c.Logger); err != nil {
		return err
	}
	metrics := NewMetrics(c.Version, c.MetricsTop)
	r.fanout, err = fanout.Start(ctx, fanout.Options{
		Journal: r.journal, Sender: r.sender, Logger: c.Logger, Engine: c.Engine, Profile: c.Profile, Tiers: r.allTiers(c.Tiers), KeepDead: c.KeepDead, Envelopes: c.Envelopes,
		Trace:   r.tracer.attempts(),
		Observe: fanout.Observer{Attempt: both(metrics.Attempted, c.Observe.Attempt)},
	})
	if err != nil {
		return err
	}
	r.serve(metrics)
	return nil
}

// newSender is the sender over HTTP.
func newSender(c Config) (delivery.Sender, error) {
	o := delivery.Options{Version: c.Version, Allow: c.Allow, NAT64: c.NAT64, RootCAs: c.roots}
	if c.Proxy != "" {
		o.Proxy = &delivery.Proxy{Address: c.Proxy}
		if c.ProxyUser != "" {
			o.Proxy.Authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(c.ProxyUser))
		}
	}
	if c.ClientCert != "" {
		own, err := openCertificate(c.ClientCert, c.ClientKey, c.Logger)
		if err != nil {
			return nil, err
		}
		o.ClientCertificate = func() *tls.Certificate { return own.get(time.Now()) }
	}
	return delivery.New(o), nil
}

// allow opens addresses, for registration and for sending.
func (r *Running) allow(prefixes []netip.Prefix) {
	r.guard.Store(&delivery.Guard{Allow: prefixes, NAT64: r.config.NAT64})
	if c, ok := r.sender.(*delivery.Client); ok {
		c.Allow(prefixes)
	}
}

// both is one function that calls each of two; the second may be nil.
func both[T any](a, b func(T)) func(T) {
	if b == nil {
		return a
	}
	return func(t T) { a(t); b(t) }
}

func listen(ctx context.Context, c Config) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil || c.Cert == "" {
		return l, err
	}
	pair, err := openCertificate(c.Cert, c.Key, c.Logger)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return tls.NewListener(l, pair.listenerTLS()), nil
}

// serve begins to answer.
func (r *Running) serve(m *Metrics) {
	r.server = New(Options{
		Fanout: r.fanout, Journal: r.journal, Registry: r.journal.Registry(), Access: r.journal.Access(), AdminKey: r.config.AdminKey,
		Tiers: r.allTiers(r.config.Tiers), keeper: r, CheckURL: func(u string) error { return r.guard.Load().CheckURL(u) }, MaxBody: r.config.MaxBody,
		Metrics: m, trace: r.tracer, Open: r.config.OpenMetrics, Logger: r.log, Version: r.config.Version,
		LinkKey: r.config.linkKey(), Frames: r.config.Frames,
	})
	watch, end := context.WithCancel(context.Background())
	r.endWatch = end
	w := newWatcher(r.fanout, r.journal, m.top)
	w.seen = newEvents(r.config.Operator, r.journal, r.log).look
	m.watch(r.fanout, r.journal, r.journal.Registry(), w)
	r.loops.Go(func() { w.run(watch, r.log) })
	r.loops.Go(func() {
		select {
		case <-r.journal.Superseded():
			r.failed <- journal.ErrSuperseded
		case <-watch.Done():
		}
	})
	r.http = newHTTP(r.server.Handler(), r.log)
	r.loops.Go(func() {
		if err := r.http.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
			r.failed <- err
		}
	})
}

// newHTTP bounds what a connection may cost before and between requests. Bodies have bounds of
// their own (readBody); an answer has a minute beyond the longest of them.
func newHTTP(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 30 * time.Second, // also how long a client may keep a fresh connection in store
		WriteTimeout:      defaultPace.ceiling + time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Addr is the address listened on, "host:port".
func (r *Running) Addr() string { return r.listener.Addr().String() }

// URL is the base of the API for a client on this machine, "http://host:port".
func (r *Running) URL() string {
	scheme := "http://"
	if r.config.Cert != "" {
		scheme = "https://"
	}
	addr, ok := r.listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsUnspecified() {
		return scheme + r.Addr()
	}
	return scheme + net.JoinHostPort("127.0.0.1", fmt.Sprint(addr.Port))
}

// Fanout is the running fan-out, for reports in the same process.
func (r *Running) Fanout() *fanout.Fanout { return r.fanout }

// Journal is the durable state, for reports in the same process.
func (r *Running) Journal() *journal.Journal { return r.journal }

// Failed delivers the error that ended the listener, if Stop did not, or journal.ErrSuperseded: the service has
// to be stopped.
func (r *Running) Failed() <-chan error { return r.failed }

// Stop ends ingest, lets what is in flight finish within StopGrace (or ctx, whichever is
// sooner), parks the rest, writes a checkpoint and closes the data directory. Later calls
// return what the first did.
func (r *Running) Stop(ctx context.Context) error {
	r.stopOnce.Do(func() { r.stopErr = r.stop(ctx) })
	return r.stopErr
}

func (r *Running) stop(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, r.config.StopGrace)
	defer cancel()
	r.server.Stopping()
	r.fanout.StopSends()
	errHTTP := r.http.Shutdown(grace)
	if errHTTP != nil { // requests that outlast the grace are cut; nothing of theirs was acknowledged
		r.log.Warn("requests cut at the end of the grace", "error", errHTTP)
		r.http.Close()
	}
	err := r.fanout.Stop(grace)
	return errors.Join(err, r.undo())
}

// closing bounds the last writes, which come after the grace.
const closing = 15 * time.Second

// undo closes what was opened, in reverse.
func (r *Running) undo() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var errs []error
	if r.endWatch != nil {
		r.endWatch()
	}
	if r.http == nil && r.listener != nil {
		errs = append(errs, r.listener.Close())
	}
	r.loops.Wait()
	if r.sender != nil {
		r.sender.Close()
	}
	if err := r.tracer.stop(ctx); err != nil {
		r.log.Warn("the last spans were not exported", "error", err)
	}
	if r.journal != nil {
		errs = append(errs, r.journal.Close(ctx))
	}
	return errors.Join(errs...)
}
