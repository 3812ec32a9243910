package fanout

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/topic"
	"github.com/fairlane-dev/fairlane/limit"
)

// lane is the driver's side of one subscription.
type lane struct {
	id      engine.LaneID
	subID   string // never changes, as the tenant: readable without the lock
	sub     journal.Subscription
	tenant  *tenant
	part    uint8
	timeout time.Duration
	rate    limit.Rate
	cap     int
	dress   dress
	removed bool
	caps    capState
	denied  uint64 // fresh deliveries that were not sent at once
	near    int    // waiting in the last tenth of the horizon, at the last look
	backlog backlog
	dead    []ref
	waiting int // references to what waits, as counted in Fanout.waiting
	size    int // and to what is dead

	stops    bool // stopAtDead looked: on_dead was stop
	deadSeen int  // and there were so many dead letters

	past   map[journal.Position]journal.Past // of what lives again
	replay *replay                           // nil: none
}

// tenant is the driver's side of one tenant.
type tenant struct {
	journal.Tenant
	id     engine.TenantID
	name   string // its id in the registry; never changes
	tier   Tier
	lanes  []*lane
	bytes  float64        // parked and dead, estimated: what is added exactly leaves as the average
	count  int            // parked and dead
	refs   int            // to these, in memory
	caps   map[uint32]int // set by adaptCap, by lane
	slowed bool           // it pins a crowded log
	hosts  int            // that it was the first to name, since the start
}

// index finds lanes. Everything in it is guarded by Fanout.mu.
type index struct {
	lanes   []*lane // by number; nil where the registry has none
	bySub   map[string]*lane
	tenants map[string]*tenant
	hosts   map[string]engine.HostID
	names   []string // of hosts
	groups  map[groupName]*group
}

func newIndex() index {
	return index{bySub: map[string]*lane{}, tenants: map[string]*tenant{}, hosts: map[string]engine.HostID{}, groups: map[groupName]*group{}}
}

func (x *index) lane(id engine.LaneID) *lane {
	if int(id) >= len(x.lanes) {
		return nil
	}
	return x.lanes[id]
}

// host finds or makes the host of a tenant's URL.
func (x *index) host(tn *tenant, url string) engine.HostID {
	key := delivery.HostKey(url)
	id, ok := x.hosts[key]
	if !ok {
		id = engine.HostID(len(x.names))
		x.hosts[key] = id
		x.names = append(x.names, key)
		tn.hosts++
	}
	return id
}

func (x *index) add(l *lane) {
	for int(l.id) >= len(x.lanes) {
		x.lanes = append(x.lanes, nil)
	}
	x.lanes[l.id] = l
	x.bySub[l.sub.ID] = l
	l.tenant.lanes = append(l.tenant.lanes, l)
	x.join(l)
}

// match calls visit for every lane that the trigger is for, in lane order within a tenant, by
// the versions in force at its position.
func (x *index) match(t *journal.Trigger, visit func(*lane)) {
	if t.Audience.Broadcast {
		for _, l := range x.lanes {
			if l != nil && l.tenant.granted(t) && l.wants(t) {
				visit(l)
			}
		}
		return
	}
	for i, id := range t.Audience.Tenants {
		tn := x.tenants[id]
		if tn == nil || slices.Contains(t.Audience.Tenants[:i], id) {
			continue
		}
		for _, l := range tn.lanes {
			if l.wants(t) {
				visit(l)
			}
		}
	}
}

// granted reports whether a tenant may see a broadcast, by the grant in force at its position. A tenant that has
// none from then, made by a release that knew no grants, may see all.
func (tn *tenant) granted(t *journal.Trigger) bool {
	for i := len(tn.Grants) - 1; i >= 0; i-- {
		if g := &tn.Grants[i]; g.From != 0 && g.From <= t.Position {
			return matches(g.Topics, t.Topic)
		}
	}
	return true
}

// wants reports whether the version of the subscription in force at the trigger's position
// asks for its topic. A test trigger is for one subscription, whatever it asks for.
func (l *lane) wants(t *journal.Trigger) bool {
	if id, test := topic.TestOf(t.Topic); test {
		v, ok := l.sub.At(t.Position)
		return ok && v.Active && id == l.subID
	}
	for i := len(l.sub.Versions) - 1; i >= 0; i-- {
		if v := &l.sub.Versions[i]; v.From != 0 && v.From <= t.Position {
			return v.Active && matches(v.Topics, t.Topic) && has(t, v.Match)
		}
	}
	return false
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return topic.Match(p, name) && (topic.Own(p) || !topic.Own(name)) })
}

// has reports whether the trigger has all these attributes, with these values.
func has(t *journal.Trigger, match map[string]string) bool {
	found := 0
	for _, a := range t.Attributes {
		if want, asked := match[a.Name]; asked && a.Value == want {
			found++
		}
	}
	return found == len(match) // a trigger's attributes have different names
}

