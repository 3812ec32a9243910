package main

import (
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// peersKill kills the service in the middle of a load and starts it again at once. Only what
// was acknowledged counts; the generator does not repeat what was refused meanwhile.
func (b *bench) peersKill() ([]figure, error) {
	var lost, duplicates, straggled, ready series
	for range pick(b, rounds, 1) {
		k, err := b.killed(300, pick(b, 8*time.Second, 3*time.Second))
		if err != nil {
			return nil, err
		}
		lost, duplicates = append(lost, float64(k.lost)), append(duplicates, float64(k.duplicates))
		straggled, ready = append(straggled, k.straggled.Seconds()), append(ready, k.ready.Seconds())
		b.say("  lost %d, duplicates %d, stragglers %.2f s, ready after %.2f s", k.lost, k.duplicates, k.straggled.Seconds(), k.ready.Seconds())
	}
	return []figure{
		one("lost, all rounds", sum(lost), "", atMost(0)),
		one("duplicates, most of a round", duplicates.high(), "", nil).note("median %s", short(duplicates.median())),
		one("stragglers, worst", straggled.high(), "s", atMost(5)).
			note("from the kill to the last request, repeats too, for what was acknowledged before it; median %s s", short(straggled.median())),
		many("ready after", ready, "s", nil).note("peers: %s", quoteKill),
	}, nil
}

func sum(s series) (total float64) {
	for _, x := range s {
		total += x
	}
	return total
}

// crash is what a kill did.
type crash struct {
	lost, duplicates int
	straggled, ready time.Duration
}

func (b *bench) killed(rate float64, length time.Duration) (k crash, err error) {
	p, err := b.platform()
	if err != nil {
		return k, err
	}
	defer p.close()
	urls, err := p.slow(endpointCount, p.tracker, func() receiver.Behaviour { return receiver.OK(20 * time.Millisecond) })
	if err != nil {
		return k, err
	}
	if _, err := p.subscribe("t", urls, nil); err != nil {
		return k, err
	}
	l := newLoad(p.tracker, p.host(), length, sameRate("t", endpointCount, rate)...)
	loaded := make(chan struct{}) // closed when everything was posted
	go func() { l.run(b.ctx); close(loaded) }()
	sleep(b.ctx, length/2)
	err = p.kill()
	at := l.elapsed()
	if err == nil {
		k.ready, err = p.again()
	}
	<-loaded
	if err != nil {
		return k, fmt.Errorf("after the kill: %w", err)
	}
	l.await(b.ctx, 2*time.Minute)
	sleep(b.ctx, pick(b, 2*time.Second, time.Second)) // for repeats
	k.lost, k.duplicates, k.straggled = l.missing(), l.duplicates(), l.straggled(at)
	return k, b.ctx.Err()
}

// straggled is how long after the instant the last request came for what was acknowledged
// before it.
func (l *load) straggled(at time.Duration) (last time.Duration) {
	for i := range l.shots {
		if s := &l.shots[i]; s.acked.Load() > 0 && time.Duration(s.acked.Load()) <= at {
			last = max(last, time.Duration(s.last.Load())-at)
		}
	}
	return last
}
