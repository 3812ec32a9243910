package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// NewRate makes an equal rate of a rate's contract, also of one whose reduced
// period is below the least.
func TestContractIsWhatNewRateTakes(t *testing.T) {
	for _, text := range []string{"2000/s", "1000000000/s", "3/s", "10/13s", "1/d", "0.1/s"} {
		checkContract(t, must(ParseRate(text, 5)))
	}
	rapid.Check(t, func(t *rapid.T) {
		n, per := rapid.Int64Range(1, MaxTokens).Draw(t, "n"), rapid.Int64Range(int64(MinPeriod), int64(MaxPeriod)).Draw(t, "per")
		if r, err := NewRate(n, time.Duration(per), 1); err == nil {
			checkContract(t, r)
		}
	})
}

func checkContract(t interface{ Errorf(string, ...any) }, r Rate) {
	n, per, burst := r.Contract()
	if back, err := NewRate(n, per, burst); err != nil || back != r {
		t.Errorf("%s: %d per %v, burst %d: %v", r.String(), n, per, burst, err)
	}
}
