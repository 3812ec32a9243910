package fair

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMaxMinOnNamedDemands(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	tests := []struct {
		name     string
		capacity float64
		demands  []Demand
		want     []float64
		level    float64
	}{
		{"nobody", 10, nil, []float64{}, inf},
		{"all satisfied", 10, []Demand{{2, 1}, {3, 1}}, []float64{2, 3}, inf},
		{"just satisfied", 5, []Demand{{2, 1}, {3, 1}}, []float64{2, 3}, inf},
		{"the unused share of one goes to the others", 10, []Demand{{2, 1}, {8, 1}, {9, 1}}, []float64{2, 4, 4}, 4},
		{"textbook", 10, []Demand{{2, 1}, {2.6, 1}, {4, 1}, {5, 1}}, []float64{2, 2.6, 2.7, 2.7}, 2.7},
		{"close to the level on both sides", 8, []Demand{{0.3, 1}, {1.05, 1}, {1.115, 1}, {5, 1}, {5, 1}, {5, 1}, {5, 1}, {5, 1}},
			[]float64{0.3, 1.05, 6.65 / 6, 6.65 / 6, 6.65 / 6, 6.65 / 6, 6.65 / 6, 6.65 / 6}, 6.65 / 6},
		{"by weight", 8, []Demand{{100, 1}, {100, 3}}, []float64{2, 6}, 2},
		{"by weight, one satisfied", 10, []Demand{{100, 1}, {100, 3}, {2, 1000}}, []float64{2, 6, 2}, 2},
		{"zero wants", 3, []Demand{{0, 1}, {5, 1}, {0, 1000}}, []float64{0, 3, 0}, 3},
		{"no capacity", 0, []Demand{{1, 1}, {0, 1}}, []float64{0, 0}, 0},
		{"capacity below 0", -4, []Demand{{1, 1}}, []float64{0}, 0},
		{"capacity NaN", nan, []Demand{{1, 1}}, []float64{0}, 0},
		{"capacity without end", inf, []Demand{{1, 1}, {inf, 1}, {5, 2}}, []float64{1, inf, 5}, inf},
		{"NaN and negative wants are 0", 4, []Demand{{nan, 1}, {-3, 1}, {9, 1}}, []float64{0, 0, 4}, 4},
		{"an inflated want", 4, []Demand{{inf, 1}, {1e308, 1}, {1, 1}}, []float64{1.5, 1.5, 1}, 1.5},
		{"no weight, no share", 4, []Demand{{9, 0}, {9, -1}, {9, nan}, {9, inf}, {9, 1}}, []float64{0, 0, 0, 0, 4}, 4},
	}
	var s Sharer
	for _, tt := range tests {
		out := slices.Repeat([]float64{99}, len(tt.demands)) // of the last round
		level := s.MaxMin(tt.capacity, tt.demands, out)
		if level != tt.level && !near(level, tt.level) {
			t.Errorf("%s: level %v, want %v", tt.name, level, tt.level)
		}
		for i := range out {
			if out[i] != tt.want[i] && !near(out[i], tt.want[i]) {
				t.Errorf("%s: shares %v, want %v", tt.name, out, tt.want)
				break
			}
		}
	}
}

func TestMaxMinNeedsRoomForEveryShare(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a short out did not panic")
		}
	}()
	new(Sharer).MaxMin(1, make([]Demand, 2), make([]float64, 1))
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// pour fills everyone at the same speed per weight and finds by bisection when
// the capacity is used up: slow, and shares nothing with the one pass.
func pour(capacity float64, demands []Demand) []float64 {
	at := func(level float64) (out []float64, sum float64) {
		for _, d := range demands {
			x := min(d.Want, level*d.Weight)
			out, sum = append(out, x), sum+x
		}
		return out, sum
	}
	low, high := 0.0, 1.0
	for _, d := range demands {
		high = max(high, d.Want/d.Weight)
	}
	if out, sum := at(high); sum <= capacity {
		return out
	}
	for range 200 {
		if _, sum := at((low + high) / 2); sum <= capacity {
			low = (low + high) / 2
		} else {
			high = (low + high) / 2
		}
	}
	out, _ := at(low)
	return out
}

func drawDemands(t *rapid.T) (capacity float64, demands []Demand) {
	want := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1), rapid.Float64Range(0, 1000), rapid.Float64Range(0, 1e7),
		rapid.SampledFrom([]float64{1, 2, 3, 10}))
	weight := rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 1000))
	for range rapid.IntRange(1, 40).Draw(t, "n") {
		demands = append(demands, Demand{want.Draw(t, "want"), float64(weight.Draw(t, "weight"))})
	}
	return rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 100), rapid.Float64Range(0, 1e7)).Draw(t, "capacity"), demands
}

