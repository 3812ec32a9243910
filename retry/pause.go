package retry

import "time"

const (
	pauseFirst  = time.Second
	pauseMax    = 5 * time.Minute
	pauseAsked  = 24 * time.Hour
	pauseSpread = 0.1
)

// Pause returns how long a lane rests after a 429, or a 503 with Retry-After.
//
// asked is what the endpoint asked for, clamped to a day. Less than a second is
// no wish (Retry-After counts seconds; 0, a date in the past and an absent or
// malformed one come to the same): then it is 1 s, doubled for each of the
// strikes so far in a row, up to 5 min.
//
// The jitter, up to a tenth, comes on top: never earlier than asked (RFC 9110,
// 10.2.3), and lanes that were refused together do not come back together.
func Pause(asked time.Duration, strikes uint32, rnd Rand) time.Duration {
	floor := min(asked, pauseAsked)
	if asked < pauseFirst {
		floor = doubled(pauseFirst, int64(strikes), pauseMax)
	}
	return floor + scale(floor, pauseSpread*rnd.Float64())
}
