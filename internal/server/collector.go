package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// collector reads fan-out and log when metrics are asked for.
type collector struct {
	fanout   Fanout
	journal  Journal
	registry Registry
	watcher  *watcher
	top      *top
}

// watch adds the state of the parts. Once.
func (m *Metrics) watch(f Fanout, j Journal, r Registry, w *watcher) {
	m.registry.MustRegister(&collector{f, j, r, w, m.top})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fairlane_"+name, help, labels, nil)
}

var (
	accountDesc  = desc("account", "Deliveries of the whole platform by state, removed subscriptions included.", "state")
	gapDesc      = desc("account_gap", "Offered less the sum of all states: 0, or something was lost.")
	denialDesc   = desc("denials_total", "Sends denied by policy, by reason.", "reason")
	jainDesc     = desc("fairness_index", "Jain's index over served/entitled of the last round; alert below 0.9.")
	shortDesc    = desc("short_changed_tenants", "Tenants that got less than 0.97 of what they were entitled to.")
	entitledDesc = desc("entitled_tenants", "Tenants in the index.")
	leastDesc    = desc("fairness_least", "The least served/entitled of a tenant in the last round; page below 0.5.")
	endsDesc     = desc("ends_total", "What deliveries came to, as the ledger has it, and why.", "result", "reason")
	rejGapDesc   = desc("rejections_gap", "Denials less what was parked, buried or dropped for them: 0, or something was lost.")
	openDesc     = desc("lanes_breaker_open", "Lanes whose breaker is not closed.")
	disabledDesc = desc("lanes_disabled", "Lanes that their endpoint disabled with 410.")
	nearDesc     = desc("horizon_near", "Waiting deliveries in the last tenth of the horizon.")
	reserveDesc  = desc("retry_reserve_fill", "The platform's retry reserve, 0 to 1.")
	slotsDesc    = desc("slots", "Requests that may be in flight.")
	usedDesc     = desc("slots_used", "Requests in flight.")
	lanesDesc    = desc("lanes", "Subscriptions.")
	saturDesc    = desc("lanes_saturated", "Lanes above 80 % of their cap for 30 s.")
	waitingDesc  = desc("waiting_references", "References in memory to what waits.")
	deadRefsDesc = desc("dead_references", "References in memory to what is dead.")
	eligibleDesc = desc("oldest_eligible_seconds", "Age of the oldest delivery that waits for nothing but its turn.")
	cursorDesc   = desc("cursor_position", "The first position of the log that is not decided yet.")

	readyDesc     = desc("journal_ready", "1 if the log takes writes.")
	flushDesc     = desc("journal_flush_seconds", "Duration of flushes of outcomes.")
	fsyncsDesc    = desc("journal_fsyncs_total", "Synced writes by stream.", "stream")
	readsDesc     = desc("journal_reads_total", "Messages read back for deliveries that waited, by stream.", "stream")
	lagDesc       = desc("journal_lag_seconds", "For how long the oldest trigger that is not decided yet has waited for that.")
	historyDesc   = desc("journal_history_seconds", "Age of the oldest trigger kept.")
	unflushedDesc = desc("journal_unflushed", "Outcomes that are not on disk yet.")
	unflushedFor  = desc("journal_unflushed_seconds", "Age of the oldest of them.")
	streamDesc    = desc("journal_stream_bytes", "Size of the log by stream.", "stream")
	maxBytesDesc  = desc("journal_max_bytes", "Size that the log may have.")
	lastDesc      = desc("journal_last_position", "The newest position of the log.")
	floorDesc     = desc("journal_floor_position", "Below it the log may be trimmed.")
	freeDesc      = desc("disk_free_bytes", "Free on the disk of the log.")
	totalDesc     = desc("disk_total_bytes", "Size of the disk of the log.")
	windowDesc    = desc("idempotency_window_seconds", "How far back idempotency keys are known.")
)

// Describe is empty: the collector is unchecked, its metrics are the list in Collect.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	c.watcher.refresh(time.Now())
	c.platform(emit, count)
	c.tenants(emit)
	c.lanes(emit)
	c.log(out, emit, count)
}

type emitter func(d *prometheus.Desc, v float64, labels ...string)

