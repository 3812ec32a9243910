package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Errors of the administrative methods, beside the journal's.
var (
	ErrNotFound = errors.New("not found")
	ErrInUse    = errors.New("in use")
	ErrInvalid  = errors.New("invalid")
	ErrStopped  = errors.New("stopping")
	ErrConflict = errors.New("conflict")
	ErrBusy     = errors.New("too many at once")
)

// Fanout drives one engine. Safe for concurrent use.
type Fanout struct {
	opts    Options
	journal *journal.Journal
	log     *slog.Logger
	clock   anchor

	ctx      context.Context // ends the loops
	cancel   context.CancelFunc
	sending  context.Context // ends attempts in flight; cut at the end of the grace
	cut      context.CancelFunc
	loops    sync.WaitGroup // reader, clock, janitor
	attempts sync.WaitGroup // goroutines that carry them
	next     chan *attempt  // start -> a goroutine that rests; closed when nothing starts any more
	resting  atomic.Int32   // how many of them do
	nudge    chan struct{}  // anyone -> clock: an earlier wake-up than it waits for
	moved    chan struct{}  // anyone -> reader: room for more
	readErr  atomic.Pointer[error]
	rendered renderings

	clocks agreement        // the janitor's, as those below
	aged   journal.Position // what was there an hour before agedAt lies below it
	agedAt time.Duration    // 0: never asked

	admin  sync.Mutex   // serialises changes of the registry with their application
	moving sync.RWMutex // before mu: written while deliveries get their names in HELD, read from what a range has to its use

	mu      sync.Mutex // all below
	engine  decider
	index   index
	open    map[*attempt]struct{} // in flight
	ends    ends
	waiting int            // references to what waits
	dead    int            // and to what is dead
	held    map[uint64]int // messages of HELD: deliveries that still live there
	spent   []uint64       // messages of HELD without any, to be deleted
	late    []lateRecord   // parked without a record yet, oldest first
	decided map[journal.DeliveryKey]struct{}
	setting uint64           // counts Reconfigure
	passed  journal.Position // decided is dropped beyond it
	cursor  journal.Position // first position not yet decided
	timerAt time.Duration    // when the clock wakes next
	tickAt  time.Duration    // when the engine is asked next
	stopped bool             // no send starts any more
	cutting bool             // what ends from now on was cut by us
	dirty   bool             // something changed since the last checkpoint

	jobs      map[uint32]*job // replays that have not ended
	beginning map[string]int  // replays that are about to run, by tenant
	counting  map[string]int  // selections that are being counted or purged, by tenant
	replaying []*lane         // with a replay
}

// decider is what is asked of the engine. Tests put something in between.
type decider interface {
	Offer(now time.Duration, d engine.Delivery) engine.Verdict
	Next(now time.Duration) (engine.Grant, bool)
	Finish(now time.Duration, k engine.Ticket, r engine.Result) engine.Verdict
	Live(k engine.Ticket) bool
	Broke(lane engine.LaneID) bool
	Waiting(now time.Duration, lane engine.LaneID, b engine.Backlog)
	Settle(now time.Duration, lane engine.LaneID, to engine.Moved, n uint32)
	Apply(now time.Duration, c engine.Change) error
	Tick(now time.Duration)
	NextWake() (time.Duration, bool)
	Lane(now time.Duration, lane engine.LaneID) (engine.LaneView, bool)
	Tenants(visit func(engine.TenantView))
	Tenant(engine.TenantID) (engine.TenantView, bool)
	Stats(now time.Duration) engine.Stats
}

