package ui

import (
	"slices"
	"strings"
)

// triggerView is the page of one trigger.
type triggerView struct {
	ID    string // as it was asked for
	Found *completion
	Rows  []triggerRow
}

// triggerRow is one subscription of a trigger, and what the newest part of its ledger says of it.
type triggerRow struct {
	completed
	Records []delivery // oldest first
}

// withRecords bounds the subscriptions whose ledger is looked into.
const withRecords = 10

func (u *UI) trigger(v *visit) (*view, error) {
	p := triggerView{ID: strings.TrimSpace(v.URL.Query().Get("id"))}
	s := &view{page: "trigger", Title: "Trigger", Nav: "trigger", Data: &p, Frozen: true}
	if p.ID == "" {
		return s, nil
	}
	p.Found = &completion{}
	after := v.URL.Query().Get("after")
	if err := u.call(v, "GET", "/v1/triggers"+path(p.ID)+"?limit=50"+and("after", after), nil, p.Found); err != nil {
		return nil, err
	}
	for i, d := range p.Found.Deliveries.Items {
		row := triggerRow{completed: d}
		if i < withRecords {
			row.Records = u.records(v, d.Subscription, p.Found.Position)
		}
		p.Rows = append(p.Rows, row)
	}
	s.Frozen = p.Found.Complete || after != ""
	return s, nil
}

// records are those of one trigger in the newest of a subscription's ledger. Without them the page still has
// the last state.
func (u *UI) records(v *visit, sub string, position uint64) (found []delivery) {
	var l list[delivery]
	if u.call(v, "GET", "/v1/subscriptions"+path(sub)+"/deliveries?limit=300", nil, &l) != nil {
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
