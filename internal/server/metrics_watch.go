package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

const (
	lagEvery    = time.Second
	sampleEvery = 5 * time.Second
	nearEvery   = time.Minute
)

// watcher looks at all lanes every few seconds, and at the log every second, for what an instant does not tell:
// how long something has been so. Safe for concurrent use.
type watcher struct {
	fanout    Fanout
	journal   Journal
	top       *top
	saturated saturation
	behind    behind
	seen      func(now time.Time, lanes []fanout.LaneFigures, tenants []fanout.TenantStatus) // of every look; may be nil

	mu    sync.Mutex
	at    time.Time
	lanes []fanout.LaneFigures // of the last look; replaced as a whole
	total engine.Counters
}

func newWatcher(f Fanout, j Journal, t *top) *watcher { return &watcher{fanout: f, journal: j, top: t} }

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	var looked, near time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.look()
			if now.Sub(near) >= nearEvery {
				near = now
				if err := w.fanout.LookNear(); err != nil && ctx.Err() == nil {
					log.Warn("what is near its horizon was not counted", "error", err)
				}
			}
			if now.Sub(looked) >= sampleEvery {
				looked = now
				w.sample(now)
			}
		}
	}
}

// refresh samples, unless that was done within the last second.
func (w *watcher) refresh(now time.Time) {
	w.mu.Lock()
	fresh := now.Sub(w.at) < time.Second && !w.at.IsZero()
	w.mu.Unlock()
	if !fresh {
		w.sample(now)
	}
}

func (w *watcher) sample(now time.Time) {
	lanes, total := w.fanout.Figures()
	tenants := w.fanout.Tenants()
	w.saturated.sample(now, lanes)
	w.top.look(lanes, tenants)
	w.mu.Lock()
	w.at, w.lanes, w.total = now, lanes, total
	w.mu.Unlock()
	if w.seen != nil {
		w.seen(now, lanes, tenants)
	}
}

// last returns the lanes of the last sample, not to be changed, and the sum over all of that time.
func (w *watcher) last() ([]fanout.LaneFigures, engine.Counters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lanes, w.total
}

// look notes how far the reader is.
func (w *watcher) look() {
	newest := w.journal.Status().LastPosition
	w.behind.note(time.Now(), newest, w.fanout.Stats().Cursor)
}

// lag is how long the oldest undecided trigger has waited for its decision, to a second.
func (w *watcher) lag() time.Duration { return w.behind.lag(time.Now(), w.fanout.Stats().Cursor) }

// behind remembers when the log had grown so far, to tell for how long the reader has not passed that. Safe for
// concurrent use.
type behind struct {
	mu    sync.Mutex
	marks []mark // ascending; the first is the oldest that the reader has not passed
}

type mark struct {
	newest journal.Position
	at     time.Time
}

const mostMarks = 128

// note takes in the newest position of the log, and the first that is not decided yet.
func (b *behind) note(now time.Time, newest, cursor journal.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass(cursor)
	n := len(b.marks)
	switch {
	case newest < cursor || n > 0 && b.marks[n-1].newest == newest:
	case n == mostMarks: // the last stands for what follows: its instant is too late by no more than what it spans
		b.marks[n-1].newest = newest
	default:
		b.marks = append(b.marks, mark{newest, now})
	}
}

func (b *behind) pass(cursor journal.Position) {
	n := 0
	for n < len(b.marks) && b.marks[n].newest < cursor {
		n++
	}
	b.marks = append(b.marks[:0], b.marks[n:]...)
}

func (b *behind) lag(now time.Time, cursor journal.Position) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pass(cursor); len(b.marks) == 0 {
		return 0
	}
	return max(now.Sub(b.marks[0].at), 0)
}
