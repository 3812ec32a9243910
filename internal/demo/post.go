package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// mostWaiting bounds the posts that wait for their 202 at once. 800 posts a second that
// wait 10 ms for the disk are 8; a disk that stalls for 300 ms makes them 240.
const mostWaiting = 256

// late is how long after its instant a post may start before it counts as late.
const late = 20 * time.Millisecond

// poster posts triggers at their instants, whatever becomes of those before
// (open-loop): a slow service meets the same load as a fast one.
type poster struct {
	base, key string // of the API
	client    *http.Client
	posted    func(s shot, id string, at time.Time) // by many goroutines at once

	mu    sync.Mutex
	stats posting
}

// posting is how the posting went.
type posting struct {
	accepted []int         // 202s, by tenant
	failed   int           // anything else
	err      error         // of the first that failed
	late     int           // posts that started late: the generator fell behind
	worst    time.Duration // the latest
}

func newPoster(base, key string, tenants int, posted func(shot, string, time.Time)) *poster {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	// A connection that was dialled but not needed goes back before the server's patience
	// with one that sends no request ends: the client does not repeat what it lost on such a one.
	transport.IdleConnTimeout = 2 * time.Second
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = mostWaiting, mostWaiting
	return &poster{
		base: base, key: key, posted: posted,
		client: &http.Client{Transport: transport, Timeout: 10 * time.Second},
		stats:  posting{accepted: make([]int, tenants)},
	}
}

// run posts all shots, counted from start, and returns when the last was answered or
// ctx has ended.
func (p *poster) run(ctx context.Context, start time.Time, tenants []tenant, shots []shot) posting {
	var waiting sync.WaitGroup
	free := make(chan struct{}, mostWaiting) // holds one value for each post that waits
	for _, s := range shots {
		if !sleepUntil(ctx, start.Add(s.at)) {
			break
		}
		free <- struct{}{}
		waiting.Go(func() {
			p.post(ctx, start, tenants[s.tenant].name, s)
			<-free
		})
	}
	waiting.Wait()
	p.client.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

func (p *poster) post(ctx context.Context, start time.Time, tenant string, s shot) {
	at := time.Now()
	id, err := p.send(ctx, tenant, s)
	if err == nil {
		p.posted(s, id, at)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if behind := at.Sub(start) - s.at; behind > late {
		p.stats.late++
		p.stats.worst = max(p.stats.worst, behind)
	}
	switch {
	case err == nil:
		p.stats.accepted[s.tenant]++
	case ctx.Err() == nil:
		p.stats.failed++
		if p.stats.err == nil {
			p.stats.err = err
		}
	}
}

// send posts one trigger and returns its id.
func (p *poster) send(ctx context.Context, tenant string, s shot) (id string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/v1/triggers/"+s.topic, bytes.NewReader(s.payload))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Fairlane-Tenant", tenant)
	resp, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("post for %s: %s: %s", tenant, resp.Status, bytes.TrimSpace(body))
	}
	var accepted struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(body, &accepted); err != nil || accepted.ID == "" {
		return "", fmt.Errorf("post for %s: no id in %q", tenant, body)
	}
	return accepted.ID, nil
}

// accepted returns the 202s so far, by tenant.
func (p *poster) accepted() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.stats.accepted)
}

// sleepUntil reports whether the instant came before the end of ctx.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
