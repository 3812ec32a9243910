package ui

import (
	"errors"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/plan"
)

// calculator is a question to package plan, as a form.
type calculator struct {
	Name, Title, About string
	Fields             []field
	run                func(values) (answered, error)
}

// field is an input. Unit "" is a plain figure; durations are given in seconds or milliseconds as the unit says.
type field struct {
	Name, Label, Unit, Default string
}

// answered is what a calculator comes to.
type answered struct {
	Rows    []figure
	Picture *picture
	Table   [][]string // the first row is the header
}

type figure struct{ Label, Value string }

// asked is a calculator with what was filled in.
type asked struct {
	*calculator
	Inputs []input
	answered
	Problems []string
}

type input struct {
	field
	Value string
}

// values are the numbers of a form.
type values map[string]float64

func (v values) seconds(name string) time.Duration { return span(v[name], time.Second) }
func (v values) millis(name string) time.Duration  { return span(v[name], time.Millisecond) }

// span is n units, or the longest there is: plan refuses that by name.
func span(n float64, unit time.Duration) time.Duration {
	d := n * float64(unit)
	if !(math.Abs(d) < math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(math.Round(d))
}

var calculators = []calculator{
	{"bucket", "Token bucket", "What a contract of a rate and a burst does with a burst after a quiet time, and with a steady offer.", []field{
		{"refill", "Refill", "tokens a second", "120"}, {"capacity", "Capacity", "tokens", "240"}, {"burst", "Instant burst", "requests", "300"},
		{"idle", "Idle before it, from empty", "seconds", "1"}, {"offered", "Offered steadily", "requests a second", "200"}, {"for", "Offered for", "seconds", "60"},
	}, bucket},
	{"window", "Edge of a window", "What a limit per window lets through around a boundary of the clock, by four rules.", []field{
		{"limit", "Limit", "requests", "120"}, {"width", "Window", "seconds", "60"}, {"gap", "Time around the boundary", "milliseconds", "200"},
	}, window},
	{"cap", "Concurrency cap", "Little's law: how many requests of one subscription are in flight at once.", []field{
		{"rate", "Rate", "a second", "100"}, {"p99", "p99 of successes", "milliseconds", "120"}, {"headroom", "Headroom", "requests", "4"},
		{"timeout", "Timeout", "seconds", "10"}, {"slots", "Slots of the platform", "", "1200"},
	}, capOf},
	{"retries", "Retries", "What retries add to the load of an endpoint that fails, with and without the budget.", []field{
		{"rate", "Rate", "a second", "200"}, {"failing", "Share that fails", "0 to 1", "1"}, {"attempts", "Attempts at most", "", "4"}, {"for", "It fails for", "seconds", "60"},
	}, retries},
	{"fanout", "Fan-out", "How long a trigger takes until all of its deliveries are done.", []field{
		{"n", "Subscriptions", "", "40"}, {"median", "Median of one", "milliseconds", "8"}, {"tail", "p99.9 of one", "milliseconds", "400"},
	}, fanOut},
	{"shares", "Shares", "Who gets what when there is not enough, by weighted max-min fairness. Capacity and wants are in one unit, whichever it is.", []field{
		{"capacity", "Capacity", "", "1200"},
		{"want0", "A wants", "", "5000"}, {"weight0", "A's weight", "", "1"}, {"want1", "B wants", "", "100"}, {"weight1", "B's weight", "", "1"},
		{"want2", "C wants", "", "900"}, {"weight2", "C's weight", "", "3"}, {"want3", "D wants", "", "0"}, {"weight3", "D's weight", "", "1"},
	}, shares},
	{"fleet", "One machine", "What one machine needs for a load.", []field{
		{"subscriptions", "Subscriptions", "", "50000"}, {"tenants", "Tenants", "", "5000"}, {"triggers", "Triggers", "a second", "500"},
		{"fanout", "Deliveries of each", "", "10"}, {"payload", "Payload", "bytes", "900"}, {"latency", "Time in a slot", "milliseconds", "50"},
	}, fleet},
}

func (u *UI) whatIf(v *visit) (*view, error) {
	q := v.URL.Query()
	all := make([]asked, len(calculators))
	for i := range calculators {
		all[i] = ask(&calculators[i], q)
	}
	return &view{page: "what-if", Title: "What if", Nav: "what-if", Data: all}, nil
}

// ask runs a calculator with the form's values if the form is its own, else with its defaults.
func ask(c *calculator, q url.Values) asked {
	a := asked{calculator: c}
	v := values{}
	for _, f := range c.Fields {
		in := input{f, f.Default}
		if given := strings.TrimSpace(q.Get(f.Name)); q.Get("of") == c.Name && given != "" {
			in.Value = given
		}
		n, err := strconv.ParseFloat(in.Value, 64)
		if err != nil {
			a.Problems = append(a.Problems, f.Label+" must be a number")
		}
		v[f.Name] = n
		a.Inputs = append(a.Inputs, in)
	}
	if len(a.Problems) > 0 {
		return a
	}
	var err error
	if a.answered, err = c.run(v); err != nil {
		a.Problems = problems(err)
	}
	return a
}

// problems takes a plan's refusals apart: each names its field and rule.
func problems(err error) []string {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return []string{err.Error()}
	}
	var list []string
	for _, one := range many.Unwrap() {
		list = append(list, problems(one)...)
	}
	return list
}

