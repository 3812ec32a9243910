package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// peersBlackHole is the isolation row with the shipped settings: 1,200 slots, timeout 15 s.
func (b *bench) peersBlackHole() ([]figure, error) {
	healthy := sameRate("healthy", endpointCount, 100)
	hole := stream{"hole0", 50}
	length := pick(b, 20*time.Second, 4*time.Second)
	s, err := b.interleave(
		func() (float64, error) { return b.healthyP99(setup{}, length, healthy, nil) },
		func() (float64, error) { return b.healthyP99(setup{}, length, healthy, &hole) },
	)
	if err != nil {
		return nil, err
	}
	return []figure{
		many("p99 without", s[0], "ms", nil).note("%d healthy tenants, endpoints answer in 20 ms", endpointCount),
		many("p99 with", s[1], "ms", nil),
		many("with over without", s[1].over(s[0]), "x", atMost(1.25)).note("peers: %s", quoteBlackHole),
	}, nil
}

// peersNoisy offers a fifth more than the highest rate that is held: one part in eleven by the
// quiet tenants, the rest by the noisy one. The quiet ones post over connections of their own.
func (b *bench) peersNoisy() ([]figure, error) {
	const quiet = endpointCount - 1
	c, err := b.measureCapacity()
	if err != nil {
		return nil, err
	}
	perSecond := 1.2 * c.rate / 11
	length := pick(b, 10*time.Second, 2*time.Second)
	var loud progress
	s, err := b.interleave(
		func() (float64, error) { return b.quietP50(quiet, perSecond, 0, length, nil) },
		func() (float64, error) { return b.quietP50(quiet, perSecond, 10*perSecond, length, &loud) },
	)
	if err != nil {
		return nil, err
	}
	return []figure{
		many("p50 without", s[0], "ms", nil).note("%d quiet tenants, %s/s together", quiet, short(perSecond)),
		many("p50 with", s[1], "ms", nil).
			note("the noisy one at %s/s; at the end %.0f %% of it was accepted, %.0f %% had arrived (last round)", short(10*perSecond), loud.accepted, loud.arrived),
		many("with over without", s[1].over(s[0]), "x", atMost(2)).note("peers, p50: %s", quoteNoisy),
	}, nil
}

// progress of a load, in per cent of what was planned.
type progress struct{ accepted, arrived float64 }

func (l *load) progress() (p progress) {
	for i := range l.shots {
		if l.shots[i].acked.Load() > 0 {
			p.accepted++
		}
	}
	n := float64(len(l.shots)) / 100
	return progress{p.accepted / n, float64(l.arrivals.Load()) / n}
}

// quietP50 is the p50 in ms of the quiet tenants, beside a noisy one if noisy is above 0; then
// how says how far that one got.
func (b *bench) quietP50(n int, perSecond, noisy float64, length time.Duration, how *progress) (float64, error) {
	p, err := b.platform()
	if err != nil {
		return 0, err
	}
	defer p.close()
	if err := p.healthy("quiet", n); err != nil {
		return 0, err
	}
	if err := p.healthy("noisy", 1); err != nil {
		return 0, err
	}
	quiet := newLoad(p.tracker, p.host(), length, sameRate("quiet", n, perSecond)...)
	var both sync.WaitGroup
	both.Go(func() { quiet.run(b.ctx) })
	if noisy > 0 {
		loud := newLoad(p.tracker, p.host(), length, stream{"noisy0", noisy})
		both.Go(func() { loud.run(b.ctx) })
		sleep(b.ctx, length)
		*how = loud.progress()
	}
	both.Wait()
	sleep(b.ctx, 200*time.Millisecond)
	all := quiet.latencies("quiet")
	b.say("    p50 %.1f ms, p99 %.1f ms, %s", milliseconds(all, 0.5), milliseconds(all, 0.99), quiet.lateness())
	return milliseconds(all, 0.5), quiet.err()
}

// peersLimit posts events at once into a contract of 10/s with a burst of 10, and holds their
// arrivals against it.
func (b *bench) peersLimit() ([]figure, error) {
	n := pick(b, 300, 60)
	var drained, silence, over series
	for range pick(b, 3, 1) {
		arrivals, err := b.limited(n)
		if err != nil {
			return nil, err
		}
		drained = append(drained, arrivals[len(arrivals)-1].Seconds())
		silence = append(silence, longestGap(arrivals).Seconds())
		over = append(over, receiver.OverContract(arrivals, receiver.Contract{Tokens: 10, Per: time.Second, Burst: 10}))
		b.say("  drained in %.2f s, longest silence %.2f s, %+.2f over", drained[len(drained)-1], silence[len(silence)-1], over[len(over)-1])
	}
	ideal := float64(n-10) / 10
	return []figure{
		many(fmt.Sprintf("%d at once into 10/s, burst 10: drained in", n), drained, "s", within(ideal, ideal+1)).
			note("from the first post to the last arrival"),
		many("longest silence", silence, "s", nil).note("of an even pace it is 0.1 s"),
		one("above B + rT, worst round", over.high(), "", atMost(0.99)).
			note("deliveries, by arrival at the endpoint, where transit can bunch up to the cap more; parts of one are its jitter. Peers: %s", quoteLimit),
	}, nil
}

// limited returns the instants of arrival after the first post, ascending.
func (b *bench) limited(n int) ([]time.Duration, error) {
	p, err := b.platform()
	if err != nil {
		return nil, err
	}
	defer p.close()
	urls, err := p.slow(1, p.tracker, func() receiver.Behaviour { return receiver.OK(0) })
	if err != nil {
		return nil, err
	}
	if _, err := p.subscribe("t", urls, map[string]any{"rate": "10/s", "burst": 10}); err != nil {
		return nil, err
	}
	l := atOnce(p.tracker, p.host(), n, "t0")
	l.run(b.ctx)
	l.await(b.ctx, 10*time.Minute)
	if l.missing() > 0 {
		return nil, fmt.Errorf("%d of %d did not arrive", l.missing(), n)
	}
	var all []time.Duration
	for i := range l.shots {
		all = append(all, time.Duration(l.shots[i].arrived.Load()))
	}
	slices.Sort(all)
	return all, l.err()
}

func longestGap(sorted []time.Duration) (most time.Duration) {
	for i := 1; i < len(sorted); i++ {
		most = max(most, sorted[i]-sorted[i-1])
	}
	return most
}
