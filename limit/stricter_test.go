package limit

import (
	"testing"
	"time"
)

// From the loosest to the strictest.
//
// Limiter case L51.
func TestStricterIsTheOneThatBinds(t *testing.T) {
	order := []Decision{
		{Allowed: true, Remaining: 9},
		{Allowed: true, Remaining: 3, ResetIn: time.Second},
		{Allowed: true, Remaining: 3, ResetIn: time.Minute},
		{Allowed: true, Remaining: 0},
		{Reason: Later, RetryIn: 1, Remaining: 9},
		{Reason: Later, RetryIn: time.Second, Remaining: 5},
		{Reason: Later, RetryIn: time.Second, Remaining: 4},
		{Reason: Paused},
		{Reason: Never, Remaining: 8},
	}
	for i, a := range order {
		for j, b := range order {
			if got := Stricter(a, b); got != order[max(i, j)] {
				t.Errorf("of %+v and %+v: %+v", a, b, got)
			}
		}
	}
	a, b := Decision{Allowed: true, Epoch: 1}, Decision{Allowed: true, Epoch: 2}
	if Stricter(a, b) != a {
		t.Error("alike: not the first")
	}
}
