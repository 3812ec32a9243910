package fanout

import (
	"context"
	"fmt"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Replays lists replays, the oldest first: those of tenants that may be shown. Each is looked at by itself: it may have
// a thousand lanes, a tenant fifty of it, and everybody waits for the lock.
func (f *Fanout) Replays(shown func(tenant string) bool) []ReplayStatus {
	out := []ReplayStatus{}
	for _, stored := range f.journal.Jobs() {
		if shown(stored.Tenant) {
			f.mu.Lock()
			out = append(out, f.statusOf(stored))
			f.mu.Unlock()
		}
	}
	return out
}

// ReplayOf returns one replay. Error: ErrNotFound.
func (f *Fanout) ReplayOf(id string) (ReplayStatus, error) {
	stored, ok := f.journal.Job(id)
	if !ok {
		return ReplayStatus{}, fmt.Errorf("%w: replay %q", ErrNotFound, id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statusOf(stored), nil
}

// statusOf is called with the lock held, as replayStatus.
func (f *Fanout) statusOf(stored journal.Job) ReplayStatus {
	if j := f.jobs[stored.Number]; j != nil {
		return f.replayStatus(j)
	}
	return ReplayStatus{Job: stored, Skipped: stored.Selected - min(stored.Selected, stored.Count.Taken)}
}

// replayStatus is called with the lock held.
func (f *Fanout) replayStatus(j *job) ReplayStatus {
	s := ReplayStatus{Job: j.Job}
	s.Count = j.count
	for l := range j.lanes {
		s.Left += l.replay.part(j).left
		if s.Blocked != engine.None {
			continue
		}
		if v, ok := f.engine.Lane(f.clock.now(), l.id); ok {
			s.Blocked = blockedBy(v)
		}
	}
	if j.lanes == nil { // looked up again when it goes on
		s.Left = j.rest
	}
	s.Skipped = j.Selected - min(j.Selected, j.count.Taken+s.Left)
	return s
}

// CancelReplay ends taking at once; what was taken goes on, the rest stays dead. Cancelling again is no error.
func (f *Fanout) CancelReplay(ctx context.Context, id string) (ReplayStatus, error) {
	return f.change(ctx, id, func(j *job) error {
		if stored, _ := f.journal.Job(id); stored.State == journal.JobCancelled {
			return nil
		}
		f.mu.Lock()
		if j.lanes != nil {
			f.detach(j)
		}
		j.State = journal.JobCancelled
		f.mu.Unlock()
		stored, err := f.journal.PutJob(ctx, j.Job)
		if err != nil {
			return err
		}
		f.mu.Lock()
		j.Job = stored
		f.mu.Unlock()
		return nil
	})
}

// ResumeReplay lets a cancelled replay go on with what is left of its selection.
func (f *Fanout) ResumeReplay(ctx context.Context, id string) (ReplayStatus, error) {
	return f.change(ctx, id, func(j *job) error {
		if j.State == journal.JobRunning {
			return nil
		}
		lanes, err := f.lanesOf(&j.sel)
		if err == nil {
			err = f.checkReplayed(&j.sel, lanes)
		}
		if err != nil {
			return err
		}
		begun, err := f.beginReplay(j.Tenant)
		if err != nil {
			return err
		}
		defer begun()
		f.moving.RLock()
		defer f.moving.RUnlock()
		parts, err := f.partsOf(ctx, j, lanes)
		if err != nil {
			return err
		}
		next := j.Job
		next.State = journal.JobRunning
		stored, err := f.journal.PutJob(ctx, next)
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		j.Job = stored
		f.attach(j, parts)
		return nil
	})
}

// change applies do to a replay that has not ended, alone.
func (f *Fanout) change(ctx context.Context, id string, do func(*job) error) (ReplayStatus, error) {
	stored, ok := f.journal.Job(id)
	if !ok {
		return ReplayStatus{}, fmt.Errorf("%w: replay %q", ErrNotFound, id)
	}
	j := f.openJob(stored.Number)
	if j != nil {
		select {
		case j.turn <- struct{}{}:
			defer func() { <-j.turn }()
		case <-ctx.Done():
			return ReplayStatus{}, ctx.Err()
		}
		j = f.openJob(stored.Number) // it may have ended meanwhile
	}
	if j == nil {
		return ReplayStatus{}, fmt.Errorf("%w: the replay is done", ErrConflict)
	}
	if err := do(j); err != nil {
		return ReplayStatus{}, err
	}
	if err := ctx.Err(); err != nil {
		return ReplayStatus{}, err
	}
	return f.ReplayOf(id)
}

// openJob returns a replay that has not ended; nil: there is none.
func (f *Fanout) openJob(number uint32) *job {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[number]
}
