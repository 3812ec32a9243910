package limit

import (
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"
)

// Profiles hold a Rate by value and every lane holds a Level.
func TestSizesStaySmall(t *testing.T) {
	if got := unsafe.Sizeof(Rate{}); got > 40 {
		t.Errorf("Rate is %d bytes, want at most 40", got)
	}
	if got := unsafe.Sizeof(Level{}); got > 16 {
		t.Errorf("Level is %d bytes, want at most 16", got)
	}
}

// Limiter case L11.
// Limiter case L19.
func TestNewRateRefusesWhatIsOutOfRangeAndNamesIt(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		n     int64
		per   time.Duration
		b     int64
		field string // "" is accepted
	}{
		{1, time.Second, 1, ""},
		{MaxTokens, time.Second, MaxTokens, ""},
		{1, MinPeriod, 1, ""},
		{1, MaxPeriod, 1, ""},
		{1, MaxPeriod, 72, ""}, // 72 * 366 days is just below 2^61 ns
		{1, MaxPeriod, 73, "burst"},
		{1, MaxPeriod, MaxTokens, "burst"},
		{2, MaxPeriod, 145, ""},
		{2, MaxPeriod, 146, "burst"},
		{1, 1 << 32, 1 << 29, ""}, // exactly 2^61
		{3, 3 << 32, 1 << 29, ""},
		{1, 1<<32 + 1, 1 << 29, "burst"},
		{0, 0, 0, ""},
		{0, time.Second, 5, ""},
		{0, time.Second, -1, "burst"},
		{0, time.Second, MaxTokens + 1, "burst"},
		{-1, time.Second, 1, "rate"},
		{math.MinInt64, time.Second, 1, "rate"},
		{MaxTokens + 1, time.Second, 1, "rate"},
		{math.MaxInt64, time.Second, 1, "rate"},
		{1, 0, 1, "period"},
		{1, -time.Second, 1, "period"},
		{1, MinPeriod - 1, 1, "period"},
		{1, 367 * day, 1, "period"},
		{1, math.MaxInt64, 1, "period"},
		{1, time.Second, 0, "burst"},
		{1, time.Second, -1, "burst"},
		{1, time.Second, MaxTokens + 1, "burst"},
		{1, time.Second, math.MaxInt64, "burst"},
	}
	for _, tt := range tests {
		_, err := NewRate(tt.n, tt.per, tt.b)
		var inv *Invalid
		switch {
		case tt.field == "" && err != nil:
			t.Errorf("NewRate(%d, %v, %d): %v, want accepted", tt.n, tt.per, tt.b, err)
		case tt.field != "" && !errors.As(err, &inv):
			t.Errorf("NewRate(%d, %v, %d): %v, want *Invalid", tt.n, tt.per, tt.b, err)
		case tt.field != "" && (inv.Field != tt.field || inv.Rule == ""):
			t.Errorf("NewRate(%d, %v, %d): %v, want it to name %q and a rule", tt.n, tt.per, tt.b, err, tt.field)
		}
	}
}

func TestEqualContractsAreEqualValues(t *testing.T) {
	a := mustRate(t, 120, time.Minute, 5)
	b := mustRate(t, 2, time.Second, 5)
	if a != b {
		t.Errorf("120/m and 2/s compile to different values: %+v, %+v", a, b)
	}
	if c := mustRate(t, 2, time.Second, 6); a == c {
		t.Error("different bursts compile to the same value")
	}
	if mustRate(t, 0, time.Second, 0) != mustRate(t, 0, time.Hour, 0) {
		t.Error("paused rates with the same burst differ")
	}
}

func TestRateSaysWhatItIs(t *testing.T) {
	var zero Rate
	paused := mustRate(t, 0, 0, 7)
	tenth := mustParse(t, "0.1/s", 3)
	tests := []struct {
		name              string
		rate              *Rate
		unlimited, paused bool
		perSecond         float64
		burst             int64
	}{
		{"zero", &zero, true, false, math.Inf(1), math.MaxInt64},
		{"paused", &paused, false, true, 0, 7},
		{"0.1/s", &tenth, false, false, 0.1, 3},
	}
	for _, tt := range tests {
		r := tt.rate
		if r.IsUnlimited() != tt.unlimited || r.IsPaused() != tt.paused || r.PerSecond() != tt.perSecond || r.Burst() != tt.burst {
			t.Errorf("%s: unlimited %v, paused %v, %v/s, burst %d", tt.name, r.IsUnlimited(), r.IsPaused(), r.PerSecond(), r.Burst())
		}
	}
	if zero != Unlimited() {
		t.Error("the zero Rate is not Unlimited()")
	}
}

func mustRate(t testing.TB, n int64, per time.Duration, b int64) Rate {
	t.Helper()
	r, err := NewRate(n, per, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustParse(t testing.TB, s string, b int64) Rate {
	t.Helper()
	r, err := ParseRate(s, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
