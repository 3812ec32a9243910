package engine

import (
	"testing"
	"time"
)

// shared makes a platform on which tenants have lanes at one host.
func shared(t *testing.T, c Config, tenants, lanes int, p Profile) *sim {
	s := newSim(t, c)
	for i := range tenants {
		s.apply(t, PutTenant{Tenant: TenantID(i)})
		for j := range lanes {
			s.onHost(TenantID(i), LaneID(i*lanes+j), 0, p)
		}
	}
	return s
}

func (s *sim) onHost(tenant TenantID, id LaneID, host HostID, p Profile) {
	s.add(tenant, id, p)
	s.apply(s.t, PutLane{LaneSpec: LaneSpec{Lane: id, Tenant: tenant, Host: host, Profile: p}})
}

// The default limit of a host is a quarter of the slots, at least 64; -1 is none.
func TestAHostTakesNoMoreThanItsLimit(t *testing.T) {
	for _, row := range []struct{ slots, limit, want int }{
		{100, 0, 64}, {1200, 0, 300}, {1200, 5, 5}, {50, -1, 50},
	} {
		s := shared(t, Config{Slots: row.slots, HostLimit: row.limit}, 1, 1, open())
		var last Verdict
		n := 0
		for last = s.offer(0); last.Kind == Send; last = s.offer(0) {
			n++
		}
		want := ByHost
		if row.limit < 0 {
			want = BySlots
		}
		if n != row.want || last.Reason != want {
			t.Errorf("%+v: %d in flight, then %v", row, n, last.Reason)
		}
	}
}

// A full host is split among tenants as slots are, and its waiters stand in
// nobody's way.
// Limiter case L79.
func TestAFullHostIsSharedByTenant(t *testing.T) {
	s := newSim(t, Config{Slots: 1000, HostLimit: 20})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1}, PutTenant{Tenant: 2})
	for i := range 30 {
		s.onHost(0, LaneID(i), 0, open())
		s.fill(LaneID(i), 1000)
	}
	s.onHost(1, 30, 0, open())
	s.fill(30, 5000)
	s.onHost(2, 31, 1, open())
	s.arrive(31, 0, 5*time.Second, every(time.Millisecond))
	s.run(time.Second)
	used := s.usedIn(5 * time.Second)
	for i := range 2 {
		if part := used[i] / (used[0] + used[1]); part < 0.45 || part > 0.55 {
			t.Errorf("tenant %d has %.3f of the host", i, part)
		}
	}
	if total := used[0] + used[1]; total < 79 || total > 80.1 {
		t.Errorf("the host's 20 were used for %.1f of 80 slot seconds", total)
	}
	for _, w := range s.waits[31] {
		if w != 0 {
			t.Fatalf("another host's delivery waited %v", w)
		}
	}
}

// Two tenants refused within ten seconds halve the host's concurrency, once for
// all that were in flight together; each success adds one, up to the limit; the
// floor is two. One tenant's refusals, however many, halve nothing.
// Field case 24.
// Limiter case L73.
func TestAHostIsHalvedByTwoTenantsRefusals(t *testing.T) {
	s := shared(t, Config{HostLimit: 40}, 2, 1, open())
	limit := func() int32 { return s.e.hostLimitOf(s.e.hosts.at(0)) }
	refused := Result{Kind: Failed, Refused: true}
	flight := func(n int) (k []Ticket) {
		for i := range n {
			k = append(k, s.e.Offer(s.now, Delivery{Lane: LaneID(i % 2)}).Ticket)
		}
		return k
	}
	for range 50 {
		k := s.e.Offer(s.now, Delivery{Lane: 0}).Ticket
		s.e.Finish(s.now, k, refused)
	}
	if limit() != 40 {
		t.Errorf("one tenant's refusals lowered the limit to %d", limit())
	}
	s.now = time.Minute
	for _, k := range flight(40) {
		s.now += time.Millisecond
		s.e.Finish(s.now, k, refused)
	}
	if got := limit(); got != 19 { // 38 were in flight behind the first two
		t.Errorf("after one flight of 40 refused: limit %d, want half of what was in flight", got)
	}
	for range 10 {
		s.now += time.Second
		for _, k := range flight(2) {
			s.e.Finish(s.now+time.Millisecond, k, refused)
		}
	}
	if limit() != 2 {
		t.Errorf("limit %d, the floor is 2", limit())
	}
	for i := range 100 {
		k := s.e.Offer(s.now, Delivery{Lane: 0}).Ticket
		s.e.Finish(s.now, k, Result{Kind: OK})
		if want := int32(min(3+i, 40)); limit() != want {
			t.Fatalf("after %d successes: limit %d, want %d", i+1, limit(), want)
		}
	}
}

