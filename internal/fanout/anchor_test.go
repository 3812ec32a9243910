package fanout

import (
	"testing"
	"time"
)

// After a step of the wall clock, either way, nothing expires until the clocks have agreed for ten minutes.
//
// Field case 101.
func TestNothingExpiresUntilTheClocksAgreeAgain(t *testing.T) {
	var g agreement
	for _, row := range []struct {
		now, apart time.Duration
		want       bool
	}{
		{0, 0, true},
		{1 * time.Minute, 59 * time.Second, true},
		{2 * time.Minute, time.Hour, false},
		{30 * time.Minute, time.Hour, false}, // still apart
		{31 * time.Minute, 0, false},
		{39 * time.Minute, 0, false},
		{40 * time.Minute, 0, true},
		{41 * time.Minute, 2 * time.Minute, false},
		{45 * time.Minute, 0, false},
		{46 * time.Minute, 2 * time.Minute, false}, // apart again: ten minutes from here
		{55 * time.Minute, 0, false},
		{56 * time.Minute, 0, true},
		{57 * time.Minute, 0, true},
	} {
		if got := g.trusts(row.now, row.apart); got != row.want {
			t.Errorf("after %v, %v apart: %v, want %v", row.now, row.apart, got, row.want)
		}
	}
}

// The anchored clock is not moved by what the wall says, and tells how far that has gone.
func TestTheAnchorTellsHowFarTheWallHasGone(t *testing.T) {
	a := newAnchor()
	if d := a.apart(); d > time.Second {
		t.Errorf("%v apart at the start", d)
	}
	moved := anchor{a.start.Round(0).Add(-time.Hour)}
	if d := moved.instant(time.Now()); d < time.Hour-time.Second || d > time.Hour+time.Minute {
		t.Errorf("a time is placed %v from a start an hour ago", d)
	}
}
