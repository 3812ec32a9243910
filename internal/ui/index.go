package ui

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// laneIndex is the lanes of a snapshot, and what a page of their list is cut out of. Its parts are made once for
// everybody, when they are first asked for: the next snapshot comes with those that were asked of this one, so
// that a page that is looked at, or paged through, goes through all lanes for nothing. Safe for concurrent use.
type laneIndex struct {
	all     []fanout.LaneStatus
	orders  []lazy[[]int32] // by column: the places of the lanes, the least first
	states  lazy[[]uint8]   // of each lane, a bit for each of the states
	text    lazy[laneText]
	reasons lazy[[]counted]

	mu     sync.Mutex
	narrow map[laneQuery]*lazy[[]int32] // orders of those that pass; at most maxNarrow
}

// laneQuery is a list of lanes in the order of a column: of those in a state, with a text in an id or in the
// host; "" is every one.
type laneQuery struct{ by, state, text string }

const maxNarrow = 32

// lazy is made when it is first asked for.
type lazy[T any] struct {
	make  func() T
	once  sync.Once
	asked atomic.Bool
	value T
}

func (l *lazy[T]) get() T {
	l.asked.Store(true)
	l.prepare()
	return l.value
}

func (l *lazy[T]) prepare()       { l.once.Do(func() { l.value = l.make() }) }
func (l *lazy[T]) wasAsked() bool { return l.asked.Load() }

func newLaneIndex(all []fanout.LaneStatus) *laneIndex {
	x := &laneIndex{all: all, orders: make([]lazy[[]int32], len(columns)), narrow: map[laneQuery]*lazy[[]int32]{}}
	for i := range x.orders {
		x.orders[i].make = func() []int32 { return columns[i].sort(all) }
	}
	x.states.make = func() []uint8 { return statesOf(all) }
	x.text.make = func() laneText { return textOf(all) }
	x.reasons.make = func() []counted { return holdingBack(all) }
	return x
}

// prepare makes the parts that were asked of another.
func (x *laneIndex) prepare(last *laneIndex) {
	if last.reasons.wasAsked() {
		x.reasons.prepare()
	}
	if last.text.wasAsked() {
		x.text.prepare()
	}
	for i := range last.orders {
		if last.orders[i].wasAsked() {
			x.orders[i].prepare()
		}
	}
	last.mu.Lock()
	narrow := maps.Clone(last.narrow)
	last.mu.Unlock()
	for q, l := range narrow {
		if l.wasAsked() {
			x.narrowed(q).prepare()
		}
	}
}

// page returns the places of the lanes of a list from offset on, at most limit of them, and how long the list is.
func (x *laneIndex) page(q laneQuery, down bool, offset, limit int) (page []int32, length int) {
	order := x.list(q)
	for i := offset; i < min(offset+limit, len(order)); i++ {
		if down {
			page = append(page, order[len(order)-1-i])
		} else {
			page = append(page, order[i])
		}
	}
	return page, len(order)
}

// list returns the places of a list's lanes, the least first.
func (x *laneIndex) list(q laneQuery) []int32 {
	if q.state == "" && q.text == "" {
		return x.orders[slices.IndexFunc(columns, func(c column) bool { return c.Name == q.by })].get()
	}
	return x.narrowed(q).get()
}

// narrowed finds a list that is not of all lanes.
func (x *laneIndex) narrowed(q laneQuery) *lazy[[]int32] {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.narrow[q]
	if l == nil {
		l = &lazy[[]int32]{make: func() (places []int32) {
			pass := x.pass(q)
			for _, i := range x.list(laneQuery{by: q.by}) {
				if pass[i] {
					places = append(places, i)
				}
			}
			return places
		}}
		if len(x.narrow) < maxNarrow {
			x.narrow[q] = l
		}
	}
	return l
}

// pass tells which lanes are in a list that is not of all.
func (x *laneIndex) pass(q laneQuery) []bool {
	pass := slices.Repeat([]bool{true}, len(x.all))
	if q.text != "" {
		pass = x.text.get().with(q.text)
	}
	if bit := slices.IndexFunc(states, func(s laneState) bool { return s.name == q.state }); bit >= 0 {
		for i, in := range x.states.get() {
			pass[i] = pass[i] && in&(1<<bit) != 0
		}
	}
	return pass
}

func statesOf(lanes []fanout.LaneStatus) []uint8 {
	of := make([]uint8, len(lanes))
	for i := range lanes {
		for bit, s := range states {
			if s.is(&lanes[i]) {
				of[i] |= 1 << bit
			}
		}
	}
	return of
}

// sort returns the places of the lanes, the least first; of equals the one that is older.
func (c *column) sort(lanes []fanout.LaneStatus) []int32 {
	type key struct {
		value float64
		text  string
		lane  int32
	}
	keys := make([]key, len(lanes))
	for i := range lanes {
		k := key{lane: int32(i)}
		if c.text != nil {
			k.text = c.text(&lanes[i])
		} else {
			k.value = c.value(&lanes[i])
		}
		keys[i] = k
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.value, b.value), strings.Compare(a.text, b.text), int(a.lane-b.lane))
	})
	order := make([]int32, len(keys))
	for i, k := range keys {
		order[i] = k.lane
	}
	return order
}

// laneText is what can be searched of all lanes, one after the other: a search goes through one text and not
// through as many as there are lanes.
type laneText struct {
	text string
	ends []int32 // of each lane's part
}

// between stands between two texts; no id has it, and none that is searched for may.
const between = "\x00"

func textOf(lanes []fanout.LaneStatus) laneText {
	var b strings.Builder
	ends := make([]int32, len(lanes))
	for i := range lanes {
		l := &lanes[i]
		for _, s := range []string{l.Subscription, l.TenantID, l.HostName} {
			b.WriteString(s)
			b.WriteString(between)
		}
		ends[i] = int32(b.Len())
	}
	return laneText{b.String(), ends}
}

// with tells which lanes have the text, which is not empty.
func (t laneText) with(text string) []bool {
	has := make([]bool, len(t.ends))
	if strings.Contains(text, between) {
		return has
	}
	for lane, at := 0, 0; ; {
		i := strings.Index(t.text[at:], text)
		if i < 0 {
			return has
		}
		for at += i; int(t.ends[lane]) <= at; lane++ {
		}
		has[lane], at = true, int(t.ends[lane])
	}
}
