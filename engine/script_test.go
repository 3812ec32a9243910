package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
)

// script drives engine and twin through the same calls.
type script struct {
	*driver
	w       *twin
	out     []Ticket
	profs   []Profile
	tenants int
}

func newScript(t *rapid.T) *script {
	seed := rapid.Uint64().Draw(t, "seed")
	c := Config{
		Slots:     rapid.SampledFrom([]int{1, 3, 8, 30, 250}).Draw(t, "slots"),
		Order:     rapid.SampledFrom([]Order{Fair, Fair, Fair, Arrival}).Draw(t, "order"),
		HostLimit: rapid.SampledFrom([]int{-1, -1, 2, 5}).Draw(t, "hosts"),
		Rand:      rand.New(rand.NewPCG(seed, 1)),
	}
	d := newDriver(c)
	s := &script{driver: d, profs: twinProfiles()}
	s.w = &twin{
		e: d.e, d: d, slots: c.Slots, order: c.Order, hostLimit: c.HostLimit,
		rand: rand.New(rand.NewPCG(seed, 1)), hosts: map[HostID]*twinHost{},
	}
	d.started = func(k Ticket, x entry) {
		s.w.begin(t, s.now, k, int64(x.cost))
		s.out = append(s.out, k)
	}
	s.tenants = rapid.IntRange(1, 4).Draw(t, "tenants")
	for i := range s.tenants {
		weight := rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "weight")
		s.change(t, PutTenant{Tenant: TenantID(i), Weight: weight})
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "lanes") {
		s.putLane(t, LaneID(i))
	}
	return s
}

func twinProfiles() []Profile {
	base := Profile{
		Cap: -1, Horizon: time.Hour, Timeout: 15 * time.Second,
		Breaker: breaker.Config{ProbeExpiry: 15 * time.Second},
	}
	all := make([]Profile, 9)
	for i := range all {
		all[i] = base
	}
	all[1].Rate, all[1].Cap = mustRate(10, time.Second, 3), 4
	all[2].Rate, all[2].Drop = mustRate(2, time.Second, 1), true
	all[3].Cap, all[3].NoBudget, all[3].MaxAttempts = 2, true, 3
	all[4].Cap = 5
	all[5].Rate = mustRate(0, time.Second, 5)
	all[6].Cap, all[6].Drop = 1, true
	all[7].Cap = 0
	all[8].Breaker.Off, all[8].Budget.Reserve = true, 50 // leaves it to the platform's reserve
	all[8].Schedule = retry.Schedule{QuickAttempts: 1, Slow: []time.Duration{50 * time.Millisecond}}
	return all
}

func (s *script) change(t *rapid.T, c Change) {
	t.Logf("%v apply %+v", s.now, c)
	if err := s.e.Apply(s.now, c); err != nil {
		t.Fatal(err)
	}
	switch c := c.(type) {
	case PutTenant:
		for len(s.w.tenants) <= int(c.Tenant) {
			s.w.tenants = append(s.w.tenants, &twinTenant{})
		}
		tn := s.w.tenants[c.Tenant]
		tn.weight = c.Weight
		if tn.suspended && !c.Suspended {
			for _, l := range s.w.lanes {
				if l.Tenant == c.Tenant {
					l.window2, l.row = 1, 0
				}
			}
		}
		tn.suspended = c.Suspended
	case SetSlots:
		s.w.slots = c.Slots
	case RemoveLane:
		l := s.w.lanes[c.Lane]
		l.removed = true
		l.account.Cancelled += l.account.Parked
		l.account.Parked = 0
		*s.backlog(c.Lane) = nil
	case PauseLane:
		l := s.w.lanes[c.Lane]
		if !c.Paused && (l.paused || l.disabled) {
			l.window2, l.row = 1, 0
			l.disabled = false
		}
		l.paused = c.Paused
	}
}

