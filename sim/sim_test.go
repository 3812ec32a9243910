package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/limit"
)

// open is a profile with every protection of the lane's own switched off.
func open() engine.Profile {
	return engine.Profile{Cap: -1, NoBudget: true, Breaker: breaker.Config{Off: true}}
}

func mustRate(t testing.TB, text string, burst int64) limit.Rate {
	t.Helper()
	r, err := limit.ParseRate(text, burst)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// steps runs and returns every verdict.
func steps(t testing.TB, s Setup) ([]Step, *Figures) {
	t.Helper()
	var all []Step
	s.Watch = func(x Step) { all = append(all, x) }
	f, err := Run(&s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Groups {
		if g := &f.Groups[i]; !g.Balanced() {
			t.Fatalf("group %d: the account does not add up: %+v", i, *g)
		}
	}
	return all, f
}

// mixed is a population of everything that there is.
func mixed(seed uint64) Setup {
	p := engine.Profile{Cap: 3, Timeout: time.Second, MaxAttempts: 6}
	span := Span{0, 30 * time.Second}
	rate, err := limit.ParseRate("20/s", 10)
	if err != nil {
		panic(err)
	}
	contract := p
	contract.Rate = rate
	server := &Server{Workers: 1}
	return Setup{
		Seed: seed, Groups: 2, Until: 30 * time.Second, Drain: time.Hour,
		Engine:  engine.Config{Slots: 8, HostLimit: -1},
		Tenants: []Tenant{{Group: 0}, {Group: 1, Weight: 3}},
		Lanes: []Lane{
			{Tenant: 0, Profile: contract, Arrivals: []Process{Poisson(30, span)}, Endpoint: Endpoint{Latency: LogNormal(20*time.Millisecond, 60*time.Millisecond)}},
			{Tenant: 0, Host: 1, Profile: p, Arrivals: []Process{Constant(20, span)}, Endpoint: Endpoint{Latency: Fixed(10 * time.Millisecond), Lost: 0.05, Phases: []Phase{{Span: Span{5 * time.Second, 12 * time.Second}, Kind: BlackHole}}}},
			{Tenant: 1, Host: 2, Profile: p, Arrivals: []Process{Sine(20, 0.8, 10*time.Second, span), Burst(5, 4*time.Second, span)}, Endpoint: Endpoint{Latency: Fixed(30 * time.Millisecond)}, Server: server},
			{Tenant: 1, Host: 2, Profile: p, Arrivals: []Process{OnOff(40, time.Second, 2*time.Second, span)}, Endpoint: Endpoint{Latency: Fixed(30 * time.Millisecond)}, Server: server, Pooled: true},
			{Tenant: 1, Host: 3, Profile: p, Arrivals: []Process{Constant(10, span)}, Endpoint: Endpoint{Throttle: &Throttle{Rate: rate}, Phases: []Phase{{Span: Span{0, 4 * time.Second}, Kind: Fails, After: 5 * time.Millisecond}, {Span: Span{9 * time.Second, 10 * time.Second}, Kind: Rejects}}}},
			{Tenant: 1, Host: 4, Profile: open(), Gate: &Gate{Rate: rate, Hold: true}, Arrivals: []Process{Poisson(25, span)}, Endpoint: Endpoint{Latency: Fixed(time.Millisecond)}},
			{Tenant: 0, Host: 5, Profile: open(), Gate: &Gate{Rate: rate, Bound: 20, Deadline: 900 * time.Millisecond}, Arrivals: []Process{Poisson(30, span)}, Endpoint: Endpoint{Latency: Fixed(time.Millisecond)}},
		},
	}
}

// One seed gives one run, verdict by verdict; another gives another.
func TestOneSeedOneResult(t *testing.T) {
	a, figures := steps(t, mixed(1))
	b, again := steps(t, mixed(1))
	c, _ := steps(t, mixed(2))
	if !slices.Equal(a, b) || figures.Jain != again.Jain || figures.End != again.End {
		t.Error("two runs with one seed differ")
	}
	if slices.Equal(a, c) {
		t.Error("another seed changes nothing")
	}
	if len(a) < 5000 {
		t.Errorf("only %d verdicts: the population does not do much", len(a))
	}
}

// What a policy decides does not change what arrives: rows of one population are comparable.
func TestArrivalsDoNotDependOnThePolicy(t *testing.T) {
	offered := func(slots int, order engine.Order) (at []Step) {
		s := mixed(3)
		s.Engine.Slots, s.Engine.Order = slots, order
		all, _ := steps(t, s)
		for _, x := range all {
			if x.Call == Offered && x.Lane < 5 { // the others pass a gate first, which is a policy
				at = append(at, Step{At: x.At, Lane: x.Lane})
			}
		}
		return at
	}
	if !slices.Equal(offered(8, engine.Fair), offered(2, engine.Arrival)) {
		t.Error("other slots, other arrivals")
	}
}

// The endpoint's view of a contract and of a cap, whatever else goes on: in no span do more than
// B + rT attempts start, and never are more in flight than the cap.
func TestLimitsHoldAtTheEndpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mixed(rapid.Uint64().Draw(t, "seed"))
		var starts []time.Duration
		inFlight := map[engine.LaneID]int{}
		s.Watch = func(x Step) {
			if x.Kind == engine.Send {
				inFlight[x.Lane]++
				if x.Lane == 0 {
					starts = append(starts, x.At)
				}
				if x.Lane < 5 && inFlight[x.Lane] > 3 {
					t.Fatalf("lane %d has %d in flight, its cap is 3", x.Lane, inFlight[x.Lane])
				}
			}
			if x.Call == Ended {
				inFlight[x.Lane]--
			}
		}
		if _, err := Run(&s); err != nil {
			t.Fatal(err)
		}
		for i, from := range starts {
			for k, to := range starts[i:] {
				if allowed := 10 + 20*(to-from).Seconds(); float64(k+1) > allowed+1e-6 {
					t.Fatalf("%d attempts within %v from %v", k+1, to-from, from)
				}
			}
		}
	})
}

