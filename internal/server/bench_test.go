package server

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// BenchmarkIngest is the cost of the API alone: everything between net/http and the log.
func BenchmarkIngest(b *testing.B) {
	f := &fake{append: func(context.Context, *journal.Trigger) (journal.Receipt, error) {
		return journal.Receipt{ID: "msg_0000000000000000000000", Position: 1 << 30}, nil
	}}
	s := New(Options{Fanout: f, Journal: f, Registry: fakeRegistry{}, Access: &fakeAccess{}, AdminKey: testKey, Metrics: NewMetrics("dev", 20)})
	h, payload := s.Handler(), bytes.Repeat([]byte{'x'}, 900)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/triggers/geofence.enter", bytes.NewReader(payload))
		r.Header.Set("Authorization", "Bearer "+testKey)
		r.Header.Set("Fairlane-Tenant", "acme")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusAccepted {
			b.Fatal(w.Code, w.Body)
		}
	}
}
