package fanout

import (
	"slices"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// Subscriptions of one tenant that name the same lane share its contract: rate, burst and cap together. Of what
// they and their tier say the strictest holds, for all of them: no contract is exceeded, whoever says it.

// groupName names a lane: names are the tenant's own.
type groupName struct{ tenant, lane string }

// group is what has one lane's name.
type group struct {
	id    engine.GroupID
	lanes []*lane // not removed
}

// group finds or makes the group of a subscription that names a lane.
func (x *index) group(s *journal.Subscription) *group {
	name := groupName{s.Tenant, s.Group}
	g := x.groups[name]
	if g == nil {
		g = &group{id: engine.GroupID(len(x.groups) + 1)}
		x.groups[name] = g
	}
	return g
}

// members are the other subscriptions that share the lane of s.
func (x *index) members(s *journal.Subscription) (others []*lane) {
	if g := x.groups[groupName{s.Tenant, s.Group}]; g != nil {
		for _, l := range g.lanes {
			if l.subID != s.ID {
				others = append(others, l)
			}
		}
	}
	return others
}

// join and leave keep the group's lanes.
func (x *index) join(l *lane) {
	if l.sub.Group != "" {
		g := x.group(&l.sub)
		g.lanes = append(g.lanes, l)
	}
}

func (x *index) leave(l *lane) {
	if l.sub.Group != "" {
		g := x.group(&l.sub)
		g.lanes = slices.DeleteFunc(g.lanes, func(other *lane) bool { return other == l })
	}
}

// share gives the profile the contract of the lane that s shares.
func (f *Fanout) share(p *engine.Profile, tn *tenant, s *journal.Subscription) error {
	if s.Group == "" {
		return nil
	}
	p.Group = f.index.group(s).id
	for _, l := range f.index.members(s) {
		other := engine.Profile{Rate: limit.Unlimited()}
		if err := contract(&other, tn, &l.sub); err != nil {
			return err
		}
		p.Rate = stricter(p.Rate, other.Rate)
		if other.Cap >= 0 && (p.Cap < 0 || other.Cap < p.Cap) {
			p.Cap = other.Cap
		}
	}
	return nil
}

// stricter is the lower of two rates, with the smaller of their bursts.
func stricter(x, y limit.Rate) limit.Rate {
	if y.PerSecond() < x.PerSecond() {
		x, y = y, x
	}
	if x.IsUnlimited() || x.IsPaused() || y.IsUnlimited() || y.Burst() >= x.Burst() {
		return x
	}
	lower, err := limit.ParseRate(x.String(), y.Burst())
	if err != nil {
		return x // not with a rate's own text and a smaller burst
	}
	return lower
}

// regroup gives those that share the lane of s the contract that has changed by it, which is one for all.
func (f *Fanout) regroup(tn *tenant, s *journal.Subscription) error {
	var p engine.Profile
	for i, l := range f.index.members(s) {
		if i > 0 && l.rate == p.Rate && l.cap == p.Cap {
			continue
		}
		var err error
		if p, err = f.putLane(tn, l.sub, false); err != nil {
			return err
		}
		l.rate, l.cap = p.Rate, p.Cap
		l.dress = f.dressed(&l.sub, p.Rate, l.dress)
	}
	return nil
}
