package plan

import (
	"math"
	"time"
)

// RetriesInput asks what retries add to the load of an endpoint that fails, with
// and without the retry budget.
type RetriesInput struct {
	Rate     float64       // requests a second, first attempts; above 0
	Failing  float64       // share of attempts that fail, 0 to 1
	Attempts int           // of a request at most; 0 means 4
	Ratio    float64       // retries per success; 0 means 0.1
	HalfLife time.Duration // 0 means 10s
	For      time.Duration // how long it fails, after a healthy time; 0 means 1m
}

// RetriesResult counts attempts per request: 1 means no retry.
type RetriesResult struct {
	Without   float64 `json:"without_budget"`  // 1 + f + f^2 + ...
	With      float64 `json:"with_budget"`     // mean over the time
	Lower     float64 `json:"times_lower"`     // without / with
	Credit    float64 `json:"credit"`          // retries that the successes before it pay for
	CreditMS  float64 `json:"credit_lasts_ms"` // how long they last; 0 if nothing is retried
	PerSecond float64 `json:"load_without"`    // attempts a second
	Limited   float64 `json:"load_with"`
}

// Retries is an estimate, for one endpoint.
//
// The budget (package retry) lets a retry pass while those that failed are at
// most Ratio of the successes, both fading with the half-life, plus one. A steady
// healthy Rate is worth Rate*HalfLife/ln 2 successes, so Ratio of that many
// retries pass at once, and after them in the steady state x retries per request
// with x*f <= Ratio*(1+x)*(1-f), and the plus one: ln 2 retries per half-life.
func Retries(in RetriesInput) (RetriesResult, error) {
	in = withDefaults(in)
	if err := checkRetries(in); err != nil {
		return RetriesResult{}, err
	}
	f := in.Failing
	r := RetriesResult{Without: 1}
	for power, n := f, 1; n < in.Attempts && power > 0; power, n = power*f, n+1 {
		r.Without += power
	}
	wanted := r.Without - 1
	r.Credit = in.Ratio * times(in.Rate, in.HalfLife) / math.Ln2
	if wanted > 0 {
		r.CreditMS = r.Credit / (in.Rate * wanted) * 1000
	}
	r.With = 1 + min(wanted, steady(in)+r.Credit/times(in.Rate, in.For))
	r.Lower = r.Without / r.With
	r.PerSecond, r.Limited = in.Rate*r.Without, in.Rate*r.With
	return r, nil
}

// steady returns the retries per request that go on passing.
func steady(in RetriesInput) float64 {
	paid := in.Ratio * (1 - in.Failing)
	if in.Failing <= paid {
		return math.Inf(1) // each retry earns more than it costs
	}
	alone := math.Ln2 / times(in.Rate, in.HalfLife)
	return (paid + alone) / (in.Failing - paid)
}

func withDefaults(in RetriesInput) RetriesInput {
	if in.Attempts == 0 {
		in.Attempts = 4
	}
	if in.Ratio == 0 {
		in.Ratio = 0.1
	}
	if in.HalfLife == 0 {
		in.HalfLife = 10 * time.Second
	}
	if in.For == 0 {
		in.For = time.Minute
	}
	return in
}

func checkRetries(in RetriesInput) error {
	var c check
	c.number("rate", in.Rate, 1e-6, MaxRate, "must be 0.000001 to 1000000000 a second")
	c.share("failing", in.Failing)
	c.number("attempts", float64(in.Attempts), 1, 1000, "must be 1 to 1000")
	c.share("ratio", in.Ratio)
	c.duration("half_life", in.HalfLife, time.Second)
	c.duration("for", in.For, time.Second)
	return c.err()
}
