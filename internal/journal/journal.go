package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Errors callers tell apart.
var (
	ErrFull        = errors.New("journal: full")                                 // 503; not stored
	ErrUnavailable = errors.New("journal: not answering")                        // 503; in doubt
	ErrStarting    = errors.New("journal: duplicate index is being rebuilt")     // 503
	ErrKeyConflict = errors.New("journal: key used before with another request") // 422
	ErrTooLarge    = errors.New("journal: trigger too large")                    // 413
	ErrTrimmed     = errors.New("journal: no longer kept")                       // 410
	ErrNotFound    = errors.New("journal: no such record")
	ErrLocked      = errors.New("journal: in use by another process")
	ErrDamaged     = errors.New("journal: damaged")
	ErrLowDisk     = errors.New("journal: too little free space")
	ErrClosed      = errors.New("journal: closed")
)

// Options of Open. Zero values are defaults.
type Options struct {
	Dir       string                     // lock and secret key; the streams, unless they are a cluster's
	Cluster   *Cluster                   // nil: the server is embedded
	MaxBytes  int64                      // 0 means 20 GiB; TRIGGERS half, HELD two fifths, OUTCOMES a tenth
	MaxBody   int                        // 0 means 1 MiB; at most 6 MiB
	History   time.Duration              // of settled triggers, for resends; 0 means 3 days; full streams end it sooner
	Cache     int64                      // bytes of decoded packs that Load keeps; 0 means 64 MiB
	SecretKey []byte                     // 32 bytes; nil: made and kept in Dir (mode 0600)
	Previous  [][]byte                   // keys that SecretKey has replaced: Open encrypts anew what they have encrypted
	Ballast   int64                      // 0 is none
	MinFree   func() (total, free int64) // nil: statfs of Dir; tests hand one in
	NoSync    bool                       // tests only: shows that the crash test notices
	NoPause   bool                       // tests only: a flush follows another at once, so that virtual time does not pass for them
	Logger    *slog.Logger               // nil is silent

	tune tuning // tests only
}

// tuning is what tests make shorter or smaller. Zero values are the service's.
type tuning struct {
	patience time.Duration // no answer for that long is neither success nor failure: 2 s
	window   time.Duration // of idempotency keys: an hour
	most     int           // keys in the window: ten million
	kept     time.Duration // least window that trimming leaves: ten minutes
	trim     time.Duration // between rounds of trimming: 10 s
	flush    int           // bytes of a message of OUTCOMES: 512 KiB
	lease    time.Duration // between two renewals: 3 s

	intercept func(subject string, data []byte, store func() (uint64, error)) (uint64, error) // of every message
}

func (t tuning) withDefaults() tuning {
	t.patience = cmp.Or(t.patience, 2*time.Second)
	t.window = cmp.Or(t.window, time.Hour)
	t.most = cmp.Or(t.most, 10_000_000)
	t.kept = cmp.Or(t.kept, 10*time.Minute)
	t.trim = cmp.Or(t.trim, 10*time.Second)
	t.flush = cmp.Or(t.flush, 512<<10)
	t.lease = cmp.Or(t.lease, 3*time.Second)
	return t
}

const (
	defaultMaxBytes = 20 << 30
	leastMaxBytes   = 64 << 20
	defaultMaxBody  = 1 << 20
	mostMaxBody     = 6 << 20
	defaultHistory  = 72 * time.Hour
	defaultCache    = 64 << 20
)

// withDefaults fills what is zero and reports every bad field.
func (o Options) withDefaults() (Options, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.History = cmp.Or(o.History, defaultHistory)
	o.Cache = cmp.Or(o.Cache, defaultCache)
	o.tune = o.tune.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("journal: "+format, args...))
		}
	}
	bad(o.Dir == "", "Dir is empty")
	bad(o.MaxBytes < leastMaxBytes, "MaxBytes is %d, must be at least %d", o.MaxBytes, leastMaxBytes)
	bad(o.MaxBody < 1 || o.MaxBody > mostMaxBody, "MaxBody is %d, must be 1 to %d", o.MaxBody, mostMaxBody)
	bad(o.History < 0, "History is negative")
	bad(o.Cache < 0, "Cache is negative")
	bad(o.Ballast < 0, "Ballast is negative")
	if o.Cluster != nil {
		c, err := o.Cluster.check()
		o.Cluster, o.Ballast = &c, 0
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}

// measure returns how free space is found out. The disks of a cluster are not ours to watch.
func (o *Options) measure() func() (total, free int64) {
	if o.Cluster != nil {
		return func() (int64, int64) { return 1 << 62, 1 << 62 }
	}
	return o.MinFree
}

// Journal is open durable state. Safe for concurrent use.
type Journal struct {
	opt    Options
	log    *slog.Logger
	writer uint64 // this process's incarnation: random, in every message it writes
	epoch  uint64
	unlock func()
	disk   *diskWatch
	link   *link
	lease  *lease // nil: the lock is enough
	reg    *Registry
	access *Access
	jobs   *jobs
	tiers  *tiers
	kept   *lazyBucket // of PutSizes

	append   *appender
	outcomes *outcomes
	packs    *packs
	held     *packs // of HELD
	epochs   *epochs
	trim     *trimmer
	tasks    tasks

	state   atomic.Pointer[State]
	durable *watermark    // sequence of the newest acknowledged pack
	newest  atomic.Uint64 // and the last position in it
	close   sync.Once
	closed  error
}