func TestAtOneInstantEndsComeBeforeArrivals(t *testing.T) {
	// One slot, answers after exactly the gap between arrivals: each finds the slot free.
	all, f := steps(t, Setup{
		Groups: 1, Until: time.Second, Drain: time.Second,
		Engine:  engine.Config{Slots: 1, HostLimit: -1},
		Tenants: []Tenant{{}},
		Lanes:   []Lane{{Profile: open(), Arrivals: []Process{Constant(100, Span{0, time.Second})}, Endpoint: Endpoint{Latency: Fixed(10 * time.Millisecond)}}},
	})
	if f.Groups[0].Parked > 0 || f.Groups[0].Delivered != 100 {
		t.Errorf("%d parked, %d delivered, want 0 and 100", f.Groups[0].Parked, f.Groups[0].Delivered)
	}
	if len(all) != 200 {
		t.Errorf("%d verdicts, want 200", len(all))
	}
}

func TestEventsComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q events
		var want []event
		for i := range rapid.IntRange(1, 200).Draw(t, "n") {
			at := time.Duration(rapid.IntRange(0, 20).Draw(t, "at"))
			c := class(rapid.IntRange(int(anEnd), int(anArrival)).Draw(t, "class"))
			q.push(at, c, uint32(i))
			want = append(want, event{at, uint64(c)<<classShift | q.made, uint32(i)})
		}
		slices.SortStableFunc(want, func(a, b event) int {
			switch {
			case a.before(&b):
				return -1
			case b.before(&a):
				return 1
			}
			return 0
		})
		for _, w := range want {
			if got := q.pop(); got != w {
				t.Fatalf("got %v, want %v", got, w)
			}
		}
	})
}

func arrivals(p Process, until time.Duration) (at []time.Duration) {
	src := source{next: p, rnd: rand.New(rand.NewPCG(1, 2))}
	for src.advance() && src.at < until {
		at = append(at, src.at)
	}
	return at
}