// Start recovers the state of deliveries and begins to read, offer and send.
func Start(ctx context.Context, o Options) (*Fanout, error) {
	f := newFanout(o)
	state := o.Journal.State()
	if state == nil {
		return nil, errors.New("fanout: the journal's state was taken before")
	}
	if err := f.restore(state); err != nil {
		f.cancel()
		return nil, err
	}
	f.restoreSizes(ctx)
	if err := o.Journal.KeepHeld(ctx, func(seq uint64) bool { return f.held[seq] > 0 }); err != nil {
		f.cancel()
		return nil, fmt.Errorf("fanout: held deliveries: %w", err)
	}
	reader, err := o.Journal.Reader(f.cursor)
	if err != nil {
		f.cancel()
		return nil, fmt.Errorf("fanout: reader: %w", err)
	}
	f.restoreJobs(state.Jobs)
	f.loops.Add(4)
	go f.resumeLoop()
	go f.readLoop(reader)
	go f.clockLoop()
	go f.janitorLoop()
	return f, nil
}

func newFanout(o Options) *Fanout {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 1_000_000
	}
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = 30 * time.Second
	}
	if o.KeepDead == 0 {
		o.KeepDead = 30 * 24 * time.Hour
	}
	if o.decide == nil {
		o.decide = func(c engine.Config) decider { return engine.New(c) }
	}
	f := &Fanout{
		opts: o, journal: o.Journal, log: o.Logger, clock: newAnchor(),
		nudge: make(chan struct{}, 1), moved: make(chan struct{}, 1), next: make(chan *attempt),
		open: map[*attempt]struct{}{}, held: map[uint64]int{}, jobs: map[uint32]*job{}, beginning: map[string]int{}, counting: map[string]int{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.sending, f.cut = context.WithCancel(context.Background())
	seed := uint64(time.Now().UnixNano())
	o.Engine.Rand = rand.New(rand.NewPCG(seed, seed>>32|1))
	f.engine = o.decide(o.Engine)
	f.index = newIndex()
	return f
}

// Stop ends reading and sending, gives attempts in flight until ctx ends, records those cut as
// unknown, and writes a clean checkpoint. The journal stays open. It is called once.
func (f *Fanout) Stop(ctx context.Context) error {
	f.StopSends()
	f.cancel()
	f.loops.Wait()
	f.awaitAttempts(ctx)
	f.mu.Lock()
	mark := f.checkpointLocked(len(f.open) == 0)
	f.mu.Unlock()
	flush, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	if err := f.journal.WaitFlushed(flush, mark); err != nil {
		return fmt.Errorf("fanout: last checkpoint: %w", err)
	}
	f.keepSizes(flush)
	return nil
}

// StopSends lets no further send start; what is in flight goes on. It cannot be undone.
func (f *Fanout) StopSends() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
}

func (f *Fanout) awaitAttempts(ctx context.Context) {
	done := make(chan struct{})
	close(f.next)
	go func() { f.attempts.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		f.mu.Lock()
		f.cutting = true
		f.mu.Unlock()
		f.cut()
		<-done
	}
	f.cut()
}

// restore puts the recovered state into the engine and the backlogs.
func (f *Fanout) restore(s *journal.State) error {
	registry := f.journal.Registry()
	for _, t := range registry.Tenants() {
		if err := f.applyTenant(t); err != nil {
			return err
		}
	}
	kept := map[engine.LaneID]*journal.LaneState{}
	for i := range s.Lanes {
		kept[s.Lanes[i].Lane] = &s.Lanes[i]
	}
	open := map[engine.LaneID][]journal.OpenAttempt{}
	for _, o := range s.Open {
		open[o.Lane] = append(open[o.Lane], o)
	}
	past := map[engine.LaneID]map[journal.Position]journal.Past{}
	for _, p := range s.Past {
		if past[p.Lane] == nil {
			past[p.Lane] = map[journal.Position]journal.Past{}
		}
		past[p.Lane][p.Position] = p.Past
	}
	f.cursor, f.decided, f.passed = s.Cursor, s.Decided, s.Last
	if len(f.decided) == 0 {
		f.decided = nil
	}
	for _, sub := range registry.Subscriptions() {
		id := engine.LaneID(sub.Lane)
		if err := f.restoreLane(sub, kept[id], open[id], s.Crashed); err != nil {
			return err
		}
		if l := f.index.lanes[sub.Lane]; !l.removed {
			l.past = past[id]
		}
	}
	f.dirty = true
	return nil
}

