package breaker

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

// full is a source that draws every interval in its full length.
type full struct{}

func (full) Float64() float64 { return 0 }

// shortest draws every interval in its shortest length.
type shortest struct{}

func (shortest) Float64() float64 { return math.Nextafter(1, 0) }

func TestStateIsSmall(t *testing.T) {
	if got := unsafe.Sizeof(State{}); got != 24 {
		t.Errorf("%d bytes, want 24: every lane holds one", got)
	}
}

// op is what happens at an instant of a script. A result is that of the
// attempt started last, unless late names an earlier one by its number.
type op struct {
	at   time.Duration
	do   string // start, ok, fail, denied, neutral, reset; or ask
	want string // pass, probe, or the instant to ask again, and the phase after
	late int
}

type attempt struct {
	gen   uint16
	probe bool
}

func script(t *testing.T, c Config, ops []op) {
	t.Helper()
	var s State
	var attempts []attempt
	calls, failures := 0.0, 0.0
	for i, o := range ops {
		got := ""
		switch o.do {
		case "start", "ask":
			p := c.Ask(&s, o.at)
			switch {
			case p.Probe:
				got = "probe"
			case p.OK:
				got = "pass"
			default:
				got = p.At.String()
			}
			if o.do == "start" && p.OK {
				c.Take(&s, o.at, p)
				attempts = append(attempts, attempt{p.Gen, p.Probe})
			}
		case "reset":
			c.Reset(&s)
		default:
			n := len(attempts) - 1
			if o.late > 0 {
				n = o.late - 1
			}
			a := attempts[n]
			changed := false
			switch o.do {
			case "ok":
				calls++
				changed = c.Success(&s, o.at, a.gen, a.probe)
			case "fail":
				calls++
				failures++
				changed = c.Failure(&s, o.at, a.gen, a.probe, calls, failures, full{})
			case "denied":
				changed = c.Denial(&s, o.at, a.gen, a.probe, full{})
			case "neutral":
				c.Neutral(&s, o.at, a.gen, a.probe)
			}
			if changed {
				got = "changed"
				calls, failures = 0, 0
			}
		}
		if got != "" {
			got += " "
		}
		got += s.Phase(o.at).String()
		if got != o.want {
			t.Fatalf("step %d, %s at %v: %q, want %q", i, o.do, o.at, got, o.want)
		}
	}
}

// times repeats ops n times.
func times(n int, ops ...op) (all []op) {
	for range n {
		all = append(all, ops...)
	}
	return all
}

func join(parts ...[]op) (all []op) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

const (
	s = time.Second
	m = time.Minute
)

// opened is a breaker that has opened at 1 s, its attempts numbered 1 to 5.
func opened() []op {
	return join(
		times(4, op{at: s, do: "start", want: "pass closed"}, op{at: s, do: "fail", want: "closed"}),
		[]op{{at: s, do: "start", want: "pass closed"}, {at: s, do: "fail", want: "changed open"}})
}

func TestOpensProbesAndCloses(t *testing.T) {
	script(t, Config{}, join(opened(), []op{
		{at: s, do: "ask", want: "31s open"},
		{at: 31*s - 1, do: "start", want: "31s open"},
		{at: 31 * s, do: "start", want: "probe half-open"},
		{at: 31 * s, do: "start", want: "47s half-open"}, // 15 s and one of grace
		{at: 32 * s, do: "ok", want: "changed closed"},
		{at: 32 * s, do: "start", want: "pass closed"},
		{at: 33 * s, do: "fail", want: "closed"}, // four more until it opens again
	}))
}

func TestOpensAtFiveInARowWhateverTheirSpacing(t *testing.T) {
	var ops []op
	for week := range 4 {
		at := time.Duration(week) * 7 * 24 * time.Hour
		ops = append(ops, op{at: at, do: "start", want: "pass closed"}, op{at: at, do: "fail", want: "closed"})
	}
	const last = 4 * 7 * 24 * time.Hour
	ops = append(ops, op{at: last, do: "start", want: "pass closed"}, op{at: last, do: "fail", want: "changed open"})
	script(t, Config{}, ops)
}

