package fanout

import (
	"cmp"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// janitorLoop takes checkpoints, buries what has expired, and moves old deliveries into HELD. It
// alone of the loops waits for reads and writes.
func (f *Fanout) janitorLoop() {
	defer f.loops.Done()
	checkpoint := time.NewTicker(f.opts.CheckpointEvery)
	defer checkpoint.Stop()
	expiry := time.NewTicker(time.Minute)
	defer expiry.Stop()
	move := time.NewTicker(time.Second)
	defer move.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-checkpoint.C:
			if f.checkpoint() {
				f.keepSizes(f.ctx)
			}
		case <-expiry.C:
			f.expireOld()
			f.adaptCaps()
		case <-move.C:
			f.boundDead()
			f.moveOld()
			f.dropSpent()
			f.endJobs()
		}
	}
}

// horizon is how long a delivery may wait from its acceptance on.
func (f *Fanout) horizon() time.Duration { return cmp.Or(f.opts.Profile.Horizon, 72*time.Hour) }

// expireOld buries what was accepted longer than the horizon ago.
func (f *Fanout) expireOld() {
	if !f.clocks.trusts(f.clock.now(), f.clock.apart()) {
		f.log.Warn("the wall clock was moved: nothing expires until it has agreed again for ten minutes")
		return
	}
	f.mu.Lock()
	horizon, dead := f.horizon(), f.opts.KeepDead
	f.mu.Unlock()
	before, err := f.journal.PositionAt(f.ctx, f.clock.wall(f.clock.now()-horizon))
	if err != nil {
		f.log.Warn("expiry was put off", "error", err)
		return
	}
	f.expire(before)
	f.purgeOld(f.clock.ms(f.clock.now() - dead))
}

// checkpoint writes the whole state, and lets the log be trimmed below what it needs. It reports whether there was
// anything new.
func (f *Fanout) checkpoint() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dirty || f.decided != nil {
		return false
	}
	f.checkpointLocked(false)
	return true
}

// checkpointLocked hands a picture of one instant to the journal, which stores it in order with the
// records before it. While recovery has not passed what was decided before the crash, there is
// no single cursor to write, so the older checkpoint stays.
func (f *Fanout) checkpointLocked(clean bool) journal.Mark {
	if f.decided != nil {
		return f.journal.Record()
	}
	now := f.clock.now()
	f.writeLate(now, nil)
	cp := &journal.Checkpoint{Cursor: f.cursor, Clean: clean, At: f.clock.wall(now), Registry: f.journal.Registry().Revision()}
	floor := f.cursor
	for a := range f.open {
		cp.Open = append(cp.Open, journal.OpenAttempt{Lane: a.lane.id, Position: a.pos, Attempt: a.ticket.Attempt})
		floor = lower(floor, a.pos)
	}
	f.eachLane(now, func(l *lane, v engine.LaneView) {
		state := laneState(l, v)
		for _, w := range state.Waiting {
			floor = lower(floor, w.Position)
		}
		for _, d := range state.Dead {
			floor = lower(floor, d.Position)
		}
		cp.Lanes = append(cp.Lanes, state)
	})
	f.pasts(cp)
	f.dirty = false
	mark := f.journal.Checkpoint(cp)
	if !clean {
		f.claimAgain(now)
	}
	f.journal.SetFloor(floor)
	return mark
}

// lower is the smaller of the floor and a position in TRIGGERS; what is in HELD pins nothing there.
func lower(floor, p journal.Position) journal.Position {
	if p.Held() {
		return floor
	}
	return min(floor, p)
}

func laneState(l *lane, v engine.LaneView) journal.LaneState {
	state := journal.LaneState{Lane: v.Lane, Counters: v.Counters, Tokens: v.Tokens}
	if l.size == 0 {
		return state
	}
	state.Waiting = make([]journal.Ref, 0, l.backlog.len())
	l.backlog.each(func(r ref) { state.Waiting = append(state.Waiting, stored(r)) })
	for _, c := range l.staged() {
		state.Waiting = append(state.Waiting, stored(c.ref))
	}
	for _, r := range l.dead {
		state.Dead = append(state.Dead, stored(r))
	}
	return state
}

func stored(r ref) journal.Ref {
	out := journal.Ref{Position: r.pos(), Stamp: r.stamp(), Attempt: r.attempt(), Reason: r.reason(), Due: r.due()}
	if r.run() {
		out.Run = uint16(r.count())
	}
	return out
}

// purgeOld forgets the dead letters that died before the anchored millisecond.
func (f *Fanout) purgeOld(before int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.now()
	for _, l := range f.index.lanes {
		if l == nil || l.removed {
			continue
		}
		n := 0
		for n < len(l.dead) && l.dead[n].stamp() < before {
			n++
		}
		if n > 0 {
			f.endDead(now, l, n)
		}
	}
}

// endDead purges the first n of a lane's dead; the caller holds the lock.
func (f *Fanout) endDead(now time.Duration, l *lane, n int) {
	old := l.dead[:n]
	l.dead = l.dead[n:]
	for _, r := range old {
		f.write(f.record(l, journal.Purged, r))
	}
	f.settlePurged(now, l, old)
}

// expire buries what has waited beyond the horizon. Positions are in order of acceptance, so one
// position tells; what is in HELD goes by when it was parked.
func (f *Fanout) expire(before journal.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.now()
	for _, l := range f.index.lanes {
		if l == nil || l.removed || l.backlog.len() == 0 {
			continue
		}
		f.expireLane(now, l, before)
	}
}

func (f *Fanout) expireLane(now time.Duration, l *lane, before journal.Position) {
	f.unclaim(now, l)
	f.writeLate(now, l)
	parked := f.clock.ms(now - f.horizon())
	old := l.backlog.takeIf(func(r ref) bool { return l.old(r, before, parked) })
	if len(old) == 0 {
		return
	}
	for _, r := range old {
		dead := newRef(r.pos(), f.clock.ms(now), r.field(), engine.Expired, flagRecorded|r.word&flagRun).in(r.queue())
		l.dead = append(l.dead, dead)
		for one := dead; len(l.past) > 0 && one.count() > 0; one = one.next() {
			f.died(l, one.first())
		}
		f.write(f.record(l, journal.Dead, dead))
	}
	f.engine.Settle(now, l.id, engine.ToExpired, uint32(deliveries(old)))
	f.state(now, l)
}
