package fanout

import (
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// lateAfter is how long a fresh delivery may wait before its record is written: one flush.
const lateAfter = 10 * time.Millisecond

// lateRecord is a fresh delivery that waits without a record.
type lateRecord struct {
	lane   *lane
	queue  uint8
	number uint64 // in the queue's ready
	at     time.Duration
}

// clockLoop wakes at the engine's next instant and writes late records.
func (f *Fanout) clockLoop() {
	defer f.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-timer.C:
		case <-f.nudge:
		}
		timer.Reset(f.tick())
	}
}

// tick writes late records, lets the engine act and feeds replays if their time has come, and returns how long the
// clock may sleep. Late records alone move nothing in the engine: its instants are the simulator's.
func (f *Fanout) tick() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.now()
	f.writeLate(now-lateAfter, nil)
	f.timerAt = now // rewake must not nudge the goroutine that asks
	if now >= f.tickAt {
		f.tickAt = now
		f.engine.Tick(now)
		f.feedAll(now)
		f.pump(now)
		f.tickAt = f.nextTick(now)
	}
	f.timerAt = f.tickAt
	if len(f.late) > 0 {
		f.timerAt = min(f.timerAt, f.late[0].at+lateAfter)
	}
	return f.timerAt - now
}

// nextTick is the instant at which the engine must be asked again.
func (f *Fanout) nextTick(now time.Duration) time.Duration {
	next := min(now+time.Second, f.nextFeed())
	if at, ok := f.engine.NextWake(); ok {
		next = min(next, at)
	}
	if f.journal.Blocked() != nil {
		next = max(next, now+20*time.Millisecond)
	}
	return max(next, now+50*time.Microsecond)
}

// rewake nudges the clock when something falls due before it would look; the caller holds the lock.
func (f *Fanout) rewake() {
	next := f.nextFeed()
	if at, ok := f.engine.NextWake(); ok {
		next = min(next, at)
	}
	switch {
	case next < f.tickAt:
		f.tickAt, f.timerAt = 0, 0 // at once: the clock then asks again
	case len(f.late) > 0 && f.late[0].at+lateAfter < f.timerAt:
		f.timerAt = f.late[0].at + lateAfter
	default:
		return
	}
	select {
	case f.nudge <- struct{}{}:
	default:
	}
}

// writeLate records what was parked at or before the instant and still waits; with a lane,
// everything of that lane.
func (f *Fanout) writeLate(until time.Duration, only *lane) {
	keep := f.late[:0]
	for i, late := range f.late {
		if only == nil && late.at > until {
			keep = append(keep, f.late[i:]...)
			break
		}
		if only != nil && late.lane != only {
			keep = append(keep, late)
			continue
		}
		if r, waits := late.lane.backlog.of(late.queue).ready.numbered(late.number); waits && !late.lane.removed && !r.recorded() {
			r.word |= flagRecorded
			f.write(f.record(late.lane, journal.Parked, *r))
		}
	}
	clear(f.late[len(keep):])
	f.late = keep
}
