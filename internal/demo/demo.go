package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Options of Run. The zero value of each field is its default.
type Options struct {
	Out      io.Writer // the report: text, or one JSON object
	Progress io.Writer // how it goes; nil discards
	Live     bool      // Progress is a terminal: a table that is redrawn, not lines
	JSON     bool

	Seed uint64        // of the generator; 0 means 1
	Load time.Duration // of each phase; 0 means 12s
	Tail time.Duration // after the load; 0 means 3s
}

// demo is one run of it.
type demo struct {
	dir        string // temporary; removed at the end
	seed       uint64
	load, tail time.Duration
	screen     *screen
	launch     launch
	tenants    []tenant
}

// ErrInterrupted is Run's error when its context ended before the demo did.
var ErrInterrupted = errors.New("demo: interrupted")

// Run runs the three phases and writes the report. It removes its directory before it
// returns, also when ctx ends first.
func Run(ctx context.Context, o Options) (Report, error) {
	return start(ctx, o, launchServer, tenants)
}

func start(ctx context.Context, o Options, l launch, all []tenant) (r Report, err error) {
	d := newDemo(o, l, all)
	if d.dir, err = os.MkdirTemp("", "fairlane-demo-"); err != nil {
		return Report{}, fmt.Errorf("demo: %w", err)
	}
	defer func() {
		if rmErr := os.RemoveAll(d.dir); rmErr != nil {
			err = errors.Join(err, fmt.Errorf("demo: %w", rmErr))
		}
	}()
	three, err := d.runAll(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return Report{}, ErrInterrupted
	case err != nil:
		return Report{}, fmt.Errorf("demo: %w", err)
	}
	r = makeReport(three[0], three[1], three[2])
	if o.JSON {
		return r, writeJSON(o.Out, r)
	}
	return r, writeText(o.Out, r)
}

func newDemo(o Options, l launch, all []tenant) *demo {
	d := &demo{seed: o.Seed, load: o.Load, tail: o.Tail, launch: l, tenants: all}
	if d.seed == 0 {
		d.seed = 1
	}
	if d.load == 0 {
		d.load = 12 * time.Second
	}
	if d.tail == 0 {
		d.tail = 3 * time.Second
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	d.screen = &screen{out: o.Progress, live: o.Live}
	return d
}

func (d *demo) runAll(ctx context.Context) (all []*measured, err error) {
	run := phases(d.tenants)
	for i, p := range run {
		d.screen.begin(i+1, len(run), p, d.load+d.tail)
		m, err := d.runPhase(ctx, p)
		d.screen.end(m)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func writeJSON(w io.Writer, r Report) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}
