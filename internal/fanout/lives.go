package fanout

import (
	"maps"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// What is dead may live again, by a replay, and what is settled, by a resend. Such a delivery has a past
// (journal.Past), which goes with it wherever it moves, and counts for the replay that took it.

// ReasonOf returns the reason with that name.
func ReasonOf(name string) (engine.Reason, bool) {
	for r := engine.None + 1; r.String() != "unknown"; r++ {
		if r.String() == name {
			return r, true
		}
	}
	return engine.None, false
}

// Class says whose fault a dead letter is: the endpoint's ("endpoint": it refused the message, or failed as often
// as it may), the waiting's ("deferred": the horizon passed), or a limit's that somebody set ("policy").
func Class(r engine.Reason) string {
	switch r {
	case engine.Rejected, engine.Exhausted:
		return "endpoint"
	case engine.Expired:
		return "deferred"
	case engine.OverQuota, engine.TooCostly:
		return "policy"
	}
	return "internal"
}

// Deadly lists the reasons that a dead letter may have.
var Deadly = []engine.Reason{engine.Rejected, engine.Expired, engine.OverQuota, engine.Exhausted, engine.TooCostly}

// renamed moves along what knows deliveries by the names that they had before they moved to message seq of HELD.
func (l *lane) renamed(had []journal.Position, seq uint64) {
	for i, old := range had {
		name := journal.HeldPosition(seq, i)
		if p, again := l.past[old]; again && old != 0 {
			delete(l.past, old)
			l.past[name] = p
		}
		if l.replay == nil {
			continue
		}
		for _, p := range l.replay.parts {
			if p.in != nil && old != 0 && p.in.has(old) {
				p.in.add(name)
			}
		}
	}
}

// count notes what became of a delivery that lives again, and forgets its past when that is the end; the caller
// holds the lock.
func (f *Fanout) count(l *lane, pos journal.Position, p journal.Past, k journal.Kind) {
	if j := f.jobs[p.Job]; j != nil {
		j.count.Count(k)
	}
	if k != journal.Dead {
		delete(l.past, pos)
	}
}

// ended notes the end of an attempt's delivery, if it lived again.
func (f *Fanout) ended(a *attempt, k journal.Kind) {
	if a.again {
		f.count(a.lane, a.pos, a.past, k)
	}
}

// died moves the past of a delivery along that is dead again, if it has one; the caller holds the lock.
func (f *Fanout) died(l *lane, r ref) {
	if p, again := l.past[r.pos()]; again {
		l.past[r.pos()] = p.Die(r.reason(), r.stamp())
		f.count(l, r.pos(), p, journal.Dead)
	}
}

// pasts adds what a checkpoint needs of replays.
func (f *Fanout) pasts(cp *journal.Checkpoint) {
	for _, l := range f.index.lanes {
		if l == nil {
			continue
		}
		for pos, p := range l.past {
			cp.Past = append(cp.Past, journal.PastOf{DeliveryKey: journal.DeliveryKey{Lane: l.id, Position: pos}, Past: p})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(f.jobs)) {
		cp.Jobs = append(cp.Jobs, f.jobs[n].count)
	}
}
