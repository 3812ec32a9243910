package limit

import "cmp"

// Stricter returns the one of two decisions that binds: a denial before what is
// allowed; of denials Never, then Paused, then the longest wait; of what is
// allowed the least that remains, then the longest until it is full. If they are
// alike it returns a. So folding it over all limits of a request says whether
// all pass, and when to come back if not.
func Stricter(a, b Decision) Decision {
	if cmp.Or(
		cmp.Compare(b.Reason.rank(), a.Reason.rank()),
		cmp.Compare(b.RetryIn, a.RetryIn),
		cmp.Compare(a.Remaining, b.Remaining),
		cmp.Compare(b.ResetIn, a.ResetIn),
	) > 0 {
		return b
	}
	return a
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
