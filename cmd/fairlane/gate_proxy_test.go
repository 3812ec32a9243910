package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A service that hangs is given up after the file's timeout.
func TestTheGateGivesAHangingServiceUp(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(service.Close)
	path := gateDir(t, service.URL)
	text, _ := os.ReadFile(path)
	write(t, path, string(text)+"timeout: 50ms\n")
	front, _, _ := startGate(t, path)
	if code, _, body := gateGet(t, front, "large"); code != http.StatusGatewayTimeout || !strings.Contains(body, `"reason":"timeout"`) {
		t.Errorf("%d %s", code, body)
	}
}

// The gate keeps the connections that a peak needed, and does not open them anew for the next.
func TestTheGateKeepsItsConnections(t *testing.T) {
	const peak = 120
	var opened, here atomic.Int64
	full := make(chan struct{})
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if here.Add(1) == peak {
			close(full)
		}
		<-full
	}))
	service.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	service.Start()
	t.Cleanup(service.Close)
	front, _, _ := startGate(t, gateDir(t, service.URL))
	for range 2 {
		var wg sync.WaitGroup
		for range peak {
			wg.Go(func() {
				if code, _, body := gateGet(t, front, "large"); code != http.StatusOK {
					t.Errorf("%d %s", code, body)
				}
			})
		}
		wg.Wait()
	}
	if n := opened.Load(); n != peak {
		t.Errorf("%d connections for twice %d requests at once", n, peak)
	}
}

// The service is asked for what the caller asked for: the gate neither asks for compressed answers nor unpacks them.
func TestTheGateLeavesEncodingsAlone(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Asked", r.Header.Get("Accept-Encoding"))
	}))
	t.Cleanup(service.Close)
	front, _, _ := startGate(t, gateDir(t, service.URL))
	plain := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer plain.CloseIdleConnections()
	req, _ := http.NewRequest("GET", front, nil)
	req.Header.Set("Authorization", "Bearer large-key")
	resp, err := plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if asked := resp.Header.Get("Asked"); resp.StatusCode != http.StatusOK || asked != "" {
		t.Errorf("%d, asked for %q", resp.StatusCode, asked)
	}
}
