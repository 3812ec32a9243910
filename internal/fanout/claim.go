package fanout

import (
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// An attempt of a delivery that has a record is announced in OUTCOMES, durably, before its first
// byte. Waiting for that with the slot taken would bound a backlog's pace to its cap a flush, however
// fast the endpoint is. So while a backlog flows, the next attempts are claimed ahead: as many
// as it took during a flush, found by doubling. After a crash those come back as attempts whose
// outcome is unknown, though they never started.

const (
	aheadMost = 64
	aheadFor  = 100 * time.Millisecond // a lane that was granted nothing for so long does not flow
)

// claim announces the next attempt of r.
func (f *Fanout) claim(now time.Duration, l *lane, r ref) journal.Mark {
	next := newRef(r.pos, f.clock.ms(now), r.attempt()+1, engine.None, 0)
	return f.journal.Record(f.record(l, journal.Claimed, next))
}

// claimAhead claims what is likely to be granted before the next flush. Call it at a grant.
func (f *Fanout) claimAhead(now time.Duration, l *lane) {
	b := &l.backlog
	idle := now - l.granted
	l.granted = now
	switch {
	case idle > aheadFor:
		l.ahead = 0
	case len(b.claimed) == 0:
		l.ahead = min(max(2*l.ahead, 1), aheadMost)
	}
	if len(b.claimed) > l.ahead/2 {
		return
	}
	for len(b.claimed) < l.ahead && b.ready.n > 0 && b.ready.at(0).recorded() {
		r := b.ready.popFront()
		b.claimed = append(b.claimed, claim{r, f.claim(now, l, r)})
	}
}

// claimAgain repeats the claims behind a checkpoint, which knows of none.
func (f *Fanout) claimAgain(now time.Duration) {
	for _, l := range f.index.lanes {
		if l == nil {
			continue
		}
		for i := range l.backlog.claimed {
			c := &l.backlog.claimed[i]
			c.mark = f.claim(now, l, c.ref)
		}
		f.restage(now, l)
	}
}

// unclaim takes claims back: the deliveries wait in front again, and OUTCOMES says so.
func (f *Fanout) unclaim(now time.Duration, l *lane) {
	for _, c := range slices.Backward(l.backlog.claimed) {
		l.backlog.ready.pushFront(c.ref)
		back := newRef(c.pos, f.clock.ms(now), c.attempt(), c.reason(), flagRecorded)
		f.journal.Record(f.record(l, journal.Parked, back))
	}
	l.backlog.claimed = nil
}