func TestASuccessEndsTheRow(t *testing.T) {
	fail := []op{{do: "start", want: "pass closed"}, {do: "fail", want: "closed"}}
	ok := []op{{do: "start", want: "pass closed"}, {do: "ok", want: "closed"}}
	script(t, Config{MinCalls: 1000}, times(20, join(times(4, fail...), ok)...))
}

// Field case 27.
// Field case 30.
func TestTheIntervalDoublesUpToItsLongest(t *testing.T) {
	ops := opened()
	at := s
	for _, interval := range []time.Duration{30 * s, m, 2 * m, 4 * m, 8 * m, 10 * m, 10 * m, 10 * m} {
		at += interval
		ops = append(ops,
			op{at: at - 1, do: "ask", want: at.String() + " open"},
			op{at: at, do: "start", want: "probe half-open"},
			op{at: at, do: "fail", want: "changed open"})
	}
	// After six days it still asks by itself, and one success closes it.
	at = 6 * 24 * time.Hour
	ops = append(ops,
		op{at: at, do: "start", want: "probe half-open"},
		op{at: at, do: "ok", want: "changed closed"})
	// The next outage starts again from the first interval.
	ops = append(ops, times(4, op{at: at, do: "start", want: "pass closed"}, op{at: at, do: "fail", want: "closed"})...)
	ops = append(ops,
		op{at: at, do: "start", want: "pass closed"},
		op{at: at, do: "fail", want: "changed open"},
		op{at: at, do: "ask", want: (at + 30*s).String() + " open"})
	script(t, Config{}, ops)
}

// Field case 27.
// Limiter case L81.
func TestHalfOpenLetsOneThroughAndDefersTheCrowd(t *testing.T) {
	script(t, Config{}, join(opened(), []op{
		{at: 31 * s, do: "start", want: "probe half-open"},
	}, times(100, op{at: 31 * s, do: "start", want: "47s half-open"}), []op{
		{at: 46 * s, do: "fail", want: "changed open"}, // its own timeout
	}, times(100, op{at: 46 * s, do: "start", want: "1m46s open"})))
}

// Field case 27.
func TestALateResultOfAnEarlierGenerationIsIgnored(t *testing.T) {
	six := op{at: 0, do: "start", want: "pass closed"} // number 1, still out when it opens
	for _, late := range []string{"ok", "fail", "denied", "neutral"} {
		script(t, Config{}, join([]op{six}, opened(), []op{
			{at: 2 * s, do: late, late: 1, want: "open"},
			{at: 2 * s, do: "ask", want: "31s open"},
			{at: 31 * s, do: "start", want: "probe half-open"},
			{at: 32 * s, do: late, late: 1, want: "half-open"}, // does not free the probe's place
			{at: 32 * s, do: "start", want: "47s half-open"},
			{at: 33 * s, do: "ok", want: "changed closed"},
			{at: 34 * s, do: late, late: 1, want: "closed"},
		}, times(4, op{at: 35 * s, do: "start", want: "pass closed"}, op{at: 35 * s, do: "fail", want: "closed"})))
	}
}

// Field case 28.
// Limiter case L82.
// Limiter case L83.
func TestAProbesPlaceIsFreeAfterEveryEnd(t *testing.T) {
	rows := []struct{ do, phase, ask string }{
		{"ok", "changed closed", "pass closed"},
		{"fail", "changed open", "1m32s open"},
		{"denied", "open", "probe open"},  // one 401
		{"neutral", "open", "probe open"}, // 400, 410, 429, NotSent, cancelled, cut at shutdown
	}
	for _, r := range rows {
		script(t, Config{}, join(opened(), []op{
			{at: 31 * s, do: "start", want: "probe half-open"},
			{at: 32 * s, do: r.do, want: r.phase},
			{at: 32 * s, do: "ask", want: r.ask},
		}))
	}
}

