package redisquota

import (
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
)

// now is the monotonic time since the store was opened: the breaker's clock.
func (s *Store) now() time.Duration { return time.Since(s.began) }

// ask asks the breaker. With a permit the caller must make the call.
func (s *Store) ask() (breaker.Permit, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.breaker.Ask(&s.state, now)
	if !p.OK || s.closed {
		return p, false
	}
	s.breaker.Take(&s.state, now, p)
	s.calls.Add(1) // before Close can wait
	return p, true
}

// learn records how a call ended that was in time.
func (s *Store) learn(p breaker.Permit, err error) {
	if err != nil && !ours(err) {
		s.failed(p)
		return
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.Success(&s.state, now, p.Gen, p.Probe)
}

func (s *Store) failed(p breaker.Permit) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.Failure(&s.state, now, p.Gen, p.Probe, 0, 0, s.config.Rand)
}

func (s *Store) cancelled(p breaker.Permit) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaker.Neutral(&s.state, now, p.Gen, p.Probe)
}

// retryIn is when to come back while the store is away.
func (s *Store) retryIn() time.Duration {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Second, s.state.NextProbe()-now)
}

// away decides without the store, by each check's mode, all or nothing.
func (s *Store) away(op string, checks []admit.Check) admit.Answer {
	s.counts.away.Add(1)
	out := admit.Answer{Allowed: true, Away: true, Checks: make([]limit.Decision, len(checks))}
	var mine []admit.Check
	var which []int
	for i, c := range checks {
		switch {
		case c.Spec.Limit == 0:
			out.Checks[i].Reason = limit.Paused
		case c.Away == admit.AwayOpen:
			out.Checks[i] = limit.Decision{Allowed: true, Remaining: max(0, c.Spec.Most()-c.Cost)}
		case c.Away == admit.AwayLocal:
			mine, which = append(mine, s.share(c)), append(which, i)
			continue
		default:
			out.Checks[i] = limit.Decision{Reason: limit.Later, RetryIn: s.retryIn()}
		}
		out.Allowed = out.Allowed && out.Checks[i].Allowed
	}
	s.decideLocal(op, mine, which, &out)
	return out
}

// decideLocal has the local share of mine, which are the checks at which, decided.
func (s *Store) decideLocal(op string, mine []admit.Check, which []int, out *admit.Answer) {
	decide := s.local.Peek
	if op == opTake && out.Allowed {
		decide = s.local.Take
	}
	a := decide(s.origin+s.now(), mine)
	for k, i := range which {
		d := a.Checks[k]
		if d.Allowed && a.Allowed && !out.Allowed {
			d.Remaining += mine[k].Cost // nothing was taken
		}
		if d.Reason == limit.Never || d.Reason == limit.Paused { // of the share, not of the limit
			d = limit.Decision{Reason: limit.Later, Remaining: d.Remaining, RetryIn: s.retryIn()}
		}
		out.Checks[i] = d
	}
	out.Allowed = out.Allowed && a.Allowed
}

// share is this process's part of a limit: all parts together are at most the limit.
func (s *Store) share(c admit.Check) admit.Check {
	n := s.config.Replicas
	spec := &c.Spec
	if spec.Algorithm == admit.TokenBucket && spec.Window <= limit.MaxPeriod/time.Duration(n) {
		spec.Window *= time.Duration(n)
	} else {
		spec.Limit /= n
	}
	spec.Burst /= n
	if spec.Validate() != nil || spec.Most() == 0 {
		*spec = admit.Spec{Algorithm: spec.Algorithm} // too little to share: paused
	}
	return c
}

func (s *Store) refundLocal(checks []admit.Check, a admit.Answer) {
	var mine []admit.Check
	part := admit.Answer{Allowed: true}
	for i, c := range checks {
		if c.Away == admit.AwayLocal && c.Spec.Limit > 0 {
			mine, part.Checks = append(mine, s.share(c)), append(part.Checks, a.Checks[i])
		}
	}
	s.local.Refund(s.origin+s.now(), mine, part)
}
