package journal

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	unflushedMost = 65536       // records
	unflushedAge  = time.Second // of the oldest
)

// Status asks the streams for their sizes; the rest is known. When they do not answer, Err says so.
func (j *Journal) Status() Status {
	s := Status{Epoch: j.epoch, MaxBytes: j.opt.MaxBytes, Sends: j.Blocked()}
	s.Unflushed, s.UnflushedFor = j.outcomes.unflushed()
	s.FlushLast, s.Flushes, s.FlushTime = j.outcomes.lastFlush()
	s.Packs = j.append.packs.Load()
	s.Reads, s.HeldReads = j.packs.fetched.Load(), j.held.fetched.Load()
	s.Total, s.Free = j.disk.Usage()
	s.KeyWindow = j.append.tail.keys.reach(time.Now())
	s.Floor = j.trim.current()
	s.LastPosition = Position(j.newest.Load())
	err := j.sizes(&s)
	if low, _ := j.disk.Low(); low {
		s.Ingest = ErrLowDisk
	}
	s.Err = errors.Join(j.lease.held(), j.append.trouble.get(), j.outcomes.trouble.get(), err)
	return s
}

func (j *Journal) sizes(s *Status) error {
	for _, of := range []struct {
		stream string
		bytes  *int64
	}{{triggersStream, &s.TriggersBytes}, {outcomesStream, &s.OutcomesBytes}, {heldStream, &s.HeldBytes}} {
		sp, err := j.link.span(context.Background(), of.stream)
		*of.bytes = sp.bytes
		if of.stream == triggersStream && sp.first <= sp.last {
			s.Oldest = sp.oldest
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Starting returns ErrStarting until posts with an idempotency key are taken, then nil.
func (j *Journal) Starting() error {
	if j.append.ready.Load() {
		return nil
	}
	return ErrStarting
}

// Blocked says why no new request may be started now, or nil: outcomes are not written, too many of
// them wait or for too long, writes get no answer, or the disk is nearly full. It costs little and
// is meant to be asked before every send.
func (j *Journal) Blocked() error {
	if err := j.lease.held(); err != nil {
		return err
	}
	if err := errors.Join(j.outcomes.trouble.get(), j.append.trouble.get()); err != nil {
		return err
	}
	if n, age := j.outcomes.unflushed(); n >= unflushedMost || age >= unflushedAge {
		return fmt.Errorf("%w: %d outcomes are not durable, the oldest for %v", ErrUnavailable, n, age.Round(time.Millisecond))
	}
	if _, low := j.disk.Low(); low {
		return ErrLowDisk
	}
	return nil
}

func (o *outcomes) lastFlush() (took time.Duration, flushes uint64, total time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.flushes, o.spent
}

func (t *trimmer) current() Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.floor
}