// Field case 28.
// Limiter case L84.
func TestALostProbeExpires(t *testing.T) {
	script(t, Config{ProbeExpiry: 5 * s}, join(opened(), []op{
		{at: 31 * s, do: "start", want: "probe half-open"}, // number 6, never heard of in time
		{at: 37*s - 1, do: "start", want: "37s half-open"},
		{at: 37 * s, do: "start", want: "probe half-open"}, // number 7
		{at: 38 * s, do: "fail", late: 6, want: "half-open"},
		{at: 38 * s, do: "neutral", late: 6, want: "half-open"},
		{at: 38 * s, do: "ok", late: 6, want: "half-open"},
		{at: 39 * s, do: "ok", late: 7, want: "changed closed"},
	}))
}

// A probe that times out is reported a little after its timeout. Its failure must
// still count, else a black hole would be probed without a pause.
func TestAProbesOwnTimeoutCounts(t *testing.T) {
	script(t, Config{}, join(opened(), []op{
		{at: 31 * s, do: "start", want: "probe half-open"},
		{at: 46 * s, do: "start", want: "47s half-open"},
		{at: 46*s + 5*time.Millisecond, do: "fail", want: "changed open"},
		{at: 47 * s, do: "ask", want: "1m46.005s open"},
	}))
}

// Field case 28.
func TestResetClosesInANewGeneration(t *testing.T) {
	script(t, Config{}, join(opened(), []op{
		{at: 31 * s, do: "start", want: "probe half-open"},
		{at: 32 * s, do: "reset", want: "closed"},
		{at: 32 * s, do: "fail", want: "closed"}, // the old endpoint's
		{at: 32 * s, do: "start", want: "pass closed"},
		{at: 32 * s, do: "ok", want: "closed"},
	}))
}

// Field case 29.
func TestAnAnswerAboutTheMessageCountsNeitherWay(t *testing.T) {
	pass := func(at time.Duration, do string) []op {
		return []op{{at: at, do: "start", want: "pass closed"}, {at: at, do: do, want: "closed"}}
	}
	t.Run("every third is a 400: never opens", func(t *testing.T) {
		script(t, Config{}, times(300, join(pass(0, "ok"), pass(0, "ok"), pass(0, "neutral"))...))
	})
	t.Run("400 and timeout in turn: opens", func(t *testing.T) {
		script(t, Config{}, join(times(4, join(pass(s, "neutral"), pass(s, "fail"))...), pass(s, "neutral"),
			[]op{{at: s, do: "start", want: "pass closed"}, {at: s, do: "fail", want: "changed open"}}))
	})
	t.Run("probe answered 400: does not close, probes again", func(t *testing.T) {
		script(t, Config{}, join(opened(), []op{
			{at: 31 * s, do: "start", want: "probe half-open"},
			{at: 31 * s, do: "neutral", want: "open"},
			{at: 31 * s, do: "start", want: "probe half-open"},
			{at: 31 * s, do: "start", want: "47s half-open"},
			{at: 32 * s, do: "ok", want: "changed closed"},
		}))
	})
}

func TestOffLetsEverythingPass(t *testing.T) {
	c := Config{Off: true}
	var st State
	for range 100 {
		p := c.Ask(&st, s)
		if !p.OK || p.Probe {
			t.Fatalf("%+v", p)
		}
		c.Take(&st, s, p)
		if c.Failure(&st, s, p.Gen, p.Probe, 100, 100, full{}) || c.Denial(&st, s, p.Gen, p.Probe, full{}) {
			t.Fatal("opened")
		}
	}
	if st != (State{}) {
		t.Errorf("counted: %+v", st)
	}
}

func TestExtremeIntervalsDoNotWrapAround(t *testing.T) {
	c := Config{Open: math.MaxInt64, OpenMax: math.MaxInt64, ProbeExpiry: math.MaxInt64, Consecutive: 1}
	var st State
	c.Failure(&st, 1, 0, false, 0, 0, full{})
	if st.NextProbe() != math.MaxInt64 {
		t.Errorf("next probe at %v", st.NextProbe())
	}
	p := c.Ask(&st, math.MaxInt64)
	c.Take(&st, math.MaxInt64, p)
	if st.NextProbe() != math.MaxInt64 {
		t.Errorf("probe expires at %v", st.NextProbe())
	}
}

