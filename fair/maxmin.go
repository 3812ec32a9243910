package fair

import (
	"math"
	"slices"
)

// Demand is one tenant's claim on the capacity, in the capacity's unit.
type Demand struct {
	Want   float64 // NaN and what is below 0 count as 0
	Weight float64 // a whole number, 1..1000; NaN, infinite, 0 and below get no share
}

// Sharer computes max-min shares and keeps its scratch memory: no allocation
// once it has seen as many demands. The zero Sharer is ready. Not safe for
// concurrent use.
type Sharer struct {
	claims []claim // not yet satisfied
	left   float64 // capacity not yet given
	weight float64 // of claims
}

type claim struct {
	need   float64 // want per weight: the level that satisfies it
	weight float64
	index  int
}

// MaxMin writes the share of demands[i] into out[i] and returns the water level:
// the share per weight of the unsatisfied, +Inf if all are satisfied. out must
// be as long as demands. A capacity that is NaN or below 0 counts as 0.
//
// Each gets min(want, level*weight), and the shares add up to the smaller of
// capacity and total want. So nobody can get more by wanting more than its
// share, and nobody who has less per weight than another loses to it.
//
// In ascending order of want per weight, whoever needs no more than an equal
// division of what is left gets its want; the first who needs more sets the
// level for itself and all behind it. O(n log n). (Bertsekas and Gallager, Data
// Networks, 6.5.2, for one link and with weights.) The level only rises on the
// way, so those below the first divisions can go before the sort, which is what
// costs: with 50,000 demands that takes two thirds off.
func (s *Sharer) MaxMin(capacity float64, demands []Demand, out []float64) (level float64) {
	if len(out) != len(demands) {
		panic("fair: out must be as long as demands")
	}
	s.collect(capacity, demands, out)
	for s.drain(demands, out) > len(s.claims)/4 {
	}
	slices.SortFunc(s.claims, byNeed)
	for i, c := range s.claims {
		if c.need*s.weight > s.left {
			return s.flood(s.claims[i:], demands, out)
		}
		s.satisfy(c, demands, out)
	}
	return math.Inf(1)
}

// collect lists those who want something and zeroes out.
func (s *Sharer) collect(capacity float64, demands []Demand, out []float64) {
	s.claims, s.left, s.weight = s.claims[:0], positive(capacity), 0
	for i, d := range demands {
		out[i] = 0
		if positive(d.Want) > 0 && positive(d.Weight) > 0 && !math.IsInf(d.Weight, 1) {
			s.claims = append(s.claims, claim{need: d.Want / d.Weight, weight: d.Weight, index: i})
			s.weight += d.Weight
		}
	}
}

// drain satisfies those who need no more than an equal division and returns how
// many they were.
func (s *Sharer) drain(demands []Demand, out []float64) int {
	level, kept := s.left/s.weight, s.claims[:0]
	for _, c := range s.claims {
		if c.need > level {
			kept = append(kept, c)
			continue
		}
		s.satisfy(c, demands, out)
	}
	gone := len(s.claims) - len(kept)
	s.claims = kept
	return gone
}

func (s *Sharer) satisfy(c claim, demands []Demand, out []float64) {
	want := demands[c.index].Want
	out[c.index] = want
	s.left -= want
	s.weight -= c.weight
}

// flood divides what is left among the claims, all that remain, and returns the
// level.
func (s *Sharer) flood(claims []claim, demands []Demand, out []float64) float64 {
	level := s.left / s.weight
	for _, c := range claims {
		out[c.index] = min(demands[c.index].Want, level*c.weight)
	}
	return level
}

func byNeed(a, b claim) int {
	switch {
	case a.need < b.need:
		return -1
	case a.need > b.need:
		return 1
	}
	return 0
}

// positive returns x, or 0 for NaN and what is below 0.
func positive(x float64) float64 {
	if x > 0 {
		return x
	}
	return 0
}
