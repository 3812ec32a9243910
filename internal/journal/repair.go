package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

const (
	streamsDir = "streams"
	mendingDir = "mending" // holds a copy of streams that is being mended
	mendedDir  = "mended"  // the same, complete: it takes the place of streams
	damagedDir = "damaged" // and a time: what was in its place before
)

// ErrBeyondRepair says that Repair can do nothing: the directory has to come from a backup.
var ErrBeyondRepair = errors.New("journal: cannot be repaired")

// RepairOptions of Repair.
type RepairOptions struct {
	Dir    string       // of the journal
	Apply  bool         // false: everything is tried on a copy, which is then deleted
	Logger *slog.Logger // nil is silent
}

// RepairReport says what Repair has found and done, or would do.
type RepairReport struct {
	Damage    []RepairDamage   `json:"damage"`
	Lost      []LostDelivery   `json:"lost"`      // deliveries that ended as dropped, "local": their payload is gone
	Undecided []LostPositions  `json:"undecided"` // lost before it was known whom they were for
	Outcomes  []LostPositions  `json:"outcomes"`  // messages of OUTCOMES without which deliveries may be repeated
	Found     int              `json:"found"`     // deliveries that the log has lost, and that are in HELD
	Account   map[string]int64 `json:"account"`   // of all lanes, afterwards
	Copy      string           `json:"copy,omitempty"`
	Applied   bool             `json:"applied"`
}

// RepairDamage is something that was found, and what is done about it. From and To are sequences, 0 where
// they are not known.
type RepairDamage struct {
	Stream string `json:"stream"`
	From   uint64 `json:"from,omitempty"`
	To     uint64 `json:"to,omitempty"`
	What   string `json:"what"`
	Mend   string `json:"mend"`
}

// LostDelivery is one trigger for one subscription.
type LostDelivery struct {
	Tenant       string `json:"tenant"`
	Subscription string `json:"subscription"`
	Lane         uint32 `json:"lane"`
	Position     uint64 `json:"position"` // 0 where only what was held knew it
	State        string `json:"state"`    // waiting, dead, in flight
}

// LostPositions are those from From to To.
type LostPositions struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Repair mends the data directory of a service that is stopped. It works on a copy of the streams, and lets it
// take their place only when the journal has been recovered from it; what was there before is kept, whole,
// beside it. What is lost stays lost: its places are filled, and its deliveries end as dropped.
//
// Errors: ErrLocked, ErrBeyondRepair, and those of the file system, of which too little space is one.
func Repair(ctx context.Context, o RepairOptions) (*RepairReport, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if _, err := os.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("journal: data directory: %w", err)
	}
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := finishRepair(o.Dir); err != nil {
		return nil, err
	}
	m := &mender{o: o, work: filepath.Join(o.Dir, mendingDir), known: known{names: make(map[string]named), markers: make(map[string]uint64), held: make(map[uint64][]DeliveryKey)}}
	defer func() { _ = os.RemoveAll(m.work) }() // what is left of it does not matter
	if err := m.copy(); err != nil {
		return nil, err
	}
	if err := m.blocks(); err != nil {
		return nil, err
	}
	if err := m.state(ctx); err != nil {
		return nil, err
	}
	if o.Apply && m.needed() {
		return &m.report, m.swap()
	}
	return &m.report, nil
}

