package httpadmit

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Figures counts what a door decides. Labels are bounded: routes and policies are
// the operator's, and of tenants at most maxTenants are told apart, and the
// topTenants of them exported. Safe for concurrent use.
type Figures struct {
	attempted, repeats, allowed *prometheus.CounterVec
	away                        *prometheus.CounterVec
	denied, would, completed    *prometheus.CounterVec
	wrongly                     *prometheus.CounterVec
	duration, wait              *prometheus.HistogramVec

	mu      sync.Mutex
	tenants map[string]*tenantFigures
	rows    map[rowKey]*Row
	routes  map[string]*RouteRow
}

const (
	maxTenants = 1000   // told apart; the others are one, "other"
	topTenants = 10     // exported
	maxRows    = 20_000 // of the report
	other      = "other"
)

type tenantFigures struct {
	inFlight, denied, admitted int64
	waited                     time.Duration
}

type rowKey struct{ policy, route, tenant string }

func newFigures() *Figures {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlane_gate_" + name + "_total", Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlane_gate_" + name + "_seconds", Help: help,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"})
	}
	return &Figures{
		attempted: counter("attempted", "Requests that came to the gate.", "route"),
		repeats:   counter("repeats", "Of them, those that say that they are a repetition (X-Attempt above 1).", "route"),
		allowed:   counter("allowed", "Requests that were let through.", "route"),
		away:      counter("allowed_away", "Of them, those let through while the shared store of quotas was away.", "route"),
		denied:    counter("denied", "Requests that the gate refused.", "route", "policy", "reason"),
		would:     counter("would_deny", "Requests that an observed policy would have refused.", "route", "policy"),
		completed: counter("completed", "Requests that the protected service answered, by class of status.", "route", "status"),
		wrongly:   counter("wrongly", "false-rejection: denied by a rate while the service was idle. false-acceptance: let through while it was saturated.", "route", "policy", "kind"),
		duration:  histogram("duration", "Time in the protected service, which is the time that a slot is held."),
		wait:      histogram("slot_wait", "Time for which requests that were let through waited for a slot."),
		tenants:   map[string]*tenantFigures{}, rows: map[rowKey]*Row{}, routes: map[string]*RouteRow{},
	}
}

func (f *Figures) vectors() []prometheus.Collector {
	return []prometheus.Collector{f.attempted, f.repeats, f.allowed, f.away, f.denied, f.would, f.completed, f.wrongly, f.duration, f.wait}
}

// arrived counts what came in, whatever becomes of it.
func (f *Figures) arrived(route, attempt string) {
	f.attempted.WithLabelValues(route).Inc()
	if attempt != "" && attempt != "1" {
		f.repeats.WithLabelValues(route).Inc()
	}
}

// tenantLocked returns a tenant's figures, or those of all others.
func (f *Figures) tenantLocked(name string) (*tenantFigures, string) {
	if t := f.tenants[name]; t != nil {
		return t, name
	}
	if len(f.tenants) >= maxTenants {
		name = other
	}
	t := f.tenants[name]
	if t == nil {
		t = &tenantFigures{}
		f.tenants[name] = t
	}
	return t, name
}

