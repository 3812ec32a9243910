package fanout

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// A replay takes dead letters a few at a time, as fast as their lane can send them (pace.go), so that what has
// not been taken is dead as before: a replay that is cancelled, or cut off by a crash, leaves nothing half done.
// Its selection and state are a record in the journal; what became of what it took is counted in OUTCOMES.

// job is a replay that is running or cancelled.
type job struct {
	journal.Job
	sel   Selection
	count journal.JobCount
	rate  limit.Rate
	level limit.Level
	lanes map[*lane]struct{} // that it still takes from; nil: it does not
	rest  uint64             // what was left when it was cancelled
	turn  chan struct{}      // one token: its holder changes the job, and may read its time range meanwhile
}

// part is what a job takes from one lane.
type part struct {
	*job
	in   *inRange // nil: all that the selection has but for its time range
	left uint64   // still to be taken
}

func (p *part) wants(l *lane) func(ref) bool {
	return func(r ref) bool {
		if !p.sel.selects(r, p.in) {
			return false
		}
		if p.count.Taken == 0 {
			return true
		}
		past, again := l.past[r.pos()]
		return !again || past.Job == 0 || past.Job != p.Number // what it took before has died again
	}
}

// ReplayStatus is a replay at an instant. Selected = taken + skipped + left.
type ReplayStatus struct {
	journal.Job
	Left    uint64 // still to be taken; while it is cancelled they stay dead
	Skipped uint64 // were not dead any more when their turn came: another replay took them, or they were purged
	Blocked engine.Reason
}

// Replay starts a replay of the dead letters of a selection, or with dry only counts them: its run takes exactly
// those, but for what has been taken by another or purged since. rate, such as "15/s", makes it slower than the
// lane's own; "" does not. Error: ErrBusy while as many of the tenant's selections are counted as may be at once.
func (f *Fanout) Replay(ctx context.Context, s Selection, rate string, dry bool) (ReplayStatus, error) {
	if s.Tenant == "" && s.Subscription == "" {
		return ReplayStatus{}, fmt.Errorf("%w: subscription: name it, or a tenant", ErrInvalid)
	}
	if !s.Until.IsZero() && s.Until.Before(s.Since) {
		return ReplayStatus{}, fmt.Errorf("%w: until: is before since", ErrInvalid)
	}
	lanes, err := f.lanesOf(&s)
	if err == nil {
		err = f.checkReplayed(&s, lanes)
	}
	if err != nil {
		return ReplayStatus{}, err
	}
	begin := f.beginReplay
	if dry {
		begin = f.beginCount
	}
	begun, err := begin(s.Tenant)
	if err != nil {
		return ReplayStatus{}, err
	}
	defer begun()
	if s.Bound == 0 {
		s.Bound = f.awaitBound()
	}
	j := &job{sel: s, turn: make(chan struct{}, 1), Job: journal.Job{
		Tenant: s.Tenant, Subscription: s.Subscription, Since: s.Since, Until: s.Until, Bound: s.Bound, Rate: rate, State: journal.JobRunning,
	}}
	for _, r := range s.Reasons {
		j.Reasons = append(j.Reasons, r.String())
	}
	if j.rate, err = replayRate(rate); err != nil || j.rate.IsPaused() {
		return ReplayStatus{}, fmt.Errorf("%w: rate: must be such as 15/s", ErrInvalid)
	}
	f.moving.RLock()
	defer f.moving.RUnlock()
	parts, err := f.partsOf(ctx, j, lanes)
	if err != nil {
		return ReplayStatus{}, err
	}
	j.Selected = f.left(parts)
	if dry {
		return ReplayStatus{Job: j.Job, Left: j.Selected}, nil
	}
	if j.Selected == 0 {
		j.State = journal.JobDone
	}
	if j.Job, err = f.journal.PutJob(ctx, j.Job); err != nil {
		return ReplayStatus{}, err
	}
	j.count.Number = j.Number
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attach(j, parts)
	return f.replayStatus(j), nil
}

const jobsOpen = 50 // replays of a tenant that run: each costs memory, and time under the lock

// beginReplay takes a place among the replays of a tenant that may run, for one that is about to: begun gives it back.
func (f *Fanout) beginReplay(tenant string) (begun func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := f.beginning[tenant]
	for _, j := range f.jobs {
		if j.Tenant == tenant && j.State == journal.JobRunning {
			open++
		}
	}
	if open >= jobsOpen {
		return nil, fmt.Errorf("%w: %d replays of the tenant are running; wait for one to end, or cancel one", ErrConflict, open)
	}
	return f.enter(f.beginning, tenant), nil
}

// enter counts one more of a tenant in m until left is called; the caller holds the lock.
func (f *Fanout) enter(m map[string]int, tenant string) (left func()) {
	m[tenant]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if m[tenant]--; m[tenant] == 0 {
			delete(m, tenant)
		}
	}
}

// replayRate compiles a replay's own rate.
func replayRate(text string) (limit.Rate, error) {
	r, err := limit.ParseContract(text, 1)
	return evenly(r), err
}

// evenly is the rate with the burst of a fiftieth of a second.
func evenly(r limit.Rate) limit.Rate {
	if r.IsUnlimited() || r.IsPaused() {
		return r
	}
	n, per, _ := r.Contract()
	even, err := limit.NewRate(n, per, max(1, int64(math.Ceil(r.PerSecond()/50))))
	if err != nil {
		return r // not with the numbers of another
	}
	return even
}

// checkReplayed refuses a subscription that nothing can be sent to until somebody enables it, and fills in its
// tenant.
func (f *Fanout) checkReplayed(s *Selection, lanes []*lane) error {
	if s.Subscription == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Tenant = lanes[0].tenant.name
	if why := lanes[0].sub.Disabled; why != "" {
		return fmt.Errorf("%w: the subscription is disabled (%s); enable it first", ErrConflict, why)
	}
	return nil
}

