package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// run is one phase on its way. Its goroutines end before it does.
type run struct {
	demo      *demo
	dir       string // of the service; empty at the begin, removed at the end
	phase     phase
	settings  settings
	receivers []*receiver.Receiver // one a tenant
	service   service
	poster    *poster
	start     time.Time // of the load

	sampling sync.WaitGroup
	served   []mean // by the sampling goroutine, until it ended
}

// runPhase runs one phase from an empty directory to its account, and leaves nothing.
func (d *demo) runPhase(ctx context.Context, p phase) (m *measured, err error) {
	r := &run{demo: d, phase: p, settings: settingsOf(p.protected), served: make([]mean, len(p.tenants))}
	r.dir = filepath.Join(d.dir, "data")
	defer func() {
		if stopErr := r.stop(); err == nil && p.drained {
			err = stopErr
		}
	}()
	if err := r.begin(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	posting, err := r.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if p.drained {
		r.drain(ctx)
	}
	return r.measure(posting), ctx.Err()
}

// begin starts receivers and service, and makes the tenants.
func (r *run) begin(ctx context.Context) (err error) {
	for _, t := range r.phase.tenants {
		endpoint, err := receiver.Start(receiver.Config{Behaviour: t.answer()})
		if err != nil {
			return err
		}
		r.receivers = append(r.receivers, endpoint)
	}
	r.service, err = r.demo.launch(ctx, r.dir, r.settings)
	if err != nil {
		return err
	}
	a := &admin{service: r.service}
	defer a.client.CloseIdleConnections()
	if err := a.ready(ctx); err != nil {
		return err
	}
	for i, t := range r.phase.tenants {
		if err := a.register(ctx, t, r.receivers[i].URL(), r.settings.cap); err != nil {
			return err
		}
	}
	return nil
}

// load posts the phase's triggers and then waits for the tail.
func (r *run) load(ctx context.Context) (posting, error) {
	shots := schedule(r.demo.seed, r.phase.tenants, r.demo.load)
	r.poster = newPoster(r.service.url(), r.service.key(), len(r.phase.tenants), func(s shot, id string, at time.Time) {
		r.receivers[s.tenant].Posted(id, at)
	})
	r.start = time.Now().Add(50 * time.Millisecond)
	for i, t := range r.phase.tenants {
		if t.outage[1] > 0 {
			from := time.Until(r.start) + r.receivers[i].Elapsed()
			r.receivers[i].Become(receiver.Recovering(from+t.outage[0], from+t.outage[1]))
		}
	}
	watched, stopWatching := context.WithCancel(ctx)
	r.sampling.Go(func() { r.sample(watched) })
	posted := r.poster.run(ctx, r.start, r.phase.tenants, shots)
	sleepUntil(ctx, r.start.Add(r.demo.load+r.demo.tail))
	stopWatching()
	r.sampling.Wait()
	switch {
	case ctx.Err() != nil:
		return posted, ctx.Err()
	case posted.failed > 0:
		return posted, fmt.Errorf("%d posts were not accepted; the first: %w", posted.failed, posted.err)
	}
	return posted, nil
}

// sample follows the phase: the fairness of every round of the load, and the table.
func (r *run) sample(ctx context.Context) {
	const step = 250 * time.Millisecond
	for n := 1; sleepUntil(ctx, r.start.Add(time.Duration(n)*step)); n++ {
		since := time.Duration(n) * step
		if since%time.Second == 0 && since <= r.demo.load {
			served := r.service.served()
			for i, t := range r.phase.tenants {
				if x, entitled := served[t.name]; entitled {
					r.served[i].add(x)
				}
			}
		}
		r.demo.screen.update(r, since)
	}
}

// drain lets no send start any more and waits until none is in flight, for both sides.
func (r *run) drain(ctx context.Context) {
	r.service.stopSends()
	deadline, cancel := context.WithTimeout(ctx, r.settings.profile.Timeout+2*time.Second)
	defer cancel()
	for r.inFlight() > 0 && sleepUntil(deadline, time.Now().Add(10*time.Millisecond)) {
	}
}

func (r *run) inFlight() (n uint64) {
	for _, c := range r.service.account() {
		n += c.InFlight
	}
	for _, endpoint := range r.receivers {
		n += uint64(endpoint.Tally().InFlight)
	}
	return n
}

// measure takes the account and what the receivers counted.
func (r *run) measure(posted posting) *measured {
	m := &measured{phase: r.phase, posting: posted, served: r.served}
	account := r.service.account()
	m.account = make([]engine.Counters, len(r.phase.tenants))
	for i, t := range r.phase.tenants {
		m.account[i] = account[t.name]
		m.received = append(m.received, r.receivers[i].Report(contractOf(t, r.settings.cap)))
	}
	return m
}

// stop ends service and receivers and removes the directory. What is still in flight
// is not waited for.
func (r *run) stop() (err error) {
	if r.service != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = r.service.stop(ctx)
	}
	for _, endpoint := range r.receivers {
		endpoint.Close() //nolint:errcheck // the phase is over; nothing depends on it
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
