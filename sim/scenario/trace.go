package scenario

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/strictyaml"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/sim"
)

// Trace is recorded traffic: when each subscription's deliveries were first offered, and how its
// endpoint answered. It is read from lines of JSON, an object a delivery, without payloads:
//
//	{"t": 0.25, "tenant": "acme", "subscription": "orders", "size": 900, "outcome": "delivered", "latency": 0.031, "attempts": 1}
//
// t is the first offer in seconds since any origin; latency is that of the last answer in seconds;
// outcome is delivered, dead, cancelled, dropped or parked; attempts (1 if absent) and size may be
// left out.
type Trace struct {
	Deliveries int
	Length     time.Duration
	tenants    []*traced
	byName     map[string]*traced
}

// traced is one tenant of a trace.
type traced struct {
	name   string
	subs   []*tracedSub
	byName map[string]*tracedSub
}

type tracedSub struct {
	t        []float64       // as recorded, until all are read
	at       []time.Duration // from the trace's beginning, sorted
	answers  []time.Duration
	attempts int
	failed   int
}

// traceLine is a line of the file.
type traceLine struct {
	T            *float64 `json:"t"`
	Tenant       string   `json:"tenant"`
	Subscription string   `json:"subscription"`
	Size         int64    `json:"size"`
	Outcome      string   `json:"outcome"`
	Latency      float64  `json:"latency"`
	Attempts     *int     `json:"attempts"`
}

var outcomes = []string{"delivered", "dead", "cancelled", "dropped", "parked"}

const (
	maxLine       = 64 << 10
	maxDeliveries = 20_000_000
)

// ReadTrace reads a trace. The lines need not be sorted. An error is a Problem with the line.
func ReadTrace(file string, in io.Reader) (*Trace, error) {
	t := &Trace{byName: map[string]*traced{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 4096), maxLine)
	first, last, lanes, n := math.Inf(1), math.Inf(-1), 0, 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		x, field, rule := readLine(lines.Bytes())
		if rule != "" {
			return nil, Problem{File: file, Line: n, Column: 1, Field: field, Rule: rule}
		}
		first, last = min(first, *x.T), max(last, *x.T)
		if t.add(x) {
			lanes++
		}
		if t.Deliveries > maxDeliveries || lanes > mostLanes {
			return nil, Problem{File: file, Line: n, Column: 1, Rule: fmt.Sprintf("must have at most %d deliveries of %d subscriptions in all", maxDeliveries, mostLanes)}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, Problem{File: file, Line: n + 1, Column: 1, Rule: "must be lines of at most 64 KiB"}
	case err != nil:
		return nil, err
	case t.Deliveries == 0:
		return nil, Problem{File: file, Rule: "must have at least one delivery"}
	case last-first > longest.Seconds():
		return nil, Problem{File: file, Field: "t", Rule: fmt.Sprintf("must span at most %v, spans %.0f s", longest, last-first)}
	}
	t.finish(first, last)
	return t, nil
}

func readLine(line []byte) (x traceLine, field, rule string) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		return x, "", "must be an object with t, tenant, subscription, size, outcome, latency, attempts: " + err.Error()
	}
	switch {
	case x.T == nil || math.Abs(*x.T) > 1e12:
		return x, "t", "must be seconds, from -1e12 to 1e12"
	case x.Tenant == "" || len(x.Tenant) > 256:
		return x, "tenant", "must be 1 to 256 bytes"
	case x.Subscription == "" || len(x.Subscription) > 256:
		return x, "subscription", "must be 1 to 256 bytes"
	case !slices.Contains(outcomes, x.Outcome):
		return x, "outcome", "must be one of " + strings.Join(outcomes, ", ")
	case !(x.Latency >= 0 && x.Latency <= 3600):
		return x, "latency", "must be seconds, from 0 to 3600"
	case x.Attempts != nil && (*x.Attempts < 0 || *x.Attempts > 1_000_000):
		return x, "attempts", "must be 0 to 1000000"
	case x.Size < 0:
		return x, "size", "must be 0 or more"
	}
	return x, "", ""
}

// add notes a delivery and reports whether its subscription is new.
func (t *Trace) add(x traceLine) (isNew bool) {
	tn := t.byName[x.Tenant]
	if tn == nil {
		tn = &traced{name: x.Tenant, byName: map[string]*tracedSub{}}
		t.byName[x.Tenant] = tn
		t.tenants = append(t.tenants, tn)
	}
	s := tn.byName[x.Subscription]
	if isNew = s == nil; isNew {
		s = &tracedSub{}
		tn.byName[x.Subscription] = s
		tn.subs = append(tn.subs, s)
	}
	t.Deliveries++
	s.t = append(s.t, *x.T)
	attempts := 1
	if x.Attempts != nil {
		attempts = *x.Attempts
	}
	s.attempts += attempts
	s.failed += attempts
	if x.Outcome == "delivered" {
		s.failed -= min(attempts, 1)
	}
	if attempts > 0 {
		s.answers = append(s.answers, time.Duration(x.Latency*float64(time.Second)))
	}
	return isNew
}

func (t *Trace) finish(first, last float64) {
	t.Length = time.Duration((last - first) * float64(time.Second))
	for _, tn := range t.tenants {
		for _, s := range tn.subs {
			for _, at := range s.t {
				s.at = append(s.at, time.Duration((at-first)*float64(time.Second)))
			}
			slices.Sort(s.at)
			s.t = nil
		}
	}
}

