package scenario

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

var full = flag.Bool("torture", false, "run the burst in full, with its speed and memory")

// judge holds figures against bands and remembers which of them failed.
type judge struct {
	by     map[string]map[string]float64 // by policy, or table and policy
	seen   []string
	failed map[string]string
}

// band holds a figure between two values.
func (j *judge) band(policy, figure string, low, high float64) {
	v, ok := j.by[policy][figure]
	key := policy + ": " + figure
	j.seen = append(j.seen, key)
	if !ok || !(v >= low && v <= high) {
		j.failed[key] = fmt.Sprintf("is %v, want %v to %v", v, low, high)
	}
}

// sure is band for a figure that no policy of the scenario can move out of its band.
func (j *judge) sure(policy, figure string, low, high float64) {
	j.band(policy, figure, low, high)
	j.seen = j.seen[:len(j.seen)-1]
}

// check holds a run against its bands. Then it shows that each band can fail: on the figures of
// another policy, or of one of the broken scenarios.
func check(t *testing.T, by map[string]map[string]float64, bands func(*judge), broken ...map[string]map[string]float64) {
	t.Helper()
	j := &judge{by: by, failed: map[string]string{}}
	bands(j)
	for key, why := range j.failed {
		t.Errorf("%s %s", key, why)
	}
	names := slices.Sorted(maps.Keys(by))
	for shift := 1; shift < len(names); shift++ {
		other := map[string]map[string]float64{}
		for i, name := range names {
			other[name] = by[names[(i+shift)%len(names)]]
		}
		broken = append(broken, other)
	}
	wrong := &judge{failed: map[string]string{}}
	for _, wrong.by = range broken {
		bands(wrong)
	}
	for _, key := range j.seen {
		if wrong.failed[key] == "" {
			t.Errorf("%s: no broken policy fails it: the band says nothing", key)
		}
	}
}

// mutant is a shipped scenario with a mistake in it.
func mutant(t *testing.T, name string, o Options, edit func(*Scenario)) map[string]map[string]float64 {
	t.Helper()
	s, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	edit(s)
	return run(t, s, o)
}

// figuresOf runs a shipped scenario and returns the figures by "policy", or by "table policy".
func figuresOf(t *testing.T, name string, o Options) map[string]map[string]float64 {
	t.Helper()
	s, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, s, o)
}

func run(t *testing.T, s *Scenario, o Options) map[string]map[string]float64 {
	t.Helper()
	r, err := s.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]map[string]float64{}
	for _, row := range r.Rows {
		key := row.Policy
		if row.Table != "" {
			key = row.Table + " " + key
		}
		by[key] = row.Figures
		line := []any{key}
		for _, c := range s.Columns {
			line = append(line, c, row.Figures[c])
		}
		t.Log(line...)
	}
	return by
}

var inf = math.Inf(1)

// Parts of the burst's population that a test has time for. The larger leaves 100 slots, so that one
// is kept for quiet tenants as in full.
const twelfth, twentyFourth = 100.0 / 1200, 50.0 / 1200

// The burst: who pays when one of many tenants exceeds what there is.
func TestBurst(t *testing.T) {
	by := figuresOf(t, "burst", Options{Part: twentyFourth})
	check(t, by, func(j *judge) { burstBands(j, twentyFourth) },
		mutant(t, "burst", Options{Part: 0.01}, func(s *Scenario) { s.platform.Drain = 0 }))
	shares := mutant(t, "burst", Options{Part: twelfth}, func(s *Scenario) { s.policies = s.policies[5:] })
	check(t, shares, fairBands, map[string]map[string]float64{"fair": by["none"], "defer": by["defer"]})
}

// fairBands: above 0.892 the small would pay for the large.
func fairBands(j *judge) {
	j.band("fair", "small_delivered_share", 0.999, 1)
	j.band("fair", "large_delivered_share", 0.85, 0.892)
	j.band("fair", "small_p99_ms", 0, 1.1*j.by["defer"]["small_p99_ms"])
	j.band("fair", "short_changed", 0, 0)
}

