package plan

import (
	"math"
	"time"
)

// CapInput asks how many requests of a lane are in flight at once.
type CapInput struct {
	Rate     float64       // deliveries a second
	P99      time.Duration // of successful deliveries: failures would earn a black hole a high cap
	Headroom float64       // whole
	Timeout  time.Duration // of a request to an endpoint that hangs; 0 means 15s
	Slots    float64       // of the platform, whole; 0 means 1200
}

// CapResult is a lane's cap and what it protects.
type CapResult struct {
	InFlight       float64 `json:"in_flight"`           // rate * p99, by Little's law
	Cap            float64 `json:"cap"`                 // rounded up, and the headroom
	HangsWithout   float64 `json:"slots_held_uncapped"` // if the endpoint hangs: rate * timeout, at most all
	HangsWith      float64 `json:"slots_held_capped"`   // and with the cap
	ShareWithout   float64 `json:"share_held_uncapped"` // of the platform's slots
	ShareWith      float64 `json:"share_held_capped"`   //
	EnoughForMilli float64 `json:"mean_latency_max_ms"` // mean latency up to which the cap carries the rate: cap / rate; 0 if the rate is 0
}

// Cap is ceil(rate * p99) + headroom.
func Cap(in CapInput) (CapResult, error) {
	if in.Timeout == 0 {
		in.Timeout = 15 * time.Second
	}
	if in.Slots == 0 {
		in.Slots = 1200
	}
	var c check
	c.rate("rate", in.Rate)
	c.duration("p99", in.P99, time.Microsecond)
	c.whole("headroom", in.Headroom, 0)
	c.duration("timeout", in.Timeout, time.Millisecond)
	c.whole("slots", in.Slots, 1)
	if err := c.err(); err != nil {
		return CapResult{}, err
	}
	r := CapResult{InFlight: times(in.Rate, in.P99)}
	r.Cap = math.Ceil(r.InFlight) + in.Headroom
	r.HangsWithout = min(times(in.Rate, in.Timeout), in.Slots)
	r.HangsWith = min(r.HangsWithout, r.Cap)
	r.ShareWithout = r.HangsWithout / in.Slots
	r.ShareWith = r.HangsWith / in.Slots
	if in.Rate > 0 {
		r.EnoughForMilli = r.Cap / in.Rate * 1000
	}
	return r, nil
}
