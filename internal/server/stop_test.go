package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What was answered with 202 is there after the restart; what was not is nowhere, or was in
// doubt. Nothing is delivered twice by a graceful stop.
//
// Field case 98.
func TestAStopUnderLoadLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, `,"rate":"1000/s","burst":5,"cap":2`)
	var acked, posted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for {
				req, _ := http.NewRequest("POST", s.URL()+"/v1/triggers/a", strings.NewReader("x"))
				req.Header.Set("Authorization", "Bearer "+testKey)
				req.Header.Set("Fairlane-Tenant", "acme")
				resp, err := client.Do(req)
				if err != nil {
					return // the listener is closed
				}
				resp.Body.Close()
				switch resp.StatusCode {
				case 202:
					acked.Add(1)
				case 503:
					if resp.Header.Get("Retry-After") == "" {
						t.Error("503 without Retry-After")
					}
					return
				default:
					t.Errorf("status %d", resp.StatusCode)
					return
				}
				posted.Add(1)
			}
		})
	}
	until(t, "some are posted", func() bool { return posted.Load() > 100 })
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	s = start(t, dir, nil)
	want := uint64(acked.Load())
	until(t, "everything acknowledged is delivered", func() bool {
		a := s.account()
		return a.Balanced && a.Offered == want && a.Delivered == want
	})
	if n := uint64(len(got)); n != want {
		t.Errorf("%d deliveries of %d", n, want)
	}
}

// Field case 98.
func TestAStopWaitsForWhatIsInFlight(t *testing.T) {
	for _, c := range []struct {
		name    string
		grace   time.Duration
		attempt string // of the delivery after the restart; "" is none
	}{{"within the grace", 20 * time.Second, ""}, {"beyond the grace", 50 * time.Millisecond, "2"}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			edit := func(cfg *Config) { cfg.StopGrace = c.grace }
			s := start(t, dir, edit)
			arrived, answer, attempts := make(chan struct{}, 10), make(chan struct{}), make(chan string, 10)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				attempts <- r.Header.Get("X-Attempt")
				arrived <- struct{}{}
				select {
				case <-answer:
				case <-r.Context().Done():
				}
			}))
			t.Cleanup(srv.Close)
			s.tenant("acme")
			sub := s.subscribe("acme", srv.URL, "")
			s.must(202, s.post("acme", "x"))
			<-arrived
			stopped := make(chan error, 1)
			go func() { stopped <- s.Stop(t.Context()) }()
			if c.attempt == "" {
				until(t, "stopping", func() bool { return s.Fanout().Ready() != nil })
				close(answer)
			}
			if err := <-stopped; err != nil {
				t.Fatal(err)
			}
			<-attempts
			s = start(t, dir, edit)
			if c.attempt != "" {
				if got := <-attempts; got != c.attempt {
					t.Errorf("attempt %s, want %s", got, c.attempt)
				}
				close(answer)
			}
			until(t, "delivered", func() bool { a := s.laneOf(sub.ID).Account; return a.Delivered == 1 && a.Balanced })
			if n := len(attempts); n != 0 {
				t.Errorf("%d attempts more", n)
			}
		})
	}
}
