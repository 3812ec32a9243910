package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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

// noisyNeighbour runs the experiment under one policy. Connections are open before it begins, and
// a request is one write, so that it measures slots: a client that takes as long to send 500
// requests as the service to answer twenty would hold back the very requests it measures.
func noisyNeighbour(ctx context.Context, mode fair.Mode) (neighbourRow, error) {
	door, err := benchDoor(mode)
	if err != nil {
		return neighbourRow{}, err
	}
	server := httptest.NewServer(door.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(serviceTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	})))
	defer server.Close()
	var crowds [2]*crowd
	for i, c := range []*crowd{{tenant: "noisy", size: noisyRequests}, {tenant: "quiet", size: quietRequests}} {
		crowds[i] = c
		if err := c.open(server.Listener.Addr().String()); err != nil {
			return neighbourRow{}, err
		}
		defer c.close()
		defer context.AfterFunc(ctx, c.close)()
	}
	noisy, quiet := crowds[0], crowds[1]
	later := time.NewTimer(quietAfter)
	defer later.Stop()
	began := time.Now()
	noisy.send()
	<-later.C
	quiet.send()
	if err := errors.Join(noisy.wait(), quiet.wait(), ctx.Err()); err != nil {
		return neighbourRow{}, err
	}
	took := quiet.took()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return neighbourRow{
		Policy: mode.String(), Median: ms((took[quietRequests/2-1] + took[quietRequests/2]) / 2),
		Max: ms(took[quietRequests-1]), Batch: slices.MaxFunc(noisy.got, time.Time.Compare).Sub(began).Seconds(),
	}, nil
}

// crowd is one tenant's connections, each for one request.
type crowd struct {
	tenant string
	size   int

	conns     []net.Conn
	sent, got []time.Time
	errs      []error
	answered  sync.WaitGroup
}

// open opens the connections, and waits on each for its answer.
func (c *crowd) open(addr string) error {
	c.sent, c.got, c.errs = make([]time.Time, c.size), make([]time.Time, c.size), make([]error, c.size)
	for i := range c.size {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			c.close()
			return err
		}
		c.conns = append(c.conns, conn)
		c.answered.Go(func() { c.errs[i] = c.read(conn, &c.got[i]) })
	}
	return nil
}

func (c *crowd) read(conn net.Conn, at *time.Time) error {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	*at = time.Now()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a request of %s was answered %d", c.tenant, resp.StatusCode)
	}
	return nil
}

// send sends all requests at once.
func (c *crowd) send() {
	request := []byte("GET /work HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + c.tenant + "\r\n\r\n")
	for i, conn := range c.conns {
		c.sent[i] = time.Now()
		conn.Write(request) //nolint:errcheck // its reader gets the error too
	}
}

// wait waits for every answer.
func (c *crowd) wait() error {
	c.answered.Wait()
	return errors.Join(c.errs...)
}

// took returns how long the answers took, the shortest first.
func (c *crowd) took() []time.Duration {
	took := make([]time.Duration, c.size)
	for i := range took {
		took[i] = c.got[i].Sub(c.sent[i])
	}
	slices.Sort(took)
	return took
}

// close ends whoever still waits.
func (c *crowd) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
	c.answered.Wait()
}
