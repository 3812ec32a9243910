package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// service is a running Fairlane as the demo drives it.
type service interface {
	url() string // of the API
	key() string // bearer of the API
	// account is each tenant's, by id.
	account() map[string]engine.Counters
	// served is each entitled tenant's served/entitled in the engine's last round, by id.
	served() map[string]float64
	// stopSends lets no further send start; what is in flight goes on.
	stopSends()
	// stop ends it, at ctx's end at the latest.
	stop(ctx context.Context) error
}

// launch starts a service whose state is in dir, reachable on loopback.
type launch func(ctx context.Context, dir string, s settings) (service, error)

// admin makes tenants and subscriptions over the API.
type admin struct {
	service service
	client  http.Client
}

// register makes the tenant and its one subscription, with that cap.
func (a *admin) register(ctx context.Context, t tenant, url string, limit int) error {
	if err := a.post(ctx, "/v1/tenants", map[string]any{"id": t.name}); err != nil {
		return err
	}
	sub := map[string]any{"tenant": t.name, "url": url, "topics": []string{"geofence.*"}, "cap": limit}
	if t.contract > 0 {
		sub["rate"], sub["burst"] = fmt.Sprintf("%d/s", t.contract), t.burst
	}
	return a.post(ctx, "/v1/subscriptions", sub)
}

func (a *admin) post(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.service.url()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.service.key())
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: %s: %s", path, resp.Status, bytes.TrimSpace(answer))
	}
	return nil
}

// ready returns when the service says that deliveries flow.
func (a *admin) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.service.url()+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := a.client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !sleepUntil(ctx, time.Now().Add(20*time.Millisecond)) {
			return fmt.Errorf("the service did not become ready: %w", context.Cause(ctx))
		}
	}
}