func burstBands(j *judge, part float64) {
	by := j.by
	small := math.Round(3999 * part)
	defer99 := by["defer"]["small_p99_ms"]
	for _, p := range []string{"none", "global"} {
		j.band(p, "small_delivered_share", 0.925, 0.94)
		j.band(p, "large_delivered_share", by[p]["small_delivered_share"]-0.01, by[p]["small_delivered_share"]+0.01)
		j.band(p, "short_changed", 0.99*small, inf)
	}
	j.band("none", "small_p99_ms", 3000, inf)
	// One tenant of thousands hardly moves it: that it says nothing here is what it shows.
	j.sure("global", "jain", by["none"]["jain"]-0.02, by["none"]["jain"]+0.02)
	j.band("hold", "small_delivered_share", 0.67, 0.69)
	j.band("hold", "large_delivered_share", 0.67, 0.69)
	j.band("hold", "small_p99_ms", max(10_000, 10*defer99), inf)
	for _, p := range []string{"queue", "drop", "defer"} {
		j.band(p, "small_delivered_share", 0.999, 1)
		j.band(p, "large_delivered_share", 0.675, 0.685)
		j.band(p, "small_p99_ms", 0, 100) // the endpoint's own is 60
	}
	j.band("queue", "small_p99_ms", defer99/1.1, 1.1*defer99)
	j.band("drop", "lost", 1_100_000*part, 1_200_000*part)
	j.band("defer", "short_changed", 0, 0)
	for _, p := range []string{"none", "global", "hold", "queue", "defer", "fair"} {
		j.band(p, "lost", 0, 0)
		j.sure(p, "small_waiting", 0, 0)
		j.band(p, "large_waiting", 0, 0)
	}
}

// The same in full: 4,000 tenants, seven rows. It prints its speed and its memory.
func TestBurstInFull(t *testing.T) {
	if !*full {
		t.Log("with -torture this runs in full; TestBurst runs a twelfth of it")
		return
	}
	s, err := Load("burst")
	if err != nil {
		t.Fatal(err)
	}
	var heap uint64
	began := time.Now()
	virtual := 0.0
	by := run(t, s, Options{Progress: func(string, float64) bool {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = max(heap, m.HeapInuse)
		return true
	}})
	for _, f := range by {
		virtual += f["end_s"]
	}
	took := time.Since(began)
	t.Logf("%.0f virtual seconds in %v: %.1f a second; heap at most %d MiB", virtual, took, virtual/took.Seconds(), heap>>20)
	if heap > 512<<20 {
		t.Errorf("heap: %d MiB, want at most 512", heap>>20)
	}
	j := &judge{by: by, failed: map[string]string{}}
	burstBands(j, 1)
	fairBands(j)
	for key, why := range j.failed {
		t.Errorf("%s %s", key, why)
	}
}

// What a black hole holds of the slots: most without protection, its cap with one, and with the
// breaker a probe now and then.
// Field case 27.
// Limiter case L81.
func TestBlackHole(t *testing.T) {
	check(t, figuresOf(t, "black-hole", Options{}), func(j *judge) {
		for _, table := range []string{"others-150 ", "others-300 "} {
			j.band(table+"cap", "hole_held_share", 0.0132, 0.0134)
			j.band(table+"breaker", "hole_held_share", 0, 0.001)
			j.band(table+"breaker", "hole_held_share_run", 0, 0.001)
			j.band(table+"breaker", "hole_breaker_opened_s", 5, 11)
			j.band(table+"breaker", "hole_most_probes", 1, 1)
			j.band(table+"cap", "others_p99_ms", 1000, 1005)
			j.band(table+"breaker", "others_p99_ms", 1000, 1005)
		}
		j.band("others-150 shared", "hole_held_share", 0.82, 0.84)
		j.band("others-150 shared", "others_p99_ms", 1000, 1005)
		j.band("others-300 shared", "others_p99_ms", 10_000, inf)
	}, mutant(t, "black-hole", Options{}, func(s *Scenario) {
		s.platform.Slots = 20
		s.platform.Duration, s.platform.Measure.To = 2*time.Minute, 2*time.Minute
	}), mutant(t, "black-hole", Options{}, func(s *Scenario) {
		s.groups[0].Timeout = time.Second
		s.platform.Duration, s.platform.Measure.To = 2*time.Minute, 2*time.Minute
	}))
}

