package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// teller is events over a log that a test may break.
type teller struct {
	*events
	got  []string // "topic to,to count"
	fail error
	all  []journal.Trigger
}

func newTeller() *teller {
	x := &teller{}
	x.events = newEvents("ops", &fake{append: func(_ context.Context, t *journal.Trigger) (journal.Receipt, error) {
		if x.fail != nil {
			return journal.Receipt{}, x.fail
		}
		var h happening
		if err := json.Unmarshal(t.Payload, &h); err != nil {
			return journal.Receipt{}, err
		}
		x.all = append(x.all, *t)
		x.got = append(x.got, strings.TrimSpace(fmt.Sprint(t.Topic, " ", strings.Join(t.Audience.Tenants, ","), " ", h.Count)))
		return journal.Receipt{}, nil
	}}, slog.New(slog.DiscardHandler))
	return x
}

// take returns what was told since the last take.
func (x *teller) take() []string {
	got := x.got
	x.got = nil
	return got
}

// reporting are lanes of acme and of the operator that take events.
func reporting() []fanout.LaneFigures {
	return []fanout.LaneFigures{
		{LaneView: engine.LaneView{Lane: 1}, Subscription: "acme-events", TenantID: "acme", Reports: true},
		{LaneView: engine.LaneView{Lane: 2}, Subscription: "ops-events", TenantID: "ops", Reports: true},
	}
}

