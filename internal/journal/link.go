package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	reopenSoonest = time.Second // between two openings, doubling
	reopenLatest  = 30 * time.Second
	reconnectMost = 2 * time.Second // the same for a cluster's connection
)

// link is the embedded server and the connections to it, or those to a cluster. They outlive the server: they come
// back by themselves when it has been opened again.
//
// Messages are read over a connection of their own: a server answers a read before it looks at what comes next on
// that connection, and a cold read loads a block of 8 MB. What is written does not wait behind it.
type link struct {
	cluster   *Cluster // nil: the server is embedded
	replicas  int
	entryMost int // bytes of an entry that fit a message

	dir      string
	noSync   bool
	log      *slog.Logger
	patience time.Duration
	names    names

	// intercept stands between publish and the server in tests; store does what publish does without it.
	intercept func(subject string, data []byte, store func() (uint64, error)) (uint64, error)

	nc    *nats.Conn
	reads *nats.Conn
	js    jetstream.JetStream

	mu     sync.Mutex
	srv    *server.Server // nil while it is being opened
	opened uint64         // how often
	next   time.Time      // no earlier
	wait   time.Duration  // after the next opening
}

// openLink starts the server on dir, or finds the cluster, and connects.
func openLink(o Options) (*link, error) {
	l := &link{cluster: o.Cluster, replicas: 1, entryMost: entryMaxBytes, dir: filepath.Join(o.Dir, streamsDir), noSync: o.NoSync, log: o.Logger,
		patience: o.tune.patience, names: names{dir: o.Dir}, intercept: o.tune.intercept, opened: 1, wait: reopenSoonest}
	var err error
	if l.cluster != nil {
		l.replicas = l.cluster.Replicas
		err = l.outside(o.MaxBody)
	} else {
		err = l.inside(o.Dir)
	}
	if err == nil {
		l.js, err = jetstream.New(l.nc, jetstream.WithDefaultTimeout(10*time.Second))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// inside starts the embedded server and connects to it.
func (l *link) inside(dir string) error {
	if err := finishRepair(dir); err != nil {
		return err
	}
	srv, err := l.start(!l.wasClean())
	if err != nil {
		return err
	}
	l.srv = srv
	opts := append(l.connection(), nats.InProcessServer(l), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err := l.connect("", opts); err != nil {
		return fmt.Errorf("journal: connect: %w", err)
	}
	return nil
}

func (l *link) connect(urls string, opts []nats.Option) (err error) {
	if l.nc, err = nats.Connect(urls, opts...); err == nil {
		l.reads, err = nats.Connect(urls, opts...)
	}
	return err
}

// connection returns what connections to both have in common.
func (l *link) connection() []nats.Option {
	return []nats.Option{
		nats.Name("fairlane"),
		nats.ReconnectBufSize(-1), // what is not sent now is not sent later behind our back
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.log.Warn("journal connection", "error", err) }),
	}
}

// start checks the blocks, every one or each stream's newest, and starts the server.
func (l *link) start(every bool) (*server.Server, error) {
	err := checkBlocks(l.dir, every, func(stream, file string, n int) {
		l.log.Warn("journal: an end that was not written completely is cut off", "stream", stream, "file", file, "bytes", n)
	})
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "fairlane", DontListen: true, NoSigs: true, NoSystemAccount: true,
		MaxPayload: messageBytes, MaxPending: 64 << 20,
		JetStream: true, StoreDir: l.dir, SyncAlways: !l.noSync, DisableJetStreamBanner: true,
		JetStreamMaxStore:  1 << 60, // each stream has its own limit, which may be lowered
		JetStreamMaxMemory: 64 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("journal: server: %w", err)
	}
	said := &serverLog{to: l.log}
	srv.SetLoggerV2(said, false, false, false)
	srv.Start() // returns, since it does not listen
	if !srv.Running() || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("journal: the embedded server does not start: %s", said.last())
	}
	return srv, nil
}

// InProcessConn connects to whatever server is open now.
func (l *link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	srv := l.srv
	l.mu.Unlock()
	if srv == nil {
		return nil, ErrUnavailable
	}
	return srv.InProcessConn()
}

// generation counts the openings.
func (l *link) generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}

// works notes that something was stored: the next trouble is a new one.
func (l *link) works() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = reopenSoonest
}

// reopen closes the server and opens it again, unless somebody has done so since seen, or it was done
// a short while ago. Streams with a write error stay silent until they are opened anew. Of a cluster the
// connection is made anew, to another server perhaps. What was on its way may still be stored then: readers
// judge it by its place in the log, as they do everything.
func (l *link) reopen(seen uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened != seen || time.Now().Before(l.next) {
		return nil
	}
	if l.cluster != nil {
		l.next, l.wait = time.Now().Add(l.wait), min(2*l.wait, reconnectMost)
		l.opened++
		l.log.Warn("journal: the cluster is connected to again")
		return errors.Join(l.nc.ForceReconnect(), l.reads.ForceReconnect())
	}
	l.log.Warn("journal: the embedded server is opened again")
	if old := l.srv; old != nil {
		l.srv = nil
		old.Shutdown()
		old.WaitForShutdown()
	}
	srv, err := l.start(false)
	l.next, l.wait = time.Now().Add(l.wait), min(2*l.wait, reopenLatest)
	if err != nil {
		return err
	}
	l.srv = srv
	l.opened++
	return l.names.syncAll()
}

// close is a clean stop: the streams' state is written, so that the next start is short.
func (l *link) close() {
	for _, c := range []*nats.Conn{l.nc, l.reads} {
		if c != nil {
			c.Close()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.srv != nil {
		l.srv.Shutdown()
		l.srv.WaitForShutdown()
		l.srv = nil
		l.markClean()
	}
}

// markClean notes a clean stop, and wasClean reports and forgets it.
func (l *link) markClean() {
	if err := writeDurable(filepath.Join(l.dir, cleanFile), nil); err != nil {
		l.log.Warn("journal: the next start reads everything", "error", err)
	}
}

func (l *link) wasClean() bool {
	return os.Remove(filepath.Join(l.dir, cleanFile)) == nil && syncDir(l.dir) == nil
}

// serverLog passes on what the embedded server warns of, and is silent otherwise.
type serverLog struct {
	to *slog.Logger

	mu    sync.Mutex
	fatal string
}

func (s *serverLog) Noticef(string, ...any)         {}
func (s *serverLog) Debugf(string, ...any)          {}
func (s *serverLog) Tracef(string, ...any)          {}
func (s *serverLog) Warnf(format string, v ...any)  { s.to.Warn(fmt.Sprintf(format, v...)) }
func (s *serverLog) Errorf(format string, v ...any) { s.to.Error(fmt.Sprintf(format, v...)) }

// Fatalf remembers why the server gave up; the process goes on.
func (s *serverLog) Fatalf(format string, v ...any) {
	s.mu.Lock()
	s.fatal = fmt.Sprintf(format, v...)
	s.mu.Unlock()
	s.to.Error(fmt.Sprintf(format, v...))
}

func (s *serverLog) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal
}
