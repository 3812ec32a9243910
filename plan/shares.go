package plan

import (
	"fmt"
	"math"

	"github.com/fairlane-dev/fairlane/fair"
)

// MaxWeight is the highest weight of a tenant.
const MaxWeight = 1000

// SharesInput asks how a capacity is shared. Capacity and wants are in one unit,
// whichever: slots, or deliveries a second.
type SharesInput struct {
	Capacity float64
	Tenants  []Tenant
}

// Tenant wants some of the capacity.
type Tenant struct {
	Name   string  `json:"tenant"`
	Want   float64 `json:"want"`
	Weight float64 `json:"weight"` // whole, 1 to MaxWeight
}

// SharesResult are weighted max-min shares.
type SharesResult struct {
	Level   float64 `json:"level"`   // share per weight of those who get less than they want; 0 if all get it
	Unused  float64 `json:"unused"`  // of the capacity
	Jain    float64 `json:"jain"`    // index over share / want of those who want something
	Tenants []Share `json:"tenants"` // in the input's order
}

// Share is what a tenant gets.
type Share struct {
	Tenant
	Share     float64 `json:"share"`
	Satisfied bool    `json:"satisfied"`
}

// Shares divides by fair.MaxMin.
func Shares(in SharesInput) (SharesResult, error) {
	if err := checkShares(in); err != nil {
		return SharesResult{}, err
	}
	demands, got := make([]fair.Demand, len(in.Tenants)), make([]float64, len(in.Tenants))
	for i, t := range in.Tenants {
		demands[i] = fair.Demand{Want: t.Want, Weight: t.Weight}
	}
	var sharer fair.Sharer
	r := SharesResult{Unused: in.Capacity}
	if level := sharer.MaxMin(in.Capacity, demands, got); !math.IsInf(level, 1) {
		r.Level = level
	}
	var ratios []float64
	for i, t := range in.Tenants {
		r.Tenants = append(r.Tenants, Share{Tenant: t, Share: got[i], Satisfied: got[i] >= t.Want})
		r.Unused -= got[i]
		if t.Want > 0 {
			ratios = append(ratios, got[i]/t.Want)
		}
	}
	if r.Unused = max(0, r.Unused); r.Level > 0 {
		r.Unused = 0 // but for rounding
	}
	r.Jain = fair.Jain(ratios)
	return r, nil
}

func checkShares(in SharesInput) error {
	var c check
	c.count("capacity", in.Capacity, 0)
	if len(in.Tenants) == 0 {
		c.fail("tenants", "none", "must be at least one")
	}
	seen := map[string]bool{}
	for i, t := range in.Tenants {
		field := fmt.Sprintf("tenants[%d].", i)
		if t.Name == "" || seen[t.Name] {
			c.fail(field+"tenant", fmt.Sprintf("%q", t.Name), "must be a name that no other tenant has")
		}
		seen[t.Name] = true
		c.count(field+"want", t.Want, 0)
		if t.Weight != math.Trunc(t.Weight) || !(t.Weight >= 1 && t.Weight <= MaxWeight) {
			c.fail(field+"weight", t.Weight, "must be a whole number from 1 to 1000")
		}
	}
	return c.err()
}
