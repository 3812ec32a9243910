package limit

import "time"

// Contract returns what NewRate compiles to an equal rate: n tokens per period
// (a second where that is whole) and the burst. Unlimited and Paused have n and
// period 0.
func (r *Rate) Contract() (n int64, per time.Duration, burst int64) {
	if r.n == 0 {
		return 0, 0, int64(r.burst)
	}
	k := r.multiple()
	return int64(r.n) * k, time.Duration(r.per * k), int64(r.burst)
}