func (s *script) putLane(t *rapid.T, id LaneID) {
	c := PutLane{LaneSpec: LaneSpec{
		Lane: id, Tenant: TenantID(int(id) % s.tenants), Host: HostID(id % 3),
		Profile: rapid.SampledFrom(s.profs).Draw(t, "profile"),
		Paused:  rapid.IntRange(0, 9).Draw(t, "paused") == 0,
	}}
	if id%4 < 2 { // two of four share a contract with the others of their tenant
		c.Profile.Group = GroupID(1 + c.Tenant)
	}
	fresh := int(id) >= len(s.w.lanes)
	if !fresh {
		if s.w.lanes[id].removed {
			return
		}
		c.NewURL = rapid.Bool().Draw(t, "url")
	}
	t.Logf("%v apply %+v", s.now, c)
	if err := s.e.Apply(s.now, c); err != nil {
		t.Fatal(err)
	}
	if fresh {
		l := &twinLane{PutLane: c, paused: c.Paused, probesOut: map[Ticket]bool{}}
		s.w.lanes = append(s.w.lanes, l)
		s.w.contract(l).change(s.now, &c.Profile)
		return
	}
	l := s.w.lanes[id]
	l.PutLane = c
	l.c.change(s.now, &c.Profile)
	if c.NewURL {
		if l.breaker.Phase(0) != breaker.Closed {
			l.window2, l.row = 1, 0
		}
		c.Profile.Breaker.Reset(&l.breaker)
		l.window.Failures, l.disabled, l.pausedUntil, l.strikes = 0, false, 0, 0
	}
	if l.paused && !c.Paused {
		l.window2, l.row = 1, 0
	}
	l.paused = c.Paused
}

func (s *script) pickLane(t *rapid.T) LaneID {
	return LaneID(rapid.IntRange(0, len(s.w.lanes)-1).Draw(t, "lane"))
}

func (s *script) step(t *rapid.T) {
	switch rapid.SampledFrom([]string{
		"offer", "offer", "offer", "offer", "burst", "finish", "finish", "finish", "fail", "drain", "drain", "time", "time",
		"pause", "edit", "suspend", "remove", "slots", "expire", "revive", "storm",
	}).Draw(t, "op") {
	case "offer":
		s.offerBoth(t, s.pickLane(t))
	case "burst":
		id := s.pickLane(t)
		for range rapid.IntRange(2, 12).Draw(t, "n") {
			s.offerBoth(t, id)
		}
	case "finish":
		s.finishBoth(t, rapid.Custom(drawResult).Draw(t, "result"))
	case "fail":
		for range rapid.IntRange(1, 6).Draw(t, "n") {
			s.finishBoth(t, Result{Kind: Failed})
		}
	case "storm":
		s.storm(t, s.pickLane(t))
	case "drain":
		s.grants(t, rapid.SampledFrom([]int{1, 3, math.MaxInt}).Draw(t, "n"))
	case "time":
		s.advance(t)
	case "pause":
		if id := s.pickLane(t); !s.w.lanes[id].removed {
			s.change(t, PauseLane{Lane: id, Paused: rapid.Bool().Draw(t, "paused")})
		}
	case "edit":
		s.putLane(t, s.pickLane(t))
	case "suspend":
		id := TenantID(rapid.IntRange(0, s.tenants-1).Draw(t, "tenant"))
		off := rapid.IntRange(0, 3).Draw(t, "suspended") == 0
		s.change(t, PutTenant{Tenant: id, Weight: s.w.tenants[id].weight, Suspended: off})
	case "remove":
		if id := s.pickLane(t); rapid.IntRange(0, 5).Draw(t, "really") == 0 && !s.w.lanes[id].removed {
			s.change(t, RemoveLane{Lane: id})
		}
	case "slots":
		if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
			s.change(t, SetSlots{Slots: rapid.SampledFrom([]int{1, 3, 8, 30}).Draw(t, "slots")})
		}
	case "expire":
		s.expireHead(s.pickLane(t))
	case "revive":
		s.reviveOne(s.pickLane(t))
	}
}

// storm fails so many at once that their retries empty the platform's reserve.
func (s *script) storm(t *rapid.T, id LaneID) {
	for range 14 {
		s.offerBoth(t, id)
	}
	for range rapid.IntRange(0, 2).Draw(t, "rounds") {
		for len(s.out) > 0 {
			s.finishBoth(t, Result{Kind: Failed})
		}
		s.to(s.now + 100*time.Millisecond)
		s.w.touchWaiting(s.now)
		s.w.tick(s.now)
		s.grants(t, math.MaxInt)
	}
}

