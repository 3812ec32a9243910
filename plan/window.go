package plan

import (
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// WindowInput asks what "Limit per Width" lets through around a boundary of the
// clock: Limit requests at once half of Gap before it, and as many half of Gap
// after it.
type WindowInput struct {
	Limit int64
	Width time.Duration
	Parts int           // sub-windows of the sliding one; 0 means 10
	Gap   time.Duration // 0 means 200ms
}

// WindowResult has a row for each rule.
type WindowResult struct {
	Limit     int64       `json:"limit"`
	WindowMS  float64     `json:"window_ms"`
	GapMS     float64     `json:"gap_ms"`
	SlidingMS float64     `json:"sliding_counts_up_to_ms"` // the span that the sliding window counts at most: its error
	Rules     []WindowRow `json:"rules"`
}

// WindowRow is what one rule lets through.
type WindowRow struct {
	Rule    string  `json:"rule"`        // fixed, sliding, exact, bucket
	Before  int64   `json:"before"`      // admitted before the boundary
	After   int64   `json:"after"`       // and after it
	Through int64   `json:"through"`     // both: within the gap
	Most    int64   `json:"most"`        // at most in any window of that width, whatever comes
	RetryMS float64 `json:"retry_in_ms"` // wait of the first that is denied after the boundary; 0 if none is
}

const (
	defaultParts = 10
	defaultGap   = 200 * time.Millisecond
)

// Window plays the trace through the rules of package limit.
func Window(in WindowInput) (WindowResult, error) {
	if in.Parts == 0 {
		in.Parts = defaultParts
	}
	if in.Gap == 0 {
		in.Gap = defaultGap
	}
	var c check
	c.number("limit", float64(in.Limit), 1, limit.MaxLog, "must be 1 to 1000000 requests")
	c.duration("window", in.Width, limit.MinPeriod)
	c.number("parts", float64(in.Parts), 1, limit.MaxParts, "must be 1 to 1000 sub-windows")
	if in.Gap < 2 || in.Gap >= in.Width {
		c.fail("gap", in.Gap, "must be above 1ns and below the window")
	}
	if err := c.err(); err != nil {
		return WindowResult{}, err
	}
	fixed, err1 := limit.NewFixed(in.Limit, in.Width)
	sliding, err2 := limit.NewSliding(in.Limit, in.Width, in.Parts)
	exact, err3 := limit.NewLog(in.Limit, in.Width)
	rate, err4 := limit.NewRate(in.Limit, in.Width, in.Limit)
	c = append(c, err1, err2, err3, err4)
	if err := c.err(); err != nil {
		return WindowResult{}, err
	}
	slot := (in.Width + time.Duration(in.Parts) - 1) / time.Duration(in.Parts)
	return WindowResult{
		Limit: in.Limit, WindowMS: millis(in.Width), GapMS: millis(in.Gap), SlidingMS: millis(in.Width + slot),
		Rules: []WindowRow{
			edge("fixed", fixed, in, 2),
			edge("sliding", sliding, in, 1),
			edge("exact", exact, in, 1),
			edge("bucket", limit.NewBucket(rate), in, 2),
		},
	}, nil
}

type taker interface {
	Take(now time.Duration, cost int64) limit.Decision
}

// edge sends the two bursts. most is in limits.
func edge(rule string, t taker, in WindowInput, most int64) WindowRow {
	boundary := 10 * in.Width
	row := WindowRow{Rule: rule, Most: most * in.Limit}
	for range in.Limit {
		if t.Take(boundary-in.Gap/2, 1).Allowed {
			row.Before++
		}
	}
	for range in.Limit {
		d := t.Take(boundary+in.Gap-in.Gap/2, 1)
		if !d.Allowed {
			row.RetryMS = millis(d.RetryIn)
			break
		}
		row.After++
	}
	row.Through = row.Before + row.After
	return row
}
