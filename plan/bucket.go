package plan

import (
	"math"
	"time"
)

// Step is one decision of the textbook's token bucket, in floats: what an
// engineer computes by hand. The service's own bucket is limit.Bucket, exact in
// integers.
type Step struct {
	Tokens   float64 `json:"tokens"`   // before; below 0 counts as 0
	Capacity float64 `json:"capacity"` // 0 admits nothing
	Refill   float64 `json:"refill"`   // a second; 0 is valid
	Elapsed  float64 `json:"elapsed"`  // seconds since Tokens was true
	Cost     float64 `json:"cost"`     // above 0
}

// Stepped is what a Step comes to.
type Stepped struct {
	Allowed  bool    `json:"allowed"`
	Refilled float64 `json:"refilled"` // before the decision
	Tokens   float64 `json:"tokens"`   // after it
}

// TakeStep refills, tokens' = min(capacity, max(tokens, 0) + refill*elapsed), and
// takes the cost if tokens' >= cost.
func TakeStep(s Step) (Stepped, error) {
	var c check
	if math.IsNaN(s.Tokens) || math.IsInf(s.Tokens, 0) {
		c.fail("tokens", s.Tokens, "must be a finite number")
	}
	const rule = "must be a finite number, 0 or more"
	c.number("capacity", s.Capacity, 0, math.MaxFloat64, rule)
	c.number("refill", s.Refill, 0, math.MaxFloat64, rule)
	c.number("elapsed", s.Elapsed, 0, math.MaxFloat64, rule)
	c.number("cost", s.Cost, math.SmallestNonzeroFloat64, math.MaxFloat64, "must be a finite number above 0")
	if err := c.err(); err != nil {
		return Stepped{}, err
	}
	refilled := min(s.Capacity, max(s.Tokens, 0)+s.Refill*s.Elapsed)
	if refilled < s.Cost {
		return Stepped{Refilled: refilled, Tokens: refilled}, nil
	}
	return Stepped{Allowed: true, Refilled: refilled, Tokens: refilled - s.Cost}, nil
}

// BucketInput asks what a contract of Rate and Capacity does with a burst, and
// with a steady offer.
type BucketInput struct {
	Rate     float64       // tokens a second
	Capacity float64       // whole tokens
	Burst    float64       // whole units that come at once
	Idle     time.Duration // from an empty bucket until the burst
	Offered  float64       // units a second
	For      time.Duration // how long they are offered, from a full bucket on
}

// BucketResult is in units.
type BucketResult struct {
	TokensBeforeBurst float64 `json:"tokens_before_burst"` // min(capacity, rate*idle)
	AdmittedInBurst   float64 `json:"admitted_in_burst"`   // whole
	DeniedInBurst     float64 `json:"denied_in_burst"`
	OfferedUnits      float64 `json:"offered_units"`  // offered*for
	MaximumBudget     float64 `json:"maximum_budget"` // capacity + rate*for
	NotAdmitted       float64 `json:"not_admitted"`   // at least; the budget is an upper bound
}

// Bucket answers for a token bucket (B + rT).
func Bucket(in BucketInput) (BucketResult, error) {
	var c check
	c.rate("rate", in.Rate)
	c.whole("capacity", in.Capacity, 0)
	c.whole("burst", in.Burst, 0)
	c.duration("idle", in.Idle, 0)
	c.rate("offered", in.Offered)
	c.duration("for", in.For, 0)
	if err := c.err(); err != nil {
		return BucketResult{}, err
	}
	tokens := min(in.Capacity, times(in.Rate, in.Idle))
	admitted := min(in.Burst, math.Floor(tokens))
	offered, budget := times(in.Offered, in.For), in.Capacity+times(in.Rate, in.For)
	return BucketResult{
		TokensBeforeBurst: tokens,
		AdmittedInBurst:   admitted,
		DeniedInBurst:     in.Burst - admitted,
		OfferedUnits:      offered,
		MaximumBudget:     budget,
		NotAdmitted:       max(0, offered-budget),
	}, nil
}
