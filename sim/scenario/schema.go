package scenario

import (
	"fmt"
	"math"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
	"github.com/fairlane-dev/fairlane/limit"
)

// The longest virtual time of anything, and the most of anything: what a laptop can run.
const (
	longest     = 30 * 24 * time.Hour
	mostLanes   = 100_000
	mostRate    = 10_000_000
	mostWaiting = 100_000_000
)

// fields of the top of a file, for all kinds.
func (s *Scenario) fields() []field {
	return []field{
		text("name", "what `fairlane sim run` calls it; by default the file's name", &s.Name),
		text("about", "one line that says what is asked", &s.About),
		word("kind", "delivery: the engine with endpoints; limiter: requests meet limiters; slots: waiters for a few slots; completion: fan-outs", &s.Kind, kinds...),
		text("note", "what a reader of the table should know", &s.Note),
		words("columns", "figures that the table shows; --json has all", &s.Columns),
		{name: "pictures", about: "list of charts that --plot draws", each: s.readPictures, sample: new(Picture).fields, under: "[]"},
		s.literatureField(),
		whole("slots", "requests in flight at once, of all tenants", 1, 1_000_000, &s.platform.Slots),
		duration("duration", "arrivals end", time.Millisecond, longest, &s.platform.Duration),
		duration("drain", "and what waits may go on for so long", 0, longest, &s.platform.Drain),
		section("measure", "figures count what was first offered in this span; by default all", s.platform.measureFields),
		duration("series", "bin of the pictures' series; peaks are over these", time.Millisecond, 24*time.Hour, &s.platform.Series),
		whole("host_limit", "requests in flight to one endpoint's host; 0 is none, each lane has a host of its own", 0, 1_000_000, &s.platform.HostLimit),
		collection("groups", "kind delivery: the tenants, by names of your choice", 20, &s.groups, newGroup),
		section("limiter", "kind limiter: requests and their limit", s.limiter.fields),
		collection("tenants", "kind slots: the waiters, by names of your choice", 1000, &s.tenants, newWaiters),
		section("completion", "kind completion: the fan-out", s.completion.fields),
		collection("tables", "variants of the population, by names of your choice: every policy is run with each", 10, &s.tables, newTable),
		collection("policies", "the rows, by names of your choice", 20, &s.policies, newPolicy),
	}
}

var kinds = []string{"delivery", "limiter", "slots", "completion"}

func (p *platform) measureFields() []field {
	return []field{
		duration("from", "its beginning", 0, longest, &p.Measure.From),
		duration("to", "its end", time.Millisecond, longest, &p.Measure.To),
	}
}

// fields of a group of tenants, and of what a policy changes in it.
func (g *Group) fields() []field {
	return []field{
		whole("tenants", "how many", 1, mostLanes, &g.Tenants),
		whole("subscriptions", "of each tenant", 1, mostLanes, &g.Subscriptions),
		whole("weight", "share of slots relative to other tenants", 1, 1000, &g.Weight),
		{name: "arrivals", about: "list of arrival processes of each subscription", each: g.readArrivals, sample: new(Arrivals).fields, under: "[]"},
		section("endpoint", "how each subscription's receiver behaves", g.Endpoint.fields),
		rateField("rate", "contract of each subscription; unlimited by default", &g.Rate),
		whole("burst", "at once, from a full bucket; by default one second of the rate", 1, limit.MaxTokens, &g.Burst),
		whole("cap", "requests in flight to one subscription; 0 is none", 0, 1_000_000, &g.Cap),
		duration("timeout", "of one request", time.Millisecond, time.Hour, &g.Timeout),
		word("deny", "what becomes of what the contract or cap denies: defer (parked, the service's way), drop, queue (in memory, before a slot), hold (inside a slot)", &g.Deny, "defer", "drop", "queue", "hold"),
		whole("queue", "deny queue: how many may wait for each subscription", 1, mostWaiting, &g.Queue),
		duration("deadline", "deny queue: how long one may wait", time.Millisecond, longest, &g.Deadline),
		truth("breaker", "whether each lane has its circuit breaker", &g.Breaker),
		word("budget", "of retries: own (each lane's, the service's way), pool (one for all lanes of the group together), none", &g.Budget, "own", "pool", "none"),
		whole("attempts", "attempts after which a delivery is dead; 0: the horizon alone ends it", 0, 1000, &g.Attempts),
		whole("quick", "quick attempts, the first included", 1, 20, &g.Quick),
		duration("base", "of the quick scale: full jitter is uniform(0, base * 2^n)", time.Millisecond, time.Hour, &g.Base),
		word("jitter", "of the quick scale", &g.Jitter, "full", "equal", "decorrelated", "none"),
		durations("slow", "the slow scale: one attempt after each, the last repeats", time.Millisecond, longest, &g.Slow),
		duration("horizon", "age at which a delivery dies", time.Millisecond, longest, &g.Horizon),
	}
}

