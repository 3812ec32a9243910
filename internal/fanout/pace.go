package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// The pace of a replay. What it takes goes through the lane like everything else, so no limit can be exceeded.
// But it lets a delivery into the lane's backlog only when that can go at once, and leaves tokens and a part
// of the cap to the live stream: a fresh delivery does not find the lane full of old ones. Its attempts are
// claimed ahead, as claim.go does. It begins with one in flight, doubling after as many successes in a row; a
// failure halves that and makes it wait.

const (
	stagedMost  = 256 // taken and claimed ahead of being sent, at most
	aheadTime   = 50 * time.Millisecond
	replayLook  = 4 * time.Millisecond
	replayIdle  = 100 * time.Millisecond
	replayLeast = 100 * time.Millisecond // after a failure, doubling
	replayMost  = 10 * time.Second
	replayAgain = time.Second            // a lane that is never quiet lets one of a replay in as often
	liveFor     = 100 * time.Millisecond // tokens left to the live stream: what it offers in that time
)

// replay is how the replays of one lane are paced.
type replay struct {
	parts  []*part // the first takes
	from   int     // so many dead in front are none of the first part's
	staged []claim // taken: revived and claimed, not in the backlog yet
	ahead  int     // how many to have staged

	out      int // in flight
	window   int // at most so many in flight; 0: no bound but the lane's
	streak   int
	hold     time.Duration // after the last failure
	until    time.Duration // nothing is let in before
	released time.Duration // when the last one was
	of, pace limit.Rate    // the lane's rate, and at what pace they are let in under it
	level    limit.Level
	look     time.Duration // when to look again
}

// begin adds a part; the lane ramps from one.
func (r *replay) begin(p *part) {
	if len(r.parts) == 0 {
		r.from = 0
	}
	r.parts = append(r.parts, p)
	r.window, r.streak, r.hold, r.until, r.look = 1, 0, 0, 0, 0
}

func (r *replay) end(j *job) {
	r.parts = slices.DeleteFunc(r.parts, func(p *part) bool { return p.job == j })
	r.from = 0
}

// part returns the job's.
func (r *replay) part(j *job) *part {
	return r.parts[slices.IndexFunc(r.parts, func(p *part) bool { return p.job == j })]
}

// feedAll feeds the lanes whose time has come, and forgets those that are through; the caller holds the lock.
func (f *Fanout) feedAll(now time.Duration) {
	through := func(l *lane) bool {
		if l.replay.look <= now {
			f.feed(now, l)
		}
		if l.removed || len(l.replay.parts)+len(l.replay.staged)+l.replay.out == 0 {
			l.replay = nil
			return true
		}
		return false
	}
	f.replaying = slices.DeleteFunc(f.replaying, through)
}

// feed lets into the backlog what can go now, and takes what will be needed next; the caller holds the lock and
// pumps.
func (f *Fanout) feed(now time.Duration, l *lane) {
	r := l.replay
	if l.removed || len(r.parts)+len(r.staged) == 0 || f.stopped || f.journal.Blocked() != nil {
		r.look = now + replayIdle
		return
	}
	v, _ := f.engine.Lane(now, l.id)
	room := r.room(now, l, v)
	if !l.rate.IsUnlimited() {
		room = min(room, int(r.paced(l).Left(&r.level, now)))
	}
	n := 0
	for n < room && len(r.staged) > 0 && f.journal.Flushed(r.staged[0].mark) {
		l.backlog.claimed = append(l.backlog.claimed, r.staged[0])
		r.staged = r.staged[1:]
		n++
	}
	if n > 0 {
		if !l.rate.IsUnlimited() {
			r.pace.Take(&r.level, now, int64(n))
		}
		r.released = now
		f.state(now, l)
	}
	r.look = now + replayIdle
	if room == 0 {
		return
	}
	r.look = now + replayLook
	if l.backlog.ordered != nil {
		r.released = now
		f.take(now, l, min(room, len(l.backlog.ordered), stagedMost-l.backlog.claims()))
		return
	}
	if n == room && len(r.staged) > r.ahead/2 {
		return
	}
	if n < room && len(r.staged) == 0 {
		r.ahead = max(2*r.ahead, 1)
	}
	r.ahead = min(r.ahead, l.aheadMost())
	f.take(now, l, r.ahead-len(r.staged))
}

