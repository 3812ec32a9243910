package ui

import (
	"cmp"
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
	{Name: "subscription", Title: "Subscription", text: func(l *fanout.LaneStatus) string { return l.Subscription }},
	{Name: "tenant", Title: "Tenant", text: func(l *fanout.LaneStatus) string { return l.TenantID }},
	{Name: "attention", Title: "State", value: func(l *fanout.LaneStatus) float64 { n, _ := need(l); return float64(n) }},
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

// ranked is a lane by its place in the snapshot and what it is sorted by.
type ranked struct {
	value float64 // negated where the greatest comes first
	lane  int32
}

// valuesOf is what lanes are sorted by, by column. Of text it is the beginning: where that is equal, the text
// decides.
func valuesOf(lanes []fanout.LaneStatus) map[string][]float64 {
	m := map[string][]float64{}
	for _, c := range columns {
		value := c.value
		if value == nil {
			value = beginning(lanes, c.text)
		}
		values := make([]float64, len(lanes))
		for i := range lanes {
			values[i] = value(&lanes[i])
		}
		m[c.Name] = values
	}
	return m
}

// beginning makes a number of the first bytes in which texts differ, as many as a float holds exactly.
func beginning(lanes []fanout.LaneStatus, text func(*fanout.LaneStatus) string) func(*fanout.LaneStatus) float64 {
	common := ""
	for i := range lanes {
		t := text(&lanes[i])
		if i == 0 {
			common = t
		}
		for !strings.HasPrefix(t, common) {
			common = common[:len(common)-1]
		}
	}
	return func(l *fanout.LaneStatus) (v float64) {
		t := text(l)[len(common):]
		for i := range 6 {
			v *= 256
			if i < len(t) {
				v += float64(t[i])
			}
		}
		return v
	}
}

// sortLanes returns the places of the lanes from offset on, at most limit of them, in the order of a column,
// and how many pass; nil passes all. Only the page itself is sorted: the rest is parted around it, O(n).
func sortLanes(s *snapshot, by string, down bool, pass func(*fanout.LaneStatus) bool, offset, limit int) (page []int32, passing int) {
	c, lanes := columnOf(by), s.lanes
	all := make([]ranked, 0, len(lanes))
	for i, v := range s.values[c.Name] {
		if pass != nil && !pass(&lanes[i]) {
			continue
		}
		if down {
			v = -v
		}
		all = append(all, ranked{v, int32(i)})
	}
	less := func(a, b ranked) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		case c.text != nil && down:
			return cmp.Or(strings.Compare(c.text(&lanes[b.lane]), c.text(&lanes[a.lane])), int(a.lane-b.lane))
		case c.text != nil:
			return cmp.Or(strings.Compare(c.text(&lanes[a.lane]), c.text(&lanes[b.lane])), int(a.lane-b.lane))
		}
		return int(a.lane - b.lane)
	}
	from, to := min(offset, len(all)), min(offset+limit, len(all))
	part(all, from, less)
	part(all[from:], to-from, less)
	slices.SortFunc(all[from:to], less)
	for _, r := range all[from:to] {
		page = append(page, r.lane)
	}
	return page, len(all)
}

// part moves the n least to the front (quickselect, median of three).
func part(all []ranked, n int, less func(a, b ranked) int) {
	for len(all) > 1 && n > 0 && n < len(all) {
		a, b, c := all[0], all[len(all)/2], all[len(all)-1]
		pivot := median(a, b, c, less)
		i, j := 0, len(all)-1
		for i <= j {
			for less(all[i], pivot) < 0 {
				i++
			}
			for less(all[j], pivot) > 0 {
				j--
			}
			if i <= j {
				all[i], all[j] = all[j], all[i]
				i++
				j--
			}
		}
		switch {
		case n <= j+1:
			all = all[:j+1]
		case n >= i:
			all, n = all[i:], n-i
		default:
			return
		}
	}
}

// median is the median of three.
func median(a, b, c ranked, less func(a, b ranked) int) ranked {
	if less(b, a) < 0 {
		a, b = b, a
	}
	switch {
	case less(c, a) < 0:
		return a
	case less(b, c) < 0:
		return b
	}
	return c
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

// states are what the list can be narrowed to.
var states = []struct {
	name string
	is   func(*fanout.LaneStatus) bool
}{
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
	p := laneList{Columns: columns, Query: q.Get("q"), State: q.Get("state"), Sort: columnOf(q.Get("sort")).Name, Down: q.Get("dir") != "up", All: len(s.lanes), Taken: s.at}
	if q.Get("dir") == "" && columnOf(p.Sort).text != nil {
		p.Down = false
	}
	number, _ := strconv.Atoi(q.Get("page"))
	number = min(max(number, 1), len(s.lanes)/rowsPerPage+1)
	for _, st := range states {
		p.States = append(p.States, st.name)
	}
	page, passing := sortLanes(s, p.Sort, p.Down, p.pass(), (number-1)*rowsPerPage, rowsPerPage)
	for _, i := range page {
		p.Rows = append(p.Rows, rowOf(&s.lanes[i]))
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

// pass tells what the search and the state let through; nil is all. Ids and hosts are searched as they are written.
func (p *laneList) pass() func(*fanout.LaneStatus) bool {
	var is func(*fanout.LaneStatus) bool
	for _, st := range states {
		if st.name == p.State {
			is = st.is
		}
	}
	text := strings.TrimSpace(p.Query)
	if text == "" {
		return is
	}
	return func(l *fanout.LaneStatus) bool {
		return (is == nil || is(l)) && (strings.Contains(l.Subscription, text) || strings.Contains(l.TenantID, text) || strings.Contains(l.HostName, text))
	}
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
