package breaker

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twin is the naive breaker: it keeps the results since the breaker last closed
// or opened, and counts them anew for each decision.
type twin struct {
	results []string // ok, fail, denied, neutral; of this era
	open    bool
	reason  bool // opened by denials
	trips   int
	until   time.Duration
	probe   *run // out or lost
}

// run is an attempt in flight.
type run struct {
	start  time.Duration
	permit Permit
	era    int // of the twin, when it started
	probe  bool
	reset  bool // the breaker was reset since
}

// row counts what, back from the last result; skip says which results do not end it.
func (w *twin) row(what string, skip ...string) (n int) {
	for i := len(w.results) - 1; i >= 0; i-- {
		switch r := w.results[i]; {
		case r == what:
			n++
		case !slices.Contains(skip, r):
			return n
		}
	}
	return n
}

const (
	twinExpiry = 16 * time.Second // 15 s and the grace
	twinLong   = 10 * time.Minute
)

func (w *twin) permits(now time.Duration) string {
	switch {
	case !w.open:
		return "pass"
	case now < w.until, w.probe != nil && now < w.probe.start+twinExpiry:
		return "no"
	default:
		return "probe"
	}
}

func (w *twin) trip(now time.Duration) {
	w.open, w.probe = true, nil
	w.trips++
	seconds := min(30*math.Pow(2, float64(w.trips-1)), 600)
	w.until = now + time.Duration(seconds*float64(time.Second))
}

// finish records the end of r, and reports whether it closed or opened the breaker.
func (w *twin) finish(now time.Duration, r *run, end string, calls, failures float64) (changed bool) {
	w.results = append(w.results, end)
	if r.probe {
		w.probe = nil
	}
	switch {
	case end == "ok" && r.probe:
		*w = twin{}
	case end == "fail" && (r.probe || w.row("fail", "neutral", "denied") >= 5 || calls >= 20 && failures > calls/2):
		w.reason = false
		w.trip(now)
	case end == "denied" && w.row("denied", "neutral") >= 20:
		w.reason, w.trips = true, 1000
		w.trip(now)
	default:
		return false
	}
	return true
}

// Naive twin. Beside equal decisions: never more than one probe in flight, and
// never stuck.
//
// Limiter case L81.
// Limiter case L82.
func TestAgainstNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{c: &Config{}, w: &twin{}}
		denials := rapid.Bool().Draw(t, "mostly denials")
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 20).Draw(t, "step") {
			case 0, 1, 2:
				m.now += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "gap"))
			case 3:
				m.now += time.Duration(rapid.Int64Range(0, int64(12*time.Minute)).Draw(t, "long gap"))
			case 4:
				if rapid.IntRange(0, 4).Draw(t, "reset") == 0 {
					m.reset()
				}
			case 5, 6, 7, 8, 9, 10:
				m.start(t)
			default:
				m.finish(t, denials)
			}
			m.check(t)
		}
	})
}

// machine drives a breaker and its twin side by side.
type machine struct {
	c    *Config
	s    State
	w    *twin
	now  time.Duration
	era  int // moves when the twin closes, opens or hands out a probe
	runs []*run
}

func (m *machine) start(t *rapid.T) {
	p := m.c.Ask(&m.s, m.now)
	want := m.w.permits(m.now)
	if got := map[bool]string{true: "pass", false: "no"}[p.OK]; p.Probe && want != "probe" || !p.Probe && got != want {
		t.Fatalf("at %v: %+v, want %s", m.now, p, want)
	}
	if !p.OK {
		return
	}
	m.c.Take(&m.s, m.now, p)
	if p.Probe {
		m.era++
	}
	r := &run{start: m.now, permit: p, era: m.era, probe: p.Probe}
	m.runs = append(m.runs, r)
	if p.Probe {
		m.w.probe = r
	}
}

func (m *machine) finish(t *rapid.T, denials bool) {
	if len(m.runs) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.runs)-1).Draw(t, "which")
	r := m.runs[i]
	m.runs = append(m.runs[:i], m.runs[i+1:]...)
	ends := []string{"ok", "fail", "fail", "fail", "denied", "neutral"}
	if denials {
		ends = []string{"denied", "denied", "denied", "denied", "denied", "denied", "denied", "denied", "neutral", "neutral", "neutral"}
	}
	end := rapid.SampledFrom(ends).Draw(t, "end")
	calls := rapid.Float64Range(0, 60).Draw(t, "calls")
	failures := rapid.Float64Range(0, calls).Draw(t, "failures")
	changed := r.era == m.era && m.w.finish(m.now, r, end, calls, failures)
	if changed {
		m.era++
		m.w.results = lastDenials(m.w)
	}
	var got bool
	switch end {
	case "ok":
		got = m.c.Success(&m.s, m.now, r.permit.Gen, r.permit.Probe)
	case "fail":
		got = m.c.Failure(&m.s, m.now, r.permit.Gen, r.permit.Probe, calls, failures, full{})
	case "denied":
		got = m.c.Denial(&m.s, m.now, r.permit.Gen, r.permit.Probe, full{})
	default:
		m.c.Neutral(&m.s, m.now, r.permit.Gen, r.permit.Probe)
	}
	if got != changed {
		t.Fatalf("%s at %v: changed %v, want %v", end, m.now, got, changed)
	}
}

// lastDenials keeps, over a change, only what still counts after it: while the
// breaker stays open by denials, their row.
func lastDenials(w *twin) []string {
	if w.open && w.reason {
		return w.results
	}
	return nil
}

func (m *machine) reset() {
	m.c.Reset(&m.s)
	*m.w = twin{}
	m.era++
	for _, r := range m.runs {
		r.reset = true
	}
}

func (m *machine) check(t *rapid.T) {
	probes := 0
	for _, r := range m.runs {
		if r.probe && !r.reset && m.now < r.start+15*time.Second {
			probes++
		}
	}
	if probes > 1 {
		t.Fatalf("at %v: %d probes in flight", m.now, probes)
	}
	if got := m.s.ByDenial(); got != m.w.reason {
		t.Fatalf("at %v: by denial %v", m.now, got)
	}
	p := m.c.Ask(&m.s, m.now)
	if p.OK {
		return
	}
	if p.At <= m.now || p.At > m.now+twinLong {
		t.Fatalf("at %v: ask again at %v", m.now, p.At)
	}
	if m.c.Ask(&m.s, p.At-1).OK || !m.c.Ask(&m.s, p.At).OK {
		t.Fatalf("at %v: %v is not the instant from which it permits", m.now, p.At)
	}
}
