package fanout

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/plan"
)

// Caps by Little's law: requests in flight are rate times time, so a lane needs ceil(rate * p99) and some headroom.
// The rate is what was offered, the time the p99 of successes: from all attempts, a black hole would earn itself a
// cap of its timeout times its rate.

// CapAuto says how far a tier lets the service set the caps of subscriptions that have none of their own. Max 0: not
// at all.
type CapAuto struct{ Min, Max int }

const (
	capEvery    = time.Hour // between two changes of one lane's cap
	capFailures = 0.01      // above this share of failures a cap is not raised
)

// capState is what a lane's cap was last changed for, and what was seen since. Rate and failures are the greatest of
// those measured each minute.
type capState struct {
	at      time.Duration // of the last change, or of the first look
	looked  bool
	rate    float64
	failing float64
}

// CapAdvice is the cap that Little's law recommends; Cap 0: nothing was measured.
type CapAdvice struct {
	Cap int
	Why string
}

// Advice is the cap that is recommended for the lane as it is here. It is worked out when it is asked for: a view of all
// lanes is made under the lock.
func (s LaneStatus) Advice() CapAdvice { return adviseCap(s.Offered, s.P99) }

// adviseCap recommends a cap for an offered rate and the p99 of successes. Headroom is a third, at least 2.
func adviseCap(rate float64, p99 time.Duration) CapAdvice {
	if rate < 0.01 || p99 < time.Microsecond {
		return CapAdvice{Why: "too little was offered, or succeeded, to tell"}
	}
	busy := rate * p99.Seconds()
	r, err := plan.Cap(plan.CapInput{Rate: rate, P99: p99, Headroom: max(2, math.Ceil(math.Ceil(busy)/3))})
	if err != nil {
		return CapAdvice{Why: "cannot be computed: " + err.Error()}
	}
	return CapAdvice{Cap: int(r.Cap), Why: fmt.Sprintf("%v/s offered, each up to %v (p99 of successes): %v in flight, and %v to spare",
		math.Round(rate*100)/100, p99.Round(10*time.Microsecond), math.Ceil(busy), r.Cap-math.Ceil(busy))}
}

// nextCap is the cap to set: the advice within the bounds, at most twice what it is and at least half, and not more
// while more than 1 % fails.
func nextCap(now, advice int, auto CapAuto, failing float64) int {
	next := min(max(advice, auto.Min, 1), auto.Max)
	next = min(max(next, now/2), 2*now)
	if next > now && failing > capFailures {
		return now
	}
	return next
}

// adaptCaps looks at every lane whose tier lets its cap be set, and changes each at most hourly.
func (f *Fanout) adaptCaps() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.now()
	f.eachLane(now, func(l *lane, v engine.LaneView) {
		if auto := l.tenant.tier.CapAuto; auto.Max > 0 && !l.removed && l.sub.Limits.Cap == nil && l.sub.Group == "" {
			f.adaptCap(now, l, v, auto)
		}
	})
}

func (f *Fanout) adaptCap(now time.Duration, l *lane, v engine.LaneView, auto CapAuto) {
	s := &l.caps
	if !s.looked {
		s.looked, s.at = true, now
	}
	s.rate, s.failing = max(s.rate, v.Offered), max(s.failing, v.Failing)
	if now-s.at < capEvery {
		return
	}
	advice := adviseCap(s.rate, v.P99)
	next, failing := v.Cap, s.failing
	if advice.Cap > 0 {
		next = nextCap(v.Cap, advice.Cap, auto, s.failing)
	}
	*s = capState{at: now, looked: true}
	if next == v.Cap {
		return
	}
	l.tenant.caps[l.sub.Lane] = next
	if err := f.applySubscription(l.sub, false); err != nil {
		f.log.Error("a cap was not set", "tenant", l.tenant.name, "subscription", l.subID, "error", err)
		return
	}
	f.log.Info("cap set", "tenant", l.tenant.name, "subscription", l.subID, "from", v.Cap, "to", next,
		"recommended", advice.Cap, "why", advice.Why, "failures", failing)
}

// autoCap is the cap that was set for a subscription without one of its own, within the bounds of today's tier; 0 is
// none.
func (tn *tenant) autoCap(lane uint32) int {
	n, auto := tn.caps[lane], tn.tier.CapAuto
	if n == 0 || auto.Max == 0 {
		return 0
	}
	return min(max(n, auto.Min), auto.Max)
}
