package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/httpadmit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/fair"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Experiments on this machine, over real sockets",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNoisyNeighbourCmd())
	return cmd
}

func newNoisyNeighbourCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "noisy-neighbour",
		Short: "What 500 requests of one tenant do to 10 of another, under three policies",
		Long: `An HTTP service of ten slots behind the middleware: 500 requests of 20 ms of one tenant at once,
and at 50 ms ten of another. Three times: slots shared by arrival, a hard share of 6, and shares of
6 with idle slots lent.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows []neighbourRow
			for _, mode := range []fair.Mode{fair.Shared, fair.Hard, fair.WorkConserving} {
				row, err := noisyNeighbour(cmd.Context(), mode)
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"rows": rows})
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "POLICY\tQUIET MEDIAN MS\tQUIET MAX MS\tBATCH S")
			for _, r := range rows {
				fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.2f\n", r.Policy, r.Median, r.Max, r.Batch)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, `print {"rows":[{"policy","quiet_median_ms","quiet_max_ms","batch_s"}]}`)
	return cmd
}

type neighbourRow struct {
	Policy string  `json:"policy"`
	Median float64 `json:"quiet_median_ms"`
	Max    float64 `json:"quiet_max_ms"`
	Batch  float64 `json:"batch_s"`
}

const (
	noisyRequests = 500
	quietRequests = 10
	benchSlots    = 10
	benchShare    = 6
	serviceTime   = 20 * time.Millisecond
	quietAfter    = 50 * time.Millisecond
)

// benchDoor is a door whose tenants have a key each: their name.
func benchDoor(mode fair.Mode) (*httpadmit.Door, error) {
	keys := &identity.Keys{}
	var entries []identity.Entry
	for _, tenant := range []string{"noisy", "quiet"} {
		entries = append(entries, identity.Entry{SHA256: identity.Hash(tenant), Identity: identity.Identity{Tenant: tenant, Tier: "all"}})
	}
	if _, err := keys.Set(entries); err != nil {
		return nil, err
	}
	gate, _, err := admit.NewGate(admit.Config{Tiers: []admit.Tier{{Name: "all", Share: benchShare, Weight: 1}}})
	if err != nil {
		return nil, err
	}
	return httpadmit.New(httpadmit.Settings{
		Gate: gate, Identity: &identity.Resolver{Sources: []identity.Source{keys}},
		Slots: fair.SlotLimits{Slots: benchSlots, Mode: mode, Queue: noisyRequests, Waiters: 2 * noisyRequests},
		Wait:  time.Minute,
	}, rand.New(rand.NewPCG(1, 1)), 0), nil
}

// noisyNeighbour runs the experiment under one policy. Connections are open before
// it begins, so that it measures slots.
func noisyNeighbour(ctx context.Context, mode fair.Mode) (neighbourRow, error) {
	door, err := benchDoor(mode)
	if err != nil {
		return neighbourRow{}, err
	}
	work := door.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(serviceTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}))
	mux := http.NewServeMux()
	open := make(chan struct{}) // closed when every connection is open
	arrived := make(chan struct{}, noisyRequests+quietRequests)
	mux.Handle("/work", work)
	mux.HandleFunc("/open", func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-open })
	server := httptest.NewServer(mux)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: noisyRequests + quietRequests}}
	defer client.CloseIdleConnections()

	n := &neighbours{ctx: ctx, client: client, url: server.URL}
	n.all(noisyRequests+quietRequests, "", "/open", func() {
		for range noisyRequests + quietRequests {
			<-arrived
		}
		close(open)
	})
	began := time.Now()
	var batch time.Duration
	var quiet []time.Duration
	var both sync.WaitGroup
	both.Go(func() {
		n.all(noisyRequests, "noisy", "/work", nil)
		batch = time.Since(began)
	})
	both.Go(func() {
		timer := time.NewTimer(quietAfter)
		defer timer.Stop()
		<-timer.C
		quiet = n.all(quietRequests, "quiet", "/work", nil)
	})
	both.Wait()
	if err := errors.Join(n.failures...); err != nil {
		return neighbourRow{}, err
	}
	slices.Sort(quiet)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return neighbourRow{
		Policy: mode.String(), Median: ms((quiet[quietRequests/2-1] + quiet[quietRequests/2]) / 2),
		Max: ms(quiet[quietRequests-1]), Batch: batch.Seconds(),
	}, nil
}

// neighbours sends requests of tenants.
type neighbours struct {
	ctx    context.Context
	client *http.Client
	url    string

	mu       sync.Mutex
	failures []error
}

// all sends count requests at once and returns how long each took. meanwhile, if
// any, runs beside them.
func (n *neighbours) all(count int, tenant, path string, meanwhile func()) []time.Duration {
	took := make([]time.Duration, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			began := time.Now()
			if err := n.one(tenant, path); err != nil {
				n.mu.Lock()
				n.failures = append(n.failures, err)
				n.mu.Unlock()
			}
			took[i] = time.Since(began)
		})
	}
	if meanwhile != nil {
		meanwhile()
	}
	wg.Wait()
	return took
}

func (n *neighbours) one(tenant, path string) error {
	req, err := http.NewRequestWithContext(n.ctx, http.MethodGet, n.url+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+cmp.Or(tenant, "nobody"))
	resp, err := n.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a request of %s was answered %d", tenant, resp.StatusCode)
	}
	return nil
}