// Limits are settings that a trace is replayed with: those of the platform, of all tenants, and of
// some.
type Limits struct {
	slots  int
	order  string
	all    []ast.Node
	tenant map[string][]ast.Node
}

// ParseLimits reads settings: "slots=600", "order=arrival", or a field of a group for all tenants
// ("cap=8") or one ("acme:rate=10/s").
func (t *Trace) ParseLimits(settings []string) (*Limits, error) {
	l := &Limits{order: "fair", slots: 1200, tenant: map[string][]ast.Node{}}
	for _, text := range settings {
		if err := t.parseLimit(l, text); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
	}
	return l, nil
}

func (t *Trace) parseLimit(l *Limits, text string) error {
	left, value, ok := strings.Cut(text, "=")
	if !ok || value == "" {
		return errors.New("must be KEY=VALUE or TENANT:KEY=VALUE")
	}
	tenant, key := "", left
	if i := strings.LastIndexByte(left, ':'); i >= 0 {
		tenant, key = left[:i], left[i+1:]
		if t.byName[tenant] == nil {
			return fmt.Errorf("the trace has no tenant %q", tenant)
		}
	}
	r := &reader{strictyaml.Reader{File: "--set"}}
	root := r.parse([]byte(key + ": " + value))
	if root == nil {
		return r.sorted()
	}
	g, p := newGroup(""), Policy{}
	switch {
	case tenant == "" && key == "slots":
		r.mapping(root, "", []field{p.slotsField()})
		l.slots = p.Slots
	case tenant == "" && key == "order":
		r.mapping(root, "", []field{word("order", "", &l.order, "fair", "arrival")})
	default:
		r.mapping(root, "", g.limits())
		if tenant == "" {
			l.all = append(l.all, root)
		} else {
			l.tenant[tenant] = append(l.tenant[tenant], root)
		}
	}
	return r.sorted()
}

// limits are the fields of a group without its traffic.
func (g *Group) limits() []field {
	return slices.DeleteFunc(g.fields(), func(f field) bool {
		return slices.Contains([]string{"tenants", "subscriptions", "arrivals", "endpoint"}, f.name)
	})
}

// Replayed are the figures of one tenant.
type Replayed struct {
	Offered, Delivered, Parked, Lost, Dead uint64
	P50ms, P99ms                           float64
	HeldSlots                              float64 // on average
}

// Replay runs the trace with limits and returns the tenants' figures, in the order in which the
// trace names them first, and the number of tenants short-changed.
func (t *Trace) Replay(l *Limits, seed uint64, progress func(part float64) bool) ([]Replayed, int, error) {
	setup := &sim.Setup{
		Seed: seed, Groups: len(t.tenants), Until: t.Length + 1, Drain: 24 * time.Hour,
		Engine: engine.Config{Slots: l.slots, HostLimit: -1}, Bin: max(time.Second, (t.Length / 1000).Truncate(time.Second)),
	}
	if l.order == "arrival" {
		setup.Engine.Order = engine.Arrival
	}
	if progress != nil {
		setup.Progress = func(now time.Duration) bool { return progress(min(float64(now)/float64(setup.Until), 1)) }
	}
	r := &reader{}
	for i, tn := range t.tenants {
		g := newGroup(tn.name)
		for _, n := range slices.Concat(l.all, l.tenant[tn.name]) {
			r.mapping(n, "", g.limits())
		}
		if _, err := limit.ParseContract(g.Rate, g.Burst); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", tn.name, err)
		}
		tn.add(setup, i, &g)
	}
	f, err := sim.Run(setup)
	if err != nil {
		return nil, 0, err
	}
	out := make([]Replayed, len(t.tenants))
	for i := range f.Groups {
		g := &f.Groups[i]
		out[i] = Replayed{
			Offered: g.Offered, Delivered: g.Delivered, Parked: g.Parked, Lost: g.Lost, Dead: g.Dead,
			P50ms: millis(g.Latency.Quantile(0.5)), P99ms: millis(g.Latency.Quantile(0.99)),
			HeldSlots: g.MeasuredHeld / (f.Measure.To - f.Measure.From).Seconds(),
		}
	}
	return out, f.ShortChanged, nil
}

// Tenants returns their names, in the order in which the trace names them first.
func (t *Trace) Tenants() (names []string) {
	for _, tn := range t.tenants {
		names = append(names, tn.name)
	}
	return names
}

// add appends the tenant's lanes: each arrives as recorded, and its endpoint answers by chance like
// one of the answers that were recorded, failing as often.
func (tn *traced) add(setup *sim.Setup, group int, g *Group) {
	tenant := engine.TenantID(len(setup.Tenants))
	setup.Tenants = append(setup.Tenants, sim.Tenant{Group: group, Weight: g.Weight})
	for _, s := range tn.subs {
		lane := sim.Lane{
			Tenant: tenant, Host: engine.HostID(len(setup.Lanes)), Profile: g.profile(),
			Arrivals: []sim.Process{sim.Trace(s.at)}, Pooled: g.Budget == "pool",
		}
		if len(s.answers) > 0 {
			lane.Endpoint.Latency = sim.Samples(s.answers)
			lane.Endpoint.Errors = float64(s.failed) / float64(s.attempts)
		}
		if rate := mustRate(g.Rate, g.Burst); !rate.IsUnlimited() && (g.Deny == "queue" || g.Deny == "hold") {
			lane.Gate = &sim.Gate{Rate: rate, Hold: g.Deny == "hold", Bound: g.Queue, Deadline: g.Deadline}
		}
		setup.Lanes = append(setup.Lanes, lane)
	}
}
