// Package plan is the arithmetic of limits in closed form: what a bucket admits,
// what a window lets through, which cap a lane needs, what a fan-out costs at its
// tail, what retries add, how capacity is shared, what a fleet takes.
//
// Each question is a function from an input struct to a result struct. Inputs
// are checked before anything is computed: NaN, infinities, negatives and
// figures beyond any use are an *Invalid that names the field and its rule. The
// functions are pure and safe for concurrent use.
package plan

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The ranges of inputs.
const (
	MaxRate  = 1e9 // a second
	MaxCount = 1e9
	MaxTime  = 366 * 24 * time.Hour
)

// Invalid is the error of one field of an input.
type Invalid struct {
	Field string // as in the input's JSON
	Value string
	Rule  string // what it must be
}

func (e *Invalid) Error() string { return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Rule) }

// check collects the errors of an input.
type check []error

func (c *check) fail(field string, value any, rule string) {
	*c = append(*c, &Invalid{Field: field, Value: fmt.Sprint(value), Rule: rule})
}

func (c *check) err() error { return errors.Join(*c...) }

// number checks that least <= x <= most; NaN and infinities never are.
func (c *check) number(field string, x, least, most float64, rule string) {
	if !(x >= least && x <= most) {
		c.fail(field, x, rule)
	}
}

func (c *check) rate(field string, x float64) {
	c.number(field, x, 0, MaxRate, "must be 0 to 1000000000 a second")
}

func (c *check) count(field string, x, least float64) {
	c.number(field, x, least, MaxCount, fmt.Sprintf("must be %v to 1000000000", least))
}

// whole checks a count that has no decimals.
func (c *check) whole(field string, x, least float64) {
	if x != math.Trunc(x) {
		c.fail(field, x, "must be a whole number")
		return
	}
	c.count(field, x, least)
}

func (c *check) share(field string, x float64) {
	c.number(field, x, 0, 1, "must be 0 to 1")
}

func (c *check) duration(field string, d, least time.Duration) {
	if d < least || d > MaxTime {
		c.fail(field, d, fmt.Sprintf("must be %v to 366 days", least))
	}
}

// times returns rate * d. The product is taken in ns and divided once, so that
// 100/s over 70ms is 7 and not a hair more.
func times(rate float64, d time.Duration) float64 { return rate * float64(d) / float64(time.Second) }

// millis is how results state durations.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
