package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// writers of the closed loads: each posts again when it has its answer.
var writers = []int{64, 128, 256, 512}

// ingest measures the journal alone, then the whole HTTP path. No subscription matches, so
// nothing is delivered.
func (b *bench) ingest() ([]figure, error) {
	figures, err := b.ingestJournal()
	if err != nil {
		return nil, err
	}
	http, err := b.ingestHTTP()
	return append(figures, http...), err
}

func (b *bench) ingestJournal() (figures []figure, err error) {
	dir, err := os.MkdirTemp(b.dir, "journal-")
	if err != nil {
		return nil, err
	}
	j, err := journal.Open(b.ctx, journal.Options{Dir: dir, MaxBytes: 64 << 30})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close(context.Background()), os.RemoveAll(dir)) }()
	body := payload(0)
	figures, err = b.sweep("journal", atLeast(25_000), func() (func() error, func()) {
		return func() error { _, err := j.Append(b.ctx, trigger("t0", body)); return err }, func() {}
	})
	if err != nil {
		return nil, err
	}
	paced, err := b.pacedAppend(j, 25_000, body)
	return append(figures, paced...), err
}

// ingestHTTP is the same over the API, the generator beside the service on the same cores.
func (b *bench) ingestHTTP() ([]figure, error) {
	svc, err := b.start(setup{})
	if err != nil {
		return nil, err
	}
	defer svc.close()
	if err := svc.tenant("t0", nil, nil); err != nil {
		return nil, err
	}
	body := payload(0)
	return b.sweep("HTTP", nil, func() (func() error, func()) {
		p := &poster{load: &load{api: svc.host()}}
		return func() error { return p.send(b.ctx, "t0", body) }, p.close
	})
}

// sweep returns the rate at each number of writers, and the highest of the medians.
func (b *bench) sweep(what string, bar *bar, writer func() (post func() error, done func())) ([]figure, error) {
	length := pick(b, 2*time.Second, 500*time.Millisecond)
	var sides []func() (float64, error)
	for _, n := range writers {
		sides = append(sides, func() (float64, error) { return closedLoad(b.ctx, n, length, writer) })
	}
	rates, err := b.interleave(sides...)
	if err != nil {
		return nil, err
	}
	var figures []figure
	best := 0
	for i, s := range rates {
		figures = append(figures, many(fmt.Sprintf("%s, %d writers", what, writers[i]), s, "/s", nil))
		if s.median() > rates[best].median() {
			best = i
		}
	}
	return append(figures, many(what+", highest", rates[best], "/s", bar)), nil
}

// closedLoad returns the posts per second of n writers.
func closedLoad(ctx context.Context, n int, length time.Duration, writer func() (func() error, func())) (float64, error) {
	var done atomic.Int64
	var all sync.WaitGroup
	var first atomic.Pointer[error]
	begin := time.Now()
	for range n {
		all.Go(func() {
			post, end := writer()
			defer end()
			for time.Since(begin) < length && ctx.Err() == nil {
				if err := post(); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := first.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(begin).Seconds(), nil
}

// pacedAppend is open load: appends begin at their instants, whether or not there are
// answers. Times count from the instant at which each was due.
func (b *bench) pacedAppend(j *journal.Journal, rate int, body []byte) ([]figure, error) {
	n := rate * pick(b, 5, 1)
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	var refused atomic.Int64
	begin := time.Now()
	for i := 0; i < n && b.ctx.Err() == nil; {
		for now := int(time.Since(begin).Seconds() * float64(rate)); i < min(now, n); i++ {
			due, out := time.Duration(i)*time.Second/time.Duration(rate), &took[i]
			all.Go(func() {
				if _, err := j.Append(b.ctx, trigger("t0", body)); err != nil {
					refused.Add(1)
				}
				*out = time.Since(begin) - due
			})
		}
		time.Sleep(200 * time.Microsecond)
	}
	all.Wait()
	slices.Sort(took)
	what := fmt.Sprintf("journal, %s/s open load, ", short(float64(rate)))
	return []figure{
		one(what+"p50", milliseconds(took, 0.5), "ms", nil),
		one(what+"p99", milliseconds(took, 0.99), "ms", nil),
		one(what+"refused", 100*float64(refused.Load())/float64(n), "%", nil),
	}, b.ctx.Err()
}
