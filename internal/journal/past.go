package journal

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
)

// Past is what a delivery that lives again keeps of its earlier lives: it was dead and a replay took
// it, or it was settled and somebody resent it. Its numbers never decrease. It is kept until the delivery
// is settled.
type Past struct {
	Job      uint32        // number of the replay that took it last; 0: none, it was resent
	Deaths   uint32        //
	Replays  uint32        //
	Attempts uint32        // made in the lives before this one
	First    engine.Reason // of the first death
	FirstAt  int64         // wall ms of it
	Revived  int64         // wall ms of the beginning of this life: the horizon counts from here
}

// JobCount is what became of the deliveries that one replay took.
type JobCount struct {
	Number    uint32
	Taken     uint64
	Delivered uint64
	Dead      uint64 // died again
	Cancelled uint64 // their subscription was deleted
}

// Waiting is how many are on their way.
func (c JobCount) Waiting() uint64 { return c.Taken - c.Delivered - c.Dead - c.Cancelled }

// Base is the number of attempts that a new life begins with. A delivery that was attempted before counts
// as a retry, however often it was: its schedule begins again.
func (p Past) Base() uint32 { return min(p.Attempts, 1) }

// Total is the number of attempts over all lives, with those of this one as the engine counts them.
func (p Past) Total(attempt uint32) uint32 { return p.Attempts + max(attempt, p.Base()) - p.Base() }

// Revive returns the past of a dead delivery that replay job takes at the instant at (wall ms): dead is
// how it died, after so many attempts as the engine counted in that life.
func (p Past) Revive(job uint32, dead Ref, at int64) Past {
	if p.Deaths == 0 {
		p.Deaths, p.First, p.FirstAt = 1, dead.Reason, dead.Stamp
	}
	p.Attempts = p.Total(dead.Attempt)
	p.Job, p.Replays, p.Revived = job, p.Replays+1, at
	return p
}

// Die returns the past after another death.
func (p Past) Die(reason engine.Reason, at int64) Past {
	if p.Deaths == 0 {
		p.First, p.FirstAt = reason, at
	}
	p.Deaths++
	return p
}

// Count notes what became of a delivery that the job took.
func (c *JobCount) Count(k Kind) {
	switch k {
	case Revived:
		c.Taken++
	case Delivered:
		c.Delivered++
	case Dead:
		c.Dead++
	case Cancelled, Dropped:
		c.Cancelled++
	}
}

// PastOf is the past of one delivery.
type PastOf struct {
	DeliveryKey
	Past
}

// remember moves the past of a delivery along with a record that fits: it stood at, and was the reference
// was.
func (f *fold) remember(l *laneFold, r *Record, was Ref) {
	p, known := l.past[r.Position]
	switch {
	case r.Kind == Revived:
		p, known = p.Revive(uint32(r.Ref), was, r.At.UnixMilli()), true
	case r.Kind == Resent:
		p, known = Past{Revived: r.At.UnixMilli()}, true
	case r.Kind == Dead && known:
		p = p.Die(r.Reason, r.At.UnixMilli())
	}
	if !known {
		return
	}
	if p.Job != 0 && r.Kind != Purged {
		f.job(p.Job).Count(r.Kind)
	}
	l.past[r.Position] = p
	switch r.Kind {
	case Delivered, Cancelled, Dropped, Purged:
		delete(l.past, r.Position)
	}
}

func (f *fold) job(number uint32) *JobCount {
	c := f.jobs[number]
	if c == nil {
		c = &JobCount{Number: number}
		f.jobs[number] = c
	}
	return c
}

// pasts returns what is remembered, by lane and position, and the jobs by number.
func (f *fold) pasts() (past []PastOf, jobs []JobCount) {
	for id, l := range f.lanes {
		for p, v := range l.past {
			past = append(past, PastOf{DeliveryKey{id, p}, v})
		}
	}
	slices.SortFunc(past, func(a, b PastOf) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Position, b.Position))
	})
	for _, n := range slices.Sorted(maps.Keys(f.jobs)) {
		jobs = append(jobs, *f.jobs[n])
	}
	return past, jobs
}

// A checkpoint ends with pasts and jobs where there are any: without, it is as the release before wrote it.

const (
	pastMinBytes = 9
	jobMinBytes  = 5
)

func (w *checkpointWriter) pasts(cp *Checkpoint) {
	if len(cp.Past)+len(cp.Jobs) == 0 {
		return
	}
	w.uvarints(uint64(len(cp.Past)))
	for _, p := range cp.Past {
		for _, v := range [...]uint64{uint64(p.Lane), uint64(p.Position), uint64(p.Job), uint64(p.Deaths), uint64(p.Replays), uint64(p.Attempts), uint64(p.First)} {
			w.b = binary.AppendUvarint(w.b, v)
		}
		w.b = binary.AppendVarint(w.b, p.FirstAt)
		w.b = binary.AppendVarint(w.b, p.Revived)
		w.spill()
	}
	w.uvarints(uint64(len(cp.Jobs)))
	for _, j := range cp.Jobs {
		w.uvarints(uint64(j.Number), j.Taken, j.Delivered, j.Dead, j.Cancelled)
	}
}

func (d *dec) pasts(cp *Checkpoint) {
	if d.err != nil || len(d.b) == 0 {
		return
	}
	if n := d.countOf(pastMinBytes); n > 0 {
		cp.Past = make([]PastOf, n)
	}
	for i := range cp.Past {
		p := &cp.Past[i]
		p.Lane, p.Position = engine.LaneID(d.uvarint32()), Position(d.uvarint())
		p.Job, p.Deaths, p.Replays, p.Attempts = d.uvarint32(), d.uvarint32(), d.uvarint32(), d.uvarint32()
		if v := d.uvarint(); v > 0xff {
			d.fail("reason out of range")
		} else {
			p.First = engine.Reason(v)
		}
		p.FirstAt, p.Revived = d.varint(), d.varint()
	}
	if n := d.countOf(jobMinBytes); n > 0 {
		cp.Jobs = make([]JobCount, n)
	}
	for i := range cp.Jobs {
		cp.Jobs[i] = JobCount{Number: d.uvarint32(), Taken: d.uvarint(), Delivered: d.uvarint(), Dead: d.uvarint(), Cancelled: d.uvarint()}
	}
}
