package limit

import "time"

// Contract returns what NewRate compiles to an equal rate: n tokens per period,
// reduced, and the burst. Unlimited and Paused have n and period 0.
func (r *Rate) Contract() (n int64, per time.Duration, burst int64) {
	if r.n == 0 {
		return 0, 0, int64(r.burst)
	}
	return int64(r.n), time.Duration(r.per), int64(r.burst)
}