func (e *Endpoint) fields() []field {
	return []field{
		section("latency", "of its answers: fixed, or mean and p99, or median and p999 of a log-normal, or quantiles", e.Latency.fields),
		whole("workers", "it serves so many at once, the rest waits there; 0: any number", 0, 1_000_000, &e.Workers),
		truth("shared", "all subscriptions of the group have one set of workers", &e.Shared),
		number("errors", "share of answers that are 500", 0, 1, &e.Errors),
		number("lost_answers", "share of answers that are lost after the effect: the sender sees a timeout", 0, 1, &e.Lost),
		section("throttle", "it answers 429 above a rate", e.Throttle.fields),
		{name: "phases", about: "list of spans of trouble; the first that fits rules", each: e.readPhases, sample: new(Phase).fields, under: "[]"},
	}
}

func (l *Latency) fields() []field {
	const shortest, most = 0, time.Hour
	return []field{
		duration("fixed", "always as long", shortest, most, &l.Fixed),
		duration("mean", "of a log-normal", time.Microsecond, most, &l.Mean),
		duration("p99", "with mean: above it, and at most 14 times it", time.Microsecond, most, &l.P99),
		duration("median", "of a log-normal", time.Microsecond, most, &l.Median),
		duration("p999", "with median: above it", time.Microsecond, most, &l.P999),
		durations("quantiles", "measured: the least, the greatest, and what divides the rest evenly between them", time.Microsecond, most, &l.Quantiles),
	}
}

func (t *Throttle) fields() []field {
	return []field{
		rateField("rate", "what it accepts", &t.Rate),
		whole("burst", "at once", 1, limit.MaxTokens, &t.Burst),
		truth("quiet", "without Retry-After", &t.Quiet),
	}
}

func (p *Phase) fields() []field {
	return []field{
		word("kind", "fail: 500; slow: answers later; black-hole: never answers; reject: 422; gone: 410", &p.Kind, "fail", "slow", "black-hole", "reject", "gone"),
		duration("from", "its beginning", 0, longest, &p.From),
		duration("to", "its end", time.Millisecond, longest, &p.To),
		duration("after", "how long an answer takes, or how much longer", 0, time.Hour, &p.After),
	}
}

