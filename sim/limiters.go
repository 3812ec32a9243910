package sim

import (
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// Limiter is what package limit has: Bucket, Window, Log, Leaky.
type Limiter interface {
	Take(now time.Duration, cost int64) limit.Decision
}

// LimiterSetup is an experiment with limiters alone: requests come, and pass or do not. With
// several limiters requests go to them in turn, as to replicas behind a balancer.
type LimiterSetup struct {
	Seed     uint64
	Limiters []Limiter // at least one
	Arrivals []Process
	Until    time.Duration
	Clock    func(time.Duration) time.Duration // what the limiters' clock shows; nil: the instant
}

// Passed are the requests of an experiment with limiters.
type Passed struct {
	Offered  int
	Admitted []time.Duration
	Stall    time.Duration // the longest span in which requests came and none passed
}

// Most returns the largest number admitted within any span of the width, its left edge excluded.
func (p *Passed) Most(width time.Duration) (most int) {
	first := 0
	for i, at := range p.Admitted {
		for p.Admitted[first] <= at-width {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// RunLimiters runs the experiment.
func RunLimiters(s *LimiterSetup) *Passed {
	var q events
	sources := make([]source, len(s.Arrivals))
	for i, next := range s.Arrivals {
		sources[i] = source{next: next, rnd: stream(s.Seed, forArrivals, i)}
		if sources[i].advance() {
			q.push(sources[i].at, anArrival, uint32(i))
		}
	}
	p := &Passed{}
	var last time.Duration
	for e := q.top(); e != nil && e.at < s.Until; e = q.top() {
		now, src := e.at, &sources[e.id]
		if src.advance() {
			q.again(src.at)
		} else {
			q.pop()
		}
		seen := now
		if s.Clock != nil {
			seen = s.Clock(now)
		}
		limiter := s.Limiters[p.Offered%len(s.Limiters)]
		p.Offered++
		p.Stall = max(p.Stall, now-last)
		if limiter.Take(seen, 1).Allowed {
			p.Admitted = append(p.Admitted, now)
			last = now
		}
	}
	return p
}