func TestProcessesArriveAtNamedInstants(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		p    Process
		want []time.Duration
	}{
		"constant":      {Constant(4, Span{time.Second, 2 * time.Second}), []time.Duration{1000 * ms, 1250 * ms, 1500 * ms, 1750 * ms}},
		"burst":         {Burst(2, 0, Span{5 * ms, time.Second}), []time.Duration{5 * ms, 5 * ms}},
		"burst, again":  {Burst(2, 400*ms, Span{0, time.Second}), []time.Duration{0, 0, 400 * ms, 400 * ms, 800 * ms, 800 * ms}},
		"on and off":    {OnOff(10, 200*ms, 300*ms, Span{0, time.Second}), []time.Duration{0, 100 * ms, 500 * ms, 600 * ms}},
		"recorded":      {Trace([]time.Duration{ms, ms, 7 * ms}), []time.Duration{ms, ms, 7 * ms}},
		"rate of a 3rd": {Constant(1.0/3, Span{0, 9 * time.Second}), []time.Duration{0, 3 * time.Second, 6 * time.Second}},
	} {
		if got := arrivals(c.p, time.Hour); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// By chance, but as often as asked: within four standard deviations.
func TestRandomProcessesKeepTheirRate(t *testing.T) {
	in := Span{10 * time.Second, 110 * time.Second}
	count := func(at []time.Duration, s Span) (n float64) {
		for _, x := range at {
			if s.Has(x) {
				n++
			}
		}
		return n
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 4*math.Sqrt(want) {
			t.Errorf("%s: %.0f arrivals, want about %.0f", what, got, want)
		}
	}
	at := arrivals(Poisson(100, in), time.Hour)
	near("poisson", count(at, in), 10_000)
	if len(at) != int(count(at, in)) || !slices.IsSorted(at) {
		t.Error("poisson: arrivals outside of the span, or out of order")
	}
	at = arrivals(Sine(100, 0.5, 20*time.Second, in), time.Hour)
	near("sine", count(at, in), 10_000)
	up := 0.0
	for i := range 5 {
		from := in.From + time.Duration(i)*20*time.Second
		up += count(at, Span{from, from + 10*time.Second})
	}
	near("sine, upper halves", up, 5000*(1+0.5*2/math.Pi))
}

func TestLatenciesHaveTheirQuantiles(t *testing.T) {
	ms := time.Millisecond
	var sum time.Duration // of what was drawn last
	draw := func(l Latency) *Histogram {
		h, rnd := &Histogram{}, rand.New(rand.NewPCG(3, 4))
		sum = 0
		for range 200_000 {
			d := l(rnd)
			h.Add(d)
			sum += d
		}
		return h
	}
	near := func(what string, got, want time.Duration, within float64) {
		t.Helper()
		if math.Abs(float64(got)/float64(want)-1) > within {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	h := draw(LogNormal(20*ms, 60*ms))
	near("mean", sum/200_000, 20*ms, 0.01)
	near("p99", h.Quantile(0.99), 60*ms, 0.02)
	h = draw(LogNormalMedian(8*ms, 400*ms))
	near("median", h.Quantile(0.5), 8*ms, 0.02)
	near("p99.9", h.Quantile(0.999), 400*ms, 0.08)
	h = draw(Quantiles([]Quantile{{0, 10 * ms}, {0.5, 20 * ms}, {0.9, 100 * ms}, {1, time.Second}}))
	near("measured median", h.Quantile(0.5), 20*ms, 0.02)
	near("measured p90", h.Quantile(0.9), 100*ms, 0.03)
	if h.Max() > time.Second || h.Quantile(0) < 10*ms {
		t.Errorf("outside of what was measured: %v to %v", h.Quantile(0), h.Max())
	}
}

// A quantile of the histogram is that of a sorted list, to 0.4 %.
func TestHistogramIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Histogram
		list := rapid.SliceOfN(rapid.Int64Range(0, int64(100*time.Hour)), 1, 100).Draw(t, "list")
		for _, d := range list {
			h.Add(time.Duration(d))
		}
		slices.Sort(list)
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		i := max(int(math.Ceil(p*float64(len(list)))), 1) - 1
		got, want := float64(h.Quantile(p)), float64(list[i])
		if math.Abs(got-want) > want*0.004 {
			t.Fatalf("quantile %v of %v: %v, want %v", p, list, got, want)
		}
		if h.Max() != time.Duration(list[len(list)-1]) {
			t.Fatalf("max %v of %v", h.Max(), list)
		}
	})
}

// A server of one worker serves in order; a request that nobody waits for any more is served all
// the same, and its repetition is a duplicate.
func TestAServerGoesOnServingWhatTimedOut(t *testing.T) {
	p := open()
	p.Timeout = 100 * time.Millisecond
	_, f := steps(t, Setup{
		Groups: 1, Until: time.Second, Drain: time.Hour, Engine: engine.Config{Slots: 10, HostLimit: -1},
		Tenants: []Tenant{{}},
		Lanes: []Lane{{
			Profile: p, Arrivals: []Process{Burst(3, 0, Span{0, time.Second})},
			Endpoint: Endpoint{Latency: Fixed(60 * time.Millisecond)}, Server: &Server{Workers: 1},
		}},
	})
	g := f.Groups[0]
	if g.Delivered != 3 || g.Retries == 0 || g.Duplicates != g.Retries {
		t.Errorf("%d delivered, %d retries, %d duplicates: want 3, and a duplicate each retry", g.Delivered, g.Retries, g.Duplicates)
	}
}

