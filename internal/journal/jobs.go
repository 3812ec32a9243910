package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Job is a replay of dead letters: what it selects, and whether it goes on. What became of the
// deliveries that it took is counted in OUTCOMES (JobCount); Count is the last word of a job that has ended.
type Job struct {
	ID      string    `json:"id"`     // rpl_...
	Number  uint32    `json:"number"` // dense, from 1
	Created time.Time `json:"created"`

	// The selection: dead letters of one subscription, or of all of one tenant, that died before Bound.
	Tenant       string    `json:"tenant"` // also with a subscription: its own
	Subscription string    `json:"subscription,omitempty"`
	Reasons      []string  `json:"reasons,omitempty"` // none: all
	Since        time.Time `json:"since,omitzero"`    // accepted at or after; zero: no bound
	Until        time.Time `json:"until,omitzero"`    // accepted before
	Bound        int64     `json:"bound"`             // anchored wall ms

	Rate     string    `json:"rate,omitempty"` // slower than the lane's own; "": that
	Selected uint64    `json:"selected"`       // how many the selection had at the start
	State    string    `json:"state"`          // running, cancelled, done
	Changed  time.Time `json:"changed"`
	Count    JobCount  `json:"count"`
}

// States of a job.
const (
	JobRunning   = "running"
	JobCancelled = "cancelled" // takes no more; may be resumed
	JobDone      = "done"
)

const (
	jobsBucket = "JOBS"
	jobsMost   = 100 // of one tenant; its oldest that have ended are forgotten
)

// jobs keeps replays in a bucket of their own. Safe for concurrent use.
type jobs struct {
	bucket *lazyBucket

	mu       sync.Mutex
	byNumber map[uint32]Job
	last     uint32
}

func openJobs(ctx context.Context, l *link) (s *jobs, err error) {
	s = &jobs{byNumber: make(map[uint32]Job)}
	s.bucket, err = openLazy(ctx, l, jobsBucket, func(e jetstream.KeyValueEntry) error {
		var job Job
		if err := json.Unmarshal(e.Value(), &job); err != nil || jobKey(job.Number) != e.Key() {
			return fmt.Errorf("%w: record %s of a job", ErrDamaged, e.Key())
		}
		s.byNumber[job.Number] = job
		s.last = max(s.last, job.Number)
		return nil
	})
	return s, err
}

func jobKey(n uint32) string { return "job." + strconv.FormatUint(uint64(n), 10) }

// Jobs returns the replays, the oldest first.
func (j *Journal) Jobs() []Job {
	s := j.jobs
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byNumber), func(a, b Job) int { return cmp.Compare(a.Number, b.Number) })
}

// Job returns the replay with that id, and reports whether there is one.
func (j *Journal) Job(id string) (Job, bool) {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	for _, job := range j.jobs.byNumber {
		if job.ID == id {
			return job, true
		}
	}
	return Job{}, false
}

// PutJob stores a new job (Number 0: ID, Number and Created are given) or a changed one, and returns when
// that is durable. ErrUnavailable is in doubt.
func (j *Journal) PutJob(ctx context.Context, job Job) (Job, error) {
	s := j.jobs
	ctx, leave, err := s.bucket.enter(ctx)
	if err != nil {
		return Job{}, err
	}
	defer leave()
	job.Changed = createdNow()
	if job.Number == 0 {
		s.mu.Lock()
		s.last++ // never given again, also when the write is in doubt
		job.Number = s.last
		s.mu.Unlock()
		job.ID, job.Created = randomID("rpl_"), job.Changed
	}
	value, err := json.Marshal(&job)
	if err != nil {
		return Job{}, err
	}
	if err := s.bucket.put(ctx, jobKey(job.Number), value); err != nil {
		return Job{}, err
	}
	s.mu.Lock()
	s.byNumber[job.Number] = job
	s.mu.Unlock()
	s.forget(ctx, job.Tenant)
	return job, nil
}

// forget removes a tenant's oldest that have ended, where it has too many.
func (s *jobs) forget(ctx context.Context, tenant string) {
	s.mu.Lock()
	var ended []uint32
	over := -jobsMost
	for n, job := range s.byNumber {
		if job.Tenant != tenant {
			continue
		}
		over++
		if job.State == JobDone {
			ended = append(ended, n)
		}
	}
	s.mu.Unlock()
	slices.Sort(ended)
	for _, n := range ended[:max(0, min(over, len(ended)))] {
		if s.bucket.remove(ctx, jobKey(n)) != nil {
			return // the next one tries again
		}
		s.mu.Lock()
		delete(s.byNumber, n)
		s.mu.Unlock()
	}
}
