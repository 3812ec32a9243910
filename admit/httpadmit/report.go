package httpadmit

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Report compares what policies observed with what they enforced, and configured
// costs with measured slot time. Its JSON is a documented contract.
type Report struct {
	Since    time.Time   `json:"since"`
	Policies []Row       `json:"policies"`
	Routes   []RouteRow  `json:"routes"`
	Tenants  []TenantRow `json:"tenants"`
}

// Row is one policy for one route and tenant. "other" are the tenants beyond
// those that are told apart; "" those without a valid credential.
type Row struct {
	Policy    string `json:"policy"`
	Route     string `json:"route"`
	Tenant    string `json:"tenant"`
	Attempted int64  `json:"attempted"`  // requests that it judged
	Denied    int64  `json:"denied"`     // that it refused
	WouldDeny int64  `json:"would_deny"` // that it would have, had it been enforced
	// FalseRejections were refused while the protected service was under half of its
	// capacity; FalseAcceptances were let through while it was saturated.
	FalseRejections  int64 `json:"false_rejections"`
	FalseAcceptances int64 `json:"false_acceptances"`
}

// RouteRow is one route's cost and what it takes.
type RouteRow struct {
	Route    string  `json:"route"`
	Requests int64   `json:"requests"`
	MeanMs   float64 `json:"mean_slot_ms"`
	Cost     int64   `json:"cost"`
	// Proposed is the mean slot time over that of the cheapest route, rounded, at least 1;
	// 0 where there are fewer than 20 requests.
	Proposed int64 `json:"proposed_cost"`

	seconds float64
}

func (r *RouteRow) add(took time.Duration) {
	r.Requests++
	r.seconds += took.Seconds()
}

// enough is how many requests a proposal needs.
const enough = 20

func (f *Figures) rowLocked(k rowKey) *Row {
	r := f.rows[k]
	if r == nil && len(f.rows) >= maxRows {
		k.tenant = other // policies and routes are few
		r = f.rows[k]
	}
	if r == nil {
		r = &Row{Policy: k.policy, Route: k.route, Tenant: k.tenant}
		f.rows[k] = r
	}
	return r
}

func (f *Figures) routeLocked(route string) *RouteRow {
	r := f.routes[route]
	if r == nil {
		r = &RouteRow{Route: route}
		f.routes[route] = r
	}
	return r
}

// judgeLocked notes what each policy said of a request.
func (f *Figures) judgeLocked(v *visit, tenant string) {
	for _, h := range v.verdict.Limits {
		row := f.rowLocked(rowKey{h.Policy, v.route, tenant})
		row.Attempted++
		if !h.Decision.Allowed {
			row.Denied++
		}
		if v.verdict.Allowed && v.busy >= 1 {
			row.FalseAcceptances++
		}
	}
	for _, h := range v.verdict.Watched {
		row := f.rowLocked(rowKey{h.Policy, v.route, tenant})
		row.Attempted++
		if !h.Decision.Allowed {
			row.WouldDeny++
			f.would.WithLabelValues(v.route, h.Policy).Inc()
		}
	}
}

// Report returns what the door has counted since it was made.
func (d *Door) Report() Report {
	r := Report{Since: d.origin, Tenants: d.figures.top()}
	d.figures.mu.Lock()
	for _, row := range d.figures.rows {
		r.Policies = append(r.Policies, *row)
	}
	for _, row := range d.figures.routes {
		r.Routes = append(r.Routes, *row)
	}
	d.figures.mu.Unlock()
	slices.SortFunc(r.Policies, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Tenant, b.Tenant))
	})
	slices.SortFunc(r.Routes, func(a, b RouteRow) int { return cmp.Compare(a.Route, b.Route) })
	d.propose(r.Routes)
	return r
}

// propose fills in means, configured costs and proposals.
func (d *Door) propose(routes []RouteRow) {
	least := math.Inf(1)
	for i := range routes {
		r := &routes[i]
		r.Cost = d.settings.Load().Gate.RouteCost(r.Route)
		mean := r.seconds / float64(r.Requests)
		r.MeanMs = math.Round(mean*1e6) / 1e3
		if r.Requests >= enough && mean > 0 {
			least = min(least, mean)
		}
	}
	for i := range routes {
		if r := &routes[i]; r.Requests >= enough && !math.IsInf(least, 1) {
			r.Proposed = max(1, int64(math.Round(r.seconds/float64(r.Requests)/least)))
		}
	}
}