func (a *Arrivals) fields() []field {
	return []field{
		word("kind", "constant, poisson, sine (swings around its rate), on-off, burst (count at once), trace", &a.Kind, "constant", "poisson", "sine", "on-off", "burst", "trace"),
		{name: "rate", about: "arrivals, or their mean", rule: "a rate above 0 such as 100/s, 6.1/s or 10/m, of at most 10,000,000/s", read: func(n ast.Node) bool {
			s, is := stringOf(n)
			r, err := limit.ParseRate(s, 1)
			if !is || err != nil || r.IsUnlimited() || r.IsPaused() || r.PerSecond() > mostRate {
				return false
			}
			a.Rate = r.PerSecond()
			return true
		}},
		whole("count", "burst: how many", 1, 10_000_000, &a.Count),
		duration("every", "burst: again after; once by default", time.Millisecond, longest, &a.Every),
		number("swing", "sine: from 0 to 1, the part of the rate that it swings by", 0, 1, &a.Swing),
		duration("period", "sine: of a swing", time.Millisecond, longest, &a.Period),
		duration("on", "on-off: how long it arrives", time.Millisecond, longest, &a.On),
		duration("off", "on-off: how long it rests", time.Millisecond, longest, &a.Off),
		durations("at", "trace: recorded instants, sorted", 0, longest, &a.At),
		duration("from", "its beginning", 0, longest, &a.From),
		duration("to", "its end; by default the scenario's", time.Millisecond, longest, &a.To),
	}
}

func (p *Policy) fields() []field {
	return []field{
		text("about", "one line", &p.About),
		word("order", "of slots: fair (the service's way), or arrival (first come, first served)", &p.Order, "fair", "arrival"),
		word("share_by", "whose slots are shared fairly: tenant (the service's way), or subscription (each by itself, for comparison)", &p.ShareBy, "tenant", "subscription"),
		p.slotsField(),
		section("limit", "one limit in front of all lanes, for comparison", p.Limit.fields),
		word("algorithm", "kind limiter: bucket, fixed, sliding (exact), approximate, leaky", &p.Algorithm, "bucket", "fixed", "sliding", "approximate", "leaky"),
		whole("parts", "approximate: sub-windows", 1, limit.MaxParts, &p.Parts),
		word("replicas", "kind limiter: independent (each allows all), partitioned (each a part), shared (one state)", &p.Replicas, "independent", "partitioned", "shared"),
		word("clock", "kind limiter: wall (steps with it), monotonic", &p.Clock, "wall", "monotonic"),
		word("mode", "kind slots: shared, hard, work-conserving", &p.Mode, "shared", "hard", "work-conserving"),
		word("completion", "kind completion: all (waits for every endpoint), single (each for itself), without (as all, without the pathological)", &p.Completion, "all", "single", "without"),
		later("all", "what it changes in every group: fields of a group", &p.groups.all),
		later("groups", "what it changes in the named groups", &p.groups.groups),
	}
}

func (p *Policy) slotsField() field {
	return whole("slots", "instead of the scenario's", 1, 1_000_000, &p.Slots)
}

func (l *PlatformLimit) fields() []field {
	return []field{
		rateField("rate", "of all attempts together", &l.Rate),
		whole("burst", "at once", 1, limit.MaxTokens, &l.Burst),
		word("deny", "queue (in memory, before a slot) or hold (inside a slot)", &l.Deny, "queue", "hold"),
		whole("queue", "how many may wait; by default any number", 1, mostWaiting, &l.Queue),
		duration("deadline", "how long one may wait; by default for ever", time.Millisecond, longest, &l.Deadline),
	}
}

func (l *limiterPart) fields() []field {
	return []field{
		{name: "arrivals", about: "list of arrival processes", each: l.readArrivals, sample: new(Arrivals).fields, under: "[]"},
		whole("limit", "requests a window, and burst of the bucket", 1, limit.MaxLog, &l.Limit),
		duration("window", "of the limit", limit.MinPeriod, limit.MaxPeriod, &l.Window),
		whole("burst", "of the bucket; by default the limit", 1, limit.MaxTokens, &l.Burst),
		whole("replicas", "that requests go to in turn", 1, 1000, &l.Replicas),
		duration("step_at", "when the wall clock steps", 0, longest, &l.StepAt),
		duration("step_by", "by how much; below 0 is back", -longest, longest, &l.StepBy),
	}
}