// A failing endpoint costs four times its requests without a budget and a tenth more with one. A
// budget that all lanes share lets the healthy ones pay, and fails.
// Field case 38.
func TestRetryStorm(t *testing.T) {
	check(t, figuresOf(t, "retry-storm", Options{}), func(j *judge) {
		by := j.by
		j.band("per-request", "failing_attempts_per_request", 3.9, inf)
		j.band("per-request", "failing_peak_10s", 4, inf)
		j.band("budget", "failing_attempts_per_request", 1, 1.1)
		j.band("budget", "failing_peak_10s", 1, 1.25)
		j.band("shared-pool", "failing_attempts_per_request", 1.5, 3.9)
		for _, p := range []string{"per-request", "budget"} {
			j.band(p, "failing_dead", 0, 0)
			j.band(p, "failing_duplicate_share", 0, 0.004)
			j.band(p, "neighbours_p99_ms", 20, 21)
		}
		j.band("budget", "failing_caught_up_s", 0, by["per-request"]["failing_caught_up_s"]/2)
	}, mutant(t, "retry-storm", Options{}, func(s *Scenario) {
		s.policies = []Policy{s.policies[0], s.policies[2]}
		s.groups[0].Attempts, s.groups[0].Endpoint.Lost, s.groups[1].Cap = 2, 0.05, 16
	}))
}

// Whoever failed together comes back together, unless chance spreads them.
// Field case 37.
func TestHerd(t *testing.T) {
	check(t, figuresOf(t, "herd", Options{}), func(j *judge) {
		by := j.by
		j.band("none", "clients_after_recovery_peak", 10_000, 10_000) // all 1,000 in one tenth of a second
		j.band("none", "clients_duplicates", 100, inf)
		for _, p := range []string{"equal", "decorrelated", "full"} {
			j.band(p, "clients_after_recovery_peak", 0, 500) // what the endpoint can serve
			j.band(p, "clients_duplicates", 0, 0)
		}
		for p := range by {
			j.band(p, "clients_delivered", 1000, 1000)
		}
	}, mutant(t, "herd", Options{}, func(s *Scenario) {
		s.platform.Drain = 20 * time.Second
		s.groups[0].Endpoint.Latency.Fixed = 200 * time.Millisecond
	}))
}

// Ten slots, five hundred requests at once and ten quiet ones: three ways to share.
func TestNoisyNeighbour(t *testing.T) {
	check(t, figuresOf(t, "noisy-neighbour", Options{}), func(j *judge) {
		j.band("shared", "quiet_median_ms", 960, 1030)
		j.band("shared", "noisy_last_end_s", 0.99, 1.08)
		j.band("hard", "quiet_median_ms", 20, 31)
		j.band("hard", "quiet_max_ms", 20, 51)
		j.band("hard", "noisy_last_end_s", 1.66, 1.72)
		j.band("hard", "idle_slot_s", 1, inf)
		j.band("work-conserving", "quiet_median_ms", 20, 57)
		j.band("work-conserving", "quiet_max_ms", 20, 79)
		j.band("work-conserving", "noisy_last_end_s", 0.99, 1.08)
		j.band("work-conserving", "idle_slot_s", 0, 0)
	}, mutant(t, "noisy-neighbour", Options{}, func(s *Scenario) {
		s.platform.Slots = 12
	}))
}