// restoreLane adds a lane with what was kept of it. A bucket starts with the level of a clean
// stop, without credit for the downtime; after a crash it starts empty. A subscription deleted
// since gets its account, and leaves at once.
func (f *Fanout) restoreLane(sub journal.Subscription, kept *journal.LaneState, open []journal.OpenAttempt, crashed bool) error {
	deleted := sub.Deleted
	sub.Deleted = false
	if err := f.applySubscription(sub, true); err != nil {
		return err
	}
	l := f.index.lanes[sub.Lane]
	if deleted && kept != nil {
		kept.Tokens = math.MaxInt64 // those of its lane are with whom it shared that
	}
	if kept != nil || crashed {
		if err := f.restoreAccount(l, kept, open, crashed && !deleted); err != nil {
			return err
		}
	}
	if deleted {
		l.sub.Deleted = true
		return f.removeLane(l)
	}
	f.state(f.clock.now(), l)
	return nil
}

func (f *Fanout) restoreAccount(l *lane, kept *journal.LaneState, open []journal.OpenAttempt, crashed bool) error {
	if kept == nil {
		kept = &journal.LaneState{}
	}
	f.restoreBacklog(l, kept, open)
	change := engine.RestoreLane{Lane: l.id, Counters: kept.Counters, Tokens: kept.Tokens}
	change.Counters.InFlight, change.Counters.Parked = 0, uint64(l.backlog.len())
	if crashed {
		change.Tokens = 0
	}
	for _, w := range kept.Waiting {
		if w.Due && w.Reason == engine.ByEndpoint {
			change.PausedUntil = max(change.PausedUntil, f.clock.fromMs(w.Stamp))
		}
	}
	if err := f.engine.Apply(f.clock.now(), change); err != nil {
		return fmt.Errorf("fanout: account of %s: %w", l.sub.ID, err)
	}
	n := l.backlog.len() + deliveries(l.dead)
	l.tenant.count += n
	l.tenant.bytes += float64(n) * restoredBytes
	f.resize(l)
	return nil
}

// restoreBacklog fills the backlog and the dead letters. An attempt whose outcome nobody recorded is parked as one
// attempt more: it may have been answered.
func (f *Fanout) restoreBacklog(l *lane, kept *journal.LaneState, open []journal.OpenAttempt) {
	var waiting []ref
	for _, w := range kept.Waiting {
		waiting = append(waiting, f.restoredRef(w))
	}
	for _, o := range open {
		r := newRef(o.Position, f.clock.ms(0), o.Attempt+1, engine.ByShutdown, flagRecorded)
		f.keep(r)
		f.write(f.record(l, journal.Parked, r))
		waiting = append(waiting, r)
	}
	for _, r := range f.inOrder(l, waiting) {
		l.backlog.push(r)
	}
	for _, d := range kept.Dead {
		l.dead = append(l.dead, f.restoredRef(d))
	}
	if l.sub.OnDead == journal.OnDeadStop && l.backlog.ordered != nil {
		for i, r := range l.dead {
			l.dead[i] = f.recoverOrder(l, r).ref // it stops its queue
		}
	}
}

func (f *Fanout) restoredRef(w journal.Ref) ref {
	flags := uint64(flagRecorded)
	field := w.Attempt
	if w.Due {
		flags |= flagDue
	}
	if w.Run > 1 {
		flags |= flagRun
		field = uint32(w.Run)
	}
	r := newRef(w.Position, w.Stamp, field, w.Reason, flags)
	f.keep(r)
	return r
}

// Ready reports why deliveries do not flow, or nil.
func (f *Fanout) Ready() error {
	if err := f.readErr.Load(); err != nil {
		return *err
	}
	if s := f.journal.Status(); s.Err != nil || s.Ingest != nil {
		return cmp.Or(s.Err, s.Ingest)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return ErrStopped
	}
	if f.cursor <= f.passed && len(f.decided) > 0 {
		return errors.New("recovering")
	}
	return nil
}