func drawResult(t *rapid.T) Result {
	r := Result{Kind: rapid.SampledFrom([]ResultKind{OK, OK, OK, OK, Failed, Failed, NotSent, RejectedR, Later, Throttled, Gone, Unknown}).Draw(t, "kind")}
	switch r.Kind {
	case Later:
		r.Answered = rapid.Bool().Draw(t, "answered")
		r.Denied = r.Answered && rapid.Bool().Draw(t, "denied")
		r.Refused = r.Denied
	case Throttled:
		r.RetryAfter = rapid.SampledFrom([]time.Duration{0, 3 * time.Second, 48 * time.Hour}).Draw(t, "after")
		r.Refused = true
	case Failed:
		r.Refused = rapid.Bool().Draw(t, "refused")
	}
	return r
}

func (s *script) advance(t *rapid.T) {
	s.to(s.now + rapid.SampledFrom([]time.Duration{
		time.Nanosecond, time.Millisecond, 90 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 3 * time.Second, 11 * time.Second, 31 * time.Second, 61 * time.Second,
	}).Draw(t, "dt"))
	s.w.touchWaiting(s.now)
	s.w.tick(s.now)
}

func (s *script) offerBoth(t *rapid.T, id LaneID) {
	l := s.w.lanes[id]
	cost := rapid.SampledFrom([]uint32{1, 1, 1, 2, 4}).Draw(t, "cost")
	behind := rapid.IntRange(0, 9).Draw(t, "behind") == 0
	s.e.wakeDue(s.now) // Offer does; the twin reads virtual times before it
	if !l.removed {
		s.w.touch(s.now, s.w.tenants[l.Tenant])
		l.window.Offer(s.now, 0)
	}
	s.w.touchWaiting(s.now)
	kind, reason, at, _ := s.w.offer(s.now, Delivery{Lane: id, Cost: cost, Behind: behind})
	first := s.w.first(s.now)
	held, firstHeld := s.woken(l), s.woken(first)
	passes := kind == Send && len(*s.backlog(id)) > 0 && (*s.backlog(id))[0].at <= s.now
	l.account.Offered++
	v := s.offerOf(Delivery{Lane: id, Born: s.now, Cost: cost, Behind: behind})
	t.Logf("%v offer lane %d cost %d: %v %v at %v probe %v", s.now, id, cost, v.Kind, v.Reason, v.At, v.Ticket.Flags)
	switch { // who waits for the host stands behind one that was woken for it
	case reason == BySlots && v.Kind == Send && firstHeld:
		kind, reason = Send, None
	case kind == Send && v.Reason == BySlots && held:
		kind, reason, passes = Park, BySlots, false
	}
	if v.Kind != kind || v.Reason != reason || reason != ByOrder && v.At != at {
		for _, o := range s.w.lanes {
			m := s.e.lane(o.Lane)
			t.Logf("lane %d tenant %d: at %d pos %d due %v served %d virtual %v tenant's %v waiting %d could %v", o.Lane, o.Tenant, m.at, m.pos, m.headDue, m.served, m.virtual, s.e.tenants.at(uint32(o.Tenant)).virtual, m.waiting, s.w.could(s.now, o))
		}
		t.Fatalf("offer to lane %d at %v: got %v %v until %v, want %v %v until %v", id, s.now, v.Kind, v.Reason, v.At, kind, reason, at)
	}
	switch {
	case kind == Park:
		l.account.Parked++
	case kind == Bury:
		l.account.Dead++
	case reason == Deleted:
		l.account.Cancelled++
	case kind == Drop:
		l.account.Dropped++
	}
	if passes {
		l.credit = min(l.credit+1, 4)
	}
}

func (s *script) finishBoth(t *rapid.T, r Result) {
	if len(s.out) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.out)-1).Draw(t, "ticket")
	k := s.out[i]
	s.out = append(s.out[:i], s.out[i+1:]...)
	want := s.w.end(s.now, k, r)
	got := s.finish(k, r)
	t.Logf("%v finish lane %d (%d, from %v) %+v: %v %v", s.now, k.Lane, k.Flags, k.Started, r, got.Kind, got.Reason)
	if got.Kind != want.Kind || got.Reason != want.Reason || got.At != want.At || got.Due != want.Due || got.Flush != want.Flush ||
		want.Kind == Park && got.Attempt != want.Attempt {
		t.Fatalf("finish lane %d with %+v at %v: got %+v, want %+v", k.Lane, r, s.now, got, want)
	}
}