// applyTenant adds or edits a tenant in the index and the engine.
func (f *Fanout) applyTenant(t journal.Tenant) error {
	tn := f.index.tenants[t.ID]
	if tn == nil {
		tn = &tenant{id: engine.TenantID(t.Number), name: t.ID, caps: map[uint32]int{}}
		f.index.tenants[t.ID] = tn
	}
	tn.Tenant, tn.tier = t, f.tier(t.Tier)
	err := f.engine.Apply(f.clock.now(), engine.PutTenant{
		Tenant: tn.id, Weight: max(tn.tier.Weight, 1), Suspended: t.Suspended || t.Deleted,
	})
	if err != nil {
		return fmt.Errorf("fanout: tenant %s: %w", t.ID, err)
	}
	for _, l := range tn.lanes {
		if l.removed {
			continue
		}
		if err := f.applySubscription(l.sub, false); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fanout) tier(name string) Tier {
	t, ok := f.opts.Tiers[name]
	if !ok {
		t = f.opts.Tiers["default"]
	}
	return t.complete()
}

// complete is t with its defaults.
func (t Tier) complete() Tier {
	if t.Cap == 0 {
		t.Cap = DefaultCap
	}
	if t.Backlog == 0 {
		t.Backlog = DefaultBacklog
	}
	if t.Subscriptions == 0 {
		t.Subscriptions = DefaultSubscriptions
	}
	return t
}

// applySubscription adds or edits a lane. restoring keeps the URL from counting as new.
func (f *Fanout) applySubscription(s journal.Subscription, restoring bool) error {
	l := f.index.lane(engine.LaneID(s.Lane))
	if l != nil && l.removed {
		return nil
	}
	tn := f.index.tenants[s.Tenant]
	if tn == nil {
		return fmt.Errorf("%w: tenant: %q does not exist", ErrInvalid, s.Tenant)
	}
	enabled := l != nil && l.sub.Disabled != "" && s.Disabled == ""
	p, err := f.putLane(tn, s, l != nil && l.sub.URL != s.URL && !restoring)
	if err != nil {
		return err
	}
	if enabled {
		if err := f.engine.Apply(f.clock.now(), engine.PauseLane{Lane: l.id, Paused: s.Paused}); err != nil {
			return fmt.Errorf("fanout: enable %s: %w", s.ID, err)
		}
	}
	if l == nil {
		l = &lane{id: engine.LaneID(s.Lane), subID: s.ID, tenant: tn, part: journal.PartitionOf(s.Tenant)}
		l.sub, l.backlog = s, newBacklog(s.Order)
		f.index.add(l)
	}
	l.sub, l.timeout, l.rate, l.cap = s, p.Timeout, p.Rate, p.Cap
	l.dress = f.dressed(&s, p.Rate, l.dress)
	f.stateOrder(f.clock.now(), l)
	return f.regroup(tn, &s)
}

// putLane tells the engine of a subscription, and returns its profile.
func (f *Fanout) putLane(tn *tenant, s journal.Subscription, newURL bool) (engine.Profile, error) {
	profile, err := f.profile(tn, s)
	if err != nil {
		return profile, err
	}
	err = f.engine.Apply(f.clock.now(), engine.PutLane{NewURL: newURL, LaneSpec: engine.LaneSpec{
		Lane: engine.LaneID(s.Lane), Tenant: tn.id, Host: f.index.host(tn, s.URL),
		Profile: profile, Paused: s.Paused || s.Disabled != "",
	}})
	if err != nil {
		return profile, fmt.Errorf("fanout: subscription %s: %w", s.ID, err)
	}
	return profile, nil
}

// contract sets rate and cap: the subscription's own, else its tier's.
func contract(p *engine.Profile, tn *tenant, s *journal.Subscription) (err error) {
	p.Cap = tn.tier.Cap
	if n := tn.autoCap(s.Lane); n > 0 {
		p.Cap = n
	}
	if s.Limits.Cap != nil {
		p.Cap = *s.Limits.Cap
	}
	if tn.tier.Cap < 0 {
		p.Cap = -1
	}
	rate, burst := s.Limits.Rate, s.Limits.Burst
	if rate == "" {
		rate, burst = tn.tier.Rate, max(s.Limits.Burst, tn.tier.Burst)
	}
	if p.Rate, err = limit.ParseContract(rate, burst); err != nil {
		return fmt.Errorf("%w: rate: %w", ErrInvalid, err)
	}
	return nil
}

// profile is what the engine must know of a subscription: its own limits, else its tier's; on a shared lane the
// strictest.
func (f *Fanout) profile(tn *tenant, s journal.Subscription) (engine.Profile, error) {
	p := f.opts.Profile
	if err := contract(&p, tn, &s); err != nil {
		return p, err
	}
	if err := f.share(&p, tn, &s); err != nil {
		return p, err
	}
	if s.Limits.Timeout > 0 {
		p.Timeout = s.Limits.Timeout
	}
	if p.Timeout == 0 {
		p.Timeout = 15 * time.Second
	}
	p.Breaker.ProbeExpiry = p.Timeout
	if s.Limits.Attempts > 0 {
		p.MaxAttempts = s.Limits.Attempts
	}
	p.Drop = s.Limits.Drop
	return p, nil
}

// removeLane cancels what waits on a lane, purges its dead letters, and takes it out of the
// engine. Its attempts in flight end by themselves.
func (f *Fanout) removeLane(l *lane) error {
	now := f.clock.now()
	f.unclaim(now, l)
	f.endReplays(now, l)
	f.forget(l, l.backlog.len()+deliveries(l.dead))
	f.engine.Settle(now, l.id, engine.ToPurged, uint32(deliveries(l.dead)))
	for _, r := range l.dead {
		f.write(f.record(l, journal.Purged, r))
		f.release(r)
	}
	l.backlog.each(f.release)
	l.removed = true
	f.index.leave(l)
	l.backlog, l.dead = backlog{}, nil
	f.resize(l)
	l.sub.Secrets, l.sub.Requests, l.dress = nil, journal.Requests{}, dress{}
	if err := f.engine.Apply(now, engine.RemoveLane{Lane: l.id}); err != nil {
		return fmt.Errorf("fanout: remove the lane of %s: %w", l.sub.ID, err)
	}
	return f.regroup(l.tenant, &l.sub)
}
