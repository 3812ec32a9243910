package fair

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestJainOnNamedValues(t *testing.T) {
	tests := []struct {
		name string
		x    []float64
		want float64
	}{
		{"none", nil, 1},
		{"all zero", []float64{0, 0, 0}, 1},
		{"one", []float64{0.3}, 1},
		{"equal", []float64{0.1, 0.1, 0.1}, 1},
		{"one has all", []float64{0, 0, 5, 0}, 0.25},
		{"two of four", []float64{1, 0, 1, 0}, 0.5},
		{"1 and 3", []float64{1, 3}, 0.8},
		{"one of 4,000 starves", starved(4000), 3999.0 / 4000},
		{"squares that overflow", []float64{1e200, 3e200}, 0.8},
		{"squares that vanish", []float64{1e-200, 3e-200}, 0.8},
		{"close to equal, where rounding goes above 1", []float64{1, 1 - 1.0/(1<<53), 1 - 3.0/(1<<53)}, 1},
		{"NaN and negative count as 0", []float64{1, math.NaN(), 1, -7}, 0.5},
	}
	for _, tt := range tests {
		if got := Jain(tt.x); !near(got, tt.want) || got > 1 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func starved(n int) []float64 {
	x := make([]float64, n)
	for i := range x[1:] {
		x[i+1] = 1
	}
	return x
}

func TestJainIsBetweenOneNthAndOneAndKnowsNoUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 50).Draw(t, "x")
		got := Jain(x)
		if low := 1 / float64(len(x)); got < low-1e-9 || got > 1 {
			t.Fatalf("%v of %d values", got, len(x))
		}
		scaled := make([]float64, len(x))
		for i := range x {
			scaled[i] = x[i] * 1024
		}
		if !near(Jain(scaled), got) {
			t.Fatalf("%v, in another unit %v", got, Jain(scaled))
		}
	})
}
