package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlane-dev/fairlane/client"
)

// triggerView is the page of one trigger.
type triggerView struct {
	ID         string // as it was asked for
	Found      *client.Completion
	States     []stateCount
	Dead       int
	Rows       []triggerRow
	Prev, Next int // pages; 0 is none
}

type stateCount struct {
	State string
	N     int
}

// triggerRow is one subscription of a trigger, and what the newest part of its ledger says of it.
type triggerRow struct {
	client.Fate
	Records []client.Delivery // oldest first
}

const (
	rowsOfTrigger = 50
	withRecords   = 10 // subscriptions whose ledger is looked into
)

func (u *UI) trigger(v *visit) (*view, error) {
	q := v.URL.Query()
	p := triggerView{ID: strings.TrimSpace(q.Get("id"))}
	s := &view{page: "trigger", Title: "Trigger", Nav: "trigger", Data: &p, Frozen: true}
	if p.ID == "" {
		return s, nil
	}
	p.Found = &client.Completion{}
	if err := u.call(v, "GET", "/v1/triggers"+path(p.ID), nil, p.Found); err != nil {
		return nil, err
	}
	p.count()
	for i, d := range p.cut(q.Get("page")) {
		row := triggerRow{Fate: d}
		if i < withRecords {
			row.Records = u.records(v, d.Subscription, p.Found.Position)
		}
		p.Rows = append(p.Rows, row)
	}
	s.Frozen = p.Found.Complete || p.Prev > 0
	return s, nil
}

// cut is the page of that number.
func (p *triggerView) cut(number string) []client.Fate {
	all := p.Found.Deliveries
	n, _ := strconv.Atoi(number)
	n = min(max(n, 1), len(all)/rowsOfTrigger+1)
	from, to := (n-1)*rowsOfTrigger, min(n*rowsOfTrigger, len(all))
	if p.Prev = n - 1; to < len(all) {
		p.Next = n + 1
	}
	return all[from:to]
}

// count tells how many stand in which state, the most first.
func (p *triggerView) count() {
	by := map[string]int{}
	for _, d := range p.Found.Deliveries {
		by[d.State]++
	}
	p.Dead = by["dead"]
	for state, n := range by {
		p.States = append(p.States, stateCount{state, n})
	}
	slices.SortFunc(p.States, func(a, b stateCount) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.State, b.State)) })
}

// records are those of one trigger in the newest of a subscription's ledger. Without them the page still has
// the last state.
func (u *UI) records(v *visit, sub string, position uint64) (found []client.Delivery) {
	var l client.Page[client.Delivery]
	if u.call(v, "GET", "/v1/subscriptions"+path(sub)+"/deliveries?limit=300&kind="+shownKinds, nil, &l) != nil {
		return nil
	}
	for _, d := range l.Items {
		if d.Position == position {
			found = append(found, d)
		}
	}
	slices.Reverse(found)
	return found
}
