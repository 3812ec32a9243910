package ui

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// overview is the first page of an administrator.
type overview struct {
	Account   engine.Counters
	Balanced  bool
	Gap       int64
	Stats     fanout.Stats
	Reserve   int // percent
	Used      int // percent of the slots
	Short     []fanout.TenantStatus
	MoreShort int
	Attention []laneRow
	More      int // lanes that need attention and are not listed
	Reasons   []counted
	Tenants   int
	Quiet     int // tenants with nothing parked
}

// counted is a reason, what it holds back, and of whom.
type counted struct {
	Reason  string
	Parked  uint64
	Tenants []string // those with the most, the most first
	More    int      // tenants that are not listed
}

const (
	listed = 12
	named  = 3 // tenants of a reason
)

func (u *UI) first(v *visit) (*view, error) {
	if !v.who.Admin() {
		return u.ownView(v, v.who.Tenant)
	}
	s := u.now()
	o := overview{Stats: s.stats, Account: s.stats.Counters, Tenants: len(s.tenants), Reserve: percent(s.stats.Reserve, 1), Used: percent(float64(s.stats.InFlight), float64(s.stats.Slots))}
	o.Balanced = o.Account.Balanced()
	o.Gap = int64(o.Account.Offered) - int64(o.Account.Delivered+o.Account.Parked+o.Account.Dead+o.Account.InFlight+o.Account.Cancelled+o.Account.Dropped)
	for i := range s.tenants {
		t := &s.tenants[i]
		o.Balanced = o.Balanced && t.Counters.Balanced()
		if t.Counters.Parked == 0 {
			o.Quiet++
		}
		if t.Short {
			o.Short = append(o.Short, *t)
		}
	}
	slices.SortFunc(o.Short, func(a, b fanout.TenantStatus) int {
		return cmp.Or(cmp.Compare(a.Served, b.Served), cmp.Compare(a.TenantID, b.TenantID))
	})
	o.MoreShort = max(0, len(o.Short)-listed)
	o.Short = o.Short[:min(listed, len(o.Short))]
	o.Reasons = s.lanes.reasons.get()
	o.attention(s.lanes)
	return &view{page: "overview", Title: "Overview", Nav: "overview", Data: &o}, nil
}

// attention lists the lanes that need it most.
func (o *overview) attention(x *laneIndex) {
	order, needy := x.page(laneQuery{"attention", states[0].name, ""}, true, 0, listed)
	for _, i := range order {
		o.Attention = append(o.Attention, rowOf(&x.all[i]))
	}
	o.More = needy - len(o.Attention)
}

// holdingBack counts what holds lanes back, the reason with the most parked first.
func holdingBack(lanes []fanout.LaneStatus) (all []counted) {
	byReason := map[engine.Reason]map[string]uint64{}
	for i := range lanes {
		l := &lanes[i]
		if l.Counters.Parked == 0 || l.Blocked == engine.None {
			continue
		}
		if byReason[l.Blocked] == nil {
			byReason[l.Blocked] = map[string]uint64{}
		}
		byReason[l.Blocked][l.TenantID] += l.Counters.Parked
	}
	for reason, parked := range byReason {
		c := counted{Reason: reason.String(), Tenants: slices.Collect(maps.Keys(parked))}
		for _, n := range parked {
			c.Parked += n
		}
		slices.SortFunc(c.Tenants, func(a, b string) int { return cmp.Or(cmp.Compare(parked[b], parked[a]), cmp.Compare(a, b)) })
		c.More = max(0, len(c.Tenants)-named)
		c.Tenants = c.Tenants[:min(named, len(c.Tenants))]
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.Parked, a.Parked), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
