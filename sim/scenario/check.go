package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// check applies the rules that join several fields.
func (s *Scenario) check(r *reader) {
	if !plainName.MatchString(s.Name) {
		r.At("name", "must be lower-case letters, digits, _ and -, at most 64")
	}
	if len(s.policies) == 0 {
		r.At("policies", "must name at least one policy")
	}
	rows := s.rows(r)
	switch s.Kind {
	case "delivery":
		s.checkDelivery(r, rows)
	case "limiter":
		for i := range rows {
			s.checkLimiter(r, &rows[i].limiter)
		}
	case "slots":
		if len(s.tenants) == 0 {
			r.At("tenants", "must name at least one tenant")
		}
	case "completion":
		for i := range rows {
			checkCompletion(r, &rows[i].completion)
		}
	}
	s.checkNames(r)
}

// checkNames holds the literature against the policies; figures are checked when they are known.
func (s *Scenario) checkNames(r *reader) {
	var policies []string
	for _, p := range s.policies {
		policies = append(policies, p.Name)
	}
	for figure, by := range s.Literature {
		for policy := range by {
			if !slices.Contains(policies, policy) {
				r.At("literature."+figure+"."+policy, "must be one of the policies: "+strings.Join(policies, ", "))
			}
		}
	}
	s.checkFigures(r, "columns", s.Columns)
	for i, p := range s.Pictures {
		at := fmt.Sprintf("pictures[%d]", i)
		if (len(p.Figures) > 0) == (p.Series != "") || len(p.Figures) > 0 && p.Axis == "" {
			r.At(at, "must have figures and axis, or a series")
		}
		s.checkFigures(r, at+".figures", p.Figures)
		if p.Series != "" && !slices.ContainsFunc(s.groups, func(g Group) bool { return g.Name == p.Group }) {
			r.At(at+".group", "must be one of the groups")
		}
	}
}

func (s *Scenario) checkFigures(r *reader, at string, figures []string) {
	known := s.figureNames()
	for _, c := range figures {
		if !slices.Contains(known, c) {
			r.At(at, fmt.Sprintf("must be figures of this scenario, found %q; known here: %s", c, strings.Join(known, ", ")))
		}
	}
}

func (s *Scenario) checkDelivery(r *reader, rows []row) {
	p := &s.platform
	if p.Duration == 0 {
		r.At("duration", "must be given")
	}
	if p.Measure.To == 0 {
		p.Measure.To = p.Duration
	}
	if p.Measure.From >= p.Measure.To {
		r.At("measure", "must end after it begins")
	}
	if p.Duration/p.Series > 1_000_000 {
		r.At("series", "must be at least a millionth of the duration")
	}
	if len(s.groups) == 0 {
		r.At("groups", "must name at least one group")
	}
	for _, x := range rows {
		lanes := 0
		for i := range x.groups {
			lanes += x.groups[i].Tenants * x.groups[i].Subscriptions
			x.groups[i].check(r, p.Duration)
		}
		if lanes > mostLanes {
			r.At("groups", fmt.Sprintf("must have at most %d subscriptions in all, have %d", mostLanes, lanes))
		}
		if _, err := limit.ParseContract(x.policy.Limit.Rate, x.policy.Limit.Burst); err != nil {
			r.At(x.policy.groups.path+".limit.rate", err.Error())
		}
	}
}

func (g *Group) check(r *reader, duration time.Duration) {
	at := "groups." + g.Name
	for i := range g.Arrivals {
		g.Arrivals[i].check(r, fmt.Sprintf("%s.arrivals[%d]", at, i), duration)
	}
	if len(g.Arrivals) == 0 {
		r.At(at+".arrivals", "must have at least one process")
	}
	g.Endpoint.Latency.check(r, at+".endpoint.latency")
	for i, p := range g.Endpoint.Phases {
		if p.Kind == "" || p.From >= p.To {
			r.At(fmt.Sprintf("%s.endpoint.phases[%d]", at, i), "must have a kind, and end after it begins")
		}
	}
	if _, err := limit.ParseContract(g.Endpoint.Throttle.Rate, g.Endpoint.Throttle.Burst); err != nil {
		r.At(at+".endpoint.throttle.rate", err.Error())
	}
	rate, err := limit.ParseContract(g.Rate, g.Burst)
	if err != nil {
		r.At(at+".rate", err.Error())
	}
	if err == nil && rate.IsUnlimited() && (g.Deny == "queue" || g.Deny == "hold") {
		r.At(at+".deny", "needs a rate that is a number: queue and hold wait for its tokens")
	}
}