// finishRepair completes the exchange that a crash has cut off.
func finishRepair(dir string) error {
	_, err := os.Stat(filepath.Join(dir, streamsDir))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.Rename(filepath.Join(dir, mendedDir, streamsDir), filepath.Join(dir, streamsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(dir), os.RemoveAll(filepath.Join(dir, mendedDir)))
}

// mender is one repair.
type mender struct {
	o                   RepairOptions
	work                string
	report              RepairReport
	known               known
	lost                map[string][]lostRange // by stream
	first, firstOutcome uint64                 // sequences kept
}

// needed reports whether there was anything to do.
func (m *mender) needed() bool {
	return len(m.report.Damage)+len(m.report.Lost)+m.report.Found > 0
}

// copy copies the streams, if there is room for that.
func (m *mender) copy() error {
	from := filepath.Join(m.o.Dir, streamsDir)
	size := int64(0)
	err := filepath.WalkDir(from, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err == nil {
			size += st.Size()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("journal: repair: %w", err)
	}
	const spare = 64 << 20
	if total, free := statfs(m.o.Dir); total > 0 && free < size+spare {
		return fmt.Errorf("%w: repair works on a copy, which needs %d MiB; %d MiB are free", ErrLowDisk, (size+spare)>>20, free>>20)
	}
	if err := os.RemoveAll(m.work); err != nil {
		return fmt.Errorf("journal: repair: %w", err)
	}
	if err := os.CopyFS(filepath.Join(m.work, streamsDir), os.DirFS(from)); err != nil {
		return fmt.Errorf("journal: repair: %w", err)
	}
	return os.RemoveAll(filepath.Join(m.work, streamsDir, cleanFile)) // everything is read
}

// blocks mends all files.
func (m *mender) blocks() error {
	dirs, err := fs.Glob(os.DirFS(m.work), streamsDir+"/jetstream/*/streams/*/msgs")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	all := make(map[string]*salvage)
	for _, d := range dirs {
		s := m.salvage(filepath.Base(filepath.Dir(d)), filepath.Join(m.work, d))
		all[s.stream] = s
		if err := errors.Join(s.run(), m.known.err); err != nil {
			return err
		}
	}
	m.known.checkpoint()
	for stream, to := range map[string]uint64{triggersStream: m.known.triggers, outcomesStream: m.known.outcomes, heldStream: m.known.heldTo} {
		s := all[stream]
		if s == nil {
			return fmt.Errorf("%w: the stream %s is not there", ErrBeyondRepair, stream)
		}
		if err := s.extend(to); err != nil {
			return err
		}
	}
	m.lost = make(map[string][]lostRange)
	for _, stream := range slices.Sorted(maps.Keys(all)) {
		m.report.Damage = append(m.report.Damage, all[stream].found...)
		m.lost[stream] = all[stream].lost
	}
	m.first, m.firstOutcome = all[triggersStream].first, all[outcomesStream].first
	return m.known.registry(all["KV_"+registryBucket])
}

func (m *mender) salvage(stream, dir string) *salvage {
	s := &salvage{stream: stream, dir: dir, visit: func(blockRecord) {}, deleted: func(uint64) {}}
	k := &m.known
	switch stream {
	case triggersStream:
		s.ours, s.visit, s.pad = true, k.pack, padPack
	case outcomesStream:
		s.ours, s.visit, s.pad = true, k.outcome, padOutcomes(k.epochs.highest)
	case heldStream:
		s.visit, s.deleted = k.heldMessage, func(seq uint64) { delete(k.held, seq) }
	case "KV_" + registryBucket:
		s.visit = k.registryRecord
	}
	return s
}

// state recovers the state from what is left, ends what is lost, and writes a checkpoint, as a process of its
// own.
func (m *mender) state(ctx context.Context) error {
	o, err := Options{Dir: m.work, Logger: m.o.Logger, MaxBytes: 1 << 50}.withDefaults()
	if err != nil {
		return err
	}
	j := &Journal{opt: o, log: o.Logger, writer: randomWriter(), unlock: func() {}, epochs: &epochs{}, durable: &watermark{}}
	j.tasks.ctx, j.tasks.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer j.shutdown()
	if j.link, err = openLink(o); err != nil {
		return err
	}
	triggers, err := j.link.whole(ctx, triggersStream)
	if err != nil {
		return err
	}
	outcomes, err := j.link.whole(ctx, outcomesStream)
	if err != nil {
		return err
	}
	if err := j.epochs.load(ctx, j.link, 0); err != nil {
		return err
	}
	newest := m.known.newest
	if newest != nil {
		j.epochs.assume(newest)
	}
	mine, err := j.epochs.begin(ctx, j.link, header{writer: j.writer, counter: 1, prev: outcomes.last, other: triggers.last})
	if err != nil {
		return err
	}
	outcomes.last = mine.seq - 1
	f, err := recoverFold(ctx, j.link, j.epochs, newest, outcomes)
	if err != nil {
		return err
	}
	j.epoch = mine.epoch
	j.ready(triggers, mine, newest)
	j.tasks.start(j.outcomes.run)
	return m.settle(ctx, j, f)
}

// settle names what is lost, and writes it down.
func (m *mender) settle(ctx context.Context, j *Journal, f *fold) error {
	recs := m.found(f)
	gone := m.gone(f)
	for i := range gone {
		f.apply(&gone[i])
	}
	recs = append(recs, gone...)
	m.summary(f)
	cp := f.state().Checkpoint
	cp.At, cp.Clean = time.Now(), false
	j.outcomes.decided = slices.Collect(maps.Keys(f.decided))
	j.outcomes.record(recs)
	mark := j.outcomes.checkpoint(&cp)
	return j.outcomes.flushed.wait(ctx, uint64(mark))
}

// found are deliveries that are in HELD, where the record that says so is lost: the trigger of what waits or
// is dead is no longer in TRIGGERS, or OUTCOMES has lost what it knew of the delivery.
func (m *mender) found(f *fold) (recs []Record) {
	for _, seq := range slices.Sorted(maps.Keys(m.known.held)) {
		keys := m.known.held[seq]
		l := f.lane(keys[0].Lane)
		moved := Record{Kind: Held, Partition: m.partition(keys[0].Lane), Lane: keys[0].Lane, Ref: seq, At: time.Now()}
		again := []Record{}
		for i, k := range keys {
			name, at := HeldPosition(seq, i), Position(0)
			switch {
			case l.where(name) != unknown || !m.away(k.Position) && k.Position >= f.base.Cursor:
			case m.away(k.Position) && (l.waiting.has(k.Position) || l.dead.has(k.Position)):
				at = k.Position
				moved.N++
			case len(m.lost[outcomesStream]) > 0 && l.where(k.Position) == unknown:
				again = append(again, Record{Kind: Resent, Partition: moved.Partition, Lane: k.Lane, Position: name, Reason: engine.ByLocal, At: moved.At})
			}
			moved.Positions = append(moved.Positions, at)
		}
		if moved.N > 0 {
			again = append(again, moved)
			m.report.Found += int(moved.N) - 1
		}
		m.report.Found += len(again)
		for i := range again {
			f.apply(&again[i])
		}
		recs = append(recs, again...)
	}
	return recs
}

// away reports whether there is no trigger at the position.
func (m *mender) away(p Position) bool {
	if p.Held() {
		_, ok := m.known.held[p.Seq()]
		return !ok
	}
	return p.Seq() < m.first || slices.ContainsFunc(m.lost[triggersStream], func(r lostRange) bool { return r.from <= p.Seq() && p.Seq() <= r.to })
}

// gone are the records that end deliveries whose payload is lost.
func (m *mender) gone(f *fold) (recs []Record) {
	for _, id := range slices.Sorted(maps.Keys(f.lanes)) {
		l := f.lanes[id]
		name := m.known.names[recordKey(kindSubscription, uint32(id))]
		l.waiting.index() // runs are taken apart
		l.dead.index()
		l.eachPosition(func(p Position) {
			if !m.away(p) {
				return
			}
			recs = append(recs, Record{Kind: Dropped, Partition: m.partition(id), Lane: id, Position: p, Reason: engine.ByLocal, At: time.Now(), Detail: "lost: the log was damaged"})
			lost := LostDelivery{Tenant: name.Tenant, Subscription: name.ID, Lane: uint32(id), State: l.where(p).String()}
			if !p.Held() {
				lost.Position = uint64(p)
			}
			m.report.Lost = append(m.report.Lost, lost)
		})
	}
	slices.SortStableFunc(m.report.Lost, func(a, b LostDelivery) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Position, b.Position))
	})
	return recs
}