func (c *collector) platform(emit, count emitter) {
	st := c.fanout.Stats()
	for state, n := range states(st.Counters) {
		emit(accountDesc, float64(n), state)
	}
	emit(gapDesc, gap(st.Counters))
	for r, n := range st.Denials {
		if n > 0 {
			count(denialDesc, float64(n), engine.Reason(r).String())
		}
	}
	for _, e := range st.Ends {
		count(endsDesc, float64(e.N), e.Result, e.Reason.String())
	}
	emit(rejGapDesc, float64(st.RejectionGap))
	emit(jainDesc, st.Jain)
	emit(leastDesc, st.LeastServed)
	emit(shortDesc, float64(st.ShortChanged))
	emit(entitledDesc, float64(st.Entitled))
	emit(reserveDesc, st.Reserve)
	emit(slotsDesc, float64(st.Slots))
	emit(usedDesc, float64(st.InFlight))
	emit(lanesDesc, float64(st.Lanes))
	emit(openDesc, float64(st.Open))
	emit(disabledDesc, float64(st.Disabled))
	emit(saturDesc, float64(c.watcher.saturated.count()))
	emit(waitingDesc, float64(st.Waiting))
	emit(deadRefsDesc, float64(st.Dead))
	emit(nearDesc, float64(st.Near))
	emit(eligibleDesc, max(st.OldestEligible, c.watcher.lag()).Seconds())
	emit(cursorDesc, float64(st.Cursor))
}

func (c *collector) log(out chan<- prometheus.Metric, emit, count emitter) {
	st := c.journal.Status()
	ready := 0.0
	if st.Err == nil {
		ready = 1
	}
	emit(readyDesc, ready)
	out <- prometheus.MustNewConstSummary(flushDesc, st.Flushes, st.FlushTime.Seconds(), nil)
	count(fsyncsDesc, float64(st.Packs), "triggers")
	count(fsyncsDesc, float64(st.Flushes), "outcomes")
	count(readsDesc, float64(st.Reads), "triggers")
	count(readsDesc, float64(st.HeldReads), "held")
	emit(lagDesc, c.watcher.lag().Seconds())
	if !st.Oldest.IsZero() {
		emit(historyDesc, time.Since(st.Oldest).Seconds())
	} else {
		emit(historyDesc, 0)
	}
	emit(unflushedDesc, float64(st.Unflushed))
	emit(unflushedFor, st.UnflushedFor.Seconds())
	emit(streamDesc, float64(st.TriggersBytes), "triggers")
	emit(streamDesc, float64(st.OutcomesBytes), "outcomes")
	emit(streamDesc, float64(st.HeldBytes), "held")
	emit(maxBytesDesc, float64(st.MaxBytes))
	emit(lastDesc, float64(st.LastPosition))
	emit(floorDesc, float64(st.Floor))
	emit(freeDesc, float64(st.Free))
	emit(totalDesc, float64(st.Total))
	emit(windowDesc, st.KeyWindow.Seconds())
}

func states(c engine.Counters) map[string]uint64 {
	return map[string]uint64{
		"offered": c.Offered, "delivered": c.Delivered, "parked": c.Parked, "dead": c.Dead,
		"in_flight": c.InFlight, "cancelled": c.Cancelled, "dropped": c.Dropped,
	}
}

func gap(c engine.Counters) float64 {
	return float64(c.Offered) - float64(c.Delivered+c.Parked+c.Dead+c.InFlight+c.Cancelled+c.Dropped)
}

// saturation knows for how long each lane has been above 80 % of its cap. Safe for concurrent use.
type saturation struct {
	mu    sync.Mutex
	since map[engine.LaneID]time.Time
	at    time.Time // of the last sample
}

const saturatedFor = 30 * time.Second

// sample takes in the lanes as they are at now.
func (s *saturation) sample(now time.Time, lanes []fanout.LaneFigures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	high := make(map[engine.LaneID]time.Time)
	for i := range lanes {
		l := &lanes[i]
		if l.Cap <= 0 || float64(l.Counters.InFlight) <= 0.8*float64(l.Cap) {
			continue
		}
		since, before := s.since[l.Lane]
		if !before {
			since = now
		}
		high[l.Lane] = since
	}
	s.since, s.at = high, now
}

// count is the number of lanes that were above it in every sample of 30 s.
func (s *saturation) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, since := range s.since {
		if s.at.Sub(since) >= saturatedFor {
			n++
		}
	}
	return n
}
