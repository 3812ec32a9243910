package fanout

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

func TestAdviceIsLittlesLaw(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		rate float64
		p99  time.Duration
		want int
	}{{100, 120 * ms, 16}, {1, 10 * ms, 3}, {0, 120 * ms, 0}, {100, 0, 0}, {1000, time.Second, 1334}} {
		if got := adviseCap(c.rate, c.p99); got.Cap != c.want || got.Why == "" || strings.Contains(got.Why, "e+") || strings.Contains(got.Why, "e-") {
			t.Errorf("%v/s at %v: %+v, want %d", c.rate, c.p99, got, c.want)
		}
	}
}

func TestACapIsChangedWithinItsBounds(t *testing.T) {
	auto := CapAuto{Min: 4, Max: 64}
	for _, c := range []struct {
		what        string
		now, advice int
		failing     float64
		want        int
	}{
		{"as advised", 16, 20, 0, 20},
		{"at most doubling", 16, 60, 0, 32},
		{"at most the bound", 60, 500, 0, 64},
		{"not up while more than 1 % fails", 16, 20, 0.011, 16},
		{"up at 1 %", 16, 20, 0.01, 20},
		{"down while it fails", 16, 10, 0.5, 10},
		{"at most halving", 64, 4, 0, 32},
		{"at least the bound", 5, 1, 0, 4},
	} {
		if got := nextCap(c.now, c.advice, auto, c.failing); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// step is adaptCap at an instant, for a lane with that view.
func (b *bench) step(at time.Duration, sub string, v engine.LaneView) int {
	b.t.Helper()
	b.mu.Lock()
	l := b.index.bySub[sub]
	v.Cap = l.cap
	b.adaptCap(at, l, v, l.tenant.tier.CapAuto)
	b.mu.Unlock()
	s, _ := b.Lane(sub)
	return s.Cap
}

func TestCapsAreSetOnlyWhereTheTierAllowsAndHourly(t *testing.T) {
	var logs bytes.Buffer
	b := start(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&logs, nil))
		o.Tiers["default"] = Tier{Cap: 16, CapAuto: CapAuto{Min: 4, Max: 64}}
	})
	b.tenant("acme")
	own := 5
	sub, fixed := b.subscribe("acme", "a", journal.Limits{}), b.subscribe("acme", "b", journal.Limits{Cap: &own})
	busy := engine.LaneView{Offered: 1000, P99: 50 * time.Millisecond, Breaker: breaker.Closed}
	for _, c := range []struct {
		at   time.Duration
		v    engine.LaneView
		want int
	}{
		{0, busy, 16}, // the first look
		{59 * time.Minute, engine.LaneView{}, 16},                                        // within the hour
		{60 * time.Minute, engine.LaneView{P99: busy.P99}, 32},                           // of the hour's busiest minute
		{61 * time.Minute, busy, 32},                                                     //
		{119 * time.Minute, engine.LaneView{Failing: 0.02}, 32},                          //
		{120 * time.Minute, busy, 32},                                                    // a minute of failures
		{180 * time.Minute, busy, 64},                                                    //
		{240 * time.Minute, engine.LaneView{}, 64},                                       // nothing was measured
		{300 * time.Minute, engine.LaneView{Offered: 1, P99: 10 * time.Millisecond}, 32}, // a quiet hour
	} {
		if got := b.step(c.at, sub, c.v); got != c.want {
			t.Errorf("at %v: %d, want %d", c.at, got, c.want)
		}
	}
	b.adaptCaps()
	if s, _ := b.Lane(fixed); s.Cap != own {
		t.Errorf("a subscription's own cap became %d", s.Cap)
	}
	if !strings.Contains(logs.String(), "cap set") || !strings.Contains(logs.String(), "subscription="+sub) {
		t.Error("the change is not in the log")
	}
	if err := b.Reconfigure(Settings{Slots: 100, Profile: b.opts.Profile, Tiers: map[string]Tier{"default": {Cap: 16}}}); err != nil {
		t.Fatal(err)
	}
	if s, _ := b.Lane(sub); s.Cap != 16 {
		t.Errorf("a tier that does not allow it any more leaves %d", s.Cap)
	}
}

func TestALaneShowsItsRecommendedCap(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	sub := b.subscribe("acme", "a", journal.Limits{})
	b.post(50, "acme")
	s := b.until(sub, "advice", func(s LaneStatus) bool { return s.Counters.Delivered == 50 })
	if a := s.Advice(); a.Cap < 3 || a.Why == "" {
		t.Errorf("%+v", a)
	}
}
