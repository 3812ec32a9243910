package fair

import "time"

// Mode says who may use the slots that no share covers.
type Mode uint8

const (
	// WorkConserving: a tenant below its share goes first; above it, a tenant
	// runs while nobody below waits. No slot is idle while anybody waits. What a
	// claim above the share holds comes back when it is released, however long
	// that takes: use Hard where that can be long.
	WorkConserving Mode = iota
	// Hard: a tenant never has more than its share, whoever is idle.
	Hard
	// Shared: first come, first served; shares are not looked at, except that
	// a share of 0 still means none.
	Shared
)

func (m Mode) String() string {
	switch m {
	case WorkConserving:
		return "work-conserving"
	case Hard:
		return "hard"
	case Shared:
		return "shared"
	}
	return "unknown"
}

// SlotLimits bound Slots. The zero value lets nothing run and nobody wait.
type SlotLimits struct {
	Slots   int // at once, of all tenants
	Mode    Mode
	Queue   int // waiters of one tenant at most
	Waiters int // waiters of all tenants at most
}

// Claim is a request for one slot. What it says of its tenant (share, weight) is
// the tenant's from then on.
type Claim struct {
	Tenant string
	Share  int           // slots that are the tenant's when it wants them; 0 or less: suspended
	Weight int           // of its slot time, 1..1000; less counts as 1
	Until  time.Duration // the instant at which waiting ends; not after now: it does not wait
}

// Answer is what became of a claim.
type Answer uint8

const (
	Run       Answer = iota // it has a slot: Release it once
	Wait                    // it waits: Next grants it, Expire or Cancel end it
	Suspended               // its tenant's share is 0
	QueueFull               // its tenant has as many waiters as it may
	AllFull                 // all tenants together have
	WouldWait               // there is no slot now, and the claim does not wait
)

// SlotTicket names a claim that runs or waits. The zero SlotTicket names none.
type SlotTicket struct{ index, gen uint32 }

// Slots shares concurrency among tenants: first the tenant's own share, then the
// slots of all. It is a pure state machine; waiting is its driver's business.
//
//	ticket, answer := s.Request(now, claim)  // Run, Wait or a refusal
//	s.Release(now, ticket)                   // the end of one that ran, exactly once
//	s.Cancel(now, ticket)                    // one that waits, or was just granted, has gone
//	for t, ok := s.Expire(now); ok; ...      // those whose time to wait is over
//	for t, ok := s.Next(now); ok; ...        // after each of these: those who run now
//
// Waiters stand in a queue of their tenant, tenants in heaps by virtual time
// (see Charge), those below their share before those at or above it. So a
// release costs O(log tenants), makes at most one claim run and looks at no
// other; a waiter that leaves costs O(log waiters).
//
// A queue is first in, first out while its first has waited for at most half of
// its time, and last in, first out while it has waited longer: then more is asked
// than can be served, somebody goes without, and who has just come is still there
// when it is served. Where slots are Shared it is always first in, first out.
//
// "Waits" means "could run now, had it the slot": a tenant at its hard share does
// not stand in the way of others, and earns nothing meanwhile.
//
// State is bounded: a tenant without a claim is forgotten when its virtual time
// is no longer ahead, or when more than maxIdle are remembered. Then the
// floor from which the next ones start is raised to its virtual time, so to be
// forgotten grants nothing.
//
// Instants are of one clock that does not go back; one that does counts as the
// largest seen. Equal calls give equal answers. Not safe for concurrent use.
type Slots struct {
	limits  SlotLimits
	now     time.Duration
	running int
	waiting int // in queues, overdue ones left out

	ids     map[string]uint32 // tenant's name to its place in tenants
	tenants []slotTenant
	spare   []uint32 // free places in tenants
	heaps   [idle + 1]Heap
	last    float64 // highest virtual time of one that was served: where who wakes begins
	mean    float64 // slot time of all in seconds, 0: none yet

	claims    []slotClaim
	free      []uint32 // free places in claims
	deadlines Heap     // waiting claims by Until
	seq       uint64
}

// place is where a tenant stands.
type place uint8

const (
	nowhere place = iota // runs or waits, and could not run more if it had the slot
	below                // waits and is below its share
	above                // waits at its share or above it
	idle                 // has no claim
)

type slotTenant struct {
	known         bool // else the place is free
	name          string
	share, weight int
	running       int
	waiting       int
	first, last   uint32 // its queue, places in claims; only while waiting > 0
	virtual       float64
	mean          float64
	at            place
	pos           int32
}

type claimState uint8

const (
	gone    claimState = iota
	queued             // in its tenant's queue and in deadlines
	overdue            // in deadlines only: Expire will return it
	runs
)

type slotClaim struct {
	gen        uint32
	tenant     uint32
	prev, next uint32 // in the tenant's queue
	seq        uint64 // order of arrival
	asked      time.Duration
	until      time.Duration
	began      time.Duration
	charged    float64
	state      claimState
	pos        int32
}

// maxIdle is how many tenants without a claim are remembered at most.
const maxIdle = 4096

// NewSlots returns slots with nothing in them.
func NewSlots(limits SlotLimits) *Slots {
	return &Slots{limits: limits, ids: map[string]uint32{}}
}

// SetLimits replaces the limits. What runs and what waits goes on, even above
// them. Call Next afterwards.
func (s *Slots) SetLimits(limits SlotLimits) {
	for id := range s.tenants { // all leave the heaps before the order changes
		s.stand(uint32(id), nowhere)
	}
	s.limits = limits
	for id := range s.tenants {
		if s.tenants[id].known {
			s.settle(uint32(id))
		}
	}
}

