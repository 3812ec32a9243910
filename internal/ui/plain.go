package ui

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/limit"
)

// reasons says in plain words why a delivery waits, died or was given up. Every reason of the engine is here.
var reasons = map[engine.Reason]string{
	engine.ByPause:    "deliveries to this subscription are paused",
	engine.ByEndpoint: "the endpoint asked us to wait (429, or 503 with Retry-After)",
	engine.ByBreaker:  "the endpoint failed again and again, so we only test it from time to time",
	engine.ByRate:     "the agreed rate is used up",
	engine.ByCap:      "as many requests as allowed are on their way already",
	engine.ByHost:     "as many requests as allowed are on their way to this host already",
	engine.BySlots:    "the platform is busy, and it is another tenant's turn",
	engine.ByBudget:   "too many retries for too few successes",
	engine.ByOrder:    "an earlier one has to go first",
	engine.ByRetry:    "an attempt failed and will be repeated",
	engine.ByGone:     "the endpoint said that it is gone for good (410)",
	engine.ByShutdown: "the service stopped before the answer came",
	engine.ByLocal:    "the request could not be sent from our side",
	engine.Rejected:   "the endpoint rejected the message",
	engine.Expired:    "it could not be delivered in time",
	engine.OverQuota:  "the tenant's backlog was full",
	engine.Exhausted:  "the last allowed attempt failed",
	engine.TooCostly:  "it costs more than the limit can ever let through",
	engine.Deleted:    "the subscription was removed",
}

// plainReason is the words for a reason's stable name.
func plainReason(name string) string {
	for r, words := range reasons {
		if r.String() == name {
			return words
		}
	}
	return name
}

// comesBack says when what waits on a lane goes, as far as that is known now.
func comesBack(l *fanout.LaneStatus) string {
	waiting := l.Counters.Parked
	switch {
	case waiting == 0:
		return ""
	case l.Disabled:
		return "when the address is changed or deliveries are resumed"
	case l.Paused || l.Blocked == engine.ByPause:
		return "when deliveries are resumed"
	case l.Breaker != breaker.Closed:
		return "when a test request succeeds; then all at once, in order"
	case l.PausedFor > 0:
		return "in " + brief(l.PausedFor) + ", when the endpoint's pause ends"
	case l.Blocked == engine.ByRate:
		if d := drain(l); d > 0 {
			return "one after the other; the last in about " + brief(d)
		}
	case l.Blocked == engine.ByRetry:
		return "when the next attempt is due"
	case l.Blocked == engine.ByBudget:
		return "after the next success, or within seconds"
	}
	return "as soon as it is its turn"
}

// drain is how long the agreed rate needs for all that waits.
func drain(l *fanout.LaneStatus) time.Duration {
	rate, err := limit.ParseContract(l.Rate, max(l.Burst, 1))
	if err != nil || rate.IsUnlimited() || rate.IsPaused() {
		return 0
	}
	s := (float64(l.Counters.Parked) - float64(max(l.Tokens, 0))) / rate.PerSecond()
	return time.Duration(min(max(s, 0), math.MaxInt64/float64(time.Second)/2) * float64(time.Second))
}

// need is how much a lane asks for a person, and why. 0 is not at all.
func need(l *fanout.LaneStatus) (int, string) {
	c := &l.Counters
	switch {
	case l.Disabled:
		return 90, "disabled: the endpoint answered 410"
	case l.Stopped > 0:
		return 85, fmt.Sprintf("%d ordered queues stand behind a dead letter", l.Stopped)
	case l.Breaker != breaker.Closed && l.ByDenial:
		return 80, "breaker open: the endpoint refuses our credentials (401, 403, 404)"
	case l.Breaker != breaker.Closed:
		return 75, "breaker " + phase(l.Breaker) + ": the endpoint fails"
	case l.Cap > 0 && float64(c.InFlight) > 0.8*float64(l.Cap):
		return 60, "above 80 % of its cap"
	case l.PausedFor > 0:
		return 50, "the endpoint asked for a pause"
	case c.Parked > 0 && l.Blocked == engine.ByRate:
		return 40, "offered more than its agreed rate"
	case c.Dead > 0:
		return 30, "has dead letters"
	case l.Paused:
		return 20, "paused by a person"
	case c.Parked > 0:
		return 10, "has parked deliveries"
	}
	return 0, ""
}

func phase(p breaker.Phase) string {
	switch p {
	case breaker.Open:
		return "open"
	case breaker.HalfOpen:
		return "half-open"
	}
	return "closed"
}
