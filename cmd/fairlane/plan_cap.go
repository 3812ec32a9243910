package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/spf13/cobra"

	api "github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/plan"
	"github.com/fairlane-dev/fairlane/sim/picture"
)

func newPlanCapCmd() *cobra.Command {
	var in plan.CapInput
	var c client
	var watch time.Duration
	cmd := &cobra.Command{
		Use:   "cap",
		Short: "The concurrency cap of a lane, by Little's law; or of every lane of a running service",
		Long: `The cap of a lane: ceil(rate * p99) + headroom, by Little's law. The p99 is of successes: with that
of all attempts an endpoint that hangs would earn itself a high cap.

With --server, of every lane of a running service: its offered rate is measured over --watch and
held against its contract, its p99 is the service's own. Nothing is changed. The key comes from
` + adminKeyVar + `.`,
		Example: "  fairlane plan cap --rate 100 --p99 120ms --headroom 4\n  fairlane plan cap --server http://127.0.0.1:8080 --watch 1m",
	}
	rateFlag(cmd, &in.Rate, "rate", "0", "deliveries")
	durationFlag(cmd, &in.P99, "p99", "0s", "latency of successful deliveries")
	numberFlag(cmd, &in.Headroom, "headroom", "0", "added to what Little's law says")
	durationFlag(cmd, &in.Timeout, "timeout", "15s", "of a request, for an endpoint that hangs")
	numberFlag(cmd, &in.Slots, "slots", "1200", "of the platform (capacity.slots)")
	cmd.Flags().StringVar(&c.server, "server", "", "base URL of a service, instead of --rate and --p99")
	durationFlag(cmd, &watch, "watch", "10s", "how long offered rates are measured")
	return planned(cmd, func() (answer, error) {
		if c.server != "" {
			if cmd.Flags().Changed("rate") || cmd.Flags().Changed("p99") {
				return answer{}, usageError{errors.New("--server measures what --rate and --p99 say: give one or the other")}
			}
			return lanesAnswer(cmd.Context(), &c, watch, in)
		}
		if !cmd.Flags().Changed("rate") || !cmd.Flags().Changed("p99") {
			return answer{}, usageError{errors.New("--rate and --p99 must be given, or --server")}
		}
		r, err := plan.Cap(in)
		return answer{json: r, text: capText(in, r), charts: func() []picture.Chart { return capCharts(in, r) }}, err
	})
}

func capText(in plan.CapInput, r plan.CapResult) []section {
	return []section{
		{fmt.Sprintf("%s/s at a p99 of %s", num(in.Rate), span(in.P99)), [][]string{
			{"in flight", num(r.InFlight)},
			{"cap", num(r.Cap)},
			{"carries the rate up to a mean of", ms(r.EnoughForMilli)},
		}},
		{fmt.Sprintf("If the endpoint hangs, with a timeout of %s and %s slots, it holds", span(in.Timeout), num(in.Slots)), [][]string{
			{"without a cap", num(r.HangsWithout), percent(r.ShareWithout)},
			{"with this cap", num(r.HangsWith), percent(r.ShareWith)},
		}},
	}
}

// lane is what /v1/lanes says of one, as far as it is needed here.
type lane struct {
	Subscription, Tenant, Rate, Breaker string
	Cap                                 float64
	P99                                 float64 `json:"p99_ms"`
	Account                             struct{ Offered float64 }
}

// laneCap is one row of the answer. Recommended is null where there is nothing to go by.
type laneCap struct {
	Subscription string   `json:"subscription"`
	Tenant       string   `json:"tenant"`
	Offered      float64  `json:"offered_per_second"`
	P99          float64  `json:"p99_ms"`
	Cap          float64  `json:"cap"`
	Recommended  *float64 `json:"recommended"`
	Note         string   `json:"note,omitempty"`
}

// lanesAnswer reads the lanes twice; what was offered between is their rate.
func lanesAnswer(ctx context.Context, c *client, watch time.Duration, in plan.CapInput) (answer, error) {
	before, err := readLanes(ctx, c)
	if err != nil {
		return answer{}, err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case <-time.After(watch):
	}
	after, err := readLanes(ctx, c)
	if err != nil {
		return answer{}, err
	}
	seconds := time.Since(begin).Seconds()
	was := map[string]float64{}
	for _, l := range before {
		was[l.Subscription] = l.Account.Offered
	}
	list, rows := []laneCap{}, [][]string{{"subscription", "tenant", "offered", "p99", "cap", "recommended", ""}}
	for _, l := range after {
		row, err := l.recommend(max(0, l.Account.Offered-was[l.Subscription])/seconds, in)
		if err != nil {
			return answer{}, err
		}
		list, rows = append(list, row), append(rows, row.cells())
	}
	return answer{
		json:   map[string]any{"watched_s": seconds, "headroom": in.Headroom, "lanes": list},
		charts: func() []picture.Chart { return lanesCharts(list) },
		text:   []section{{fmt.Sprintf("Offered in %s; a cap is ceil(rate * p99) + %s", span(watch), num(in.Headroom)), rows}},
	}, nil
}

func readLanes(ctx context.Context, c *client) ([]lane, error) {
	return collected(ctx, c, func(ctx context.Context, a *api.Client) iter.Seq2[lane, error] {
		return api.List[lane](ctx, a, "/v1/lanes", nil)
	})
}

// recommend applies Little's law to what passes the lane's contract. Where nothing has succeeded
// there is no p99; where the breaker is not closed no higher cap is recommended.
func (l *lane) recommend(offered float64, in plan.CapInput) (laneCap, error) {
	row := laneCap{Subscription: l.Subscription, Tenant: l.Tenant, Offered: offered, P99: l.P99, Cap: l.Cap}
	if l.P99 <= 0 {
		row.Note = "no success yet"
		return row, nil
	}
	in.Rate = offered
	if r, err := limit.ParseRate(l.Rate, 1); err == nil && r.PerSecond() < offered {
		in.Rate, row.Note = r.PerSecond(), "offered beyond its contract"
	}
	in.P99 = time.Duration(math.Ceil(l.P99 * float64(time.Millisecond)))
	r, err := plan.Cap(in)
	if err != nil {
		return row, err
	}
	if l.Breaker != "closed" && r.Cap > l.Cap {
		r.Cap, row.Note = l.Cap, "breaker "+l.Breaker
	}
	r.Cap = max(1, r.Cap)
	row.Recommended = &r.Cap
	return row, nil
}

func (c *laneCap) cells() []string {
	recommended := "-"
	if c.Recommended != nil {
		recommended = num(*c.Recommended)
	}
	return []string{c.Subscription, c.Tenant, num(c.Offered) + "/s", ms(c.P99), num(c.Cap), recommended, c.Note}
}
