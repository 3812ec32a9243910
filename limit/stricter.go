package limit

// Stricter returns the one of two decisions that binds: a denial before what is
// allowed; of denials Never, then Paused, then the longest wait; of what is
// allowed the least that remains, then the longest until it is full. If they are
// alike it returns a. So folding it over all limits of a request says whether
// all pass, and when to come back if not.
func Stricter(a, b Decision) Decision {
	if IsStricter(&b, &a) {
		return b
	}
	return a
}

// IsStricter reports whether a binds and b, which is not alike, does not; see
// Stricter.
func IsStricter(a, b *Decision) bool {
	switch {
	case a.Reason != b.Reason:
		return a.Reason.rank() > b.Reason.rank()
	case a.RetryIn != b.RetryIn:
		return a.RetryIn > b.RetryIn
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	}
	return a.ResetIn > b.ResetIn
}

// rank orders the reasons by how far they are from passing.
func (r Reason) rank() int {
	switch r {
	case Passed:
		return 0
	case Later:
		return 1
	case Paused:
		return 2
	}
	return 3
}
