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
	next := newRef(r.pos(), f.clock.ms(now), r.attempt()+1, engine.None, 0)
	return f.write(f.record(l, journal.Claimed, next))
}

// claimAhead claims what of the queue is likely to be granted before the next flush. Call it at a grant.
func (f *Fanout) claimAhead(now time.Duration, l *lane, q *queue) {
	idle := now - q.granted
	q.granted = now
	switch {
	case idle > aheadFor:
		q.ahead = 0
	case len(q.claimed) == 0:
		q.ahead = min(max(2*q.ahead, 1), aheadMost)
	}
	if len(q.claimed) > q.ahead/2 {
		return
	}
	for len(q.claimed) < q.ahead && q.ready.n > 0 && q.ready.at(0).recorded() {
		r := q.ready.popFront()
		q.claimed = append(q.claimed, claim{r, f.claim(now, l, r)})
	}
}

// claimAgain repeats the claims behind a checkpoint, which knows of none.
func (f *Fanout) claimAgain(now time.Duration) {
	for _, l := range f.index.lanes {
		if l == nil {
			continue
		}
		l.backlog.eachQueue(func(q *queue) {
			for i := range q.claimed {
				if c := &q.claimed[i]; c.mark != 0 {
					c.mark = f.claim(now, l, c.ref)
				}
			}
		})
		f.restage(now, l)
	}
}

// unclaim takes claims back: the deliveries wait in front again, and OUTCOMES says so.
func (f *Fanout) unclaim(now time.Duration, l *lane) {
	l.backlog.eachQueue(func(q *queue) {
		for _, c := range slices.Backward(q.claimed) {
			q.ready.pushFront(c.ref)
			if c.mark != 0 {
				back := newRef(c.pos(), f.clock.ms(now), c.attempt(), c.reason(), flagRecorded)
				f.write(f.record(l, journal.Parked, back))
			}
		}
		q.claimed = nil
	})
}
