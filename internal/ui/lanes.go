package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// laneRow is a lane in a list.
type laneRow struct {
	*fanout.LaneStatus
	Breaker string
	Why     string // it needs attention
	Need    int
	Blocked string
	Used    int // percent of the cap
}

func rowOf(l *fanout.LaneStatus) laneRow {
	r := laneRow{LaneStatus: l, Breaker: phase(l.Breaker), Used: percent(float64(l.Counters.InFlight), float64(l.Cap))}
	r.Need, r.Why = need(l)
	if l.Blocked != engine.None && l.Counters.Parked > 0 {
		r.Blocked = l.Blocked.String()
	}
	return r
}

// column is one that the list can be sorted by.
type column struct {
	Name, Title string
	Number      bool
	value       func(*fanout.LaneStatus) float64
	text        func(*fanout.LaneStatus) string
}

var columns = []column{
	{Name: "attention", Title: "State", value: func(l *fanout.LaneStatus) float64 { n, _ := need(l); return float64(n) }},
	{Name: "tenant", Title: "Tenant", text: func(l *fanout.LaneStatus) string { return l.TenantID }},
	{Name: "subscription", Title: "Subscription", text: func(l *fanout.LaneStatus) string { return l.Subscription }},
	{Name: "offered", Title: "Offered/s", Number: true, value: func(l *fanout.LaneStatus) float64 { return l.Offered }},
	{Name: "delivered", Title: "Delivered", Number: true, value: func(l *fanout.LaneStatus) float64 { return float64(l.Counters.Delivered) }},
	{Name: "flight", Title: "In flight", Number: true, value: func(l *fanout.LaneStatus) float64 { return float64(l.Counters.InFlight) }},
	{Name: "parked", Title: "Parked", Number: true, value: func(l *fanout.LaneStatus) float64 { return float64(l.Counters.Parked) }},
	{Name: "dead", Title: "Dead", Number: true, value: func(l *fanout.LaneStatus) float64 { return float64(l.Counters.Dead) }},
	{Name: "p99", Title: "p99", Number: true, value: func(l *fanout.LaneStatus) float64 { return float64(l.P99) }},
}

func columnOf(name string) *column {
	for i := range columns {
		if columns[i].Name == name {
			return &columns[i]
		}
	}
	return columnOf("attention")
}

// laneList is the page of lanes.
type laneList struct {
	Rows     []laneRow
	Columns  []column
	Query    string // what is searched for
	State    string
	States   []string
	Sort     string
	Down     bool
	Passing  int
	All      int
	From, To int // of the rows, from 1
	Prev     int // page; 0 is none
	Next     int
	Taken    time.Time
}

const rowsPerPage = 50

// laneState is one that the list can be narrowed to.
type laneState struct {
	name string
	is   func(*fanout.LaneStatus) bool
}

// states are at most eight.
var states = []laneState{
	{"needs attention", func(l *fanout.LaneStatus) bool { n, _ := need(l); return n > 0 }},
	{"breaker open", func(l *fanout.LaneStatus) bool { return l.Breaker != breaker.Closed }},
	{"parked", func(l *fanout.LaneStatus) bool { return l.Counters.Parked > 0 }},
	{"dead", func(l *fanout.LaneStatus) bool { return l.Counters.Dead > 0 }},
	{"paused", func(l *fanout.LaneStatus) bool { return l.Paused || l.Disabled || l.PausedFor > 0 }},
	{"in flight", func(l *fanout.LaneStatus) bool { return l.Counters.InFlight > 0 }},
}

func (u *UI) lanes(v *visit) (*view, error) {
	s := u.now()
	q := v.URL.Query()
	p := laneList{Columns: columns, Query: q.Get("q"), State: q.Get("state"), Sort: columnOf(q.Get("sort")).Name, Down: q.Get("dir") != "up", All: len(s.lanes.all), Taken: s.at}
	if q.Get("dir") == "" && columnOf(p.Sort).text != nil {
		p.Down = false
	}
	number, _ := strconv.Atoi(q.Get("page"))
	number = min(max(number, 1), len(s.lanes.all)/rowsPerPage+1)
	for _, st := range states {
		p.States = append(p.States, st.name)
	}
	if !slices.Contains(p.States, p.State) {
		p.State = ""
	}
	page, passing := s.lanes.page(laneQuery{p.Sort, p.State, strings.TrimSpace(p.Query)}, p.Down, (number-1)*rowsPerPage, rowsPerPage)
	for _, i := range page {
		p.Rows = append(p.Rows, rowOf(&s.lanes.all[i]))
	}
	p.Passing = passing
	if len(page) > 0 {
		p.From, p.To = (number-1)*rowsPerPage+1, (number-1)*rowsPerPage+len(page)
	}
	if number > 1 {
		p.Prev = number - 1
	}
	if p.To < passing && len(page) > 0 {
		p.Next = number + 1
	}
	return &view{page: "lanes", Title: "Lanes", Nav: "lanes", Data: &p}, nil
}

// address is the list's own with one thing changed.
func (p *laneList) address(change func(url.Values)) string {
	q := url.Values{}
	for name, value := range map[string]string{"q": p.Query, "state": p.State, "sort": p.Sort} {
		if value != "" {
			q.Set(name, value)
		}
	}
	q.Set("dir", map[bool]string{true: "down", false: "up"}[p.Down])
	change(q)
	return "/lanes?" + q.Encode()
}

// By is the address sorted by a column; by the one it is sorted by already, the other way round.
func (p *laneList) By(name string) string {
	return p.address(func(q url.Values) {
		q.Set("sort", name)
		switch {
		case name == p.Sort && p.Down:
			q.Set("dir", "up")
		case name == p.Sort:
			q.Set("dir", "down")
		default:
			q.Del("dir")
		}
	})
}

// Page is the address of another page.
func (p *laneList) Page(n int) string {
	return p.address(func(q url.Values) { q.Set("page", strconv.Itoa(n)) })
}
