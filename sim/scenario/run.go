package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/sim"
)

// Options of Run. The zero value is a full run with seed 1.
type Options struct {
	Seed     uint64                              // 0 means 1
	Part     float64                             // kind delivery: runs this part of the population on as small a platform; 0 means all
	Only     string                              // this policy alone
	Progress func(row string, part float64) bool // told how far a row is, 0 to 1, and reports whether to go on; may be nil
	Watch    func(sim.Step)                      // told every verdict; may be nil
}

// Result is what a scenario showed.
type Result struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Rows     []Row  `json:"rows"`
}

// Row is one policy's, with one table of the population.
type Row struct {
	Table   string             `json:"table,omitempty"`
	Policy  string             `json:"policy"`
	Figures map[string]float64 `json:"figures"`

	Virtual time.Duration `json:"-"` // how long it ran, in virtual time
	Series  []Series      `json:"-"` // over time, for pictures
}

// Series is a quantity over time, or another curve.
type Series struct {
	Name         string // one of SeriesNames, in a scenario with groups
	Group        string // or tenant
	XAxis, YAxis string // what, with its unit
	X, Y         []float64
}

// SeriesNames are the quantities that a scenario with groups keeps over time.
var SeriesNames = []string{"offered", "attempts", "delivered", "held", "waiting"}

// Run runs every policy with every table.
func (s *Scenario) Run(o Options) (*Result, error) {
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Only != "" && !slices.Contains(s.PolicyNames(), o.Only) {
		return nil, fmt.Errorf("%s has no policy %q; it has %s", s.Name, o.Only, strings.Join(s.PolicyNames(), ", "))
	}
	out := &Result{Scenario: s.Name, Seed: o.Seed}
	rows := s.rows(&reader{})
	for i := range rows {
		x := &rows[i]
		if o.Only != "" && x.policy.Name != o.Only {
			continue
		}
		row, err := s.runRow(x, &o)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s.Name, x.name(), err)
		}
		row.Table, row.Policy = x.table, x.policy.Name
		out.Rows = append(out.Rows, *row)
	}
	return out, nil
}

func (x *row) name() string {
	if x.table == "" {
		return x.policy.Name
	}
	return x.table + ", " + x.policy.Name
}

func (s *Scenario) runRow(x *row, o *Options) (*Row, error) {
	switch s.Kind {
	case "limiter":
		return s.runLimiter(x, o)
	case "slots":
		return s.runSlots(x), nil
	case "completion":
		return runCompletion(x, o), nil
	}
	return s.runDelivery(x, o)
}

func (s *Scenario) runDelivery(x *row, o *Options) (*Row, error) {
	setup := s.part(x, o.Part).setup(x, o.Seed)
	setup.Watch = o.Watch
	if o.Progress != nil {
		end := setup.Until + setup.Drain
		setup.Progress = func(now time.Duration) bool {
			return o.Progress(x.name(), min(float64(now)/float64(end), 1))
		}
	}
	f, err := sim.Run(setup)
	if err != nil {
		return nil, err
	}
	row := &Row{Figures: map[string]float64{}, Virtual: f.End}
	for i := range x.groups {
		g := &f.Groups[i]
		if !g.Balanced() {
			return nil, fmt.Errorf("the account of %s does not add up: %d offered", x.groups[i].Name, g.Offered)
		}
		groupFigures(row, x.groups[i].Name, f, g)
		row.Series = append(row.Series, seriesOf(x.groups[i].Name, f, g)...)
	}
	put(row.Figures, "", map[string]float64{
		"jain": f.Jain, "served_jain": f.Served, "short_changed": float64(f.ShortChanged),
		"lost": float64(f.Lost()), "parked": float64(f.Parked()), "end_s": f.End.Seconds(),
	})
	return row, nil
}

// part returns the scenario and changes the row so that a part of the population runs on as small
// a part of the platform: many tenants become fewer, one becomes smaller.
func (s *Scenario) part(x *row, f float64) *Scenario {
	if f == 0 || f == 1 {
		return s
	}
	c := *s
	c.platform.Slots = scaled(c.platform.Slots, f)
	p := *x.policy
	p.Slots = scaled(p.Slots, f)
	p.Limit.Rate, p.Limit.Burst = scaledRate(p.Limit.Rate, f), int64(scaled(int(p.Limit.Burst), f))
	x.policy = &p
	for i := range x.groups {
		g := &x.groups[i]
		if g.Tenants > 1 {
			g.Tenants = scaled(g.Tenants, f)
			continue
		}
		g.Rate, g.Burst, g.Cap = scaledRate(g.Rate, f), int64(scaled(int(g.Burst), f)), scaled(g.Cap, f)
		g.Arrivals = append([]Arrivals(nil), g.Arrivals...)
		for k := range g.Arrivals {
			g.Arrivals[k].Rate *= f
			g.Arrivals[k].Count = scaled(g.Arrivals[k].Count, f)
		}
	}
	return &c
}

