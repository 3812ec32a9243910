package fanout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// What a tenant can add to the registry and to the memory of all is bounded: tenants are hostile to each other.

const (
	groupMost = 64 // subscriptions of one lane
	// lifeMost times the subscriptions that a tier allows at once is what a tenant may make in its life, since a
	// removed one leaves a record; and how many hosts it may name, since each keeps its state until a restart.
	lifeMost = 10

	// What is dead waits for a person, and may wait for ever: it stops nobody's reader, and is bounded by itself.
	deadMost  = 4        // times Options.MaxWaiting: references to dead letters of all tenants
	deadQuota = 2        // times its backlog quota: what a tenant may have parked and dead before its dead letters end
	deadRoom  = 64 << 20 // bytes that it may have anyhow
	waitLeast = 100      // a tenant may always have this part of Options.MaxWaiting
	waitFree  = 7        // and as many times what is free, though never more than all
)

// Beside is what a tenant has beside a subscription that is checked.
type Beside struct {
	Lane  int // others that share its lane
	Live  int // other subscriptions
	Ever  int // those, and those that were removed
	Hosts int // that the tenant was the first to name, since the start
}

// checkBeside refuses one subscription too many of a lane or of a tenant, and one host too many; most is what the
// tenant's tier allows. Errors are *journal.FieldError.
func (f *Fanout) checkBeside(s *journal.Subscription, most int, b Beside) error {
	life := most * lifeMost
	_, known := f.index.hosts[delivery.HostKey(s.URL)]
	switch {
	case !known && b.Hosts >= life:
		return &journal.FieldError{Field: "url", Rule: fmt.Sprintf("names a new host; the tenant has named %d, %d times the subscriptions of its tier", b.Hosts, lifeMost)}
	case s.ID != "":
	case b.Lane >= groupMost:
		return &journal.FieldError{Field: "lane", Rule: fmt.Sprintf("is shared by %d subscriptions, and no more may share one", groupMost)}
	case b.Live >= most:
		return &journal.FieldError{Field: "tenant", Rule: fmt.Sprintf("may have %d subscriptions by its tier, and has them", most)}
	case b.Ever >= life:
		return &journal.FieldError{Field: "tenant", Rule: fmt.Sprintf("may make %d subscriptions in its life, %d times those of its tier, and has made them", life, lifeMost)}
	}
	return nil
}

// overQuota reports whether a tenant has more parked and dead than its backlog quota, or so many references that
// others would soon find no room. As in the dynamic thresholds of Choudhury and Hahne (1998), what one may hold is a
// multiple of what is free: one alone gets seven eighths of all, two seven fifteenths each, and some is always free
// for who holds little. The caller holds the lock.
func (f *Fanout) overQuota(tn *tenant) bool {
	all := f.opts.MaxWaiting
	return tn.bytes >= float64(tn.tier.Backlog) || tn.refs >= max(min(waitFree*(all-f.waiting), all), all/waitLeast)
}

// boundDead ends the oldest dead letters of tenants that have too many: posts addressed to them are refused long
// before, but broadcasts are not, and what an endpoint rejects takes neither a token's nor a slot's time. It runs in
// the janitor; what it leaves it takes in the next round.
func (f *Fanout) boundDead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tn := range f.index.tenants {
		room := max(deadQuota*float64(tn.tier.Backlog), deadRoom)
		if tn.bytes <= room {
			continue
		}
		if dead := tn.dead(); dead > 0 {
			f.endOldest(tn, max(int((1-room/tn.bytes)*float64(dead)), 1))
		}
	}
	if excess := f.dead - deadMost*f.opts.MaxWaiting; excess > 0 {
		f.endOldest(slices.MaxFunc(slices.Collect(maps.Values(f.index.tenants)), func(x, y *tenant) int {
			return cmp.Or(cmp.Compare(x.dead(), y.dead()), cmp.Compare(y.name, x.name))
		}), excess)
	}
}

// endOldest ends up to n of the dead letters of the tenant's lane that has the most.
func (f *Fanout) endOldest(tn *tenant, n int) {
	l := slices.MaxFunc(tn.lanes, func(x, y *lane) int { return cmp.Compare(len(x.dead), len(y.dead)) })
	n = min(n, len(l.dead))
	f.log.Warn("a tenant has more dead letters than are kept: its oldest end", "tenant", tn.name, "subscription", l.subID, "letters", deliveries(l.dead[:n]))
	f.endDead(f.clock.now(), l, n)
}

// dead counts the tenant's references to dead letters.
func (tn *tenant) dead() (n int) {
	for _, l := range tn.lanes {
		n += len(l.dead)
	}
	return n
}

// live counts the tenant's subscriptions.
func (tn *tenant) live() (n int) {
	for _, l := range tn.lanes {
		if !l.removed {
			n++
		}
	}
	return n
}
