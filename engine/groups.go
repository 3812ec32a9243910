package engine

import (
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// GroupID names a contract that several lanes of one tenant share; 0 is none: a lane has its own.
type GroupID uint32

// maxGroup is how many lanes may share a group: an end looks at each of them.
const maxGroup = 64

// group is the contract of several lanes: one bucket, one cap over all of them. All else (breaker, retry budget,
// pause, ramp, backlog, account) is each lane's own, so that one dead endpoint does not stop the others. Rate and
// cap are those of the lane that was put last. A lane that only the group holds back is in the wake heap or
// nowhere, as if it were alone; an end, or a change of the contract, places each of them anew.
type group struct {
	rate     limit.Rate
	burst    int64 // as tenants see it; -1: no rate
	bucket   limit.Level
	cap      int32
	inFlight uint32
	lanes    []uint32 // not removed
	known    bool
}

// rate, level, burst are the contract's: the group's, or the lane's own.
func (x *spot) rate() *limit.Rate {
	if x.g != nil {
		return &x.g.rate
	}
	return &x.p.Rate
}

func (x *spot) level() *limit.Level {
	if x.g != nil {
		return &x.g.bucket
	}
	return &x.l.bucket
}

func (x *spot) burst() int64 {
	if x.g != nil {
		return x.g.burst
	}
	return x.p.burst
}

// room is how many more the cap lets start; less than 0 is no cap.
func (x *spot) room() int64 {
	most, used := x.l.cap, x.l.inFlight
	if x.g != nil {
		most, used = x.g.cap, x.g.inFlight
	}
	if most < 0 {
		return -1
	}
	return max(int64(most)-int64(used), 0)
}

// full reports whether as many are in flight as the cap and the lane's ramp allow.
func (x *spot) full() bool {
	return x.room() == 0 || x.l.ramp > 0 && x.l.inFlight >= 1<<(x.l.ramp-1)
}

func (e *Engine) group(id GroupID) *group {
	if id == 0 {
		return nil
	}
	return e.groups.at(uint32(id))
}

// put gives the group the contract of one of its lanes. It never refills: a change keeps whole tokens.
func (g *group) put(now time.Duration, p *profile, cap int32) {
	if g.rate != p.Rate {
		p.Rate.Change(&g.bucket, now, &g.rate)
	}
	g.rate, g.burst, g.cap = p.Rate, p.burst, cap
}

// joinGroup adds a new lane to its group.
func (e *Engine) joinGroup(id uint32, p *profile, cap int32) {
	if p.Group == 0 {
		return
	}
	e.groups.grow(uint32(p.Group))
	g := e.group(p.Group)
	if !g.known {
		g.known, g.rate = true, p.Rate // full, once in its life
	}
	g.cap = cap
	g.lanes = append(g.lanes, id)
}

func (g *group) leave(id uint32) {
	if g != nil {
		g.lanes = slices.DeleteFunc(g.lanes, func(l uint32) bool { return l == id })
	}
}

// wakeGroup places the lanes anew that the group alone may hold back.
func (e *Engine) wakeGroup(now time.Duration, g *group) {
	if g == nil {
		return
	}
	for _, id := range g.lanes {
		if l := e.lanes.at(id); l.waiting > 0 && (l.at == nowhere || l.at == inWake) {
			e.place(now, id)
		}
	}
}

// checkGroup refuses a lane that would change its group, or share one with another tenant's lanes.
func (e *Engine) checkGroup(c *PutLane) error {
	id := c.Profile.Group
	if id >= maxID {
		return refuse("lane.profile.group", "must be a dense id below %d, is %d", maxID, id)
	}
	if int(c.Lane) < e.lanes.len() {
		if l := e.lanes.at(uint32(c.Lane)); l.flags&laneKnown != 0 {
			if was := e.profiles.at(l.profile).Group; was != id {
				return refuse("lane.profile.group", "must stay %d: a lane never changes its group", was)
			}
			return nil
		}
	}
	if id == 0 || int(id) >= e.groups.len() {
		return nil
	}
	g := e.group(id)
	switch {
	case len(g.lanes) >= maxGroup:
		return refuse("lane.profile.group", "must have at most %d lanes", maxGroup)
	case len(g.lanes) > 0 && e.lanes.at(g.lanes[0]).tenant != c.Tenant:
		return refuse("lane.profile.group", "must be of one tenant, %d", e.lanes.at(g.lanes[0]).tenant)
	}
	return nil
}
