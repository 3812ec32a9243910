package ui

import (
	"net/http"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// laneView is the page of one lane.
type laneView struct {
	Lane       client.Lane
	Sub        subscription
	Status     *fanout.LaneStatus
	Used       int // percent of the cap
	Left       int // percent of the tokens
	Need       int
	Why        string
	ComesBack  string
	Probe      string // when the breaker tests the endpoint next; "" where it is closed
	Parked     []client.Parked
	MoreParked bool
	Deliveries client.Page[client.Delivery]
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
		p.fill(&status)
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
	var l client.Page[client.Parked]
	if err := u.call(v, "GET", "/v1/subscriptions"+path(id)+"/parked?limit=10", nil, &l); err != nil {
		return err
	}
	p.Parked, p.MoreParked = l.Items, l.Next != "" || uint64(len(l.Items)) < p.Lane.Account.Parked
	return nil
}

func (p *laneView) fill(l *fanout.LaneStatus) {
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