// Mark stands for everything handed to Record so far.
type Mark uint64

// Receipt answers Append.
type Receipt struct {
	ID       string
	Position Position
	Repeat   bool // a keyed post seen before: ID and Position are the first one's
}

// Status is the journal at an instant, for readiness and metrics.
type Status struct {
	Err           error // why it is not ready; nil
	Ingest        error // why no trigger is taken though the log answers; nil
	Sends         error // why no new request may be started; nil
	LastPosition  Position
	Floor         Position
	TriggersBytes int64
	OutcomesBytes int64
	HeldBytes     int64
	MaxBytes      int64
	Unflushed     int
	UnflushedFor  time.Duration // age of the oldest unflushed record
	FlushLast     time.Duration
	Flushes       uint64
	FlushTime     time.Duration // all of them together
	Packs         uint64        // synced writes of triggers
	Reads         uint64        // messages of TRIGGERS read back for what waited,
	HeldReads     uint64        // and of HELD
	Oldest        time.Time     // of the triggers kept; zero: none
	Free, Total   int64
	Epoch         uint64
	KeyWindow     time.Duration // how far back a used key is recognised now
}

// State returns what was recovered; the caller owns it. Later calls return nil.
func (j *Journal) State() *State { return j.state.Swap(nil) }

// Registry returns the tenants and subscriptions.
func (j *Journal) Registry() *Registry { return j.reg }

// Access returns the keys and the record of what administrators did.
func (j *Journal) Access() *Access { return j.access }

// Append returns when t is durable, and, with a key, when the log has decided.
//
// Errors: ErrFull and ErrTooLarge: nothing is stored. ErrStarting: keyed posts only, not stored.
// ErrKeyConflict: the key names another request. ErrUnavailable: in doubt, and so is a context
// that ends first. t is not kept.
func (j *Journal) Append(ctx context.Context, t *Trigger) (Receipt, error) {
	return j.append.trigger(ctx, t)
}

// AppendBatch is Append for several that become durable together, in one pack: ErrTooLarge when they do not
// fit. An error is that of the first that has one; with ErrKeyConflict the others are stored.
func (j *Journal) AppendBatch(ctx context.Context, ts []*Trigger) ([]Receipt, error) {
	return j.append.triggers(ctx, ts)
}

// Record queues outcome records in order and never blocks; Checkpoint takes its place in
// the same order. Both become durable with the next flush.
func (j *Journal) Record(recs ...Record) Mark { return j.outcomes.record(recs) }

// Checkpoint hands cp over: the caller does not touch it again. It may become durable in several
// messages, and counts from the last one on. What it covers was handed to Record before it.
func (j *Journal) Checkpoint(cp *Checkpoint) Mark { return j.outcomes.checkpoint(cp) }

// WaitFlushed returns when everything up to m is durable, or with the context's error.
func (j *Journal) WaitFlushed(ctx context.Context, m Mark) error {
	return j.outcomes.flushed.wait(ctx, uint64(m))
}

// Flushed reports whether everything up to m is durable.
func (j *Journal) Flushed(m Mark) bool { return j.outcomes.flushed.reached(uint64(m)) }

// pause lets time pass between two flushes.
func (j *Journal) pause(ctx context.Context, d time.Duration) {
	if !j.opt.NoPause {
		pause(ctx, d)
	}
}

// Partitions is how many there are.
const Partitions = 64

// PartitionOf returns the tenant's partition, 0 to 63.
func PartitionOf(tenant string) uint8 {
	h := fnv.New64a()
	h.Write([]byte(tenant))
	sum := h.Sum64()
	return uint8((sum ^ sum>>32) % Partitions)
}

// watermark is a number that only grows, and can be waited for. Safe for concurrent use.
type watermark struct {
	at atomic.Uint64

	mu    sync.Mutex
	moved chan struct{} // closed and replaced when it grows while somebody waits
	done  error         // it will not grow any more
}

// raise lets everybody go who waits for n or less.
func (w *watermark) raise(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n <= w.at.Load() {
		return
	}
	w.at.Store(n)
	w.wakeLocked()
}

// stop ends all waiting, now and later, with err.
func (w *watermark) stop(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = err
	w.wakeLocked()
}

func (w *watermark) wakeLocked() {
	if w.moved != nil {
		close(w.moved)
		w.moved = nil
	}
}

func (w *watermark) reached(n uint64) bool { return w.at.Load() >= n }

// wait returns nil once n is reached.
func (w *watermark) wait(ctx context.Context, n uint64) error {
	for {
		moved, err := w.movement(n)
		if moved == nil || err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// movement returns a channel that the next change closes, or nil when n is reached.
func (w *watermark) movement(n uint64) (<-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.at.Load() >= n:
		return nil, nil
	case w.done != nil:
		return nil, w.done
	case w.moved == nil:
		w.moved = make(chan struct{})
	}
	return w.moved, nil
}