func TestAThrottledLanePausesAndLosesNothing(t *testing.T) {
	_, f := steps(t, Setup{
		Groups: 1, Until: 5 * time.Second, Drain: time.Hour, Engine: engine.Config{HostLimit: -1},
		Tenants: []Tenant{{}},
		Lanes: []Lane{{
			Profile: open(), Arrivals: []Process{Constant(50, Span{0, 5 * time.Second})},
			Endpoint: Endpoint{Throttle: &Throttle{Rate: mustRate(t, "10/s", 10)}},
		}},
	})
	g := f.Groups[0]
	if g.Delivered != 250 || g.Parked == 0 {
		t.Errorf("%d delivered, %d parked: want all 250, some of them later", g.Delivered, g.Parked)
	}
	if g.Retries > 0 {
		t.Errorf("%d retries: a 429 is not counted as an attempt", g.Retries)
	}
}

// hold waits inside the slot, queue does not: with one slot, only the first keeps a neighbour out.
func TestHoldHoldsASlotAndQueueDoesNot(t *testing.T) {
	run := func(hold bool) *Figures {
		_, f := steps(t, Setup{
			Groups: 2, Until: 2 * time.Second, Drain: time.Minute,
			Engine:  engine.Config{Slots: 1, HostLimit: -1, Order: engine.Arrival},
			Tenants: []Tenant{{Group: 0}, {Group: 1}},
			Lanes: []Lane{
				{Tenant: 0, Profile: open(), Gate: &Gate{Rate: mustRate(t, "1/s", 1), Hold: hold}, Arrivals: []Process{Burst(2, 0, Span{0, time.Second})}},
				{Tenant: 1, Profile: open(), Arrivals: []Process{Constant(1, Span{500 * time.Millisecond, time.Second})}},
			},
		})
		return f
	}
	if got := run(true).Groups[1].Latency.Max(); got != 500*time.Millisecond {
		t.Errorf("hold: the neighbour waited %v, want 500ms: until the second token", got)
	}
	if got := run(false).Groups[1].Latency.Max(); got != 0 {
		t.Errorf("queue: the neighbour waited %v, want nothing", got)
	}
}

func TestAQueueHasABoundAndADeadline(t *testing.T) {
	_, f := steps(t, Setup{
		Groups: 1, Until: time.Second, Drain: time.Hour, Engine: engine.Config{HostLimit: -1},
		Tenants: []Tenant{{}},
		Lanes: []Lane{{
			Profile: open(), Gate: &Gate{Rate: mustRate(t, "1/s", 1), Bound: 5, Deadline: 3500 * time.Millisecond},
			Arrivals: []Process{Burst(10, 0, Span{0, time.Second})},
		}},
	})
	// One at once, four refused by the bound; of five that wait three get a token within 3.5 s.
	if g := f.Groups[0]; g.Delivered != 4 || g.Lost != 6 {
		t.Errorf("%d delivered, %d lost, want 4 and 6", g.Delivered, g.Lost)
	}
}

func TestAWrongSetupIsRefused(t *testing.T) {
	for want, s := range map[string]Setup{
		"until":   {},
		"group":   {Until: 1, Tenants: []Tenant{{Group: 1}}, Groups: 1},
		"tenant":  {Until: 1, Lanes: []Lane{{}}},
		"measure": {Until: 1, Measure: Span{2, 1}},
		"cap":     {Until: 1, Groups: 1, Tenants: []Tenant{{}}, Lanes: []Lane{{Profile: engine.Profile{Cap: -7}}}},
	} {
		if _, err := Run(&s); err == nil {
			t.Errorf("%s: accepted", want)
		}
	}
}

func TestProgressCanStopARun(t *testing.T) {
	s := mixed(1)
	s.Progress = func(time.Duration) bool { return false }
	if _, err := Run(&s); err != ErrStopped {
		t.Errorf("%v, want ErrStopped", err)
	}
}

// What waits longer than its horizon is dead, whatever keeps it.
func TestWhatWaitsBeyondItsHorizonDies(t *testing.T) {
	p := engine.Profile{Cap: 1, Timeout: time.Second, Horizon: time.Hour}
	_, f := steps(t, Setup{
		Groups: 1, Until: time.Minute, Drain: 3 * time.Hour, Engine: engine.Config{HostLimit: -1},
		Tenants: []Tenant{{}},
		Lanes: []Lane{{
			Profile: p, Arrivals: []Process{Constant(1, Span{0, time.Minute})},
			Endpoint: Endpoint{Phases: []Phase{{Span: Span{0, 24 * time.Hour}, Kind: BlackHole}}},
		}},
	})
	if g := f.Groups[0]; g.Dead != 60 || f.End > time.Hour+5*time.Minute {
		t.Errorf("%d of 60 dead, at %v", g.Dead, f.End)
	}
}