// The completion of a fan-out of n alike is F(t)^n: its p96.1 is the single p99.9, its median the
// single p98.3. Without one pathological endpoint its p99 at least halves.
func TestFanOutTail(t *testing.T) {
	by := figuresOf(t, "fan-out-tail", Options{})
	check(t, by, func(j *judge) {
		j.band("without-pathological", "p99_ms", 0, j.by["wait-for-all"]["p99_ms"]/2)
	})
	alike := mutant(t, "fan-out-tail", Options{}, func(s *Scenario) { s.completion.Pathological = 0 })
	check(t, alike, func(j *judge) {
		single := j.by["per-subscription"]
		j.band("per-subscription", "p999_ms", 390, 410)
		j.band("per-subscription", "p98_3_ms", 113, 119)
		j.band("wait-for-all", "p96_ms", 0.97*single["p999_ms"], 1.03*single["p999_ms"])
		j.band("wait-for-all", "p50_ms", 0.97*single["p98_3_ms"], 1.03*single["p98_3_ms"])
	})
}

// A fixed window lets twice its limit through around its edge; nothing else does. The approximate
// one is never looser than the exact.
// Limiter case L28.
func TestWindowEdge(t *testing.T) {
	check(t, figuresOf(t, "window-edge", Options{}), func(j *judge) {
		j.band("fixed", "most_in_200ms", 240, 240)
		for _, p := range []string{"sliding", "approximate", "bucket"} {
			j.band(p, "most_in_200ms", 120, 120)
		}
		j.band("sliding", "most_in_window", 120, 120)
		j.band("approximate", "most_in_window", 0, 120)
	})
}

// Four replicas that do not know of each other admit four times the budget.
func TestReplicas(t *testing.T) {
	check(t, figuresOf(t, "replicas", Options{}), func(j *judge) {
		j.band("independent", "over_admission", 3.9, 4)
		j.band("partitioned", "over_admission", 0.97, 1)
		j.band("shared", "over_admission", 0.99, 1)
	})
}

// A wall clock that steps forward admits a burst extra, one that steps back stalls for an hour;
// the monotonic one knows of neither.
// Limiter case L2.
func TestClockStep(t *testing.T) {
	check(t, figuresOf(t, "clock-step", Options{}), func(j *judge) {
		j.band("forward wall", "most_in_200ms", 200, 202)
		j.band("back wall", "stall_s", 3595, 3605)
		for _, table := range []string{"forward ", "back "} {
			j.band(table+"monotonic", "most_in_200ms", 100, 102)
			j.band(table+"monotonic", "stall_s", 0, 1)
		}
	})
}

// A thousand subscriptions are no larger share than one, when sharing is by tenant.
func TestManyKeys(t *testing.T) {
	check(t, figuresOf(t, "many-keys", Options{}), func(j *judge) {
		j.band("by-tenant", "many_slot_time_share", 0.45, 0.55)
		j.band("by-tenant", "one_slot_time_share", 0.45, 0.55)
		j.band("by-subscription", "many_slot_time_share", 0.9, 1)
	})
}

// Six hours of an endpoint's absence need nobody: all is delivered, with few attempts.
func TestOutage(t *testing.T) {
	check(t, figuresOf(t, "outage", Options{}), func(j *judge) {
		by := j.by
		j.band("shipped", "endpoint_dead", 0, 0)
		j.band("shipped", "endpoint_waiting", 0, 0)
		j.band("shipped", "endpoint_delivered", by["shipped"]["endpoint_offered"], inf)
		j.band("shipped", "endpoint_retries", 1, 1000)
		j.band("shipped", "endpoint_caught_up_s", 60, 3600)
		j.band("five-attempts", "endpoint_dead", 40_000, inf)
	}, mutant(t, "outage", Options{}, func(s *Scenario) {
		s.platform.Duration, s.platform.Drain = 6*time.Hour, 0
		s.groups[0].Attempts = 3
	}), mutant(t, "outage", Options{}, func(s *Scenario) {
		s.policies = s.policies[:1]
		s.groups[0].Endpoint.Phases = nil
	}))
}