// grants takes up to n grants and checks each, and that nothing that could go is left.
func (s *script) grants(t *rapid.T, n int) {
	s.e.wakeDue(s.now)
	for ; n > 0; n-- {
		first := s.w.first(s.now)
		strict := s.w.hostLimit < 0 && s.e.reserve.len() == 0 && !s.holder()
		before := map[LaneID]bool{}
		for _, l := range s.w.lanes {
			before[l.Lane] = s.w.could(s.now, l)
		}
		g, ok := s.next()
		t.Logf("%v grant %v %d (flags %d)", s.now, ok, g.Lane, g.Ticket.Flags)
		switch {
		case !ok && first != nil && !s.woken(first):
			t.Fatalf("at %v nothing was granted, but lane %d could go", s.now, first.Lane)
		case !ok:
			return
		case !before[g.Lane]:
			t.Fatalf("at %v lane %d was granted, but could not go", s.now, g.Lane)
		case strict && g.Lane != first.Lane:
			t.Fatalf("at %v lane %d was granted, but lane %d comes first", s.now, g.Lane, first.Lane)
		}
		l := s.w.lanes[g.Lane]
		l.account.Parked--
		l.credit = 0
	}
}

// woken reports whether another lane was woken for what l waits for: the host's
// room or the platform's reserve.
func (s *script) woken(l *twinLane) bool {
	if l == nil {
		return false
	}
	m := s.e.lane(l.Lane)
	for _, o := range s.w.lanes {
		at := s.e.lane(o.Lane).at
		if m.at == inHost && at.ready() && o.Host == l.Host {
			return true
		}
	}
	return m.at == inReserve && s.holder()
}

func (s *script) holder() bool {
	for _, l := range s.w.lanes {
		if s.e.lane(l.Lane).flags&laneReserve != 0 {
			return true
		}
	}
	return false
}

func (s *script) expireHead(id LaneID) {
	b := s.backlog(id)
	if len(*b) == 0 {
		return
	}
	b.pop()
	s.e.Settle(s.now, id, ToExpired, 1)
	s.state(id)
	s.w.lanes[id].account.Parked--
	s.w.lanes[id].account.Dead++
}

func (s *script) reviveOne(id LaneID) {
	l := s.w.lanes[id]
	if l.account.Dead == 0 || l.removed {
		return
	}
	s.e.Settle(s.now, id, ToRevived, 1)
	if l.account.Parked == 0 {
		l.window2, l.row = 1, 0
	}
	l.account.Dead--
	l.account.Parked++
	s.park(id, Verdict{}, s.now, 1)
}

// check holds every invariant that is true after every call.
func (s *script) check(t *rapid.T) {
	s.w.touchWaiting(s.now)
	used, probes := s.w.inFlight()
	if st := s.e.Stats(s.now); st.InFlight != used || st.InFlight != len(s.out) {
		t.Fatalf("platform: %d in flight, want %d", st.InFlight, used)
	}
	if s.e.probes != probes {
		t.Fatalf("%d probes, want %d", s.e.probes, probes)
	}
	for _, l := range s.w.lanes {
		v, _ := s.e.Lane(s.now, l.Lane)
		if v.Counters != l.account {
			t.Fatalf("lane %d: account %+v, want %+v", l.Lane, v.Counters, l.account)
		}
		if !l.removed && v.Counters.Parked != uint64(len(*s.backlog(l.Lane))) {
			t.Fatalf("lane %d: %d parked, the driver has %d", l.Lane, v.Counters.Parked, len(*s.backlog(l.Lane)))
		}
		for h, n := range s.w.hosts {
			if got := int(s.e.hosts.at(uint32(h)).inFlight); got != n.out {
				t.Fatalf("host %d: %d in flight, want %d", h, got, n.out)
			}
		}
	}
}

// Everything the engine says is what the policies say in their plainest form:
// kinds, reasons, instants, accounts; nothing that could go is left, and nothing
// goes that could not.
// Limiter case L71.
// Limiter case L78.
func TestEngineFollowsThePoliciesAsTheirPlainTwinDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			s.step(t)
			s.check(t)
		}
		s.grants(t, math.MaxInt)
		for _, l := range s.w.lanes {
			l.wantContract(t)
		}
	})
}

func mustRate(n int64, per time.Duration, burst int64) limit.Rate {
	r, err := limit.NewRate(n, per, burst)
	if err != nil {
		panic(err)
	}
	return r
}
