package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

func newExportCmd() *cobra.Command {
	var c client
	var dir, tenant string
	cmd := &cobra.Command{
		Use:   "export (--data DIR | --server URL)",
		Short: "Write the ledger as a trace without payloads, for `fairlane sim trace`",
		Long: "Writes a line of JSON for each delivery that the ledger knows: first offer, tenant, subscription,\n" +
			"size, outcome, latency, attempts. No payload, header, topic or URL is in it.\n\n" +
			"--data reads the directory of a service that is stopped and changes no state in it. --server asks a\n" +
			"running one, page by page; there the first offer is taken from the oldest record, and sizes are left out.",
		Example: "  fairlane export --data ./data > trace.jsonl\n" +
			"  fairlane export --server http://127.0.0.1:8080 --tenant acme > trace.jsonl",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x := exported{byName: map[deliveryName]*exportedDelivery{}, tenant: tenant}
			var err error
			switch {
			case dir != "" && cmd.Flags().Changed("server"):
				return usageError{errors.New("--data and --server exclude each other")}
			case dir != "":
				err = x.offline(cmd.Context(), dir)
			case cmd.Flags().Changed("server"):
				err = x.online(cmd.Context(), &c)
			default:
				return usageError{errors.New("either --data DIR or --server URL is needed")}
			}
			if err != nil {
				return err
			}
			return x.write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "data", "", "data directory of a stopped service")
	cmd.Flags().StringVar(&c.server, "server", "http://127.0.0.1:8080", "base URL of a running service; the key comes from "+adminKeyVar)
	cmd.Flags().StringVar(&tenant, "tenant", "", "of this tenant only")
	return cmd
}

// exported collects deliveries from their records, the oldest first.
type exported struct {
	tenant string // "" is all
	list   []*exportedDelivery
	byName map[deliveryName]*exportedDelivery
}

type deliveryName struct {
	owner journal.Owner
	at    journal.Position
}

// exportedDelivery is a line of the trace (docs/simulator.md); its origin is 1970.
type exportedDelivery struct {
	T            seconds `json:"t"`
	Tenant       string  `json:"tenant"`
	Subscription string  `json:"subscription"`
	Size         int     `json:"size,omitempty"`
	Outcome      string  `json:"outcome"`
	Latency      seconds `json:"latency"`
	Attempts     uint32  `json:"attempts"`

	at journal.Position
}

// seconds is a duration in seconds, to the microsecond, as JSON has it.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.6f", time.Duration(s).Seconds()), nil
}

func sinceEpoch(t time.Time) seconds { return seconds(t.UnixMicro() * int64(time.Microsecond)) }

// ledgerRecord is a record of the ledger, from the directory or from the service.
type ledgerRecord struct {
	Position journal.Position
	Kind     string
	Attempt  uint32
	At       time.Time
	took     time.Duration
}

// outcomeOf says what a record makes of its delivery; what is not here changes nothing.
var outcomeOf = map[string]string{
	"failed": "parked", "parked": "parked", "claimed": "parked", "revived": "parked", "resent": "parked",
	"delivered": "delivered", "dead": "dead", "cancelled": "cancelled", "purged": "cancelled", "dropped": "dropped",
}

// add takes a record in. The first one of a delivery tells when it was offered, to a flush.
func (x *exported) add(owner journal.Owner, r *ledgerRecord) {
	if x.tenant != "" && owner.Tenant != x.tenant {
		return
	}
	if r.Kind == "lane-cancelled" {
		x.cancel(owner, r.Position)
		return
	}
	outcome := outcomeOf[r.Kind]
	if outcome == "" || r.Position == 0 {
		return
	}
	name := deliveryName{owner, r.Position}
	d := x.byName[name]
	if d == nil {
		d = &exportedDelivery{T: sinceEpoch(r.At.Add(-r.took)), Tenant: owner.Tenant, Subscription: owner.Subscription, at: r.Position}
		x.byName[name] = d
		x.list = append(x.list, d)
	}
	d.Outcome = outcome
	if r.Kind == "delivered" || r.Kind == "failed" || r.Kind == "dead" && r.Attempt > 0 {
		d.Attempts = max(d.Attempts, r.Attempt)
		if r.took > 0 {
			d.Latency = seconds(r.took)
		}
	}
}

// cancel is the end of a subscription: what waits or is dead up to a position goes.
func (x *exported) cancel(owner journal.Owner, upTo journal.Position) {
	for _, d := range x.list {
		if d.Tenant == owner.Tenant && d.Subscription == owner.Subscription && d.at <= upTo && (d.Outcome == "parked" || d.Outcome == "dead") {
			d.Outcome = "cancelled"
		}
	}
}

func (x *exported) write(out io.Writer) error {
	slices.SortStableFunc(x.list, func(a, b *exportedDelivery) int { return cmp.Or(cmp.Compare(a.T, b.T), cmp.Compare(a.at, b.at)) })
	w := bufio.NewWriter(out)
	lines := json.NewEncoder(w)
	for _, d := range x.list {
		if err := lines.Encode(d); err != nil {
			return err
		}
	}
	return w.Flush()
}

// offline reads the data directory. What is still in the log has its true first offer and size.
func (x *exported) offline(ctx context.Context, dir string) error {
	l, err := journal.OpenLedger(ctx, dir)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("%w: ask the running service with --server", err)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	owners, err := l.Owners(ctx)
	if err != nil {
		return err
	}
	err = l.Records(ctx, func(r *journal.Record) {
		if owner, ok := owners[r.Lane]; ok {
			x.add(owner, &ledgerRecord{Position: r.Position, Kind: r.Kind.String(), Attempt: r.Attempt, At: r.At, took: r.Took})
		}
	})
	if err != nil {
		return err
	}
	byTrigger := map[journal.Position][]*exportedDelivery{}
	for _, d := range x.list {
		byTrigger[d.at] = append(byTrigger[d.at], d)
	}
	return l.Triggers(ctx, func(at journal.Position, accepted time.Time, size int) {
		for _, d := range byTrigger[at] {
			d.T, d.Size = sinceEpoch(accepted), size
		}
	})
}

// online asks a running service for its subscriptions and their ledgers.
func (x *exported) online(ctx context.Context, c *client) error {
	a, err := c.api()
	if err != nil {
		return err
	}
	for s, err := range a.Subscriptions(ctx, x.tenant) {
		if err == nil {
			err = x.subscription(ctx, a, journal.Owner{Tenant: s.Tenant, Subscription: s.ID})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *exported) subscription(ctx context.Context, a *api.Client, owner journal.Owner) error {
	var records []ledgerRecord
	for d, err := range a.Deliveries(ctx, owner.Subscription) {
		if err != nil {
			return err
		}
		records = append(records, ledgerRecord{
			Position: journal.Position(d.Position), Kind: d.Kind, Attempt: d.Attempt, At: d.At, took: time.Duration(d.TookMS * float64(time.Millisecond)),
		})
	}
	for i := range slices.Backward(records) { // newest first
		x.add(owner, &records[i])
	}
	return nil
}
