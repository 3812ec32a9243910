package main

import (
	"fmt"
	"time"
)

// The peers were measured on two cores, generator, receiver and their databases on the same
// two, their settings raised as their documents advise. Their figures are quoted, not
// measured here.
const (
	quoteRate      = "Convoy CE 80/s, Outpost 570/s, WebhookX 450/s"
	quoteCPU       = "Convoy CE 21 ms, Outpost 2.6 to 6.5 ms, WebhookX 3.5 to 6.5 ms"
	quoteLatency   = "p50 / p99: Convoy CE 29 / 43 s, Outpost 37 / 89 ms, WebhookX 6 / 28 ms"
	quoteBlackHole = "Convoy CE 1.9 s -> 38 s, Outpost 64 ms -> 14 s, WebhookX 18 ms -> 54 s"
	quoteNoisy     = "Convoy CE 12 s, Outpost 0.8 s, WebhookX 5.5 s"
	quoteLimit     = "Convoy CE 217 s, silent for 97 s; Outpost has no limit; WebhookX 57 s, every other second empty"
	quoteKill      = "Convoy CE stragglers 2 to 3 min; Outpost 0 to 43 duplicates; WebhookX 99 duplicates, 67 s"
)

const endpointCount = 20

// platform is a service with shipped settings, endpoints and a tracker of what reaches them.
type platform struct {
	*service
	*endpoints
	*tracker
}

func (b *bench) platform() (*platform, error) { return b.platformOf(setup{}) }

func (b *bench) platformOf(s setup) (*platform, error) {
	svc, err := b.start(s)
	if err != nil {
		return nil, err
	}
	return &platform{svc, &endpoints{}, &tracker{}}, nil
}

func (p *platform) close() {
	p.service.close()
	p.endpoints.close()
}

// healthy makes n tenants, each with a fast endpoint.
func (p *platform) healthy(prefix string, n int) error {
	urls, err := p.fast(n, p.tracker)
	if err != nil {
		return err
	}
	_, err = p.subscribe(prefix, urls, nil)
	return err
}

// offer runs a load of these streams.
func (p *platform) offer(length time.Duration, streams ...stream) *load {
	l := newLoad(p.tracker, p.host(), length, streams...)
	l.run(p.bench.ctx)
	return l
}

// peersRate doubles the rate until the p99 exceeds 5 s, or the service falls behind: more than
// one in fifty triggers of a step has not arrived a second after its end. Then it halves the
// gap to the last rate that was held.
func (b *bench) peersRate() ([]figure, error) {
	c, err := b.measureCapacity()
	if err != nil {
		return nil, err
	}
	return []figure{
		one("highest rate held", c.rate, "/s", atLeast(5_000)).note("%s", c.why),
		one("p99 at it", c.p99, "ms", nil).note("peers' highest rate: %s", quoteRate),
	}, nil
}

// capacity is the highest rate that was held, and why the next one was not.
type capacity struct {
	rate, p99 float64
	why       string
}

// measureCapacity runs the ramp, once in the life of the program.
func (b *bench) measureCapacity() (capacity, error) {
	if b.capacity != nil {
		return *b.capacity, nil
	}
	p, err := b.platform()
	if err != nil {
		return capacity{}, err
	}
	defer p.close()
	if err := p.healthy("t", endpointCount); err != nil {
		return capacity{}, err
	}
	c := p.ramp(pick(b, 10*time.Second, 2*time.Second), pick(b, 3, 1))
	b.capacity = &c
	return c, b.ctx.Err()
}

func (p *platform) ramp(length time.Duration, halvings int) (c capacity) {
	const first, last = 500.0, 64_000.0
	failed := 0.0
	try := func(rate float64) {
		if p99, why, ok := p.step(rate, length); ok {
			c.rate, c.p99 = rate, p99
		} else {
			failed, c.why = rate, why
		}
	}
	for rate := first; failed == 0 && rate <= last && p.bench.ctx.Err() == nil; rate *= 2 {
		try(rate)
	}
	for range halvings {
		if p.bench.ctx.Err() == nil && failed > 0 {
			try((c.rate + failed) / 2)
		}
	}
	return c
}