// paced is the lane's rate without its burst, which is not for a replay: let in all at once, it would have the
// machine to itself, and the live stream would wait for that.
func (r *replay) paced(l *lane) *limit.Rate {
	if r.of != l.rate {
		r.of, r.pace, r.level = l.rate, evenly(l.rate), limit.Level{}
	}
	return &r.pace
}

// aheadMost is what the lane's rate can send in some flushes.
func (l *lane) aheadMost() int {
	if l.rate.IsUnlimited() {
		return stagedMost
	}
	return min(max(int(l.rate.PerSecond()*aheadTime.Seconds()), 1), stagedMost)
}

// room is how many may be let in now.
func (r *replay) room(now time.Duration, l *lane, v engine.LaneView) int {
	waits := v.Waiting.Count > 0 && v.Waiting.HeadDue <= now
	quiet := v.Breaker == breaker.Closed && v.PausedFor == 0
	switch {
	case v.Paused || v.Disabled || v.Cap == 0 || l.rate.IsPaused() || now < r.until:
		return 0
	case !quiet:
		if v.Waiting.Count == 0 { // the probe
			return 1
		}
		return 0
	case waits:
		if now-r.released >= replayAgain { // nobody starves
			return 1
		}
		return 0
	}
	n := math.MaxInt
	if r.window > 0 {
		n = r.window - r.out
	}
	if v.Ramp > 0 {
		n = min(n, v.Ramp-int(v.Counters.InFlight))
	}
	live := v.Offered >= 0.01
	if v.Cap > 0 {
		free := v.Cap - int(v.Counters.InFlight)
		if live {
			free -= v.Cap / 4
		}
		n = min(n, free)
	}
	if !l.rate.IsUnlimited() {
		kept := int64(0)
		if live {
			kept = min(l.rate.Burst()/2, int64(math.Ceil(v.Offered*liveFor.Seconds())))
		}
		n = min(n, int(v.Tokens-kept))
	}
	return min(max(n, 0), stagedMost)
}

// take revives up to n dead letters for the lane's replays, and claims their next attempts.
func (f *Fanout) take(now time.Duration, l *lane, n int) {
	r := l.replay
	for n > 0 && len(r.parts) > 0 {
		p := r.parts[0]
		if n = int(min(int64(n), p.rate.Left(&p.level, now))); n == 0 {
			return
		}
		c := l.takeDead(r.from, n, p.wants(l))
		if took := len(c.taken); took > 0 {
			p.rate.Take(&p.level, now, int64(took))
			r.gone(l, c.taken, p)
			p.left -= min(p.left, uint64(took))
			f.revive(now, l, p.job, c.taken)
			n -= took
		}
		if r.from = c.passed; !c.all {
			return
		}
		r.from, r.parts = 0, r.parts[1:]
		delete(p.lanes, l)
	}
}

// revive moves dead letters of a lane to what is staged.
func (f *Fanout) revive(now time.Duration, l *lane, j *job, dead []ref) {
	if len(dead) == 0 {
		return
	}
	ms := f.clock.ms(now)
	if l.past == nil {
		l.past = make(map[journal.Position]journal.Past)
	}
	refs := make([]ref, 0, len(dead))
	for _, d := range dead {
		p := l.past[d.pos()].Revive(j.Number, stored(d), ms)
		l.past[d.pos()] = p
		refs = append(refs, newRef(d.pos(), ms, p.Base(), engine.None, flagRecorded).in(d.queue()))
	}
	j.count.Taken += uint64(len(dead))
	for _, refs := range alike(refs) {
		f.recordEach(l, refs, journal.Record{Kind: journal.Revived, Attempt: refs[0].attempt(), Ref: uint64(j.Number), At: f.clock.wall(now)})
		f.stage(now, l, refs)
	}
	f.engine.Settle(now, l.id, engine.ToReplayed, uint32(len(dead)))
	f.resize(l)
	f.stateOrder(now, l)
	f.dirty = true
}