func (a *Arrivals) check(r *reader, at string, duration time.Duration) {
	need := func(name string, given bool) {
		if _, wrong := r.Places[at+"."+name]; !given && !wrong { // what is there and wrong was reported

			r.At(at+"."+name, strings.TrimSuffix("must be given for kind "+a.Kind, " for kind "))
		}
	}
	switch a.Kind {
	case "constant", "poisson":
		need("rate", a.Rate > 0)
	case "sine":
		need("rate", a.Rate > 0)
		need("period", a.Period > 0)
	case "on-off":
		need("rate", a.Rate > 0)
		need("on", a.On > 0)
		need("off", a.Off > 0)
	case "burst":
		need("count", a.Count > 0)
	case "trace":
		need("at", len(a.At) > 0)
		if !slices.IsSorted(a.At) {
			r.At(at+".at", "must be sorted")
		}
	default:
		need("kind", false)
	}
	to := a.To
	if to == 0 {
		to = duration
	}
	if a.From >= to {
		r.At(at+".from", "must be before its end")
	}
}

func (l *Latency) check(r *reader, at string) {
	forms := 0
	for _, given := range []bool{l.Fixed > 0, l.Mean > 0 || l.P99 > 0, l.Median > 0 || l.P999 > 0, len(l.Quantiles) > 0} {
		if given {
			forms++
		}
	}
	switch {
	case forms > 1:
		r.At(at, "must have one form: fixed, or mean and p99, or median and p999, or quantiles")
	case (l.Mean > 0) != (l.P99 > 0) || l.Mean > 0 && (l.P99 < l.Mean || l.P99 > 14*l.Mean):
		r.At(at, "must have both mean and p99, with p99 from 1 to 14 times the mean")
	case (l.Median > 0) != (l.P999 > 0) || l.Median > l.P999:
		r.At(at, "must have both median and p999, with p999 at least the median")
	case len(l.Quantiles) == 1 || !slices.IsSorted(l.Quantiles):
		r.At(at+".quantiles", "must be at least two, sorted")
	}
}

func (s *Scenario) checkLimiter(r *reader, l *limiterPart) {
	if s.platform.Duration == 0 {
		r.At("duration", "must be given")
	}
	if len(l.Arrivals) == 0 {
		r.At("limiter.arrivals", "must have at least one process")
	}
	for i := range l.Arrivals {
		l.Arrivals[i].check(r, fmt.Sprintf("limiter.arrivals[%d]", i), s.platform.Duration)
	}
	if l.Limit == 0 || l.Window == 0 {
		r.At("limiter", "must have a limit and a window")
		return
	}
	if _, err := limit.NewRate(l.Limit, l.Window, max(l.Burst, l.Limit)); err != nil {
		r.At("limiter.limit", err.Error())
	}
	if l.Limit < int64(l.Replicas) {
		r.At("limiter.replicas", "must be at most the limit")
	}
}

func checkCompletion(r *reader, c *completionPart) {
	if c.Triggers == 0 || c.Endpoints == 0 {
		r.At("completion", "must have triggers and endpoints")
	}
	if c.Pathological >= max(c.Endpoints, 1) {
		r.At("completion.pathological", "must be less than endpoints")
	}
	if c.Triggers*c.Endpoints > 100_000_000 {
		r.At("completion.triggers", "must be at most 100,000,000 over the endpoints")
	}
	c.Latency.check(r, "completion.latency")
	c.PathologicalLatency.check(r, "completion.pathological_latency")
}
