package demo

import (
	"math"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// Report is what `fairlane demo --json` prints: the account of the protected phase with
// neighbours, and the healthy tenant's p99 in all three.
//
// Offered, parked, dead, in flight, cancelled and dropped come from the service's
// account. Delivered, attempts, duplicates, in flight at most, over contract and the
// latencies are counted by the receivers.
type Report struct {
	Offered   uint64 `json:"offered"`
	Delivered uint64 `json:"delivered"`
	Parked    uint64 `json:"parked"`
	Dead      uint64 `json:"dead"`
	InFlight  uint64 `json:"in_flight"`
	Cancelled uint64 `json:"cancelled"`
	Dropped   uint64 `json:"dropped"`

	// Balanced reports whether offered = delivered + parked + dead + in flight +
	// cancelled + dropped for every tenant and in all, with offered equal to what the
	// generator saw accepted.
	Balanced bool `json:"balanced"`

	// Jain is Jain's index over the tenants' served/entitled, each the mean of the
	// engine's rounds (one a second) of the load in which the tenant was entitled to
	// anything. ShortChanged counts tenants below 0.97.
	Jain         float64 `json:"jain"`
	ShortChanged int     `json:"short_changed"`

	SteadyP99Alone       *float64 `json:"steady_p99_alone_ms"`
	SteadyP99With        *float64 `json:"steady_p99_with_ms"`
	SteadyP99Unprotected *float64 `json:"steady_p99_unprotected_ms"`

	// Of the steady tenant's triggers of the unprotected phase, so many were posted and so
	// many arrived before its end; its p99 is of those.
	SteadyPosted, SteadyArrived int `json:"-"`

	// FailingAmplification is attempts at the failing endpoint over deliveries offered to it.
	FailingAmplification float64 `json:"failing_amplification"`

	Duplicates int            `json:"duplicates"`
	Tenants    []TenantReport `json:"tenants"`
}

// TenantReport is one tenant's account. Times are from the post of a trigger to the
// receiver's first 2xx, null where there was none.
type TenantReport struct {
	Tenant      string   `json:"tenant"`
	Offered     uint64   `json:"offered"`
	Delivered   uint64   `json:"delivered"`
	Parked      uint64   `json:"parked"`
	Dead        uint64   `json:"dead"`
	InFlight    uint64   `json:"in_flight"`
	Cancelled   uint64   `json:"cancelled"`
	Dropped     uint64   `json:"dropped"`
	Attempts    int      `json:"attempts"`
	P50         *float64 `json:"p50_ms"`
	P99         *float64 `json:"p99_ms"`
	Cap         int      `json:"cap"`
	MaxInFlight int      `json:"max_in_flight"`
	Rate        *float64 `json:"rate"`  // of the contract, per second; null without one
	Burst       *int64   `json:"burst"` // null without a contract

	// OverContract is the most by which the arrivals of any interval of length T exceeded
	// burst + rate*T + cap; 0 without a contract, not above 0 where it was kept.
	OverContract float64 `json:"over_contract"`
}

// measured is what one phase left behind, tenant by tenant in the phase's order.
type measured struct {
	phase    phase
	posting  posting
	account  []engine.Counters
	received []receiver.Report
	served   []mean // served/entitled
}

// mean of a stream of values; the zero mean has none.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) {
	if !math.IsNaN(x) {
		m.sum += x
		m.n++
	}
}

// contractOf is what the service promised the tenant's endpoint.
func contractOf(t tenant, limit int) receiver.Contract {
	c := receiver.Contract{Cap: limit}
	if t.contract > 0 {
		c.Tokens, c.Per, c.Burst = int64(t.contract), time.Second, t.burst
	}
	return c
}

// makeReport puts the three phases together.
func makeReport(alone, with, without *measured) Report {
	r := Report{
		Balanced:             true,
		SteadyP99Alone:       alone.p99(steady),
		SteadyP99With:        with.p99(steady),
		SteadyP99Unprotected: without.p99(steady),
	}
	r.SteadyPosted, r.SteadyArrived = without.posting.accepted[0], without.received[0].Delivered
	r.Jain, r.ShortChanged = fairness(with.served)
	for i, t := range with.phase.tenants {
		row := tenantReport(t, with.account[i], with.received[i])
		r.add(row)
		r.Duplicates += with.received[i].Duplicates
		r.Balanced = r.Balanced && row.balanced() && row.Offered == uint64(with.posting.accepted[i])
		if t.name == failing && row.Offered > 0 {
			r.FailingAmplification = round(float64(row.Attempts) / float64(row.Offered))
		}
	}
	r.Balanced = r.Balanced && r.sum().balanced()
	return r
}

func tenantReport(t tenant, c engine.Counters, got receiver.Report) TenantReport {
	row := TenantReport{
		Tenant:  t.name,
		Offered: c.Offered, Delivered: uint64(got.Delivered), Parked: c.Parked, Dead: c.Dead,
		InFlight: c.InFlight, Cancelled: c.Cancelled, Dropped: c.Dropped,
		Attempts: got.Attempts, Cap: laneCap, MaxInFlight: got.MaxInFlight, OverContract: got.OverContract,
	}
	if got.Timed > 0 {
		row.P50, row.P99 = milliseconds(got.P50), milliseconds(got.P99)
	}
	if t.contract > 0 {
		rate := float64(t.contract)
		row.Rate, row.Burst = &rate, &t.burst
	}
	return row
}

// add adds a tenant's row, and its terms to the sums.
func (r *Report) add(row TenantReport) {
	r.Tenants = append(r.Tenants, row)
	r.Offered += row.Offered
	r.Delivered += row.Delivered
	r.Parked += row.Parked
	r.Dead += row.Dead
	r.InFlight += row.InFlight
	r.Cancelled += row.Cancelled
	r.Dropped += row.Dropped
}

// sum is the account of all tenants as one row.
func (r *Report) sum() TenantReport {
	return TenantReport{
		Tenant: "all", Offered: r.Offered, Delivered: r.Delivered, Parked: r.Parked, Dead: r.Dead,
		InFlight: r.InFlight, Cancelled: r.Cancelled, Dropped: r.Dropped,
	}
}

// kept reports whether the cap and the contract held at the endpoint.
func (t TenantReport) kept() bool { return t.MaxInFlight <= t.Cap && t.OverContract <= 0 }

func (t TenantReport) balanced() bool {
	return t.Offered == t.Delivered+t.Parked+t.Dead+t.InFlight+t.Cancelled+t.Dropped
}

// fairness returns Jain's index over the means, and how many are below 0.97. Tenants
// that were never entitled to anything are left out.
func fairness(served []mean) (jain float64, short int) {
	var means []float64
	for _, m := range served {
		if m.n == 0 {
			continue
		}
		x := m.sum / float64(m.n)
		means = append(means, x)
		if x < 0.97 {
			short++
		}
	}
	return round(fair.Jain(means)), short
}

// p99 of the tenant in milliseconds, or nil when nothing of it was delivered.
func (m *measured) p99(name string) *float64 {
	for i, t := range m.phase.tenants {
		if t.name == name && m.received[i].Timed > 0 {
			return milliseconds(m.received[i].P99)
		}
	}
	return nil
}

// milliseconds to two digits.
func milliseconds(d time.Duration) *float64 {
	ms := math.Round(float64(d)/float64(10*time.Microsecond)) / 100
	return &ms
}

// round to four digits.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
