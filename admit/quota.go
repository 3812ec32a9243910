package admit

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// Day and Month are spans, not calendar dates: a Month is 30 days.
const (
	Day   = 24 * time.Hour
	Month = 30 * Day
)

// Algorithm is how a limit counts.
type Algorithm uint8

const (
	// TokenBucket: Limit units a Window accrue, up to Burst; a new key is full.
	TokenBucket Algorithm = iota
	// FixedWindow: at most Limit units in each window [k*Window, (k+1)*Window) of the store's
	// clock. Around a boundary twice the limit can pass within an instant.
	FixedWindow
	// SlidingWindow: at most Limit units in any span of one Window. It counts in sub-windows
	// of Window/SlidingParts; a unit counts until the last sub-window that it may have
	// fallen into has left, up to one sub-window longer than Window. It never admits more
	// than the limit; a steady source gets at least SlidingParts/(SlidingParts+1) of it.
	SlidingWindow
)

// SlidingParts is how many sub-windows a sliding window has.
const SlidingParts = 16

// String returns the algorithm's name, as a policy file writes it.
func (a Algorithm) String() string {
	names := [...]string{"bucket", "fixed", "sliding"}
	if int(a) >= len(names) {
		return "unknown"
	}
	return names[a]
}

// Spec is what one limit allows. Its zero value is paused: nothing passes. There is no
// unlimited Spec: leave the check out.
type Spec struct {
	Algorithm Algorithm
	Limit     int64         // units per Window, 1 to limit.MaxTokens; 0 is paused
	Window    time.Duration // limit.MinPeriod to limit.MaxPeriod; of the windows, whole milliseconds
	Burst     int64         // TokenBucket only: 1 to limit.MaxTokens
}

// Bucket returns the Spec of a rate. An unlimited rate has none, and panics.
func Bucket(r limit.Rate) Spec {
	if r.IsUnlimited() {
		panic("admit: an unlimited rate is no check: leave it out")
	}
	n, per, burst := r.Contract()
	return Spec{Algorithm: TokenBucket, Limit: n, Window: per, Burst: burst}
}

// Rate returns the compiled contract of a TokenBucket.
func (s Spec) Rate() (limit.Rate, error) { return limit.NewRate(s.Limit, s.Window, s.Burst) }

// Most is the largest cost that can ever pass: 0 if paused.
func (s Spec) Most() int64 {
	if s.Algorithm == TokenBucket && s.Limit > 0 {
		return s.Burst
	}
	return s.Limit
}

// Validate returns nil or a *limit.Invalid that names the field and its rule.
func (s Spec) Validate() error {
	switch {
	case s.Algorithm > SlidingWindow:
		return invalid("algorithm", s.Algorithm, "must be bucket, fixed or sliding")
	case s.Limit == 0:
		return nil
	case s.Algorithm == TokenBucket:
		_, err := s.Rate()
		return err
	case s.Burst != 0:
		return invalid("burst", s.Burst, "must be absent: only a bucket has one")
	case s.Limit < 0 || s.Limit > limit.MaxTokens:
		return invalid("limit", s.Limit, "must be 1 to 1000000000 units per window, or 0 for paused")
	case s.Window < limit.MinPeriod || s.Window > limit.MaxPeriod || s.Window%time.Millisecond != 0:
		return invalid("window", s.Window, "must be 1ms to 366 days, whole milliseconds")
	}
	return nil
}

func invalid(field string, value any, rule string) error {
	return &limit.Invalid{Field: field, Value: fmt.Sprint(value), Rule: rule}
}

// Away is what decides a check while the shared store cannot be asked. The in-process store
// is never away.
type Away uint8

const (
	AwayClosed Away = iota // nothing passes
	AwayLocal              // this process's share of the limit, counted here
	AwayOpen               // everything passes
)

// String returns the mode's name, as a policy file writes it.
func (a Away) String() string {
	names := [...]string{"closed", "local", "open"}
	if int(a) >= len(names) {
		return "unknown"
	}
	return names[a]
}

// Check is one limit of a decision. Policy and Key name the counter; Spec may change between
// decisions (see docs/quotas.md: what was used stays used).
type Check struct {
	Policy string   // which limit, unique among the policies of a store
	Key    []string // whose: the parts of the key in the policy's order, none for a global limit
	Spec   Spec
	Cost   int64 // at least 1; chosen by the operator, never by the caller
	Away   Away

	policy int // its place in the gate that planned it
}

// MaxChecks is how many limits one decision may have.
const MaxChecks = 16

// Validate returns what is wrong with the checks of a decision, if anything: the policy, the
// field and the rule. To check a counter twice in one decision is an error.
func Validate(checks []Check) error {
	if len(checks) > MaxChecks {
		return fmt.Errorf("admit: %w", invalid("checks", len(checks), "must be at most 16 in one decision"))
	}
	for i, c := range checks {
		if err := c.validate(); err != nil {
			return fmt.Errorf("admit: policy %q: %w", c.Policy, err)
		}
		for _, d := range checks[:i] {
			if c.Policy == d.Policy && c.Spec.Algorithm == d.Spec.Algorithm && slices.Equal(c.Key, d.Key) {
				return fmt.Errorf("admit: policy %q: %w", c.Policy, invalid("key", c.Key, "must occur once in a decision"))
			}
		}
	}
	return nil
}

func (c *Check) validate() error {
	switch {
	case c.Policy == "":
		return invalid("policy", `""`, "must have a name")
	case c.Cost < 1:
		return invalid("cost", c.Cost, "must be at least 1")
	case c.Away > AwayOpen:
		return invalid("away", c.Away, "must be closed, local or open")
	}
	return c.Spec.Validate()
}

// AppendKey appends the counter's name: the algorithm's initial, then policy and key parts,
// each with its length before it, so that no two counters share a name whatever the parts hold.
func (c *Check) AppendKey(b []byte) []byte {
	b = append(b, c.Spec.Algorithm.String()[0])
	return c.appendKey(AppendPart(b, c.Policy))
}

func (c *Check) appendKey(b []byte) []byte {
	for _, part := range c.Key {
		b = AppendPart(b, part)
	}
	return b
}

// AppendPart appends "<length>:<part>".
func AppendPart(b []byte, part string) []byte {
	b = strconv.AppendInt(b, int64(len(part)), 10)
	return append(append(b, ':'), part...)
}

// Answer is the outcome of one decision: all of its checks passed and were recorded, or none
// was recorded.
type Answer struct {
	Allowed bool
	// Checks has a Decision for each check, in their order: what that limit alone says.
	// Remaining is after the decision: less the cost only if Answer.Allowed. Epoch is
	// what Refund needs.
	Checks []limit.Decision
	// Away: the shared store was not asked or did not answer in time; each check was decided
	// by its Away. A check that AwayOpen passed counts nothing: its Remaining is that of an
	// unused limit.
	Away bool
}

// Strictest returns the index of the check whose Decision the caller is told: the one
// that binds, by limit.Stricter. -1 if there are no checks.
func (a *Answer) Strictest() int {
	best := -1
	for i := range a.Checks {
		if best < 0 || limit.IsStricter(&a.Checks[i], &a.Checks[best]) {
			best = i
		}
	}
	return best
}
