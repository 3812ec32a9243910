package fanout

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

const resumeAtOnce = 8 // tenants whose replays look up what is left at a start: each reads the log

// resumeLoop lets the restored replays go on: time ranges have to be read first, each tenant's by itself. It runs
// once.
func (f *Fanout) resumeLoop() {
	defer f.loops.Done()
	f.mu.Lock()
	of := map[string][]*job{}
	for _, j := range slices.SortedFunc(maps.Values(f.jobs), func(a, b *job) int { return cmp.Compare(a.Number, b.Number) }) {
		of[j.Tenant] = append(of[j.Tenant], j)
	}
	f.mu.Unlock()
	room := make(chan struct{}, resumeAtOnce)
	for _, jobs := range of {
		room <- struct{}{}
		f.loops.Go(func() {
			defer func() { <-room }()
			for _, j := range jobs {
				f.goOn(j)
			}
		})
	}
}

// goOn lets a restored replay go on that nobody has changed yet.
func (f *Fanout) goOn(j *job) {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	if f.ctx.Err() != nil || j.State != journal.JobRunning || j.lanes != nil {
		return
	}
	lanes, err := f.lanesOf(&j.sel)
	if errors.Is(err, ErrNotFound) { // deleted: nothing is left to take
		lanes, err = nil, nil
	}
	f.moving.RLock()
	defer f.moving.RUnlock()
	parts, err2 := f.partsOf(f.ctx, j, lanes)
	if err = errors.Join(err, err2); f.ctx.Err() != nil {
		return
	}
	if err != nil {
		f.log.Error("a replay does not go on until it is cancelled and resumed, or until the next start", "replay", j.ID, "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attach(j, parts)
}

// through reports whether a replay has nothing left to take and nothing on its way; the caller holds the lock.
func (j *job) through() bool {
	return j.State == journal.JobRunning && j.lanes != nil && len(j.lanes) == 0 && j.count.Waiting() == 0
}

// endJobs stores the last word of the replays that are through, and of each tenant's oldest cancelled ones beyond
// cancelledMost. It runs in the janitor.
func (f *Fanout) endJobs() {
	f.mu.Lock()
	open := slices.Collect(maps.Values(f.jobs))
	f.mu.Unlock()
	var ended []*job
	for _, j := range open { // each by itself: it may have a thousand lanes
		f.mu.Lock()
		f.dropEmpty(j)
		if j.through() {
			ended = append(ended, j)
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	ended = append(ended, f.cancelledLong()...)
	mark := f.journal.Record()
	f.mu.Unlock()
	if len(ended) == 0 || f.journal.WaitFlushed(f.ctx, mark) != nil {
		return
	}
	for _, j := range ended {
		select {
		case j.turn <- struct{}{}:
			f.endJob(j)
			<-j.turn
		default: // somebody changes it: later
		}
	}
}

// endJob is called by the holder of the job's turn.
func (f *Fanout) endJob(j *job) {
	f.mu.Lock()
	last := j.Job
	last.State, last.Count = journal.JobDone, j.count
	still := j.through() || j.State == journal.JobCancelled && j.count.Waiting() == 0
	f.mu.Unlock()
	if !still {
		return
	}
	if _, err := f.journal.PutJob(f.ctx, last); err != nil {
		f.log.Warn("the end of a replay was not stored; tried again", "replay", j.ID, "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.jobs, j.Number)
	f.dirty = true
}

// cancelledMost is how many cancelled replays of a tenant can be resumed, the latest.
const cancelledMost = 40

// cancelledLong returns the cancelled ones beyond it of which nothing is on its way; the caller holds the lock.
func (f *Fanout) cancelledLong() (out []*job) {
	of := map[string][]*job{}
	for _, j := range f.jobs {
		if j.State == journal.JobCancelled {
			of[j.Tenant] = append(of[j.Tenant], j)
		}
	}
	for _, all := range of {
		slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(a.Number, b.Number) })
		for _, j := range all[:max(0, len(all)-cancelledMost)] {
			if j.count.Waiting() == 0 {
				out = append(out, j)
			}
		}
	}
	return out
}

// dropEmpty ends the parts of a lane that sends nothing, and where nothing is left to take.
func (f *Fanout) dropEmpty(j *job) {
	for l := range j.lanes {
		if v, ok := f.engine.Lane(f.clock.now(), l.id); ok && blockedBy(v) != engine.None && l.replay.part(j).left == 0 {
			l.replay.end(j)
			delete(j.lanes, l)
		}
	}
}
