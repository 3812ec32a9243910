package breaker

import (
	"testing"
	"time"
)

// Field case 29.
func TestTwentyDenialsInARowOpenForTheLongest(t *testing.T) {
	var c Config
	var st State
	deny := func(now time.Duration) bool {
		p := c.Ask(&st, now)
		if !p.OK {
			t.Fatalf("not permitted at %v", now)
		}
		c.Take(&st, now, p)
		return c.Denial(&st, now, p.Gen, p.Probe, full{})
	}
	for range 19 {
		if deny(s) || st.ByDenial() {
			t.Fatal("opened before the twentieth")
		}
	}
	c.Neutral(&st, s, 0, false) // a 400 in between is no other answer
	if !deny(s) || !st.ByDenial() || st.Phase(s) != Open {
		t.Fatal("the twentieth did not open it")
	}
	if at := st.NextProbe(); at != s+10*m {
		t.Errorf("next probe at %v", at)
	}
	if !deny(s+10*m) || !st.ByDenial() || st.NextProbe() != s+20*m {
		t.Error("a denied probe did not open it again for the longest")
	}
	p := c.Ask(&st, s+20*m)
	c.Take(&st, s+20*m, p)
	if !st.ByDenial() {
		t.Error("the reason is gone while the probe is out")
	}
	if !c.Success(&st, s+20*m, p.Gen, p.Probe) || st.ByDenial() || st.Phase(s+20*m) != Closed {
		t.Error("a successful probe did not close it")
	}
}

func TestARowOfDenialsEndsWithAnyOtherVerdict(t *testing.T) {
	for _, end := range []string{"ok", "fail"} {
		pass := func(do string) []op {
			return []op{{do: "start", want: "pass closed"}, {do: do, want: "closed"}}
		}
		script(t, Config{}, times(4, join(times(19, pass("denied")...), pass(end))...))
	}
}

func TestAFailedProbeChangesTheReason(t *testing.T) {
	c := Config{Denied: 1}
	var st State
	c.Denial(&st, 0, 0, false, full{})
	p := c.Ask(&st, 10*m)
	c.Take(&st, 10*m, p)
	c.Failure(&st, 10*m, p.Gen, p.Probe, 0, 0, full{})
	if st.ByDenial() || st.NextProbe() != 20*m {
		t.Errorf("by denial %v, next probe %v; want a failure at the longest interval", st.ByDenial(), st.NextProbe())
	}
}

// Limiter case L84.
func TestTheShareNeedsEnoughCalls(t *testing.T) {
	rows := []struct {
		calls, failures float64
		opens           bool
	}{
		{19.9, 19.9, false},
		{20, 10, false}, // half is not above half
		{20, 10.1, true},
		{20, 20, true},
		{1000, 500, false},
		{1000, 501, true},
	}
	for _, r := range rows {
		var c Config
		var st State
		if got := c.Failure(&st, 0, 0, false, r.calls, r.failures, full{}); got != r.opens {
			t.Errorf("%v failures of %v calls: opened %v", r.failures, r.calls, got)
		}
	}
}

func TestOwnSettings(t *testing.T) {
	c := Config{Consecutive: 2, MinCalls: 4, Ratio: 0.25, Open: 10 * s, OpenMax: 15 * s}
	fail := func(st *State, calls, failures float64) bool {
		return c.Failure(st, 0, st.gen, false, calls, failures, full{})
	}
	var st State
	if fail(&st, 3, 1) || !fail(&st, 3, 2) || st.NextProbe() != 10*s {
		t.Errorf("two in a row: %+v", st)
	}
	var share State
	if !fail(&share, 4, 1.1) {
		t.Error("above a quarter of four calls did not open it")
	}
	p := c.Ask(&st, 10*s)
	c.Take(&st, 10*s, p)
	if !c.Failure(&st, 10*s, p.Gen, true, 0, 0, full{}) || st.NextProbe() != 25*s {
		t.Errorf("longest interval: %v", st.NextProbe())
	}
}