// Field case 27.
func TestIntervalsAreSpreadAndStillGrow(t *testing.T) {
	var c Config
	previous := time.Duration(0)
	for trips := uint8(1); trips <= 6; trips++ {
		draw := func(rnd Rand) time.Duration {
			st := State{trips: trips}
			c.open(&st, 0, rnd)
			return st.until
		}
		least, most := draw(shortest{}), draw(full{})
		if want := most - most/5; (least - want).Abs() > time.Microsecond {
			t.Errorf("interval %d: from %v to %v", trips, least, most)
		}
		if trips <= 5 && least <= previous {
			t.Errorf("interval %d may be %v, that before it %v", trips, least, previous)
		}
		previous = most
		bins := [10]int{}
		rnd := rand.New(rand.NewPCG(1, uint64(trips)))
		for range 10_000 {
			bins[min(int(10*float64(draw(rnd)-least)/float64(most-least)), 9)]++
		}
		for i, n := range bins {
			if n < 850 || n > 1150 {
				t.Errorf("interval %d: %d of 10,000 in tenth %d", trips, n, i)
			}
		}
	}
}

func TestCurrentEndsWithTheGeneration(t *testing.T) {
	c := Config{Consecutive: 1}
	var st State
	moves := []func(){
		func() { c.Failure(&st, 0, st.gen, false, 0, 0, full{}) },
		func() { c.Take(&st, 30*s, c.Ask(&st, 30*s)) },
		func() { c.Success(&st, 30*s, st.gen, true) },
		func() { c.Reset(&st) },
	}
	for i, move := range moves {
		gen := st.gen
		if move(); st.gen == gen {
			t.Errorf("move %d began no generation", i)
		}
	}
}

func TestASecondResultOfAProbeIsIgnored(t *testing.T) {
	for _, again := range []string{"ok", "fail", "denied", "neutral"} {
		script(t, Config{}, join(opened(), []op{
			{at: 31 * s, do: "start", want: "probe half-open"},
			{at: 32 * s, do: "neutral", want: "open"},
			{at: 32 * s, do: again, want: "open"},
			{at: 32 * s, do: "ask", want: "probe open"},
		}))
	}
}

func TestAResultFromWhileItWasOffIsIgnored(t *testing.T) {
	c := Config{Consecutive: 1}
	var st State
	c.Failure(&st, 0, 0, false, 0, 0, full{})
	off := Config{Off: true}
	p := off.Ask(&st, s)
	off.Take(&st, s, p)
	before := st
	if c.Failure(&st, 2*s, p.Gen, p.Probe, 0, 0, full{}) || c.Success(&st, 2*s, p.Gen, p.Probe) || st != before {
		t.Errorf("an attempt that was no probe moved an open breaker: %+v", st)
	}
}

func TestAnExpiredProbeIsOutNoMore(t *testing.T) {
	script(t, Config{}, join(opened(), []op{
		{at: 31 * s, do: "start", want: "probe half-open"},
		{at: 47*s - 1, do: "ask", want: "47s half-open"},
		{at: 47 * s, do: "ask", want: "probe open"},
	}))
}

func TestARowDoesNotWrapAround(t *testing.T) {
	c := Config{Denied: math.MaxUint16, Consecutive: math.MaxUint16}
	var st State
	for range math.MaxUint16 {
		c.Denial(&st, 0, st.gen, false, full{})
	}
	now := st.NextProbe()
	p := c.Ask(&st, now)
	c.Take(&st, now, p)
	if !c.Denial(&st, now, p.Gen, p.Probe, full{}) {
		t.Error("one more than the longest row is not a row any more")
	}
}

func TestTakeRefusesAnotherPermit(t *testing.T) {
	var c Config
	st := State{phase: Open}
	p := c.Ask(&st, 0)
	c.Take(&st, 0, p)
	defer func() {
		if recover() == nil {
			t.Error("two probes with one permit")
		}
	}()
	c.Take(&st, 0, p)
}