// step offers a rate and reports whether it was held, or why not.
func (p *platform) step(rate float64, length time.Duration) (p99 float64, why string, held bool) {
	l := p.offer(length, sameRate("t", endpointCount, rate)...)
	sleep(p.bench.ctx, max(0, length+time.Second-l.elapsed()))
	missing := l.missing() + int(l.refused.Load())
	p99 = milliseconds(l.latencies("t"), 0.99)
	p.bench.say("  %.0f/s: p99 %.0f ms, %d missing or refused, %s", rate, p99, missing, l.lateness())
	switch {
	case p99 > 5000:
		why = fmt.Sprintf("%.0f/s has a p99 of %.1f s", rate, p99/1000)
	case missing > len(l.shots)/50:
		why = fmt.Sprintf("%.0f/s leaves %d of %d behind", rate, missing, len(l.shots))
	}
	l.await(p.bench.ctx, 30*time.Second)
	return p99, why, why == ""
}

// peersCPU is the CPU time of the service's process, journal and API in it, per delivery.
func (b *bench) peersCPU() ([]figure, error) {
	single, err := b.platform()
	if err != nil {
		return nil, err
	}
	defer single.close()
	if err := single.healthy("t", endpointCount); err != nil {
		return nil, err
	}
	wide, err := b.platform()
	if err != nil {
		return nil, err
	}
	defer wide.close()
	urls, err := wide.fast(40, wide.tracker)
	if err != nil {
		return nil, err
	}
	if err := wide.tenant("wide", urls, nil); err != nil {
		return nil, err
	}
	const perSecond = 2000.0
	length := pick(b, 5*time.Second, time.Second)
	s, err := b.interleave(
		func() (float64, error) {
			return single.cpuPerDelivery(1, length, sameRate("t", endpointCount, perSecond)...)
		},
		func() (float64, error) {
			return wide.cpuPerDelivery(40, length, stream{"wide", perSecond / 40})
		},
	)
	if err != nil {
		return nil, err
	}
	return []figure{
		many("fan-out 1", s[0], "ms", atMost(0.2)).note("at %.0f deliveries/s: API, journal, fan-out and sender, kernel time in it", perSecond),
		many("fan-out 40", s[1], "ms", atMost(0.13)).note("at the same rate of deliveries; peers: %s", quoteCPU),
	}, nil
}

func (p *platform) cpuPerDelivery(fanOut int64, length time.Duration, streams ...stream) (float64, error) {
	begin, err := p.cpu()
	if err != nil {
		return 0, err
	}
	l := p.offer(length, streams...)
	for l.arrivals.Load() < fanOut*int64(len(l.shots))-fanOut*l.refused.Load() && l.elapsed() < length+20*time.Second {
		sleep(p.bench.ctx, time.Millisecond)
	}
	end, err := p.cpu()
	if err != nil {
		return 0, err
	}
	return (end - begin).Seconds() * 1000 / float64(l.arrivals.Load()), l.err()
}

// peersLatency is from post to arrival at a rate far below the limit.
func (b *bench) peersLatency() ([]figure, error) {
	p, err := b.platform()
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.healthy("t", endpointCount); err != nil {
		return nil, err
	}
	var p50, p99 series
	var late string
	for range pick(b, rounds, 1) {
		l := p.offer(pick(b, 10*time.Second, 2*time.Second), sameRate("t", endpointCount, 200)...)
		l.await(b.ctx, 10*time.Second)
		if err := l.err(); err != nil {
			return nil, err
		}
		all := l.latencies("t")
		p50, p99 = append(p50, milliseconds(all, 0.5)), append(p99, milliseconds(all, 0.99))
		late = l.lateness()
		b.say("  p50 %.1f ms, p99 %.1f ms, %s", p50[len(p50)-1], p99[len(p99)-1], late)
	}
	return []figure{
		many("p50", p50, "ms", atMost(4)).
			note("from the instant at which a trigger is due to be posted to its arrival at the endpoint; last round: %s", late),
		many("p99", p99, "ms", atMost(20)).note("peers, %s", quoteLatency),
	}, nil
}