func share(capacity float64, demands []Demand) []float64 {
	out := make([]float64, len(demands))
	new(Sharer).MaxMin(capacity, demands, out)
	return out
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}

func TestMaxMinEqualsPouringWater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity, demands := drawDemands(t)
		got, want := share(capacity, demands), pour(capacity, demands)
		for i := range got {
			if !near(got[i], want[i]) {
				t.Fatalf("share %d is %v, want %v of capacity %v, %+v", i, got[i], want[i], capacity, demands)
			}
		}
	})
}

func TestMaxMinUsesTheCapacityAndNobodyGetsMoreThanItWants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity, demands := drawDemands(t)
		out := make([]float64, len(demands))
		level := new(Sharer).MaxMin(capacity, demands, out)
		var wanted float64
		for i, d := range demands {
			wanted += d.Want
			if out[i] > d.Want || out[i] < 0 {
				t.Fatalf("share %d is %v of a want of %v", i, out[i], d.Want)
			}
			if x := min(d.Want, level*d.Weight); d.Want > 0 && !near(out[i], x) {
				t.Fatalf("share %d is %v, the level %v says %v", i, out[i], level, x)
			}
		}
		if !near(sum(out), min(capacity, wanted)) {
			t.Fatalf("shares add up to %v, want the smaller of %v and %v", sum(out), capacity, wanted)
		}
	})
}

// What a tenant can use of its share, its true want at most, never grows by
// stating another want.
func TestNobodyGainsByAnUntrueDemand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity, demands := drawDemands(t)
		i := rapid.IntRange(0, len(demands)-1).Draw(t, "liar")
		honest, truth := share(capacity, demands), demands[i].Want
		demands[i].Want = rapid.SampledFrom([]float64{0, truth / 2, truth * 1.01, truth*10 + 1, 1e300, math.Inf(1)}).Draw(t, "stated")
		lied := share(capacity, demands)
		if used := min(lied[i], truth); used > honest[i] && !near(used, honest[i]) {
			t.Fatalf("by stating %v instead of %v it gets %v instead of %v", demands[i].Want, truth, used, honest[i])
		}
		if demands[i].Want < truth || near(honest[i], lied[i]) {
			return
		}
		for j := range lied { // it got more: from those that had more per weight than it
			if j != i && lied[j] < honest[j] && !near(lied[j], honest[j]) &&
				lied[j]/demands[j].Weight < lied[i]/demands[i].Weight-1e-9 {
				t.Fatalf("%d has less per weight than the liar %d, and lost", j, i)
			}
		}
	})
}

// More weight never means less, and more capacity means less for nobody.
func TestSharesGrowWithWeightAndCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity, demands := drawDemands(t)
		before := share(capacity, demands)
		more := share(capacity*rapid.Float64Range(1, 3).Draw(t, "grown"), demands)
		for j := range more {
			if more[j] < before[j] && !near(more[j], before[j]) {
				t.Fatalf("with more capacity share %d falls from %v to %v", j, before[j], more[j])
			}
		}
		i := rapid.IntRange(0, len(demands)-1).Draw(t, "who")
		demands[i].Weight = min(1000, demands[i].Weight+float64(rapid.IntRange(1, 100).Draw(t, "by")))
		after := share(capacity, demands)
		for j := range after {
			if lost := before[j] - after[j]; j == i && lost > 0 && !near(before[j], after[j]) {
				t.Fatalf("with more weight share %d falls from %v to %v", i, before[i], after[i])
			} else if j != i && lost < 0 && !near(before[j], after[j]) {
				t.Fatalf("with more weight for %d the share of %d rises from %v to %v", i, j, before[j], after[j])
			}
		}
	})
}

// manyDemands is a second's measurement of n tenants, some of them greedy.
func manyDemands(n int) ([]Demand, []float64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	demands := make([]Demand, n)
	for i := range demands {
		demands[i] = Demand{Want: rnd.ExpFloat64() * 0.03, Weight: float64(1 + rnd.IntN(3))}
		if i%100 == 0 {
			demands[i].Want *= 1000
		}
	}
	return demands, make([]float64, n)
}

func TestMaxMinAllocatesNothingInSteadyState(t *testing.T) {
	demands, out := manyDemands(5000)
	var s Sharer
	s.MaxMin(100, demands, out)
	if n := testing.AllocsPerRun(20, func() { s.MaxMin(100, demands, out) }); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

func BenchmarkMaxMin50000(b *testing.B) {
	demands, out := manyDemands(50_000)
	var s Sharer
	s.MaxMin(1200, demands, out)
	b.ReportAllocs()
	for b.Loop() {
		s.MaxMin(1200, demands, out)
	}
}