// refused counts a refusal.
func (f *Figures) refused(v *visit, p *Problem) {
	policy := cmp.Or(p.Policy, "identity")
	f.denied.WithLabelValues(v.route, policy, p.Reason).Inc()
	falsely := p.Status == http.StatusTooManyRequests && p.Policy != SlotsPolicy && v.busy < idleBelow
	if falsely {
		f.wrongly.WithLabelValues(v.route, policy, "false-rejection").Inc()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := ""
	if v.tier != nil {
		var t *tenantFigures
		t, name = f.tenantLocked(v.id.Tenant)
		t.denied++
	}
	f.judgeLocked(v, name)
	row := f.rowLocked(rowKey{policy, v.route, name})
	if policy == SlotsPolicy || policy == "identity" {
		row.Attempted++
		row.Denied++
	}
	if falsely {
		row.FalseRejections++
	}
}

// enter counts a request that is let through. Call what it returns at its end.
func (f *Figures) enter(v *visit) (leave func(status int, took time.Duration, returned bool)) {
	f.wait.WithLabelValues(v.route).Observe(v.waited.Seconds())
	t := f.admitted(v, 1)
	return func(status int, took time.Duration, returned bool) {
		f.completed.WithLabelValues(v.route, class(status, returned)).Inc()
		f.duration.WithLabelValues(v.route).Observe(took.Seconds())
		f.mu.Lock()
		defer f.mu.Unlock()
		t.inFlight--
		f.routeLocked(v.route).add(took)
	}
}

// admitted counts a request that is let through, and in flight if its end will be
// known.
func (f *Figures) admitted(v *visit, inFlight int64) *tenantFigures {
	f.allowed.WithLabelValues(v.route).Inc()
	if v.verdict.Away {
		f.away.WithLabelValues(v.route).Inc()
	}
	if v.busy >= 1 {
		for _, h := range v.verdict.Limits {
			f.wrongly.WithLabelValues(v.route, h.Policy, "false-acceptance").Inc()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t, name := f.tenantLocked(v.id.Tenant)
	t.inFlight += inFlight
	t.admitted++
	t.waited += v.waited
	f.judgeLocked(v, name)
	return t
}

// class is the class of a status: of no answer at all, what that means.
func class(status int, returned bool) string {
	switch {
	case !returned:
		return "panic"
	case status == 0:
		return "2xx" // net/http answers 200 for a handler that wrote nothing
	}
	return string(rune('0'+status/100)) + "xx"
}

// idleBelow is the saturation below which a refusal by a rate counts as false.
const idleBelow = 0.5

// Collector returns what exports the figures of a door.
func (d *Door) Collector() prometheus.Collector { return doorCollector{d} }

type doorCollector struct{ d *Door }

var (
	slotsDesc   = prometheus.NewDesc("fairlane_gate_slots", "Slots, held and in all.", []string{"state"}, nil)
	waitingDesc = prometheus.NewDesc("fairlane_gate_waiting", "Requests that wait for a slot.", nil, nil)
	busyDesc    = prometheus.NewDesc("fairlane_gate_saturation", "How busy the protected service is; 1 is saturated.", nil, nil)
	tenantDesc  = prometheus.NewDesc("fairlane_gate_tenant", "Of the tenants that were refused most, and of the others together: in flight now, and since the start refusals, requests let through and seconds waited for slots.", []string{"tenant", "figure"}, nil)
)

// Describe sends nothing: which tenants there are changes.
func (c doorCollector) Describe(chan<- *prometheus.Desc) {}

func (c doorCollector) Collect(out chan<- prometheus.Metric) {
	for _, v := range c.d.figures.vectors() {
		v.Collect(out)
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	running, slots, waiting := c.d.Load()
	gauge(slotsDesc, float64(running), "held")
	gauge(slotsDesc, float64(slots), "all")
	gauge(waitingDesc, float64(waiting))
	gauge(busyDesc, c.d.saturation(c.d.settings.Load()))
	for _, t := range c.d.figures.top() {
		gauge(tenantDesc, float64(t.InFlight), t.Tenant, "in_flight")
		gauge(tenantDesc, float64(t.Denied), t.Tenant, "denied")
		gauge(tenantDesc, float64(t.Allowed), t.Tenant, "allowed")
		gauge(tenantDesc, t.Waited, t.Tenant, "slot_wait_seconds")
	}
}

// TenantRow is one tenant's figures.
type TenantRow struct {
	Tenant   string  `json:"tenant"`
	InFlight int64   `json:"in_flight"`
	Allowed  int64   `json:"allowed"`
	Denied   int64   `json:"denied"`
	Waited   float64 `json:"slot_wait_s"`
}

// top returns the tenants that were refused most, then the others as one.
func (f *Figures) top() []TenantRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]TenantRow, 0, len(f.tenants))
	rest := TenantRow{Tenant: other}
	for name, t := range f.tenants {
		row := TenantRow{name, t.inFlight, t.admitted, t.denied, t.waited.Seconds()}
		if name == other {
			rest = row
			continue
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b TenantRow) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Allowed, a.Allowed), cmp.Compare(a.Tenant, b.Tenant))
	})
	if len(all) > topTenants {
		for _, t := range all[topTenants:] {
			rest.InFlight += t.InFlight
			rest.Allowed += t.Allowed
			rest.Denied += t.Denied
			rest.Waited += t.Waited
		}
		all = all[:topTenants]
	}
	if rest != (TenantRow{Tenant: other}) {
		all = append(all, rest)
	}
	return all
}
