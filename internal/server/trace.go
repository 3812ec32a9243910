package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// A trigger keeps the W3C trace context that it was posted with as attributes, the names of which are those of
// CloudEvents' extension; each attempt sends it on. Spans are made only where an exporter is configured.
const (
	traceParent = fanout.TraceParent
	traceState  = fanout.TraceState
)

// keepTrace notes the context of a post: that of its span, else the header's. One that is malformed counts as none.
func (s *Server) keepTrace(r *http.Request, t *journal.Trigger) {
	parent, state := r.Header.Get(traceParent), r.Header.Get(traceState)
	if s.trace != nil {
		parent, state = contextOf(r.Context())
	}
	if !fanout.ValidTraceParent(parent) || slices.ContainsFunc(t.Attributes, isTrace) {
		return
	}
	t.Attributes = append(t.Attributes, journal.Attribute{Name: traceParent, Value: parent})
	if state != "" && validValue(state) {
		t.Attributes = append(t.Attributes, journal.Attribute{Name: traceState, Value: state})
	}
	slices.SortFunc(t.Attributes, func(a, b journal.Attribute) int { return strings.Compare(a.Name, b.Name) })
}

// isTrace reports whether an attribute says where a trigger came from, not what it is.
func isTrace(a journal.Attribute) bool { return a.Name == traceParent || a.Name == traceState }

// SpansFromEnv returns the exporter that the standard OTEL_* variables ask for, or nil: OTLP over HTTP, when
// OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp is set.
func SpansFromEnv(ctx context.Context, env func(string) string) (sdktrace.SpanExporter, error) {
	kind := env("OTEL_TRACES_EXPORTER")
	protocol := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = env("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	asked := kind == "otlp" || kind == "" && env("OTEL_EXPORTER_OTLP_ENDPOINT")+env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	switch {
	case strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"), kind == "none":
		return nil, nil
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER must be otlp or none, not %q", kind)
	case !asked:
		return nil, nil
	case protocol != "" && protocol != "http/protobuf":
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, not %q", protocol)
	}
	return otlptracehttp.New(ctx)
}

// tracer makes spans. A nil one makes none.
type tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// newTracer exports to the exporter; nil is none. Sampling, batching and the resource are as OTEL_* says.
func newTracer(ctx context.Context, to sdktrace.SpanExporter, version string, log *slog.Logger) (*tracer, error) {
	if to == nil {
		return nil, nil
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "fairlane"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("server: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans were not exported", "error", err) }))
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithResource(res))
	return &tracer{p, p.Tracer("github.com/fairlane-dev/fairlane")}, nil
}

// stop exports what is left.
func (t *tracer) stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

var w3c propagation.TraceContext

// contextOf is the context of ctx's span as W3C headers.
func contextOf(ctx context.Context) (parent, state string) {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier[traceParent], carrier[traceState]
}

func noEnd(error) {}

// ingest begins the span of a post, a child of the producer's.
func (t *tracer) ingest(r *http.Request) (*http.Request, func(error)) {
	if t == nil {
		return r, noEnd
	}
	ctx, span := t.tracer.Start(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), "fairlane.ingest", trace.WithSpanKind(trace.SpanKindServer))
	if name := r.PathValue("topic"); name != "" {
		span.SetAttributes(attribute.String("fairlane.topic", name))
	}
	return r.WithContext(ctx), func(err error) {
		status := http.StatusAccepted
		if err != nil {
			p := problemOf(err)
			status = p.status()
			span.SetStatus(codes.Error, string(p.code))
		}
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		span.End()
	}
}

// attempt begins the span of an attempt, a child of the post's.
func (t *tracer) attempt(a fanout.Attempting) (parent, state string, end func(fanout.Attempted)) {
	from := propagation.MapCarrier{traceParent: a.TraceParent, traceState: a.TraceState}
	ctx, span := t.tracer.Start(w3c.Extract(context.Background(), from), "fairlane.attempt", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("fairlane.tenant", a.Tenant), attribute.String("fairlane.subscription", a.Subscription),
		attribute.String("messaging.message.id", a.Trigger.ID), attribute.String("fairlane.topic", a.Trigger.Topic),
		attribute.Int64("fairlane.attempt", int64(a.Number))))
	parent, state = contextOf(ctx)
	return parent, state, func(done fanout.Attempted) {
		span.SetAttributes(attribute.String("fairlane.verdict", verdicts[done.Verdict]), attribute.String("fairlane.reason", reasonLabel(done.Reason)))
		if done.Outcome.Status != 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", done.Outcome.Status))
		}
		if done.Outcome.Result.Kind != engine.OK {
			span.SetStatus(codes.Error, done.Outcome.Reason)
		}
		span.End()
	}
}

// attempts is the fan-out's hook; nil where no spans are made.
func (t *tracer) attempts() func(fanout.Attempting) (string, string, func(fanout.Attempted)) {
	if t == nil {
		return nil
	}
	return t.attempt
}
