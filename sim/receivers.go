package sim

import (
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Receivers are the endpoints of a setup, for a driver of one's own. Asked in the same order at the
// same instants they answer as in Run.
type Receivers struct{ lanes []lane }

// NewReceivers makes the endpoints of s as they are before the first attempt.
func NewReceivers(s *Setup) *Receivers {
	r := &Receivers{lanes: make([]lane, len(s.Lanes))}
	servers := map[*Server]*pool{}
	for i := range s.Lanes {
		r.lanes[i].receive(s, i, servers)
	}
	return r
}

// Ask starts an attempt on a lane. It returns how long the answer takes and what it says.
func (r *Receivers) Ask(now time.Duration, lane engine.LaneID) (time.Duration, engine.Result) {
	a := r.lanes[lane].ask(now)
	return a.after, a.result
}

// receive makes the receiver of the i-th lane; servers are those made so far.
func (l *lane) receive(s *Setup, i int, servers map[*Server]*pool) {
	spec := &s.Lanes[i]
	l.spec, l.timeout, l.rnd = spec, spec.Profile.Timeout, stream(s.Seed, forAnswers, i)
	if l.timeout == 0 {
		l.timeout = 15 * time.Second
	}
	if spec.Server != nil {
		if servers[spec.Server] == nil {
			p := make(pool, max(spec.Server.Workers, 1))
			servers[spec.Server] = &p
		}
		l.server = servers[spec.Server]
	}
}