func bucket(v values) (answered, error) {
	in := plan.BucketInput{Rate: v["refill"], Capacity: v["capacity"], Burst: v["burst"], Idle: v.seconds("idle"), Offered: v["offered"], For: v.seconds("for")}
	r, err := plan.Bucket(in)
	if err != nil {
		return answered{}, err
	}
	return answered{Rows: []figure{
		{"Tokens before the burst", decimal(r.TokensBeforeBurst)}, {"Admitted of the burst", decimal(r.AdmittedInBurst)},
		{"Denied of the burst", decimal(r.DeniedInBurst)}, {"Offered steadily", decimal(r.OfferedUnits)},
		{"At most let through of that", decimal(r.MaximumBudget)}, {"Held back, at least", decimal(r.NotAdmitted)},
	}, Picture: drawLevel(in, r)}, nil
}

func window(v values) (answered, error) {
	if v["limit"] != math.Trunc(v["limit"]) || math.Abs(v["limit"]) > 1e9 {
		return answered{}, errors.New("limit: must be 1 to 1000000 requests")
	}
	r, err := plan.Window(plan.WindowInput{Limit: int64(v["limit"]), Width: v.seconds("width"), Gap: v.millis("gap")})
	if err != nil {
		return answered{}, err
	}
	a := answered{Picture: drawEdge(r), Table: [][]string{{"Rule", "Before", "After", "Within the gap", "At most in any window", "First denied waits"}}}
	for _, row := range r.Rules {
		a.Table = append(a.Table, []string{row.Rule, number(row.Before), number(row.After), number(row.Through), number(row.Most), brief(time.Duration(row.RetryMS * 1e6))})
	}
	return a, nil
}

func capOf(v values) (answered, error) {
	r, err := plan.Cap(plan.CapInput{Rate: v["rate"], P99: v.millis("p99"), Headroom: v["headroom"], Timeout: v.seconds("timeout"), Slots: v["slots"]})
	return answered{Rows: []figure{
		{"In flight, by Little's law", decimal(r.InFlight)}, {"Cap", decimal(r.Cap)},
		{"Slots that a hanging endpoint holds, without a cap", decimal(r.HangsWithout) + " (" + decimal(100*r.ShareWithout) + " %)"},
		{"Slots that it holds, with the cap", decimal(r.HangsWith) + " (" + decimal(100*r.ShareWith) + " %)"},
	}}, err
}

func retries(v values) (answered, error) {
	r, err := plan.Retries(plan.RetriesInput{Rate: v["rate"], Failing: v["failing"], Attempts: int(min(max(v["attempts"], -1), 1e6)), For: v.seconds("for")})
	return answered{Rows: []figure{
		{"Attempts a request, without the budget", decimal(r.Without)}, {"Attempts a request, with it", decimal(r.With)}, {"Times lower", decimal(r.Lower)},
		{"Attempts a second, without the budget", decimal(r.PerSecond)}, {"Attempts a second, with it", decimal(r.Limited)},
	}}, err
}

func fanOut(v values) (answered, error) {
	r, err := plan.FanOut(plan.FanOutInput{N: int(min(max(v["n"], -1), 1e9)), Median: v.millis("median"), Tail: v.millis("tail")})
	return answered{Rows: []figure{
		{"One delivery, median", decimal(r.SingleP50) + " ms"}, {"One delivery, p99", decimal(r.SingleP99) + " ms"},
		{"All of them, median", decimal(r.CompletionP50) + " ms"}, {"All of them, p99", decimal(r.CompletionP99) + " ms"},
	}}, err
}

// sharers are the tenants of the form: the field of the i-th has its number.
var sharers = []string{"A", "B", "C", "D"}

func shares(v values) (answered, error) {
	in := plan.SharesInput{Capacity: v["capacity"]}
	for i, name := range sharers {
		n := strconv.Itoa(i)
		in.Tenants = append(in.Tenants, plan.Tenant{Name: name, Want: v["want"+n], Weight: v["weight"+n]})
	}
	r, err := plan.Shares(in)
	if err != nil {
		return answered{}, err
	}
	level := "nobody gets less than it wants"
	if r.Level > 0 {
		level = decimal(r.Level) + " for each weight"
	}
	a := answered{Rows: []figure{{"Level", level}, {"Unused", decimal(r.Unused)}, {"Jain's index over share / want", ratio(r.Jain)}},
		Picture: drawShares(r), Table: [][]string{{"Tenant", "Weight", "Wants", "Gets", "Enough"}}}
	for _, t := range r.Tenants {
		note := "yes"
		if !t.Satisfied {
			note = "no, its share"
		}
		a.Table = append(a.Table, []string{t.Name, decimal(t.Weight), decimal(t.Want), decimal(t.Share), note})
	}
	return a, nil
}

func fleet(v values) (answered, error) {
	r, err := plan.Fleet(plan.FleetInput{Subscriptions: v["subscriptions"], Tenants: v["tenants"], Triggers: v["triggers"], FanOut: v["fanout"], Payload: v["payload"], Latency: v.millis("latency")})
	return answered{Rows: []figure{
		{"Deliveries a second", decimal(r.Deliveries)}, {"Slots busy", decimal(r.SlotsBusy)}, {"Slots to configure", decimal(r.Slots)}, {"Cores", decimal(r.Cores)},
		{"Memory", size(int64(r.MemoryBytes))}, {"Log written a day", size(int64(min(r.LogPerDay, 1e18)))}, {"Disk", size(int64(min(r.Disk, 1e18)))},
	}}, err
}