// Forty tenants' four hundred lanes at one host that refuses everybody once it
// has counted a hundred 404s and 429s: dead paths back off, the host as a whole is
// slowed, gently probed, and other hosts are untouched.
// Field case 24.
func TestAHostThatBansIsLeftAlone(t *testing.T) {
	p := Profile{Cap: 16}
	s := shared(t, Config{Slots: 1200}, 40, 10, p)
	s.onHost(0, 400, 1, p)
	s.arrive(400, 0, 10*time.Minute, every(100*time.Millisecond))
	var counted []time.Duration
	s.serve = func(id LaneID) (time.Duration, Result) {
		const took = 20 * time.Millisecond
		if id == 400 {
			return took, Result{Kind: OK}
		}
		for len(counted) > 0 && counted[0] < s.now-10*time.Minute {
			counted = counted[1:]
		}
		if id%40 == 0 || len(counted) > 100 {
			counted = append(counted, s.now)
		}
		switch {
		case len(counted) > 100:
			return took, Result{Kind: Throttled, Refused: true}
		case id%40 == 0:
			return took, Result{Kind: Later, Answered: true, Denied: true}
		}
		return took, Result{Kind: OK}
	}
	for i := range 400 {
		s.arrive(LaneID(i), time.Duration(i)*time.Millisecond, 10*time.Minute, every(2*time.Second))
	}
	s.run(10 * time.Minute)
	starts := 0
	for i := range 400 {
		starts += s.starts[LaneID(i)]
	}
	t.Logf("%d requests to the host in ten minutes, of 120,000 offered; limit %d", starts, s.e.hostLimitOf(s.e.hosts.at(0)))
	if starts > 20_000 {
		t.Errorf("%d requests went to a host that bans", starts)
	}
	if s.done[400] != 6000 {
		t.Errorf("the other host got %d of 6000", s.done[400])
	}
}

// A lane that moves to another host while it waits or is in flight: both hosts
// count right.
func TestALaneMayMoveToAnotherHost(t *testing.T) {
	s := shared(t, Config{Slots: 10, HostLimit: 1}, 1, 2, open())
	k := s.offer(0).Ticket
	s.events = nil
	s.offer(1)
	s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 1, Host: 1, Profile: open()}})
	if g, ok := s.next(); !ok || g.Lane != 1 || g.Ticket.Host != 1 {
		t.Fatal("the waiting lane did not go to its new host")
	}
	s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 0, Host: 2, Profile: open()}})
	s.finish(k, Result{Kind: OK})
	for h, want := range []int32{0, 1, 0} {
		if got := s.e.hosts.at(uint32(h)).inFlight; got != want {
			t.Errorf("host %d: %d in flight, want %d", h, got, want)
		}
	}
}

// A lane that was woken for a host's room and does not use it passes it on.
func TestRoomThatIsNotUsedIsPassedOn(t *testing.T) {
	s := shared(t, Config{Slots: 10, HostLimit: 1}, 1, 3, open())
	k := s.offer(0).Ticket
	s.events = nil
	s.offer(1)
	s.offer(2)
	s.finish(k, Result{Kind: OK})
	s.apply(t, PauseLane{Lane: 1, Paused: true})
	if g, ok := s.next(); !ok || g.Lane != 2 {
		t.Errorf("granted %v lane %d, want lane 2, since lane 1 was paused", ok, g.Lane)
	}
}

// Where a host's limit rises, all for whom there is room go.
func TestARaisedHostLimitIsUsedAtOnce(t *testing.T) {
	s := shared(t, Config{Slots: 100}, 10, 10, open())
	for i := range 100 {
		s.offer(LaneID(i))
	}
	if n := s.e.Stats(0).InFlight; n != 64 {
		t.Fatalf("%d in flight, the host's limit is 64", n)
	}
	s.apply(t, SetSlots{Slots: 1200})
	if n := len(s.drain()); n != 36 {
		t.Errorf("%d of 36 went when the limit rose to 300", n)
	}
}

// A lane that leaves a host while it is ready leaves its room to the next.
func TestALaneThatMovesAwayLeavesItsRoom(t *testing.T) {
	s := shared(t, Config{Slots: 10, HostLimit: 1}, 1, 3, open())
	k := s.offer(0).Ticket
	s.events = nil
	s.offer(1)
	s.offer(2)
	s.finish(k, Result{Kind: OK}) // wakes one
	s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: 1, Host: 1, Profile: open()}})
	if n := len(s.drain()); n != 2 {
		t.Errorf("%d granted, want both: each has a host to itself now", n)
	}
}

// A lane that was woken for its host and then lost its tenant's share keeps the others of the host waiting for a
// round at most.
func TestAWokenLaneWithoutAShareDelaysItsHostForARound(t *testing.T) {
	s := newDriver(Config{Slots: 10, HostLimit: 2})
	s.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	for lane, of := range []TenantID{0, 1, 0, 0} {
		s.apply(t, PutLane{LaneSpec: LaneSpec{Lane: LaneID(lane), Tenant: of, Host: HostID(lane / 3), Profile: open()}})
	}
	s.finish(s.offer(1).Ticket, Result{Kind: OK}) // the other has used more by now
	var out []Ticket
	for range 2 {
		out = append(out, s.offer(2).Ticket)
	}
	s.offer(3) // elsewhere
	if a, b := s.offer(0), s.offer(1); a.Reason != ByHost || b.Reason != ByHost {
		t.Fatalf("%v %v, want both to wait for the host", a.Reason, b.Reason)
	}
	s.e.tenants.at(1).virtual = s.e.tenants.at(0).virtual + 1
	s.to(100 * time.Millisecond)
	s.finish(out[0], Result{Kind: Failed})
	if at := s.e.lanes.at(0).at; !at.ready() {
		t.Fatalf("the first tenant's lane was not woken: it is in %d", at)
	}
	s.apply(t, PutTenant{Tenant: 1, Weight: 1000}) // the first one's nominal falls to one slot
	if g, ok := s.next(); ok {
		t.Fatalf("lane %d was granted", g.Lane)
	}
	s.to(1200 * time.Millisecond)
	if g, ok := s.next(); !ok || g.Lane != 1 {
		t.Errorf("a round later: %v %v, want the other tenant's lane", g.Lane, ok)
	}
}
