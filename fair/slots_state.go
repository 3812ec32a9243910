package fair

import "time"

// The tables behind Slots: tenants, claims, and the heaps that order them.

// tenantOf returns the place of the claim's tenant, known or new, with what the
// claim says of it.
func (s *Slots) tenantOf(c Claim) uint32 {
	id, ok := s.ids[c.Tenant]
	if !ok {
		id = s.newTenant(c.Tenant)
	}
	t := &s.tenants[id]
	t.share, t.weight = c.Share, max(c.Weight, 1)
	return id
}

func (s *Slots) newTenant(name string) uint32 {
	id := uint32(len(s.tenants))
	if n := len(s.spare); n > 0 {
		id, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		s.tenants = append(s.tenants, slotTenant{})
	}
	s.tenants[id] = slotTenant{known: true, name: name, pos: -1}
	s.ids[name] = id
	return id
}

// settle puts a tenant where it belongs after anything of it changed. One that
// begins to wait starts at the virtual time of those who are served.
func (s *Slots) settle(id uint32) {
	t := &s.tenants[id]
	to := s.standsAt(t)
	if ready := to == below || to == above; ready && t.at != below && t.at != above {
		s.stand(id, nowhere)
		t.virtual = Wake(t.virtual, s.last)
	}
	s.stand(id, to)
}

func (s *Slots) standsAt(t *slotTenant) place {
	switch {
	case t.running == 0 && t.waiting == 0:
		return idle
	case t.waiting == 0 || !s.mayRun(t):
		return nowhere
	case t.running < t.share || s.limits.Mode == Shared:
		return below
	}
	return above
}

// stand moves a tenant, or restores the order where it stands.
func (s *Slots) stand(id uint32, to place) {
	t := &s.tenants[id]
	if to == t.at {
		if to != nowhere {
			s.heaps[to].Fix((*byVirtual)(s), t.pos)
		}
		return
	}
	if t.at != nowhere {
		s.heaps[t.at].Remove((*byVirtual)(s), t.pos)
	}
	t.at = to
	if to != nowhere {
		s.heaps[to].Push((*byVirtual)(s), id)
	}
}

// forget drops tenants without a claim that owe nothing, and the nearest to that
// beyond the number that is kept.
func (s *Slots) forget() {
	for {
		id, ok := s.heaps[idle].Top()
		if !ok || s.tenants[id].virtual > s.last && s.heaps[idle].Len() <= maxIdle {
			return
		}
		s.heaps[idle].Remove((*byVirtual)(s), 0)
		t := &s.tenants[id]
		s.last = max(s.last, t.virtual)
		delete(s.ids, t.name)
		*t = slotTenant{pos: -1}
		s.spare = append(s.spare, id)
	}
}

func (s *Slots) newClaim(tenant uint32) SlotTicket {
	i := uint32(len(s.claims))
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.claims = append(s.claims, slotClaim{})
	}
	c := &s.claims[i]
	s.seq++
	*c = slotClaim{gen: c.gen + 1, tenant: tenant, seq: s.seq, pos: -1}
	return SlotTicket{index: i, gen: c.gen}
}

// claim returns the claim that a ticket names, or nil if it has ended.
func (s *Slots) claim(ticket SlotTicket) *slotClaim {
	if int(ticket.index) >= len(s.claims) {
		return nil
	}
	c := &s.claims[ticket.index]
	if c.gen != ticket.gen || c.state == gone {
		return nil
	}
	return c
}

func (s *Slots) drop(i uint32) {
	s.claims[i].state = gone
	s.free = append(s.free, i)
}

// enqueue puts the claim at the end of its tenant's queue.
func (s *Slots) enqueue(i uint32, until time.Duration) {
	c := &s.claims[i]
	t := &s.tenants[c.tenant]
	c.state, c.asked, c.until = queued, s.now, until
	if t.waiting == 0 {
		t.first = i
	} else {
		c.prev = t.last
		s.claims[t.last].next = i
	}
	t.last = i
	t.waiting++
	s.waiting++
	s.deadlines.Push((*byDeadline)(s), i)
}

// unlink takes a queued claim out of its tenant's queue.
func (s *Slots) unlink(i uint32) {
	c := &s.claims[i]
	t := &s.tenants[c.tenant]
	if t.first == i {
		t.first = c.next
	} else {
		s.claims[c.prev].next = c.next
	}
	if t.last == i {
		t.last = c.prev
	} else {
		s.claims[c.next].prev = c.prev
	}
	t.waiting--
	s.waiting--
}

// leave ends a claim that is queued or overdue.
func (s *Slots) leave(i uint32) {
	c := &s.claims[i]
	s.deadlines.Remove((*byDeadline)(s), c.pos)
	if c.state == queued {
		s.unlink(i)
		s.settle(c.tenant)
	}
	s.drop(i)
	s.forget()
}

// byVirtual orders tenants that are ready by virtual time and then by the arrival
// of the first in the queue, by that alone where slots are shared; idle ones by
// virtual time and then by place.
type byVirtual Slots

func (o *byVirtual) Less(a, b uint32) bool {
	x, y := &o.tenants[a], &o.tenants[b]
	if x.virtual != y.virtual && (o.limits.Mode != Shared || x.waiting == 0) {
		return x.virtual < y.virtual
	}
	if x.waiting == 0 {
		return a < b
	}
	return o.claims[x.first].seq < o.claims[y.first].seq
}

func (o *byVirtual) SetIndex(id uint32, i int32) { o.tenants[id].pos = i }

// byDeadline orders claims by the instant at which their waiting ends.
type byDeadline Slots

func (o *byDeadline) Less(a, b uint32) bool {
	x, y := &o.claims[a], &o.claims[b]
	if x.until != y.until {
		return x.until < y.until
	}
	return x.seq < y.seq
}

func (o *byDeadline) SetIndex(i uint32, pos int32) { o.claims[i].pos = pos }