// scaled keeps 0, which has a meaning of its own.
func scaled(n int, f float64) int {
	if n == 0 {
		return 0
	}
	return max(int(math.Round(float64(n)*f)), 1)
}

// scaledRate is exact for rates that are whole per second.
func scaledRate(text string, f float64) string {
	r, err := limit.ParseContract(text, 1)
	if text == "" || err != nil || r.IsUnlimited() || r.IsPaused() {
		return text
	}
	return fmt.Sprintf("%d/1000s", int64(math.Round(r.PerSecond()*f*1000)))
}

func put(to map[string]float64, group string, figures map[string]float64) {
	if group != "" {
		group += "_"
	}
	for name, v := range figures {
		if finite(v) {
			to[group+name] = v
		}
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// groupNames are the figures of every group.
var groupNames = []string{
	"offered", "delivered", "delivered_share", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "lost", "parked",
	"dead", "retries", "attempts", "duplicates", "duplicate_share", "attempts_per_request", "peak_1s", "peak_10s",
	"held_share", "held_share_run", "slot_time_share", "breaker_opened_s", "most_probes", "most_waiting", "waiting",
	"caught_up_s", "last_end_s", "after_recovery_peak",
}

var platformNames = []string{"jain", "served_jain", "short_changed", "lost", "parked", "end_s"}

func groupFigures(row *Row, name string, f *sim.Figures, g *sim.Group) {
	span := (f.Measure.To - f.Measure.From).Seconds()
	var held float64
	for i := range f.Groups {
		held += f.Groups[i].MeasuredHeld
	}
	q := func(p float64) float64 { return millis(g.Latency.Quantile(p)) }
	figures := map[string]float64{
		"offered": float64(g.Offered), "delivered": float64(g.Delivered), "delivered_share": g.DeliveredShare,
		"p50_ms": q(0.5), "p90_ms": q(0.9), "p99_ms": q(0.99), "p999_ms": q(0.999), "max_ms": millis(g.Latency.Max()),
		"lost": float64(g.Lost), "parked": float64(g.Parked), "dead": float64(g.Dead),
		"retries": float64(g.Retries), "attempts": float64(g.Attempts), "duplicates": float64(g.Duplicates),
		"duplicate_share":      float64(g.Duplicates) / max(float64(g.Offered), 1),
		"attempts_per_request": perRequest(g, int(f.Measure.From/f.Bin), int(f.Measure.To/f.Bin)),
		"peak_1s":              peak(f, g, time.Second), "peak_10s": peak(f, g, 10*time.Second),
		"held_share":      g.MeasuredHeld / span / float64(f.Slots),
		"held_share_run":  heldRun(f, g) / float64(f.Slots),
		"slot_time_share": g.MeasuredHeld / held,
		"most_probes":     float64(g.MostProbes), "most_waiting": float64(g.MostWaiting), "waiting": float64(g.Waiting),
		"caught_up_s": caughtUp(f, g), "last_end_s": g.LastEnd.Seconds(), "after_recovery_peak": peakAfter(f, g),
		"breaker_opened_s": math.NaN(),
	}
	if g.BreakerOpened >= 0 {
		figures["breaker_opened_s"] = g.BreakerOpened.Seconds()
	}
	put(row.Figures, name, figures)
}

// perRequest is attempts over first offers between two bins.
func perRequest(g *sim.Group, from, to int) float64 {
	attempts, offered := 0.0, 0.0
	for i := from; i < min(to, len(g.Series)); i++ {
		attempts += float64(g.Series[i].Attempts)
		offered += float64(g.Series[i].Offered)
	}
	return attempts / offered
}

// peak is the largest perRequest over any width within the measured span.
func peak(f *sim.Figures, g *sim.Group, width time.Duration) (most float64) {
	bins := max(int(width/f.Bin), 1)
	for i := int(f.Measure.From / f.Bin); i+bins <= int(f.Measure.To/f.Bin); i++ {
		if v := perRequest(g, i, i+bins); finite(v) {
			most = max(most, v)
		}
	}
	return most
}

func heldRun(f *sim.Figures, g *sim.Group) float64 {
	sum := 0.0
	for _, p := range g.Series {
		sum += p.Held
	}
	return sum / (f.End.Seconds() / f.Bin.Seconds())
}

// caughtUp is how long after the measured span nothing waited any more; NaN if something always did.
func caughtUp(f *sim.Figures, g *sim.Group) float64 {
	if g.Waiting > 0 {
		return math.NaN()
	}
	last := int(f.Measure.To/f.Bin) - 1
	for i := last + 1; i < len(g.Series); i++ {
		if g.Series[i].Waiting > 0 {
			last = i
		}
	}
	return (time.Duration(last+1)*f.Bin - f.Measure.To).Seconds()
}

// peakAfter is the most attempts in a bin after the measured span, per second.
func peakAfter(f *sim.Figures, g *sim.Group) float64 {
	most := uint32(0)
	for i := int(f.Measure.To / f.Bin); i < len(g.Series); i++ {
		most = max(most, g.Series[i].Attempts)
	}
	return float64(most) / f.Bin.Seconds()
}

func seriesOf(group string, f *sim.Figures, g *sim.Group) []Series {
	per := f.Bin.Seconds()
	of := func(name, axis string, y func(p *sim.Point) float64) Series {
		s := Series{Name: name, Group: group, XAxis: "time, s", YAxis: axis}
		for i := range g.Series {
			if i > 0 && time.Duration(i+1)*f.Bin > f.End {
				break // a bin that has only begun says little
			}
			s.X = append(s.X, float64(i)*per)
			s.Y = append(s.Y, y(&g.Series[i]))
		}
		return s
	}
	return []Series{
		of("offered", "deliveries offered, 1/s", func(p *sim.Point) float64 { return float64(p.Offered) / per }),
		of("attempts", "attempts, 1/s", func(p *sim.Point) float64 { return float64(p.Attempts) / per }),
		of("delivered", "delivered, 1/s", func(p *sim.Point) float64 { return float64(p.Delivered) / per }),
		of("held", "slots held", func(p *sim.Point) float64 { return p.Held }),
		of("waiting", "deliveries waiting", func(p *sim.Point) float64 { return float64(p.Waiting) }),
	}
}

const curvePoints = 500 // of a curve in a picture: more cannot be told apart

var limiterNames = []string{"offered", "admitted", "denied", "budget", "over_admission", "most_in_window", "most_in_200ms", "stall_s"}

func (s *Scenario) runLimiter(x *row, o *Options) (*Row, error) {
	l := &x.limiter
	limiters, err := l.limiters(x.policy)
	if err != nil {
		return nil, err
	}
	setup := &sim.LimiterSetup{Seed: o.Seed, Limiters: limiters, Until: s.platform.Duration}
	for i := range l.Arrivals {
		setup.Arrivals = append(setup.Arrivals, l.Arrivals[i].process(s.platform.Duration))
	}
	if x.policy.Clock == "wall" && l.StepBy != 0 {
		setup.Clock = func(now time.Duration) time.Duration {
			if now >= l.StepAt {
				return now + l.StepBy + longest
			}
			return now + longest
		}
	}
	p := sim.RunLimiters(setup)
	burst := max(l.Burst, 0)
	if burst == 0 {
		burst = l.Limit
	}
	budget := float64(burst) + float64(l.Limit)*s.platform.Duration.Seconds()/l.Window.Seconds()
	row := &Row{Virtual: s.platform.Duration, Figures: map[string]float64{
		"offered": float64(p.Offered), "admitted": float64(len(p.Admitted)), "denied": float64(p.Offered - len(p.Admitted)),
		"budget": budget, "over_admission": float64(len(p.Admitted)) / budget,
		"most_in_window": float64(p.Most(l.Window)), "most_in_200ms": float64(p.Most(200 * time.Millisecond)),
		"stall_s": p.Stall.Seconds(),
	}}
	admitted := Series{XAxis: "time, s", YAxis: "requests admitted so far"}
	for i, at := range p.Admitted {
		if i%(len(p.Admitted)/curvePoints+1) == 0 {
			admitted.X, admitted.Y = append(admitted.X, at.Seconds()), append(admitted.Y, float64(i+1))
		}
	}
	row.Series = append(row.Series, admitted)
	return row, nil
}

func (l *limiterPart) limiters(p *Policy) (all []sim.Limiter, err error) {
	n, count := l.Limit, 1
	burst := l.Burst
	if burst == 0 {
		burst = l.Limit
	}
	switch p.Replicas {
	case "independent":
		count = l.Replicas
	case "partitioned":
		count = l.Replicas
		n, burst = n/int64(count), max(burst/int64(count), 1)
	}
	for range count {
		one, err := newLimiter(p, n, burst, l.Window)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func newLimiter(p *Policy, n, burst int64, window time.Duration) (sim.Limiter, error) {
	switch p.Algorithm {
	case "fixed":
		return limit.NewFixed(n, window)
	case "sliding":
		return limit.NewLog(n, window)
	case "approximate":
		return limit.NewSliding(n, window, p.Parts)
	}
	r, err := limit.NewRate(n, window, burst)
	if err != nil {
		return nil, err
	}
	if p.Algorithm == "leaky" {
		return limit.NewLeaky(r), nil
	}
	return limit.NewBucket(r), nil
}

var slotModes = map[string]fair.Mode{"shared": fair.Shared, "hard": fair.Hard, "work-conserving": fair.WorkConserving}

var waiterNames = []string{"median_ms", "max_ms", "last_end_s"}

func (s *Scenario) runSlots(x *row) *Row {
	setup := &sim.WaitersSetup{Limits: fair.SlotLimits{
		Slots: s.platform.Slots, Mode: slotModes[x.policy.Mode], Queue: mostWaiting, Waiters: mostWaiting,
	}}
	for _, w := range s.tenants {
		setup.Tenants = append(setup.Tenants, sim.Waiters{Name: w.Name, Share: w.Share, Count: w.Count, At: w.At, Work: w.Work})
	}
	f := sim.RunWaiters(setup)
	row := &Row{Virtual: f.End, Figures: map[string]float64{"idle_slot_s": f.Idle, "end_s": f.End.Seconds()}}
	for i := range f.Tenants {
		t := &f.Tenants[i]
		put(row.Figures, s.tenants[i].Name, map[string]float64{
			"median_ms": millis(t.Median()), "max_ms": millis(t.Max()), "last_end_s": t.LastEnd.Seconds(),
		})
		done := Series{Group: s.tenants[i].Name, XAxis: "time, s", YAxis: "part of requests done"}
		for k, took := range t.Took {
			done.X = append(done.X, (s.tenants[i].At + took).Seconds())
			done.Y = append(done.Y, float64(k+1)/float64(len(t.Took)))
		}
		row.Series = append(row.Series, done)
	}
	return row
}

var completionNames = []string{"p50_ms", "p90_ms", "p96_ms", "p98_3_ms", "p99_ms", "p999_ms"}

func runCompletion(x *row, o *Options) *Row {
	c := &x.completion
	setup := &sim.CompletionSetup{Seed: o.Seed, Triggers: c.Triggers}
	for range c.Endpoints - c.Pathological {
		setup.All = append(setup.All, c.Latency.model())
	}
	if x.policy.Completion == "all" {
		for range c.Pathological {
			setup.All = append(setup.All, c.PathologicalLatency.model())
		}
	}
	f := sim.RunCompletions(setup)
	h := &f.All
	if x.policy.Completion == "single" {
		h = &f.Single
	}
	row := &Row{Figures: map[string]float64{}}
	curve := Series{XAxis: "time to completion, ms", YAxis: "part of triggers complete"}
	for i, p := range []float64{0.5, 0.9, 0.961, 0.983, 0.99, 0.999} {
		row.Figures[completionNames[i]] = millis(h.Quantile(p))
	}
	for i := 1; i < 200; i++ {
		curve.X = append(curve.X, millis(h.Quantile(float64(i)/200)))
		curve.Y = append(curve.Y, float64(i)/200)
	}
	row.Series = append(row.Series, curve)
	return row
}

// figureNames lists what a table of this scenario can show.
func (s *Scenario) figureNames() (list []string) {
	prefixed := func(of, names []string) {
		for _, group := range of {
			for _, name := range names {
				list = append(list, group+"_"+name)
			}
		}
	}
	switch s.Kind {
	case "limiter":
		return limiterNames
	case "completion":
		return completionNames
	case "slots":
		var tenants []string
		for _, w := range s.tenants {
			tenants = append(tenants, w.Name)
		}
		prefixed(tenants, waiterNames)
		return append(list, "idle_slot_s", "end_s")
	}
	var groups []string
	for _, g := range s.groups {
		groups = append(groups, g.Name)
	}
	prefixed(groups, groupNames)
	return append(list, platformNames...)
}
