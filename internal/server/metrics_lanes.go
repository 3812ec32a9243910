package server

import (
	"math"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
)

var (
	tenantDesc   = desc("tenant_account", "Deliveries by state, of the tenants with series; the others are summed.", "tenant", "state")
	servedDesc   = desc("tenant_served_ratio", "Served/entitled of the last round; 1 while entitled to nothing.", "tenant")
	nominalDesc  = desc("tenant_slots_nominal", "The tenant's part of the slots when everybody active wants some.", "tenant")
	backlogDesc  = desc("tenant_backlog_bytes", "Payloads parked and dead, estimated.", "tenant")
	quotaDesc    = desc("tenant_backlog_quota_bytes", "How many may be.", "tenant")
	laneDesc     = desc("lane_account", "Deliveries by state, of the lanes with series; the others are summed.", "tenant", "subscription", "state")
	capDesc      = desc("lane_cap", "Requests that may be in flight.", "tenant", "subscription")
	laneSatDesc  = desc("lane_saturation", "In flight over cap; a notice above 0.8 for 30 s.", "tenant", "subscription")
	budgetDesc   = desc("lane_retry_budget_fill", "What is left of the lane's retry budget, 0 to 1.", "tenant", "subscription")
	failingDesc  = desc("lane_failure_ratio", "Failures of all calls, decayed.", "tenant", "subscription")
	breakerDesc  = desc("lane_breaker_open", "1 while the breaker is not closed.", "tenant", "subscription")
	laneEligible = desc("lane_oldest_eligible_seconds", "Age of the oldest delivery that waits for nothing but its turn.", "tenant", "subscription")
	laneNearDesc = desc("lane_horizon_near", "Waiting deliveries in the last tenth of the horizon.", "tenant", "subscription")
)

// tenants shows those with series, and the sum of the others, deleted ones included.
func (c *collector) tenants(emit emitter) {
	_, shown := c.top.shown()
	own := map[string]bool{}
	for _, id := range shown {
		t, known := c.registry.Tenant(id)
		own[id] = known && !t.Deleted
	}
	var rest engine.Counters
	for _, t := range c.fanout.Tenants() {
		id := t.TenantID
		if !own[id] {
			rest = rest.Plus(t.Counters)
			continue
		}
		for state, n := range states(t.Counters) {
			emit(tenantDesc, float64(n), id, state)
		}
		served := t.Served
		if math.IsNaN(served) {
			served = 1
		}
		emit(servedDesc, served, id)
		emit(nominalDesc, float64(t.Nominal), id)
		emit(backlogDesc, float64(t.Bytes), id)
		emit(quotaDesc, float64(t.Quota), id)
	}
	for state, n := range states(rest) {
		emit(tenantDesc, float64(n), otherLabel, state)
	}
}

// lanes shows those with series, and the sum of the others, removed ones included.
func (c *collector) lanes(emit emitter) {
	shown, _ := c.top.shown()
	own := make(map[string]bool, len(shown))
	for _, sub := range shown {
		own[sub] = true
	}
	lanes, total := c.watcher.last()
	rest := total
	for i := range lanes {
		l := &lanes[i]
		if !own[l.Subscription] {
			continue
		}
		ten, sub := l.TenantID, l.Subscription
		for state, n := range states(l.Counters) {
			emit(laneDesc, float64(n), ten, sub, state)
		}
		rest = rest.Minus(l.Counters)
		emit(capDesc, float64(l.Cap), ten, sub)
		if l.Cap > 0 {
			emit(laneSatDesc, float64(l.Counters.InFlight)/float64(l.Cap), ten, sub)
		}
		open := 0.0
		if l.Breaker != breaker.Closed {
			open = 1
		}
		emit(budgetDesc, l.Budget, ten, sub)
		emit(failingDesc, l.Failing, ten, sub)
		emit(breakerDesc, open, ten, sub)
		emit(laneEligible, l.Eligible.Seconds(), ten, sub)
		emit(laneNearDesc, float64(l.Near), ten, sub)
	}
	for state, n := range states(rest) {
		emit(laneDesc, float64(n), otherLabel, otherLabel, state)
	}
}