func (m *mender) partition(lane engine.LaneID) uint8 {
	return PartitionOf(m.known.names[recordKey(kindSubscription, uint32(lane))].Tenant)
}

func (s spot) String() string {
	return [...]string{"unknown", "waiting", "dead", "in flight", "settled"}[s]
}

// summary fills in what concerns no single delivery.
func (m *mender) summary(f *fold) {
	if c := f.base.Cursor; c != 0 && c.Seq() < m.first { // nobody can read there
		f.base.Cursor = position(m.first, 0)
		m.report.Undecided = append(m.report.Undecided, LostPositions{uint64(c), uint64(f.base.Cursor - 1)})
	}
	if m.known.newest == nil && m.firstOutcome > 1 {
		m.report.Damage = append(m.report.Damage, RepairDamage{Stream: outcomesStream, To: m.firstOutcome,
			What: "no complete checkpoint is left", Mend: "the log is read again from its beginning: what it holds may be delivered twice"})
	}
	for _, r := range m.lost[triggersStream] {
		if to := position(r.to, packMaxEntries-1); to >= f.base.Cursor {
			m.report.Undecided = append(m.report.Undecided, LostPositions{uint64(max(position(r.from, 0), f.base.Cursor)), uint64(to)})
		}
	}
	for _, r := range m.lost[outcomesStream] {
		m.report.Outcomes = append(m.report.Outcomes, LostPositions{r.from, r.to})
	}
	a := map[string]int64{}
	for _, l := range f.lanes {
		c := &l.counters
		for name, n := range map[string]uint64{"offered": c.Offered, "delivered": c.Delivered, "parked": c.Parked, "dead": c.Dead,
			"in_flight": c.InFlight, "cancelled": c.Cancelled, "dropped": c.Dropped} {
			a[name] += int64(n)
		}
	}
	m.report.Account = a
}

// swap lets the mended copy take the place of the streams.
func (m *mender) swap() error {
	err := filepath.WalkDir(m.work, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDir(path) // a file as well
	})
	in := func(name string) string { return filepath.Join(m.o.Dir, name) }
	name := damagedDir + "-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err != nil {
		return fmt.Errorf("journal: repair: %w", err)
	}
	for _, do := range []func() error{
		func() error { return os.RemoveAll(in(mendedDir)) },
		func() error { return os.Rename(m.work, in(mendedDir)) },
		func() error { return syncDir(m.o.Dir) },
		func() error { return os.Rename(in(streamsDir), in(name)) }, // from here on a crash leaves it to finishRepair
		func() error { return finishRepair(m.o.Dir) },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("journal: repair: %w", err)
		}
	}
	m.report.Copy, m.report.Applied = in(name), true
	return nil
}
