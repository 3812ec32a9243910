package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// The ranges of a contract. Its fill time is burst * period / n in whole ns.
const (
	MaxTokens = 1_000_000_000 // of n and of the burst; both at least 1
	MinPeriod = time.Millisecond
	MaxPeriod = 366 * 24 * time.Hour
	MaxFill   = time.Duration(1 << 61)
)

// Rate is a compiled contract: n tokens per period, burst B. It is immutable,
// 40 bytes, comparable (equal contracts are equal values) and safe for
// concurrent use. The zero Rate is Unlimited.
type Rate struct {
	per       int64  // ns; per and n are reduced. 0: unlimited
	fill, one int64  // whole ns of burst*per/n and of per/n
	fillR     uint32 // their remainders in 1/n ns
	oneR      uint32
	n         uint32 // 0: unlimited or paused
	burst     uint32
}

// Invalid is the error of a contract that is out of range or cannot be read.
type Invalid struct {
	Field string // "rate", "period" or "burst"; of windows "limit", "window" or "parts"
	Value string // as it was given
	Rule  string // what it must be
}

func (e *Invalid) Error() string {
	return fmt.Sprintf("limit: %s %s: %s", e.Field, e.Value, e.Rule)
}

func invalid(field string, value any, rule string) (Rate, error) {
	return Rate{}, &Invalid{Field: field, Value: fmt.Sprint(value), Rule: rule}
}

// NewRate compiles n tokens per period, burst b. n = 0 is Paused: period is then
// ignored and b, 0 or more, is what a change to another rate keeps at most.
// Errors are *Invalid and name the field and its rule.
func NewRate(n int64, per time.Duration, b int64) (Rate, error) {
	switch {
	case n < 0 || n > MaxTokens:
		return invalid("rate", n, "must be 1 to 1000000000 tokens per period, or 0 for paused")
	case b < 0 || b > MaxTokens || b == 0 && n > 0:
		return invalid("burst", b, "must be 1 to 1000000000 tokens")
	case n == 0:
		return Rate{per: 1, burst: uint32(b)}, nil
	case per < MinPeriod || per > MaxPeriod:
		return invalid("period", per, "must be 1ms to 366 days")
	}
	return compile(uint64(n), uint64(per), uint64(b))
}

// compile expects values in range and checks the fill time.
func compile(n, per, b uint64) (Rate, error) {
	g := gcd(n, per)
	n, per = n/g, per/g
	hi, lo := bits.Mul64(b, per)
	if hi < n {
		if q, rem := bits.Div64(hi, lo, n); q <= uint64(MaxFill) {
			return Rate{
				per: int64(per), n: uint32(n), burst: uint32(b),
				fill: int64(q), fillR: uint32(rem),
				one: int64(per / n), oneR: uint32(per % n),
			}, nil
		}
	}
	return invalid("burst", b, "must be small enough that the bucket fills within 2^61 ns (73 years)")
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Unlimited returns the rate that always allows.
func Unlimited() Rate { return Rate{} }

// IsUnlimited reports whether r always allows.
func (r *Rate) IsUnlimited() bool { return r.per == 0 }

// IsPaused reports whether r never allows.
func (r *Rate) IsPaused() bool { return r.n == 0 && r.per != 0 }

// PerSecond returns tokens per second: +Inf if unlimited, 0 if paused.
func (r *Rate) PerSecond() float64 {
	if r.IsUnlimited() {
		return math.Inf(1)
	}
	return float64(r.n) * float64(time.Second) / float64(r.per)
}

// OneSecond returns the tokens of one second, rounded up, at least 1: the burst of a
// rate that says none. 0 if unlimited or paused.
func (r *Rate) OneSecond() int64 {
	if r.IsUnlimited() || r.IsPaused() {
		return 0
	}
	return int64(max(1, math.Ceil(r.PerSecond())))
}

// Burst returns B, the most that passes at once: math.MaxInt64 if unlimited.
func (r *Rate) Burst() int64 {
	if r.IsUnlimited() {
		return math.MaxInt64
	}
	return int64(r.burst)
}
