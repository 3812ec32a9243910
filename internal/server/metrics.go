package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// Metrics counts what happens and, when asked, reads the state of the parts. Its labels are
// bounded: kinds and reasons are closed sets, lanes and tenants those of top. Safe for
// concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	handler    http.Handler
	ingest     *prometheus.CounterVec
	ingestTime prometheus.Histogram
	attempts   *prometheus.CounterVec
	unsent     *prometheus.CounterVec
	deliveries *prometheus.CounterVec
	attempt    prometheus.Histogram
	latency    prometheus.Histogram
	top        *top
}

// NewMetrics returns metrics in a registry of their own. The first k lanes and tenants, by each ranking, have
// series of their own.
func NewMetrics(version string, k int) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		top:      newTop(k),
		ingest:   counters("ingest_requests_total", "Posts of triggers answered, by class of status.", "status"),
		attempts: counters("attempts_total", "Attempts that ended, by class of the answer, by what decided (status, timeout, dns, ...), retries apart.",
			"class", "reason", "retry"),
		unsent: counters("unsent_total", "Sends that ended before a byte of the request left, by what decided; they are no attempts.", "reason"),
		deliveries: counters("deliveries_total", "What became of deliveries after an attempt: delivered, parked, dead, dropped, and why.",
			"result", "reason"),
		ingestTime: histogram("ingest_seconds", "From the headers of a post to its answer."),
		attempt:    histogram("attempt_seconds", "From the first byte of an attempt to the headers of its answer."),
		latency:    histogram("delivery_seconds", "From acceptance to delivered."),
	}
	m.registry.MustRegister(m.ingest, m.attempts, m.unsent, m.deliveries, m.ingestTime, m.attempt, m.latency,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.top.collectors()...)
	for _, class := range []string{"2xx", "4xx", "5xx"} {
		m.ingest.WithLabelValues(class)
	}
	for _, reason := range []string{delivery.ReasonGuard, delivery.ReasonLocal, delivery.ReasonConfig, delivery.ReasonDial, delivery.ReasonDNS, delivery.ReasonTLS, delivery.ReasonCut} {
		m.unsent.WithLabelValues(reason) // shown from the start, as 0
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlane_build_info", Help: "1, with the version.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(build)
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlane_" + name, Help: help}, labels)
}

// histogram is a native one; the few classic buckets are for scrapers that read text.
func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairlane_" + name, Help: help,
		Buckets:                        []float64{.001, .005, .01, .025, .1, .25, 1, 5, 30, 300, 3600},
		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 160,
	})
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}

// Attempted counts one attempt; it is an Observer's.
func (m *Metrics) Attempted(a fanout.Attempted) {
	if a.Outcome.Sent {
		m.attempts.WithLabelValues(statusClass(a.Outcome.Status), a.Outcome.Reason, strconv.FormatBool(a.Number > 1)).Inc()
	} else {
		m.unsent.WithLabelValues(a.Outcome.Reason).Inc()
	}
	m.deliveries.WithLabelValues(verdicts[a.Verdict], reasonLabel(a.Reason)).Inc()
	m.top.attempted(&a)
	if a.Outcome.Took > 0 {
		m.attempt.Observe(a.Outcome.Took.Seconds())
	}
	if a.Verdict == engine.Done {
		m.latency.Observe(a.SinceAccepted.Seconds())
	}
}

var verdicts = map[engine.Kind]string{
	engine.Send: "sent", engine.Park: "parked", engine.Hold: "held", engine.Bury: "dead", engine.Drop: "dropped", engine.Done: "delivered",
}

func reasonLabel(r engine.Reason) string {
	if r == engine.None {
		return ""
	}
	return r.String()
}

func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return string('0'+byte(status/100)) + "xx"
}

// refused counts a post that the backlog of all its tenants refused. Without metrics it does nothing.
func (m *Metrics) refused(tenants []string) {
	if m != nil {
		m.top.refused(tenants)
	}
}

// posted counts the answer of a post of triggers. Without metrics it does nothing.
func (m *Metrics) posted(start time.Time, err error) {
	if m == nil {
		return
	}
	status := http.StatusAccepted
	if err != nil {
		status = problemOf(err).status()
	}
	m.ingest.WithLabelValues(statusClass(status)).Inc()
	m.ingestTime.Observe(time.Since(start).Seconds())
}
