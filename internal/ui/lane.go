package ui

import (
	"net/http"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/plan"
)

// laneView is the page of one lane.
type laneView struct {
	Lane       lane
	Sub        subscription
	Status     *fanout.LaneStatus
	Used       int // percent of the cap
	Left       int // percent of the tokens
	Need       int
	Why        string
	ComesBack  string
	Probe      string // when the breaker tests the endpoint next; "" where it is closed
	Parked     []parked
	MoreParked bool
	Deliveries list[delivery]
	Advice     advice
}

// advice is the recommended cap of a lane.
type advice struct {
	Cap  int // 0: none
	Text string
}

func (u *UI) lane(v *visit) (*view, error) {
	id := v.PathValue("subscription")
	var p laneView
	if err := u.call(v, "GET", "/v1/lanes"+path(id), nil, &p.Lane); err != nil { // 404 where it is not the visitor's
		return nil, err
	}
	if err := u.call(v, "GET", "/v1/subscriptions"+path(id), nil, &p.Sub); err != nil {
		return nil, err
	}
	after := v.URL.Query().Get("after")
	if err := u.call(v, "GET", "/v1/subscriptions"+path(id)+"/deliveries?limit=50&kind="+shownKinds+and("after", after), nil, &p.Deliveries); err != nil {
		return nil, err
	}
	if err := u.parkedOf(v, id, &p); err != nil {
		return nil, err
	}
	if status, ok := u.o.Platform.Lane(id); ok {
		p.fill(&status, u.now().stats.Slots)
	}
	return &view{page: "lane", Title: "Lane " + id, Nav: "lanes", Data: &p, Frozen: after != ""}, nil
}

// shownKinds are the records that say what happened. That an attempt was about to start is not among them.
const shownKinds = "delivered,failed,parked,dead,cancelled,dropped,lane-cancelled,revived,resent,purged"

// parkedOf lists the first that wait.
func (u *UI) parkedOf(v *visit, id string, p *laneView) error {
	if p.Lane.Account.Parked == 0 {
		return nil
	}
	var l list[parked]
	if err := u.call(v, "GET", "/v1/subscriptions"+path(id)+"/parked?limit=10", nil, &l); err != nil {
		return err
	}
	p.Parked, p.MoreParked = l.Items, l.Next != "" || uint64(len(l.Items)) < p.Lane.Account.Parked
	return nil
}

func (p *laneView) fill(l *fanout.LaneStatus, slots int) {
	p.Status, p.ComesBack = l, comesBack(l)
	p.Need, p.Why = need(l)
	p.Used = percent(float64(l.Counters.InFlight), float64(l.Cap))
	p.Left = percent(float64(p.Lane.Remaining), float64(p.Lane.Burst))
	if l.Breaker != breaker.Closed {
		p.Probe = "in " + brief(l.Probe-l.Now)
		if l.Probe <= l.Now {
			p.Probe = "now, or as soon as something waits"
		}
	}
	p.Advice = advise(l, p.Sub.timeout(), slots)
}

func (s *subscription) timeout() time.Duration {
	d, _ := time.ParseDuration(s.Timeout)
	return d // 0: the plan's default
}

// headroom is what a recommended cap has above the mean in flight.
const headroom = 4

// advise is Little's law, from what is offered and how long successes take.
func advise(l *fanout.LaneStatus, timeout time.Duration, slots int) advice {
	if l.P99 <= 0 || l.Offered <= 0 {
		return advice{Text: "No recommendation: nothing has been offered and answered lately."}
	}
	r, err := plan.Cap(plan.CapInput{Rate: l.Offered, P99: l.P99, Headroom: headroom, Timeout: timeout, Slots: float64(slots)})
	if err != nil {
		return advice{Text: "No recommendation: the figures are out of range."}
	}
	a := advice{Cap: int(r.Cap)}
	a.Text = decimal(l.Offered) + " offered a second, answered within " + brief(l.P99) + " (p99 of successes): " +
		decimal(r.InFlight) + " in flight at once, and " + decimal(headroom) + " spare. If the endpoint hangs, it then holds " +
		decimal(r.HangsWith) + " of the platform's slots."
	return a
}

// and is one more parameter of a query, if it has a value.
func and(name, value string) string {
	if value == "" {
		return ""
	}
	return "&" + name + "=" + escape(value)
}

// testLane sends a test trigger.
func (u *UI) testLane(v *visit) (string, error) {
	id := v.PathValue("subscription")
	var got struct {
		ID string `json:"id"`
	}
	if err := u.call(v, http.MethodPost, "/v1/subscriptions"+path(id)+"/test", nil, &got); err != nil {
		return "", err
	}
	return "/trigger?id=" + escape(got.ID), nil
}
