package engine

import (
	"errors"
	"testing"
	"time"
)

// grouped is one tenant with so many lanes that share the contract of p.
func grouped(t *testing.T, p Profile, lanes int) *driver {
	t.Helper()
	s := newDriver(Config{Slots: 1000, HostLimit: -1})
	s.apply(t, PutTenant{Tenant: 0})
	p.Group = 1
	for i := range lanes {
		s.lane(t, 0, LaneID(i), p)
	}
	return s
}

// One bucket: together they send B at once and then r, whoever asks, and what is refused takes nothing.
func TestLanesOfAGroupShareOneBucket(t *testing.T) {
	s := grouped(t, rated(10, time.Second, 5), 3)
	sent := 0
	for i := range 30 {
		if s.offer(LaneID(i%3)).Kind == Send {
			sent++
		}
	}
	if sent != 5 {
		t.Fatalf("%d sent at once, the burst is 5", sent)
	}
	for at := time.Duration(0); at <= 2*time.Second; at += 10 * time.Millisecond {
		s.to(at)
		for {
			if _, ok := s.next(); !ok {
				break
			}
			sent++
		}
		if most := 5 + int(at/(100*time.Millisecond)); sent > most {
			t.Fatalf("%d sent within %v, want at most %d", sent, at, most)
		}
	}
	if sent != 25 {
		t.Errorf("%d sent in two seconds, want 5 + 20", sent)
	}
	for i := range LaneID(3) {
		if v, _ := s.e.Lane(s.now, i); v.Counters.InFlight < 8 || v.Counters.InFlight > 9 {
			t.Errorf("lane %d has sent %d of 25: the lanes do not share evenly", i, v.Counters.InFlight)
		}
	}
}

// One cap: an end lets the next lane go, whichever lane ended; a removed lane's requests count until they end.
func TestLanesOfAGroupShareOneCap(t *testing.T) {
	p := open()
	p.Cap = 2
	s := grouped(t, p, 3)
	a, b := s.offer(0), s.offer(1)
	if v := s.offer(2); a.Kind != Send || b.Kind != Send || v.Kind != Park || v.Reason != ByCap {
		t.Fatalf("%v %v, then %v %v", a.Kind, b.Kind, v.Kind, v.Reason)
	}
	s.apply(t, RemoveLane{Lane: 0})
	if _, ok := s.next(); ok {
		t.Error("a third went while the removed lane's request is out")
	}
	s.finish(a.Ticket, Result{Kind: OK})
	if g, ok := s.next(); !ok || g.Lane != 2 {
		t.Errorf("granted %v %v, want lane 2", g.Lane, ok)
	}
	s.offer(1)
	p.Group, p.Cap = 1, 3
	s.lane(t, 0, 2, p) // a change of one is a change for all
	if g, ok := s.next(); !ok || g.Lane != 1 {
		t.Errorf("after a higher cap: %v %v, want lane 1", g.Lane, ok)
	}
}

// A dead lane's breaker and retries are its own.
func TestADeadLaneOfAGroupStopsNobodyElse(t *testing.T) {
	s := grouped(t, Profile{Cap: -1}, 2)
	for range 5 {
		s.finish(s.offer(0).Ticket, Result{Kind: Failed})
	}
	if v := s.offer(0); v.Reason != ByBreaker {
		t.Fatalf("the dead lane: %v %v", v.Kind, v.Reason)
	}
	if v := s.offer(1); v.Kind != Send {
		t.Errorf("the other: %v %v", v.Kind, v.Reason)
	}
}

// A group is of one tenant and a lane's for good, and bounded.
func TestWhatAGroupMayNotBe(t *testing.T) {
	s := grouped(t, open(), maxGroup)
	s.apply(t, PutTenant{Tenant: 1})
	for _, row := range []struct {
		what  string
		lane  LaneID
		of    TenantID
		group GroupID
	}{
		{"another group", 0, 0, 2}, {"no group any more", 0, 0, 0}, {"one more than may share", maxGroup, 0, 1},
		{"another tenant's", maxGroup, 1, 1}, {"an id that is not dense", maxGroup, 0, maxID},
	} {
		p := open()
		p.Group = row.group
		err := s.e.Apply(0, PutLane{LaneSpec: LaneSpec{Lane: row.lane, Tenant: row.of, Profile: p}})
		var field *FieldError
		if !errors.As(err, &field) || field.Field != "lane.profile.group" {
			t.Errorf("%s: %v", row.what, err)
		}
	}
}
