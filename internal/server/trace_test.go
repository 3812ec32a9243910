package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// kept is an exporter whose spans outlive its shutdown.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

func TestAPostAndItsAttemptsAreOneTrace(t *testing.T) {
	spans := kept{tracetest.NewInMemoryExporter()}
	s := start(t, "", func(c *Config) { c.Spans = spans })
	var n atomic.Int32
	got := make(chan received, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- received{r.Header, b, r.ContentLength}
		if n.Add(1) == 1 {
			w.WriteHeader(500)
		}
	}))
	t.Cleanup(srv.Close)
	s.tenant("acme")
	sub := s.subscribe("acme", srv.URL+"/secret-path", "")
	s.must(202, s.post("acme", "secret-payload", "traceparent: "+parent))
	s.must(422, s.post("", "x"))
	first, second := next(t, got), next(t, got)
	until(t, "delivered", func() bool { return s.account().Delivered == 1 })
	var post, one, two tracetest.SpanStub
	until(t, "exported", func() bool {
		if err := s.tracer.provider.ForceFlush(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, span := range spans.GetSpans() {
			switch fmt.Sprint(span.Name, " ", span.Status.Code) {
			case "fairlane.ingest Unset":
				post = span
			case "fairlane.attempt Error":
				one = span
			case "fairlane.attempt Unset":
				two = span
			}
		}
		return post.Name != "" && one.Name != "" && two.Name != ""
	})
	if post.Parent.SpanID().String() != "00f067aa0ba902b7" || post.SpanContext.TraceID().String() != traceID {
		t.Errorf("the post's span is a child of %v", post.Parent)
	}
	for i, span := range []tracetest.SpanStub{one, two} {
		if span.Parent.SpanID() != post.SpanContext.SpanID() || span.SpanContext.TraceID().String() != traceID {
			t.Errorf("attempt %d is a child of %v", i+1, span.Parent)
		}
		sent := []received{first, second}[i].header.Get("traceparent")
		if want := "00-" + traceID + "-" + span.SpanContext.SpanID().String() + "-01"; sent != want {
			t.Errorf("attempt %d sent %q, want %q", i+1, sent, want)
		}
		all := fmt.Sprint(span.Attributes)
		if !strings.Contains(all, sub.ID) || !strings.Contains(all, "acme") || strings.Contains(all, "secret") {
			t.Errorf("attributes %s", all)
		}
	}
	if len(spans.GetSpans()) != 4 {
		t.Errorf("%d spans", len(spans.GetSpans()))
	}
}

func TestTheProducersContextIsSentOnWithoutSpans(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, "")
	for _, c := range []struct{ parent, state, wantParent, wantState string }{
		{parent, "vendor=1", parent, "vendor=1"},
		{"", "", "", ""},
		{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "vendor=1", "", ""},
		{parent + "x", "", "", ""},
		{strings.ToUpper(parent), "", "", ""},
	} {
		s.must(202, s.post("acme", "x", "traceparent: "+c.parent, "tracestate: "+c.state))
		r := next(t, got)
		if p, st := r.header.Get("traceparent"), r.header.Get("tracestate"); p != c.wantParent || st != c.wantState {
			t.Errorf("%q, %q was sent as %q, %q", c.parent, c.state, p, st)
		}
	}
	until(t, "keys are taken", func() bool {
		return s.post("acme", "x", "Idempotency-Key: k", "traceparent: "+parent).status == 202
	})
	again := s.must(202, s.post("acme", "x", "Idempotency-Key: k", "traceparent: "+strings.Replace(parent, "b7-", "b8-", 1)))
	if again.header.Get("Fairlane-Repeat") != "true" {
		t.Error("a retry from another span is not the same request")
	}
}

// Without an exporter nothing of spans is called, or allocated.
func TestSpansAreFreeWhenOff(t *testing.T) {
	var off *tracer
	if off.attempts() != nil {
		t.Error("the fan-out has a hook")
	}
	r := httptest.NewRequest("POST", "/v1/triggers/x", nil)
	if n := testing.AllocsPerRun(100, func() {
		same, end := off.ingest(r)
		end(nil)
		if same != r {
			t.Error("the request was changed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSpansFromEnv(t *testing.T) {
	for _, c := range []struct {
		env  string
		on   bool
		rule string
	}{
		{"", false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318/v1/traces", true, ""},
		{"OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", false, ""},
		{"OTEL_SDK_DISABLED=true OTEL_TRACES_EXPORTER=otlp", false, ""},
		{"OTEL_TRACES_EXPORTER=zipkin", false, "OTEL_TRACES_EXPORTER must be otlp or none"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		to, err := SpansFromEnv(t.Context(), func(name string) string { return env[name] })
		if (to != nil) != c.on || (err != nil) != (c.rule != "") || err != nil && !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: %v, %v", c.env, to, err)
		}
		if to != nil {
			_ = to.Shutdown(t.Context())
		}
	}
}

var _ sdktrace.SpanExporter = kept{}

func TestRepeatedMessagesAreFolded(t *testing.T) {
	var out bytes.Buffer
	h := Fold(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).WithAttrs([]slog.Attr{slog.String("tenant", "acme")})
	at := time.Unix(0, 0)
	say := func(after time.Duration, message string) {
		at = at.Add(after)
		if err := h.Handle(context.Background(), slog.NewRecord(at, slog.LevelWarn, message, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for range 25 {
		say(100*time.Millisecond, "again")
		say(0, "too")
	}
	if got := strings.Count(out.String(), "msg=again"); got != foldAfter {
		t.Errorf("%d lines of one message", got)
	}
	out.Reset()
	say(foldWindow, "again")
	if got, want := out.String(), "level=WARN msg=too tenant=acme folded=15\nlevel=WARN msg=again tenant=acme folded=15\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i := range 3 * foldMost {
		say(0, fmt.Sprint("message ", i))
	}
	if n := len(h.(*folder).folds.by); n > foldMost+1 {
		t.Errorf("%d messages are remembered", n)
	}
}

func TestTraceParentForm(t *testing.T) {
	for s, want := range map[string]bool{parent: true, "": false, "00": false, parent[:54]: false, "01" + parent[2:]: false,
		strings.Replace(parent, "00f067aa0ba902b7", strings.Repeat("0", 16), 1): false, strings.Replace(parent, "a", "g", 1): false} {
		if got := fanout.ValidTraceParent(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}
