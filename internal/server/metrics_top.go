package server

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// defaultTop is how many lanes and tenants have series of their own, by each of the rankings.
const defaultTop = 20

// otherLabel is everyone without series of their own; no tenant and no subscription can be called so.
const otherLabel = "(other)"

// top chooses who has series: the first k by traffic, by saturation and by rejections, of lanes and of tenants,
// and the tenant that is served least. Everyone else is counted as otherLabel. What leaves the choice loses its
// series, so their number does not depend on how many there are. Safe for concurrent use.
type top struct {
	k       int
	byLane  *laneVectors
	byTen   *tenantVectors
	mu      sync.RWMutex
	lanes   map[string]*laneSeries   // by subscription
	tenants map[string]*tenantSeries // by id
	rest    *laneSeries
	restTen *tenantSeries

	denied []uint64 // of each lane at the last look, by number
	ten    map[string]*tenantRank
	ranks  []laneRank
}

// laneVectors and tenantVectors are the families of the series.
type laneVectors struct {
	attempts, denied *prometheus.CounterVec
	delivery         *prometheus.HistogramVec
}

type tenantVectors struct {
	attempts, denied, refused *prometheus.CounterVec
	wait, delivery            *prometheus.HistogramVec
}

// laneSeries are one lane's, looked up once.
type laneSeries struct {
	attempts map[string]prometheus.Counter // by class
	denied   prometheus.Counter
	delivery prometheus.Observer
}

type tenantSeries struct {
	attempts        map[string]prometheus.Counter
	denied, refused prometheus.Counter
	wait, delivery  prometheus.Observer
}

var classes = []string{"2xx", "3xx", "4xx", "5xx", "none"}

func newTop(k int) *top {
	t := &top{
		k: k,
		byLane: &laneVectors{
			attempts: counters("lane_attempts_total", "Attempts that ended, by class of the answer.", "tenant", "subscription", "class"),
			denied:   counters("lane_rejections_total", "Fresh deliveries that were not sent at once.", "tenant", "subscription"),
			delivery: histograms("lane_delivery_seconds", "From acceptance to delivered.", "tenant", "subscription"),
		},
		byTen: &tenantVectors{
			attempts: counters("tenant_attempts_total", "Attempts that ended, by class of the answer.", "tenant", "class"),
			denied:   counters("tenant_rejections_total", "Fresh deliveries that were not sent at once.", "tenant"),
			refused:  counters("tenant_refused_posts_total", "Posts refused with 429 for the tenant's backlog.", "tenant"),
			wait:     histograms("tenant_wait_seconds", "For how long what waited was kept back, by whatever it was: the tenant's own limits, breaker and pauses, or slots.", "tenant"),
			delivery: histograms("tenant_delivery_seconds", "From acceptance to delivered.", "tenant"),
		},
		lanes: map[string]*laneSeries{}, tenants: map[string]*tenantSeries{}, ten: map[string]*tenantRank{},
	}
	t.rest, t.restTen = t.byLane.of(otherLabel, otherLabel), t.byTen.of(otherLabel)
	return t
}

// histograms have few buckets, for there are many of them; they are native ones, too.
func histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairlane_" + name, Help: help, Buckets: []float64{.01, .1, 1, 10, 100, 1000},
		NativeHistogramBucketFactor: 1.2, NativeHistogramMaxBucketNumber: 100,
	}, labels)
}

func (t *top) collectors() []prometheus.Collector {
	l, n := t.byLane, t.byTen
	return []prometheus.Collector{l.attempts, l.denied, l.delivery, n.attempts, n.denied, n.refused, n.wait, n.delivery}
}

func (v *laneVectors) of(tenant, sub string) *laneSeries {
	s := &laneSeries{map[string]prometheus.Counter{}, v.denied.WithLabelValues(tenant, sub), v.delivery.WithLabelValues(tenant, sub)}
	for _, c := range classes {
		s.attempts[c] = v.attempts.WithLabelValues(tenant, sub, c)
	}
	return s
}

func (v *laneVectors) drop(sub string) {
	is := prometheus.Labels{"subscription": sub}
	v.attempts.DeletePartialMatch(is)
	v.denied.DeletePartialMatch(is)
	v.delivery.DeletePartialMatch(is)
}

func (v *tenantVectors) of(tenant string) *tenantSeries {
	s := &tenantSeries{
		map[string]prometheus.Counter{}, v.denied.WithLabelValues(tenant), v.refused.WithLabelValues(tenant),
		v.wait.WithLabelValues(tenant), v.delivery.WithLabelValues(tenant),
	}
	for _, c := range classes {
		s.attempts[c] = v.attempts.WithLabelValues(tenant, c)
	}
	return s
}

func (v *tenantVectors) drop(tenant string) {
	is := prometheus.Labels{"tenant": tenant}
	for _, c := range []*prometheus.CounterVec{v.attempts, v.denied, v.refused} {
		c.DeletePartialMatch(is)
	}
	v.wait.DeletePartialMatch(is)
	v.delivery.DeletePartialMatch(is)
}

