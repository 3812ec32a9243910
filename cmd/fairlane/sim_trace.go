package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/sim/picture"
	"github.com/fairlane-dev/fairlane/sim/scenario"
)

// simTrace is `fairlane sim trace` with its flags.
type simTrace struct {
	simRun
	before, set []string
	top         int
}

func newSimTraceCmd() *cobra.Command {
	var r simTrace
	cmd := &cobra.Command{
		Use:   "trace FILE",
		Short: "Replay recorded traffic through changed limits, by tenant, before and after",
		Long: "Replays a trace, lines of JSON without payloads, twice: with the limits that are in force\n" +
			"(--before; what is not said is as shipped), and with what --set changes on top of them. A\n" +
			"setting is KEY=VALUE for all tenants or TENANT:KEY=VALUE for one; KEY is a field of a group\n" +
			"in a scenario (rate, burst, cap, weight, timeout, deny, breaker, ...), or slots, or order.",
		Example: "  fairlane sim trace trace.jsonl --before rate=100/s --set acme:rate=10/s --set acme:cap=4\n" +
			"  fairlane sim trace trace.jsonl --set slots=600 --json",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.begin(cmd); err != nil {
				return err
			}
			return r.run(cmd, args[0])
		},
	}
	cmd.Flags().StringArrayVar(&r.before, "before", nil, "a setting in force; repeat for more")
	cmd.Flags().StringArrayVar(&r.set, "set", nil, "a setting that changes; repeat for more")
	cmd.Flags().IntVar(&r.top, "top", 20, "tenants in the table: those whose p99 changes most")
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print one JSON object, with every tenant")
	cmd.Flags().Uint64Var(&r.options.Seed, "seed", 1, "of the endpoints' answers")
	cmd.Flags().StringVar(&r.plot, "plot", "", "draw the table's tenants, before and after, into this .svg or .png")
	return cmd
}

func (r *simTrace) run(cmd *cobra.Command, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	trace, err := scenario.ReadTrace(file, f)
	if err != nil {
		return err
	}
	out := traceReport{Trace: file, Seed: r.options.Seed, Deliveries: trace.Deliveries, Seconds: trace.Length.Seconds()}
	for _, name := range trace.Tenants() {
		out.Tenants = append(out.Tenants, traceTenant{Tenant: name})
	}
	if err := r.replay(cmd, trace, "before", r.before, &out); err != nil {
		return err
	}
	if err := r.replay(cmd, trace, "after", slices.Concat(r.before, r.set), &out); err != nil {
		return err
	}
	if r.plot != "" {
		if err := picture.Write(r.plot, r.charts(&out)...); err != nil {
			return err
		}
	}
	if r.asJSON {
		return json.NewEncoder(r.out).Encode(out)
	}
	return r.table(&out)
}

// replay runs the trace once and puts its figures into the report.
func (r *simTrace) replay(cmd *cobra.Command, trace *scenario.Trace, name string, settings []string, out *traceReport) error {
	limits, err := trace.ParseLimits(settings)
	if err != nil {
		return usageError{err}
	}
	figures, short, err := trace.Replay(limits, r.options.Seed, func(part float64) bool {
		r.bar(name, part)
		return cmd.Context().Err() == nil
	})
	r.clearBar()
	if err != nil {
		return err
	}
	side := func(t *traceTenant) *traceSide { return &t.Before }
	if name == "after" {
		side = func(t *traceTenant) *traceSide { return &t.After }
		out.ShortAfter = short
	} else {
		out.ShortBefore = short
	}
	for i, f := range figures {
		*side(&out.Tenants[i]) = traceSide{
			Offered: f.Offered, Delivered: f.Delivered, Parked: f.Parked, Lost: f.Lost, Dead: f.Dead,
			P50: f.P50ms, P99: f.P99ms, Held: f.HeldSlots,
		}
	}
	return nil
}

// traceReport is the JSON of `sim trace`.
type traceReport struct {
	Trace       string        `json:"trace"`
	Seed        uint64        `json:"seed"`
	Deliveries  int           `json:"deliveries"`
	Seconds     float64       `json:"seconds"`
	ShortBefore int           `json:"short_changed_before"`
	ShortAfter  int           `json:"short_changed_after"`
	Tenants     []traceTenant `json:"tenants"`
}

type traceTenant struct {
	Tenant string    `json:"tenant"`
	Before traceSide `json:"before"`
	After  traceSide `json:"after"`
}

type traceSide struct {
	Offered   uint64  `json:"offered"`
	Delivered uint64  `json:"delivered"`
	Parked    uint64  `json:"parked"`
	Lost      uint64  `json:"lost"`
	Dead      uint64  `json:"dead"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Held      float64 `json:"held_slots"`
}

// change is by how much the p99 moves, up or down.
func (t *traceTenant) change() float64 {
	return math.Abs(math.Log((t.After.P99 + 1) / (t.Before.P99 + 1)))
}

func (r *simTrace) table(out *traceReport) error {
	fmt.Fprintf(r.out, "%d deliveries of %d tenants in %.0f s, replayed before and after the change\n\n", out.Deliveries, len(out.Tenants), out.Seconds)
	lines := [][]string{{"tenant", "offered", "delivered", "->", "parked", "->", "lost+dead", "->", "p50 ms", "->", "p99 ms", "->", "slots", "->"}}
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, t := range r.shown(out) {
		a, b := t.Before, t.After
		lines = append(lines, []string{
			strconv.QuoteToGraphic(t.Tenant), count(a.Offered), count(a.Delivered), count(b.Delivered), count(a.Parked), count(b.Parked),
			count(a.Lost + a.Dead), count(b.Lost + b.Dead), scenario.ShortNumber(a.P50), scenario.ShortNumber(b.P50),
			scenario.ShortNumber(a.P99), scenario.ShortNumber(b.P99), scenario.ShortNumber(a.Held), scenario.ShortNumber(b.Held),
		})
	}
	if err := scenario.WriteTable(r.out, lines); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.out, "\ntenants short-changed: %d -> %d\n", out.ShortBefore, out.ShortAfter)
	return err
}

// shown are the tenants of the table and the picture: those whose p99 changes most first.
func (r *simTrace) shown(out *traceReport) []traceTenant {
	list := slices.Clone(out.Tenants)
	slices.SortStableFunc(list, func(a, b traceTenant) int { return cmp.Compare(b.change(), a.change()) })
	return list[:min(max(r.top, 0), len(list))]
}

// charts show what changes for the tenants of the table.
func (r *simTrace) charts(out *traceReport) []picture.Chart {
	var names []string
	for _, t := range r.shown(out) {
		names = append(names, t.Tenant)
	}
	chart := func(title, axis string, log bool, value func(*traceSide) float64) picture.Chart {
		before, after := picture.Bars{Name: "before"}, picture.Bars{Name: "after"}
		for _, t := range r.shown(out) {
			before.Values = append(before.Values, value(&t.Before))
			after.Values = append(after.Values, value(&t.After))
		}
		return picture.Chart{Title: title, X: "tenant", Y: axis, Log: log, Names: names, Bars: []picture.Bars{before, after}}
	}
	return []picture.Chart{
		chart("p99, before and after", "p99 of deliveries, ms", true, func(s *traceSide) float64 { return s.P99 }),
		chart("slots held, before and after", "slots, on average", false, func(s *traceSide) float64 { return s.Held }),
	}
}
