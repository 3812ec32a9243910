// Package limit decides how much may pass: a token bucket, exact in integers,
// and beside it windows, a leaky bucket and a table of buckets by key.
//
// Nothing here reads a clock. Every method takes the instant as `now`: the
// monotonic time since an origin that the caller chose once and never moves.
// An instant before the origin counts as the origin, one after 2^61 ns (73
// years) as that.
//
// # Rate, Level, Bucket
//
// A Rate is the contract, immutable and shared. A Level is 16 bytes of state,
// for owners that hold many of them behind a lock of their own. A Bucket is one
// Rate with one Level behind a mutex. A Table holds buckets by key, bounded.
//
// # Which rule answers which question
//
//   - Bucket: how fast on average, and how much at once? Leaky asks the same and
//     counts what is used.
//   - NewFixed: how many in each calendar minute, or day? It lets twice as many
//     through around a boundary.
//   - Log: how many in any minute, exactly? It remembers each request.
//   - NewSliding: the same within a stated error, in constant memory.
//
// All answer with a Decision; Stricter combines several.
//
// # The algorithm
//
// The bucket is a generic cell rate algorithm (ITU-T I.371) whose state is one
// instant, the theoretical arrival time `tat`: when the bucket will be full
// again. One token is worth P/N ns at N tokens per P ns, so a bucket that fills
// at tat holds B - (tat-now)*N/P tokens now. Taking c tokens moves tat by
// c*P/N; it is allowed if the bucket then fills within B*P/N of now.
//
// P/N is rarely whole: 3/s is 333,333,333 1/3 ns. In floats, or rounded to
// nanoseconds, a request at the promised instant is denied, or the rate drifts.
// Here tat is a whole number of ns and `frac` a remainder in 1/N ns, so every
// answer equals that of exact rational arithmetic.
//
// Bound: in any interval of length T at most B + T*N/P tokens are taken, those
// given back by Refund not counted.
package limit

import "time"

// Reason says why a Decision denied.
type Reason uint8

const (
	Passed Reason = iota // allowed
	Later                // too few tokens now; RetryIn says when
	Never                // the cost exceeds the burst, or a window's limit: waiting does not help
	Paused               // the rate is 0: nothing passes until the limit changes
)

// String returns the reason's name in lower case.
func (r Reason) String() string {
	names := [...]string{"passed", "later", "never", "paused"}
	if int(r) >= len(names) {
		return "unknown"
	}
	return names[r]
}

// Decision is the answer to one request for tokens. A refusal is a value.
type Decision struct {
	Allowed   bool
	Reason    Reason
	Epoch     uint16        // what Refund asks for, if Allowed
	Remaining int64         // whole tokens left after the decision, floored, never negative; math.MaxInt64 if unlimited
	RetryIn   time.Duration // least wait after which the same cost passes; > 0 exactly when Reason is Later
	ResetIn   time.Duration // least wait until the bucket is full, the window empty; 0 if it is, and for unlimited and paused
}
