package journal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsCluster is three nats-server processes. Every data directory of a test has an account of its own.
type natsCluster struct {
	t        *testing.T
	binary   string
	dir      string
	ports    []int
	servers  [3]*exec.Cmd
	accounts sync.Map // data directory -> user
	n        atomic.Int32
}

const clusterAccounts = 40

// onCluster is where testOptions puts its journals, when it is set. Tests of this package do not run at once.
var onCluster *natsCluster

// natsServer returns the path of a nats-server of the version that this module has, built where it is missing.
func natsServer(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/nats-server")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "--version").Output(); err == nil && strings.Contains(string(out), server.VERSION) {
		return path
	}
	if out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no nats-server %s, and it cannot be built: %v\n%s", server.VERSION, err, out)
	}
	return path
}

func startCluster(t *testing.T) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t, binary: natsServer(t), dir: t.TempDir()}
	var open []net.Listener
	for range 6 { // a port that was given out is not given out again while it is open
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, l)
		c.ports = append(c.ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range open {
		l.Close()
	}
	for i := range c.servers {
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.kill(i)
		}
	})
	c.options(t.TempDir()) // ready
	return c
}

func (c *natsCluster) start(i int) {
	c.t.Helper()
	var accounts, routes strings.Builder
	for n := range clusterAccounts {
		fmt.Fprintf(&accounts, "A%d: {jetstream: enabled, users: [{user: u%d, password: p}]}\n", n, n)
	}
	for j := range c.servers {
		fmt.Fprintf(&routes, "nats-route://127.0.0.1:%d ", c.ports[3+j])
	}
	text := fmt.Sprintf(`server_name: n%d
listen: "127.0.0.1:%d"
max_payload: 8MB
jetstream: {store_dir: %q, max_file_store: 100GB}
cluster: {name: c, listen: "127.0.0.1:%d", routes: [%s]}
accounts: {%s}
`, i, c.ports[i], filepath.Join(c.dir, fmt.Sprint(i)), c.ports[3+i], strings.Join(strings.Fields(routes.String()), ", "), accounts.String())
	file := filepath.Join(c.dir, fmt.Sprintf("%d.conf", i))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(c.dir, fmt.Sprintf("%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	c.servers[i] = exec.Command(c.binary, "-c", file)
	c.servers[i].Stdout, c.servers[i].Stderr = log, log
	if err := c.servers[i].Start(); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends a server as a lost machine would.
func (c *natsCluster) kill(i int) {
	if s := c.servers[i]; s != nil {
		s.Process.Signal(syscall.SIGKILL)
		s.Wait()
		c.servers[i] = nil
	}
}

// options are those of a journal on the cluster; the directory always gets the same account.
func (c *natsCluster) options(dir string) Options {
	c.t.Helper()
	user, known := c.accounts.Load(dir)
	if !known {
		n := c.n.Add(1) - 1
		if n == clusterAccounts {
			c.t.Fatal("too few accounts")
		}
		user = fmt.Sprintf("u%d", n)
		c.accounts.Store(dir, user)
	}
	var urls []string
	for _, p := range c.ports[:3] {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	if !known {
		c.clear(urls, user.(string))
	}
	return Options{Dir: dir, MaxBytes: leastMaxBytes, Cluster: &Cluster{URLs: urls, User: user.(string), Password: "p"},
		tune: tuning{patience: 10 * time.Second, lease: 500 * time.Millisecond}}
}

// clear waits until the account's streams can be made, and has it removed when the test is over.
func (c *natsCluster) clear(urls []string, user string) {
	c.t.Helper()
	nc, err := nats.Connect(strings.Join(urls, ","), nats.UserInfo(user, "p"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	probe := jetstream.StreamConfig{Name: "PROBE", Replicas: 3}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.CreateStream(try, probe)
		done()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			c.t.Fatalf("the cluster is not ready: %v", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
	js.DeleteStream(ctx, probe.Name)
}

// leader returns which server leads a stream of the journal.
func (c *natsCluster) leader(j *Journal, stream string) int {
	c.t.Helper()
	s, err := j.link.js.Stream(c.t.Context(), stream)
	if err != nil {
		c.t.Fatal(err)
	}
	var i int
	if _, err := fmt.Sscanf(s.CachedInfo().Cluster.Leader, "n%d", &i); err != nil {
		c.t.Fatal(err)
	}
	return i
}

// The journal is the same on a cluster: these are its own tests, run there.
func TestJournalOnACluster(t *testing.T) {
	c := startCluster(t)
	onCluster = c
	t.Cleanup(func() { onCluster = nil })
	for name, test := range map[string]func(*testing.T){
		"reopen":      TestWhatWasAppendedAndRecordedIsThereAfterReopening,
		"keys":        TestKeyIsDecidedByTheLog,
		"void":        TestVoidEntriesFollowFromTheLogAlone,
		"packs":       TestWhatWaitsGoesIntoOnePackInOrder,
		"reader":      TestReaderWaitsForWhatBecomesDurable,
		"lost ack":    TestLostAckOfAPackIsInDoubtAndTheJournalGoesOn,
		"outcomes":    TestLostAckOfOutcomesCountsOnce,
		"checkpoints": TestLostAckOfACheckpointsMessagesChangesNothing,
		"cut":         TestCheckpointCutInTheMiddleDoesNotCount,
		"ledger":      TestLedgerShowsItsLaneOnlyNewestFirst,
		"epochs":      TestEpochRecordEndsTheEarlierWriter,
		"ahead":       TestOutcomesThatNameWhatTriggersLostIsDamage,
		"large":       TestTooLargeIsRefused,
		"registry":    TestRegistryOnTheJournal,
	} {
		t.Run(name, test)
	}
}

// load posts and records until stop is closed, and keeps what was acknowledged.
type load struct {
	mu    sync.Mutex
	acked []Position
	wg    sync.WaitGroup
	stop  chan struct{}
	fails atomic.Int64
}

func startLoad(t *testing.T, j *Journal) *load {
	l := &load{stop: make(chan struct{})}
	for w := range 4 {
		l.wg.Go(func() {
			for n := w; ; n += 4 {
				select {
				case <-l.stop:
					return
				default:
				}
				r, err := j.Append(t.Context(), trigger(n))
				switch {
				case err == nil:
					j.Record(rec(Delivered, 1, r.Position, 1))
					l.mu.Lock()
					l.acked = append(l.acked, r.Position)
					l.mu.Unlock()
				case errors.Is(err, ErrUnavailable):
					l.fails.Add(1)
					pause(t.Context(), 10*time.Millisecond)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// further waits until n more have been acknowledged.
func (l *load) further(t *testing.T, n int) {
	t.Helper()
	from := l.count()
	eventually(t, "triggers are acknowledged", func() bool { return l.count() >= from+n })
}

// end stops the load and makes sure that everything acknowledged is in the log, with its outcome, also for the
// next process.
func (l *load) end(t *testing.T, j *Journal) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	eventually(t, "all outcomes are durable", func() bool { return j.Flushed(Mark(j.outcomes.total())) })
	o := j.opt
	closeJournal(t, j)
	o.Cluster = &Cluster{URLs: o.Cluster.URLs, User: o.Cluster.User, Password: o.Cluster.Password}
	j = openSoon(t, o)
	defer closeJournal(t, j)
	there := make(map[Position]bool)
	for _, tr := range readAll(t, j, 0) {
		there[tr.Position] = true
	}
	st := j.State()
	for _, p := range l.acked {
		if !there[p] {
			t.Errorf("position %d is lost", p)
		}
		if _, ok := st.Decided[DeliveryKey{1, p}]; !ok {
			t.Errorf("the outcome of %d is lost", p)
		}
	}
	if c := st.Lanes[0].Counters; c.Delivered != uint64(len(l.acked)) || !c.Balanced() {
		t.Errorf("%+v, %d acknowledged", c, len(l.acked))
	}
	t.Logf("%d acknowledged, %d refused", len(l.acked), l.fails.Load())
}

// openSoon opens, again and again for a minute: servers that have just come back may not answer yet.
func openSoon(t *testing.T, o Options) *Journal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		j, err := Open(ctx, o)
		if err == nil {
			return j
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// Field case 80.
func TestLeaderKilledUnderLoadLosesNothing(t *testing.T) {
	c := startCluster(t)
	o := c.options(t.TempDir())
	o.tune.patience = 2 * time.Second
	j := open(t, o)
	l := startLoad(t, j)
	rounds := 1
	if *torture {
		rounds = 10
	}
	for i := range rounds {
		l.further(t, 100)
		stream := []string{triggersStream, outcomesStream}[i%2]
		n := c.leader(j, stream)
		c.kill(n)
		l.further(t, 100)
		c.start(n)
		l.further(t, 100)
		if *torture { // the one that came back has what it missed
			eventually(t, "the replicas are current", func() bool { return c.current(j) })
		}
	}
	eventually(t, "the replicas are current", func() bool { return c.current(j) })
	l.end(t, j)
}

// current reports whether every replica of the log has everything.
func (c *natsCluster) current(j *Journal) bool {
	for _, name := range []string{triggersStream, outcomesStream} {
		s, err := j.link.js.Stream(c.t.Context(), name)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		for _, r := range s.CachedInfo().Cluster.Replicas {
			if !r.Current || r.Offline {
				return false
			}
		}
	}
	return true
}

func TestQuorumLostAndBack(t *testing.T) {
	c := startCluster(t)
	o := c.options(t.TempDir())
	o.tune.patience = time.Second
	j := open(t, o)
	l := startLoad(t, j)
	l.further(t, 100)
	c.kill(0)
	c.kill(1)
	// What was on its way may still be answered; then nothing is, and nothing is sent.
	eventually(t, "the journal says so", func() bool { return j.Blocked() != nil && j.Status().Err != nil })
	n := l.count()
	for range 3 {
		if _, err := j.Append(t.Context(), trigger(1)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a post without quorum: %v", err)
		}
	}
	if got := l.count(); got != n {
		t.Errorf("%d acknowledged without quorum", got-n)
	}
	c.start(0)
	c.start(1)
	l.further(t, 100)
	eventually(t, "the journal is well", func() bool { return j.Blocked() == nil && j.Status().Err == nil })
	l.end(t, j)
}

func TestSecondProcessOnTheClusterIsRefused(t *testing.T) {
	c := startCluster(t)
	o := c.options(t.TempDir())
	j := open(t, o)
	second := o
	second.Dir = t.TempDir() // another machine
	if _, err := Open(t.Context(), second); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on ", os.Getpid())) {
		t.Fatal(err)
	}
	if err := j.Blocked(); err != nil {
		t.Error(err)
	}
	closeJournal(t, j)
	begun := time.Now()
	j = open(t, second) // a clean stop gives the lease back
	t.Logf("taken over after %v", time.Since(begun))

	// One that hangs, and does not know it: the contender waits, takes over, and the older one ends.
	stalled := make(chan struct{})
	j.lease.stalled.Store(&stalled)
	eventually(t, "it stops by itself", func() bool { return j.Blocked() != nil })
	if _, err := j.Append(t.Context(), trigger(1)); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	next := open(t, o)
	close(stalled)
	<-j.Superseded()
	if _, err := j.Append(t.Context(), trigger(1)); !errors.Is(err, ErrSuperseded) || !errors.Is(j.Blocked(), ErrSuperseded) {
		t.Error(err, j.Blocked())
	}
	p := mustAppend(t, next, trigger(1)).Position
	j.Record(rec(Dead, 1, p, 1)) // of a stale owner: void
	flush(t, next, next.Record(rec(Delivered, 1, p, 1)))
	flush(t, j, Mark(j.outcomes.total()))
	closeJournal(t, j)
	closeJournal(t, next)
	next = open(t, o)
	if lanes := next.State().Lanes; len(lanes) != 1 || lanes[0].Counters.Delivered != 1 {
		t.Errorf("%+v", lanes)
	}
}

func TestClusterThatDoesNotFitIsRefused(t *testing.T) {
	for _, row := range []struct {
		c    Cluster
		says string
	}{
		{Cluster{}, "URLs is empty"},
		{Cluster{URLs: []string{"nats://n"}, Replicas: 1}, "must be at least 3"},
		{Cluster{URLs: []string{"nats://n"}, Replicas: 7}, "must be 1 to 5"},
		{Cluster{URLs: []string{"nats://n"}, Cert: "a"}, "need each other"},
		{Cluster{URLs: []string{"nats://127.0.0.1:1"}}, "the NATS cluster"},
		{Cluster{URLs: []string{"nats://127.0.0.1:1"}, CA: "/nowhere"}, "CA"},
	} {
		o := testOptions(t.TempDir())
		o.Cluster = &row.c
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v", row.c, err)
		}
	}
}

// A single server whose max_payload is NATS' own default.
func TestMaxPayloadIsReadAtConnect(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("not ready")
	}
	o := testOptions(t.TempDir())
	o.Cluster = &Cluster{URLs: []string{srv.ClientURL()}, Replicas: 1, Few: true}
	o.tune.lease = 100 * time.Millisecond
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "max_payload is 1048576 bytes") {
		t.Fatal(err)
	}
	o.MaxBody = 512 << 10
	j := open(t, o)
	tr := trigger(1)
	tr.Payload = make([]byte, 512<<10)
	mustAppend(t, j, tr)
	for range 200_000 {
		tr.Audience.Tenants = append(tr.Audience.Tenants, "tenant")
	}
	if _, err := j.Append(t.Context(), tr); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}