// Running returns how many slots are taken.
func (s *Slots) Running() int { return s.running }

// Waiting returns how many claims wait.
func (s *Slots) Waiting() int { return s.waiting }

// Tenant returns how many claims of a tenant run and wait.
func (s *Slots) Tenant(name string) (running, waiting int) {
	id, ok := s.ids[name]
	if !ok {
		return 0, 0
	}
	return s.tenants[id].running, s.tenants[id].waiting
}

// Request asks for a slot. Only Run and Wait come with a ticket; a refusal
// changes nothing but its tenant's share and weight.
func (s *Slots) Request(now time.Duration, c Claim) (SlotTicket, Answer) {
	s.advance(now)
	if c.Share <= 0 {
		s.suspend(c.Tenant)
		return SlotTicket{}, Suspended
	}
	id := s.tenantOf(c)
	t := &s.tenants[id]
	answer := s.answer(t, c)
	var ticket SlotTicket
	switch answer {
	case Run:
		t.virtual = Wake(t.virtual, s.last)
		ticket = s.newClaim(id)
		s.start(ticket.index)
	case Wait:
		ticket = s.newClaim(id)
		s.enqueue(ticket.index, c.Until)
	}
	s.settle(id)
	s.forget()
	return ticket, answer
}

// suspend takes what is left of its share from a tenant that is known.
func (s *Slots) suspend(name string) {
	if id, ok := s.ids[name]; ok {
		s.tenants[id].share = 0
		s.settle(id)
	}
}

func (s *Slots) answer(t *slotTenant, c Claim) Answer {
	switch {
	case s.running < s.limits.Slots && t.waiting == 0 && s.mayRun(t) && !s.someReady():
		return Run
	case c.Until <= s.now:
		return WouldWait
	case t.waiting >= s.limits.Queue:
		return QueueFull
	case s.waiting >= s.limits.Waiters:
		return AllFull
	}
	return Wait
}

// mayRun reports whether the share of t lets one more run, a slot being free.
func (s *Slots) mayRun(t *slotTenant) bool {
	return t.share > 0 && (s.limits.Mode != Hard || t.running < t.share)
}

func (s *Slots) someReady() bool { return s.heaps[below].Len()+s.heaps[above].Len() > 0 }

// Release ends a claim that ran, and reports whether it did: a ticket that was
// released before changes nothing.
func (s *Slots) Release(now time.Duration, ticket SlotTicket) bool {
	c := s.claim(ticket)
	if c == nil || c.state != runs {
		return false
	}
	s.advance(now)
	id := c.tenant
	t := &s.tenants[id]
	took := (s.now - c.began).Seconds()
	t.virtual = Correct(t.virtual, c.charged, took, t.weight)
	t.mean, s.mean = learn(t.mean, took), learn(s.mean, took)
	t.running--
	s.running--
	s.drop(ticket.index)
	s.settle(id)
	s.forget()
	return true
}

// learn moves a mean by an eighth towards what was seen.
func learn(mean, took float64) float64 {
	if mean == 0 {
		return took
	}
	return mean + (took-mean)/8
}

// Cancel ends a claim that waits, or that runs without its owner's knowing, and
// reports whether it did: a ticket that has ended changes nothing.
func (s *Slots) Cancel(now time.Duration, ticket SlotTicket) bool {
	c := s.claim(ticket)
	switch {
	case c == nil:
		return false
	case c.state == runs:
		return s.Release(now, ticket)
	}
	s.advance(now)
	s.leave(ticket.index)
	return true
}

// Expire ends one claim whose time to wait is over, in order of their times, or
// returns false if there is none.
func (s *Slots) Expire(now time.Duration) (SlotTicket, bool) {
	s.advance(now)
	i, ok := s.deadlines.Top()
	if !ok || s.claims[i].until > s.now {
		return SlotTicket{}, false
	}
	ticket := SlotTicket{index: i, gen: s.claims[i].gen}
	s.leave(i)
	return ticket, true
}

// Next makes one waiting claim run, or returns false if no slot is free or nobody
// who waits may have it. It never grants one whose time to wait is over.
func (s *Slots) Next(now time.Duration) (SlotTicket, bool) {
	s.advance(now)
	for s.running < s.limits.Slots {
		id, ok := s.heaps[below].Top()
		if !ok {
			id, ok = s.heaps[above].Top()
		}
		if !ok {
			break
		}
		i := s.pick(&s.tenants[id])
		c := &s.claims[i]
		s.unlink(i)
		if c.until <= s.now {
			c.state = overdue
			s.settle(id)
			continue
		}
		s.deadlines.Remove((*byDeadline)(s), c.pos)
		s.start(i)
		s.settle(id)
		s.forget()
		return SlotTicket{index: i, gen: c.gen}, true
	}
	return SlotTicket{}, false
}

// pick returns whose turn it is in a tenant's queue.
func (s *Slots) pick(t *slotTenant) uint32 {
	if c := &s.claims[t.first]; s.limits.Mode != Shared && s.now-c.asked > (c.until-c.asked)/2 {
		return t.last
	}
	return t.first
}

func (s *Slots) advance(now time.Duration) { s.now = max(s.now, now) }

// start gives the claim a slot and charges its tenant.
func (s *Slots) start(i uint32) {
	c := &s.claims[i]
	t := &s.tenants[c.tenant]
	c.state, c.began = runs, s.now
	c.charged = Guess(0, t.mean, s.mean)
	s.last = max(s.last, t.virtual)
	t.virtual = Charge(t.virtual, c.charged, t.weight)
	t.running++
	s.running++
}