// stage claims the next attempts of deliveries that begin alike. On an ordered lane each goes into its queue at once,
// in front but for those that were revived before it and those that never came to their turn (putBetween): nothing of
// the queue may pass.
func (f *Fanout) stage(now time.Duration, l *lane, refs []ref) {
	if refs = slices.DeleteFunc(refs, func(r ref) bool { return f.putBetween(now, l, r) }); len(refs) == 0 {
		return
	}
	mark := f.recordEach(l, refs, journal.Record{Kind: journal.Claimed, Attempt: refs[0].attempt() + 1, At: f.clock.wall(now)})
	if l.backlog.ordered != nil {
		for _, r := range refs {
			l.putRevived(claim{r, mark})
		}
		return
	}
	for _, r := range refs {
		l.replay.staged = append(l.replay.staged, claim{r, mark})
	}
}

// putRevived puts a revived delivery of an ordered lane behind those of its queue that wait in front.
func (l *lane) putRevived(c claim) {
	q := l.backlog.of(c.queue())
	for len(q.claimed) == 0 || l.again(q.claimed[len(q.claimed)-1].ref) {
		if front := q.ready; front.n == 0 || !l.again(front.at(0)) {
			break
		}
		q.claimed = append(q.claimed, claim{ref: q.ready.popFront()})
	}
	at := len(q.claimed)
	for at > 0 && !l.again(q.claimed[at-1].ref) {
		at--
	}
	q.claimed = slices.Insert(q.claimed, at, c)
}

// restage repeats the claims of what is staged, behind a checkpoint.
func (f *Fanout) restage(now time.Duration, l *lane) {
	if l.replay == nil || len(l.replay.staged) == 0 {
		return
	}
	refs := make([]ref, len(l.replay.staged))
	for i, c := range l.replay.staged {
		refs[i] = c.ref
	}
	l.replay.staged = nil
	for _, refs := range alike(refs) {
		f.stage(now, l, refs)
	}
}

// alike cuts references into neighbours with as many attempts.
func alike(refs []ref) (groups [][]ref) {
	for i, r := range refs {
		if last := len(groups) - 1; i > 0 && refs[i-1].attempt() == r.attempt() {
			groups[last] = append(groups[last], r)
		} else {
			groups = append(groups, []ref{r})
		}
	}
	return groups
}

// staged are those of a lane, in no promised order.
func (l *lane) staged() []claim {
	if l.replay == nil {
		return nil
	}
	return l.replay.staged
}

// answered counts the end of an attempt of a replay.
func (r *replay) answered(now time.Duration, limit int, v engine.Verdict) {
	r.out--
	r.look = now
	if v.Kind != engine.Done && v.Reason != engine.Rejected {
		if r.window == 0 {
			r.window = limit
		}
		r.window, r.streak = max(1, r.window/2), 0
		r.hold = min(max(2*r.hold, replayLeast), replayMost)
		r.until = now + r.hold
		return
	}
	r.hold /= 2
	if r.window == 0 {
		return
	}
	if r.streak++; r.streak < r.window {
		return
	}
	if r.window, r.streak = 2*r.window, 0; r.window > stagedMost || limit > 0 && r.window >= limit {
		r.window = 0
	}
}

// blockedBy says what holds a lane's replay back, or nothing.
func blockedBy(v engine.LaneView) engine.Reason {
	switch {
	case v.Disabled:
		return engine.ByGone
	case v.Paused || v.Cap == 0:
		return engine.ByPause
	case v.PausedFor > 0:
		return engine.ByEndpoint
	case v.Breaker != breaker.Closed:
		return engine.ByBreaker
	}
	return engine.None
}

// next is the instant at which the clock must look after a replay.
func (f *Fanout) nextFeed() (at time.Duration) {
	at = math.MaxInt64
	for _, l := range f.replaying {
		at = min(at, l.replay.look)
	}
	return at
}
