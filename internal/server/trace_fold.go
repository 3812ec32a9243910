package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	foldAfter  = 10               // records of one message in a window
	foldWindow = 10 * time.Second //
	foldMost   = 1000             // messages remembered
)

// Fold returns a handler that hands on at most ten records of one message and level in ten seconds. What it leaves out
// is told by the next record after that: in folded, where it is of that message, else in a record of its own.
func Fold(h slog.Handler) slog.Handler {
	return &folder{h, &folds{by: map[fold]*folded{}}}
}

type folder struct {
	slog.Handler
	folds *folds
}

func (f *folder) WithAttrs(a []slog.Attr) slog.Handler {
	return &folder{f.Handler.WithAttrs(a), f.folds}
}
func (f *folder) WithGroup(name string) slog.Handler {
	return &folder{f.Handler.WithGroup(name), f.folds}
}

func (f *folder) Handle(ctx context.Context, r slog.Record) error {
	pass, before, others := f.folds.take(fold{r.Level, r.Message}, r.Time)
	for _, o := range others {
		sum := slog.NewRecord(r.Time, o.level, o.message, 0)
		sum.AddAttrs(slog.Int("folded", o.n))
		if err := f.Handler.Handle(ctx, sum); err != nil {
			return err
		}
	}
	if !pass {
		return nil
	}
	if before > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("folded", before))
	}
	return f.Handler.Handle(ctx, r)
}

// folds counts records by message. Safe for concurrent use.
type folds struct {
	mu   sync.Mutex
	by   map[fold]*folded
	next time.Time // when windows that have ended are looked for
}

type fold struct {
	level   slog.Level
	message string
}

type folded struct {
	since  time.Time
	n, out int // handed on, left out
}

type leftOut struct {
	fold
	n int
}

// take counts a record: whether it passes, how many of its message were left out in the window before, and what
// others were in theirs.
func (f *folds) take(key fold, now time.Time) (pass bool, before int, others []leftOut) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.by[key]
	if c == nil || now.Sub(c.since) >= foldWindow {
		if c != nil {
			before = c.out
		}
		c = &folded{since: now}
		f.by[key] = c
	}
	if pass = c.n < foldAfter; pass {
		c.n++
	} else {
		c.out++
	}
	if len(f.by) > foldMost || !now.Before(f.next) {
		others = f.sweep(now)
		f.next = now.Add(foldWindow)
	}
	return pass, before, others
}

// sweep forgets messages whose window has ended, or all when there are too many.
func (f *folds) sweep(now time.Time) (out []leftOut) {
	all := len(f.by) > foldMost
	for key, c := range f.by {
		if all || now.Sub(c.since) >= foldWindow {
			delete(f.by, key)
			if c.out > 0 {
				out = append(out, leftOut{key, c.out})
			}
		}
	}
	return out
}