// attempted counts one attempt for its lane and its tenant.
func (t *top) attempted(a *fanout.Attempted) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	lane, ten := t.laneOf(a.Subscription), t.tenantOf(a.Tenant)
	if a.Outcome.Sent {
		class := statusClass(a.Outcome.Status)
		if c := lane.attempts[class]; c != nil { // no endpoint ends with 1xx
			c.Inc()
			ten.attempts[class].Inc()
		}
	}
	if a.Waited > 0 {
		ten.wait.Observe(a.Waited.Seconds())
	}
	if a.Verdict == engine.Done {
		lane.delivery.Observe(a.SinceAccepted.Seconds())
		ten.delivery.Observe(a.SinceAccepted.Seconds())
	}
}

// refused counts a post that the tenants' backlog refused.
func (t *top) refused(tenants []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, id := range tenants {
		t.tenantOf(id).refused.Inc()
	}
}

func (t *top) laneOf(sub string) *laneSeries    { return cmp.Or(t.lanes[sub], t.rest) }
func (t *top) tenantOf(id string) *tenantSeries { return cmp.Or(t.tenants[id], t.restTen) }

// shown lists those with series, sorted.
func (t *top) shown() (lanes, tenants []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return keys(t.lanes), keys(t.tenants)
}

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// laneRank is a lane as the rankings see it; tenantRank the same of a tenant.
type laneRank struct {
	sub, tenant string
	rank
}

type tenantRank struct {
	id    string
	seen  bool
	worst float64 // served/entitled
	rank
}

type rank struct{ traffic, saturation, denied float64 }

// rankings are the measures by which the first k are chosen.
var rankings = []func(rank) float64{
	func(r rank) float64 { return r.traffic },
	func(r rank) float64 { return r.saturation },
	func(r rank) float64 { return r.denied },
}

// look takes in the lanes as they are and chooses anew. Rejections are counted here, for whoever was chosen
// when they happened.
func (t *top) look(lanes []fanout.LaneFigures, tenants []fanout.TenantStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rankLanes(lanes)
	all := t.rankTenants(tenants)
	byLane, byTen := map[string]string{}, map[string]string{}
	for _, by := range rankings {
		for _, r := range first(t.ranks, t.k, func(r laneRank) float64 { return by(r.rank) }) {
			byLane[r.sub] = r.tenant
		}
		for _, r := range first(all, t.k, func(r *tenantRank) float64 { return by(r.rank) }) {
			byTen[r.id] = r.id
		}
	}
	for _, r := range first(all, min(t.k, 1), func(r *tenantRank) float64 { return 1 - r.worst }) {
		byTen[r.id] = r.id
	}
	renew(t.lanes, byLane, func(sub, tenant string) *laneSeries { return t.byLane.of(tenant, sub) }, t.byLane.drop)
	renew(t.tenants, byTen, func(id, _ string) *tenantSeries { return t.byTen.of(id) }, t.byTen.drop)
}

// renew makes the keys of have those of want.
func renew[S any](have map[string]S, want map[string]string, add func(key, value string) S, drop func(string)) {
	for k := range have {
		if _, stays := want[k]; !stays {
			delete(have, k)
			drop(k)
		}
	}
	for k, v := range want {
		if _, there := have[k]; !there {
			have[k] = add(k, v)
		}
	}
}

func (t *top) rankLanes(lanes []fanout.LaneFigures) {
	t.ranks = t.ranks[:0]
	for _, r := range t.ten {
		r.rank, r.seen = rank{}, false
	}
	for i := range lanes {
		l := &lanes[i]
		denied := l.Denied - t.before(l)
		t.laneOf(l.Subscription).denied.Add(float64(denied))
		t.tenantOf(l.TenantID).denied.Add(float64(denied))
		r := rank{traffic: l.Offered, denied: float64(denied)}
		if l.Cap > 0 {
			r.saturation = float64(l.Counters.InFlight) / float64(l.Cap)
		}
		t.ranks = append(t.ranks, laneRank{l.Subscription, l.TenantID, r})
		ten := t.ten[l.TenantID]
		if ten == nil {
			ten = &tenantRank{id: l.TenantID}
			t.ten[l.TenantID] = ten
		}
		ten.traffic += r.traffic
		ten.denied += r.denied
	}
}

// before is the lane's rejections at the last look, and notes those of this one.
func (t *top) before(l *fanout.LaneFigures) uint64 {
	if n := int(l.Lane) + 1 - len(t.denied); n > 0 {
		t.denied = append(t.denied, make([]uint64, n)...)
	}
	was := t.denied[l.Lane]
	t.denied[l.Lane] = l.Denied
	return was
}

func (t *top) rankTenants(tenants []fanout.TenantStatus) (all []*tenantRank) {
	for i := range tenants {
		s := &tenants[i]
		r := t.ten[s.TenantID]
		if r == nil {
			continue // without a lane
		}
		r.seen, r.worst = true, 1
		if s.Nominal > 0 {
			r.saturation = float64(s.Counters.InFlight) / float64(s.Nominal)
		}
		if !math.IsNaN(s.Served) {
			r.worst = s.Served
		}
		all = append(all, r)
	}
	for id, r := range t.ten {
		if !r.seen {
			delete(t.ten, id)
		}
	}
	return all
}

// first returns the k with the greatest measure above 0; of equal ones the first.
func first[R any](all []R, k int, by func(R) float64) []R {
	var best []R
	for _, r := range all {
		m := by(r)
		if m <= 0 || len(best) == k && (k == 0 || m <= by(best[k-1])) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, m, func(x R, m float64) int {
			if by(x) >= m {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, r)
		best = best[:min(len(best), k)]
	}
	return best
}
