package main

import (
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// isolation runs one healthy load three ways: alone, beside a tenant whose endpoint never
// answers, and beside it with the protections off. The platform is small, so that the black
// hole alone wants more than all of it.
func (b *bench) isolation() ([]figure, error) {
	healthy := []stream{{"healthy0", 50}, {"healthy1", 50}, {"healthy2", 50}, {"healthy3", 50}}
	hole := stream{"hole0", 60}
	small := setup{Slots: 48, Timeout: 2 * time.Second}
	off := small
	off.Unprotected = true
	length := pick(b, 10*time.Second, 4*time.Second)
	s, err := b.interleave(
		func() (float64, error) { return b.healthyP99(small, length, healthy, nil) },
		func() (float64, error) { return b.healthyP99(small, length, healthy, &hole) },
		func() (float64, error) { return b.healthyP99(off, length, healthy, &hole) },
	)
	if err != nil {
		return nil, err
	}
	return []figure{
		many("p99 alone", s[0], "ms", nil).note("4 tenants, 50/s each, endpoints answer in 20 ms; what has not arrived counts with its age"),
		many("p99 beside a black hole at 60/s", s[1], "ms", nil),
		many("p99 beside it, protections off", s[2], "ms", nil),
		many("with the black hole over without", s[1].over(s[0]), "x", atMost(1.25)),
		many("protections off over without", s[2].over(s[0]), "x", atLeast(5)),
	}, nil
}

// healthyP99 runs the healthy streams, beside a black hole if there is one, on a new service,
// and returns the healthy tenants' p99 in ms.
func (b *bench) healthyP99(s setup, length time.Duration, healthy []stream, hole *stream) (float64, error) {
	svc, err := b.start(s)
	if err != nil {
		return 0, err
	}
	defer svc.close()
	t, e := &tracker{}, &endpoints{}
	defer e.close()
	urls, err := e.slow(len(healthy), t, func() receiver.Behaviour { return receiver.OK(20 * time.Millisecond) })
	if err != nil {
		return 0, err
	}
	if _, err := svc.subscribe("healthy", urls, nil); err != nil {
		return 0, err
	}
	streams := healthy
	if hole != nil {
		streams = append([]stream{*hole}, healthy...)
		if urls, err = e.slow(1, t, receiver.BlackHole); err != nil {
			return 0, err
		}
		if _, err := svc.subscribe("hole", urls, nil); err != nil {
			return 0, err
		}
	}
	l := newLoad(t, svc.host(), length, streams...)
	l.run(b.ctx)
	sleep(b.ctx, 200*time.Millisecond)
	if err := l.err(); err != nil {
		return 0, err
	}
	p99 := milliseconds(l.latencies("healthy"), 0.99)
	b.say("    p99 %.1f ms, %s", p99, l.lateness())
	return p99, nil
}

// sameRate is n streams of tenants prefix0, prefix1, ... that offer perSecond together.
func sameRate(prefix string, n int, perSecond float64) (all []stream) {
	for i := range n {
		all = append(all, stream{fmt.Sprint(prefix, i), perSecond / float64(n)})
	}
	return all
}
