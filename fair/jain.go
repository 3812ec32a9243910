package fair

// Jain returns (sum x)^2 / (n * sum x^2): 1 when all are equal, 1/n when one has
// all; 1 for no x or all zero. The x are finite ratios of 0 or more: one that is
// NaN or below 0 counts as 0. (Jain, Chiu, Hawe, DEC-TR-301, 1984.)
func Jain(x []float64) float64 {
	largest := 0.0
	for _, v := range x {
		largest = max(largest, positive(v))
	}
	if largest == 0 {
		return 1
	}
	var sum, squares float64
	for _, v := range x {
		v = positive(v) / largest // so that no square overflows or vanishes
		sum += v
		squares += v * v
	}
	return min(1, sum*sum/(float64(len(x))*squares))
}