// partsOf resolves a job's time range, lane by lane. The caller holds moving, until the job is attached.
func (f *Fanout) partsOf(ctx context.Context, j *job, lanes []*lane) (map[*lane]*part, error) {
	parts := make(map[*lane]*part, len(lanes))
	for _, l := range lanes {
		in, err := f.within(ctx, l, &j.sel)
		if err != nil {
			return nil, err
		}
		f.findQueues(l, &j.sel)
		parts[l] = &part{job: j, in: in}
	}
	return parts, nil
}

// findQueues gives the dead letters of a lane that is ordered by key their queues: after a restart nobody knows
// them.
func (f *Fanout) findQueues(l *lane, s *Selection) {
	f.mu.Lock()
	keyed := l.sub.Order == journal.OrderKey
	dead := slices.Clone(l.dead)
	f.mu.Unlock()
	if !keyed {
		return
	}
	queues := make(map[journal.Position]uint8)
	for _, r := range dead {
		for ; r.count() > 0 && s.takes(r); r = r.next() {
			queues[r.pos()] = f.recoverOrder(l, r.first()).queue()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range l.dead {
		if q, known := queues[r.pos()]; known && !r.run() {
			l.dead[i] = r.in(q)
		}
	}
}

// left counts what parts would take now.
func (f *Fanout) left(parts map[*lane]*part) (n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l, p := range parts {
		n += p.leftOf(l)
	}
	return n
}

func (p *part) leftOf(l *lane) (n uint64) {
	wants := p.wants(l)
	for _, r := range l.dead {
		for ; r.run() && r.count() > 1; r = r.rest() {
			if wants(r.first()) {
				n++
			}
		}
		if wants(r.first()) {
			n++
		}
	}
	return n
}

// gone notes that deliveries are about to leave the lane's dead, for all its replays but one.
func (r *replay) gone(l *lane, refs []ref, but *part) {
	if r == nil {
		return
	}
	r.from = 0
	for _, p := range r.parts {
		if p == but {
			continue
		}
		wants := p.wants(l)
		for _, x := range refs {
			for ; x.count() > 0; x = x.next() {
				if wants(x.first()) {
					p.left -= min(p.left, 1)
				}
			}
		}
	}
}

// attach lets a job take from its lanes; the caller holds the lock.
func (f *Fanout) attach(j *job, parts map[*lane]*part) {
	if j.State == journal.JobDone {
		return
	}
	f.jobs[j.Number] = j
	j.lanes = make(map[*lane]struct{})
	now := f.clock.now()
	for _, l := range slices.SortedFunc(maps.Keys(parts), func(a, b *lane) int { return int(a.id) - int(b.id) }) {
		p := parts[l]
		if p.left = p.leftOf(l); l.removed || p.left == 0 {
			continue
		}
		j.lanes[l] = struct{}{}
		if l.replay == nil {
			l.replay = &replay{}
			f.replaying = append(f.replaying, l)
		}
		l.replay.begin(p)
		f.feed(now, l)
	}
	f.pump(now)
}

// detach ends a job's taking; the caller holds the lock.
func (f *Fanout) detach(j *job) {
	j.rest = 0
	for l := range j.lanes {
		j.rest += l.replay.part(j).left
		l.replay.end(j)
	}
	j.lanes = nil
}

// endReplays ends the replays of a lane that is being removed: what was taken and not sent is cancelled. What
// waits is cancelled by the removal.
func (f *Fanout) endReplays(now time.Duration, l *lane) {
	if staged := l.staged(); len(staged) > 0 {
		refs := make([]ref, len(staged))
		for i, c := range staged {
			refs[i] = c.ref
			f.release(c.ref)
		}
		f.recordEach(l, refs, journal.Record{Kind: journal.Cancelled, Reason: engine.Deleted, At: f.clock.wall(now)})
		f.forget(l, len(refs))
		l.replay.staged = nil
	}
	if l.replay != nil {
		for _, p := range l.replay.parts {
			delete(p.lanes, l)
		}
		l.replay.parts = nil
	}
	flying := map[journal.Position]bool{}
	for a := range f.open {
		if a.lane == l {
			flying[a.pos] = true
		}
	}
	dead := map[journal.Position]bool{}
	for _, r := range l.dead {
		dead[r.pos()] = true
	}
	for pos, p := range l.past {
		switch {
		case dead[pos]:
			delete(l.past, pos)
		case !flying[pos]: // its attempt counts it
			f.count(l, pos, p, journal.Cancelled)
		}
	}
}

// restoreJobs takes up the replays that had not ended, with what became of what they had taken.
func (f *Fanout) restoreJobs(counts []journal.JobCount) {
	for _, stored := range f.journal.Jobs() {
		if stored.State == journal.JobDone {
			continue
		}
		j := &job{Job: stored, turn: make(chan struct{}, 1), sel: Selection{
			Tenant: stored.Tenant, Subscription: stored.Subscription, Since: stored.Since, Until: stored.Until, Bound: stored.Bound,
		}}
		for _, name := range stored.Reasons {
			if r, ok := ReasonOf(name); ok {
				j.sel.Reasons = append(j.sel.Reasons, r)
			}
		}
		j.rate, _ = replayRate(stored.Rate) // checked when it was stored
		j.count.Number = stored.Number
		for _, c := range counts {
			if c.Number == stored.Number {
				j.count = c
			}
		}
		j.rest = j.Selected - min(j.Selected, j.count.Taken)
		f.jobs[j.Number] = j
	}
}