func (c *completionPart) fields() []field {
	return []field{
		whole("triggers", "how many are drawn", 1, 10_000_000, &c.Triggers),
		whole("endpoints", "of each trigger, the pathological included", 1, 10_000, &c.Endpoints),
		section("latency", "of each", c.Latency.fields),
		whole("pathological", "how many of them are", 0, 10_000, &c.Pathological),
		section("pathological_latency", "of those", c.PathologicalLatency.fields),
	}
}

func (w *Waiters) fields() []field {
	return []field{
		whole("share", "slots that are the tenant's when it wants them", 1, 1_000_000, &w.Share),
		whole("count", "requests, all at once", 1, 1_000_000, &w.Count),
		duration("at", "when they come", 0, longest, &w.At),
		duration("work", "how long each holds its slot", time.Microsecond, time.Hour, &w.Work),
	}
}

// rateField reads a contract: a rate, unlimited, or 0 for paused.
func rateField(name, about string, v *string) field {
	return field{name: name, about: about, rule: "a rate such as 100/s or 10/m, the word unlimited, or 0 for paused", read: func(n ast.Node) bool {
		s, is := stringOf(n)
		if i, number := strictyaml.Whole(n); number && i == 0 {
			s, is = "0", true
		}
		if _, err := limit.ParseRate(s, 1); !is || err != nil {
			return false
		}
		*v = s
		return true
	}}
}

// list reads a list of mappings.
func list[T any](r *reader, n ast.Node, path string, fields func(*T) []field) (all []T) {
	s, is := n.(*ast.SequenceNode)
	if !is || len(s.Values) == 0 || len(s.Values) > maxList {
		r.Problem(n, path, fmt.Sprintf("must be a list of 1 to %d mappings%s", maxList, strictyaml.Found(n)))
		return nil
	}
	for i, item := range s.Values {
		var x T
		r.mapping(item, fmt.Sprintf("%s[%d]", path, i), fields(&x))
		all = append(all, x)
	}
	return all
}

func (s *Scenario) readPictures(r *reader, n ast.Node, path string) {
	s.Pictures = list(r, n, path, (*Picture).fields)
}

func (p *Picture) fields() []field {
	return []field{
		words("figures", "bars of these, by policy", &p.Figures),
		truth("log", "logarithmic", &p.Log),
		text("axis", "what the bars show, with its unit", &p.Axis),
		word("series", "instead of figures: a line each policy over time", &p.Series, SeriesNames...),
		text("group", "of the series", &p.Group),
		duration("from", "the series begins here", 0, longest, &p.Span.From),
		duration("to", "and ends here; by default with the run", 0, longest, &p.Span.To),
	}
}

func (g *Group) readArrivals(r *reader, n ast.Node, path string) {
	g.Arrivals = list(r, n, path, (*Arrivals).fields)
}

func (l *limiterPart) readArrivals(r *reader, n ast.Node, path string) {
	l.Arrivals = list(r, n, path, (*Arrivals).fields)
}

func (e *Endpoint) readPhases(r *reader, n ast.Node, path string) {
	e.Phases = list(r, n, path, (*Phase).fields)
}

// named reads a mapping whose keys are names that the file gives.
func named(r *reader, n ast.Node, path string, most int, read func(key string, kv *ast.MappingValueNode, at string)) {
	if !strictyaml.IsMapping(n) || len(strictyaml.Pairs(n)) > most {
		r.Problem(n, path, fmt.Sprintf("must be a mapping of 1 to %d names%s", most, strictyaml.Found(n)))
		return
	}
	seen := map[string]bool{}
	for _, kv := range strictyaml.Pairs(n) {
		key, at := strictyaml.Key(kv), join(path, strictyaml.Key(kv))
		switch {
		case !plainName.MatchString(key):
			r.Problem(kv.Key, at, "must be named by lower-case letters, digits, _ and -, at most 64")
		case seen[key]:
			r.Problem(kv.Key, at, "must stand once")
		default:
			r.Stand(at, strictyaml.PlaceOf(kv.Key))
			read(key, kv, at)
		}
		seen[key] = true
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
