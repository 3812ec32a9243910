package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Fetcher keeps the keys of Tokens as a JWKS address says. The address is the
// operator's; it is asked at once, then every Every, and sooner when a token
// names an unknown key, but at most once in Least. While it does not answer, the
// keys that are held go on to be used.
type Fetcher struct {
	URL    string
	Client *http.Client  // nil: one with a timeout of 10 s
	Every  time.Duration // 0: 10 min
	Least  time.Duration // 0: 10 s
	Failed func(error)   // told of each failure; may be nil

	wanted chan struct{} // written by Want, read by Run
}

// NewFetcher returns one for an address.
func NewFetcher(url string) *Fetcher {
	return &Fetcher{URL: url, Every: 10 * time.Minute, Least: 10 * time.Second, wanted: make(chan struct{}, 1)}
}

// Want asks for the keys anew and does not wait.
func (f *Fetcher) Want() {
	select {
	case f.wanted <- struct{}{}:
	default: // asked already
	}
}

// Run keeps the keys of t until the context ends.
func (f *Fetcher) Run(ctx context.Context, t *Tokens) {
	for {
		if set, err := f.Fetch(ctx); err == nil {
			t.SetKeys(set)
		} else if f.Failed != nil && ctx.Err() == nil {
			f.Failed(err)
		}
		if !wait(ctx, f.Least, nil) || !wait(ctx, f.Every-f.Least, f.wanted) {
			return
		}
	}
}

// wait returns after a while or when woken, and false when the context has ended.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return true
}

// maxKeys bounds a JWKS, in bytes.
const maxKeys = 1 << 20

// Fetch asks the address once.
func (f *Fetcher) Fetch(ctx context.Context) (*KeySet, error) {
	client := f.Client
	if client == nil {
		client = &http.Client{Timeout: 10 * time.Second}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("identity: keys: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("identity: keys: status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys+1))
	if err != nil {
		return nil, fmt.Errorf("identity: keys: %w", err)
	}
	if len(data) > maxKeys {
		return nil, errors.New("identity: keys: larger than 1 MiB")
	}
	return ParseKeys(data)
}