// Field case 85.
func TestEachTransitionIsToldOnceToWhomItConcerns(t *testing.T) {
	x := newTeller()
	t0 := time.Unix(0, 0)
	at, one := t0, fanout.LaneFigures{Subscription: "sub", TenantID: "acme"}
	ten := fanout.TenantStatus{TenantID: "acme", Quota: 1000}
	for _, step := range []struct {
		what string
		wait time.Duration
		edit func()
		want []string
	}{
		{"the first look learns", 0, func() { one.Counters.Dead = 7 }, nil},
		{"nothing", 5 * time.Second, func() {}, nil},
		{"opens", 5 * time.Second, func() { one.Breaker = breaker.Open }, []string{"fairlane.breaker.opened acme,ops 0"}},
		{"stays open", 5 * time.Second, func() {}, nil},
		{"probes", 5 * time.Second, func() { one.Breaker = breaker.HalfOpen }, nil},
		{"for long", failingAfter, func() {}, []string{"fairlane.endpoint.failing acme,ops 0"}},
		{"for longer", time.Hour, func() {}, nil},
		{"closes", time.Second, func() { one.Breaker = breaker.Closed }, []string{"fairlane.breaker.closed acme,ops 0"}},
		{"is disabled", time.Second, func() { one.Why = "gone" }, []string{"fairlane.subscription.disabled acme,ops 0"}},
		{"is enabled", time.Second, func() { one.Why = "" }, nil},
		{"deaths", time.Second, func() { one.Counters.Dead = 9 }, []string{"fairlane.dead.letters acme,ops 2"}},
		{"more within the hour", time.Second, func() { one.Counters.Dead = 12 }, nil},
		{"told after it", eventAgain, func() {}, []string{"fairlane.dead.letters acme,ops 3"}},
		{"replayed", eventAgain, func() { one.Counters.Dead = 0 }, nil},
		{"and dead again", time.Second, func() { one.Counters.Dead = 1 }, []string{"fairlane.dead.letters acme,ops 1"}},
		{"a backlog", time.Second, func() { one.Counters.Parked = backlogFrom }, []string{"fairlane.backlog.high acme,ops 1000"}},
		{"which sways", time.Second, func() { one.Counters.Parked = backlogFrom - 1 }, nil},
		{"and again", 2 * eventAgain, func() { one.Counters.Parked = backlogFrom }, nil},
		{"drained", time.Second, func() { one.Counters.Parked = 0 }, nil},
		{"the horizon", time.Second, func() { one.Near = 4 }, []string{"fairlane.horizon.near acme,ops 4"}},
		{"the quota", time.Second, func() { ten.Bytes = 801 }, []string{"fairlane.quota.near acme,ops 801"}},
	} {
		at = at.Add(step.wait)
		step.edit()
		x.look(at, append(reporting(), one), []fanout.TenantStatus{ten})
		if got := x.take(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

// Field case 85.
func TestEventsDoNotFeedOnThemselves(t *testing.T) {
	x := newTeller()
	lanes := reporting()
	x.look(time.Unix(0, 0), lanes, nil)
	lanes[0].Breaker, lanes[0].Counters.Dead = breaker.Open, 5 // acme's endpoint for events is dead
	lanes[1].Breaker, lanes[1].Counters.Dead = breaker.Open, 5 // and so is the operator's
	x.look(time.Unix(5, 0), lanes, nil)
	if got, want := x.take(), []string{"fairlane.breaker.opened ops 0", "fairlane.dead.letters ops 5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	lanes = append(lanes, fanout.LaneFigures{Subscription: "other", TenantID: "beta"})
	x.look(time.Unix(10, 0), lanes, nil)
	lanes[2].Breaker = breaker.Open // of a tenant that takes no events: the operator hears
	x.look(time.Unix(15, 0), lanes, nil)
	if got, want := x.take(), []string{"fairlane.breaker.opened ops 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEventsAreBoundedAndNoneIsLost(t *testing.T) {
	x := newTeller()
	lanes := reporting()
	for i := range 120 {
		lanes = append(lanes, fanout.LaneFigures{Subscription: fmt.Sprint("s", i), TenantID: "acme"})
	}
	at := time.Unix(0, 0)
	look := func() int { at = at.Add(5 * time.Second); x.look(at, lanes, nil); return len(x.take()) }
	look()
	for i := range lanes[2:] {
		lanes[2+i].Why = "gone"
	}
	x.fail = errors.New("no log")
	if n := look(); n != 0 {
		t.Errorf("%d events without a log", n)
	}
	x.fail = nil
	if a, b, c, d := look(), look(), look(), look(); a != eventsAtOnce || b != eventsAtOnce || c != 20 || d != 0 {
		t.Errorf("%d, %d, %d, %d events", a, b, c, d)
	}
	lanes = reporting()
	look()
	if len(x.lanes) != 2 {
		t.Errorf("%d subscriptions are remembered", len(x.lanes))
	}
}

// Field case 85.
func TestTheOwnerHearsThatItsEndpointIsNotCalled(t *testing.T) {
	s := start(t, "", func(c *Config) { c.Operator = "ops" })
	killed := httptest.NewServer(http.NotFoundHandler())
	killed.Close()
	good, plain := endpoint(t, 200)
	toAcme, acme := endpoint(t, 200)
	toOps, ops := endpoint(t, 200)
	s.tenant("acme")
	s.tenant("ops")
	sub := s.subscribe("acme", killed.URL, "")
	s.subscribe("acme", good, "") // to everything: that is not to these
	for tenant, url := range map[string]string{"acme": toAcme, "ops": toOps} {
		s.must(201, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"`+tenant+`","url":"`+url+`","topics":["fairlane.>"]}`)))
	}
	s.must(422, s.do("POST", "/v1/triggers/fairlane.breaker.opened", strings.NewReader("x"), "Fairlane-Tenant: acme"))
	s.scrape() // a look: how things are
	for range 6 {
		s.must(202, s.post("acme", "x"))
	}
	for range 6 {
		next(t, plain)
	}
	for _, got := range []<-chan received{acme, ops} {
		var h happening
		r := next(t, got)
		if err := json.Unmarshal(r.body, &h); err != nil {
			t.Fatal(err)
		}
		if h.Event != breakerOpened || h.Tenant != "acme" || h.Subscription != sub.ID || h.Cause == "" || h.NextProbe == nil || !h.NextProbe.After(h.At) || h.Account.Parked == 0 {
			t.Errorf("%s", r.body)
		}
	}
	if len(plain) > 0 {
		t.Errorf("a subscription to > got %s", (<-plain).body)
	}
}
