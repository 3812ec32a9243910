package fair

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naiveSlots is Slots without a heap or a queue: one list of waiters that is
// searched from end to end.
type naiveSlots struct {
	limits  SlotLimits
	now     time.Duration
	tenants map[string]*naiveTenant
	waiters []*naiveClaim // in order of arrival
	running []*naiveClaim
	last    float64
	mean    float64
	inASet  bool // the fault: who waits is a set of tenants, left when one of its claims goes
}

type naiveTenant struct {
	name           string
	share, weight  int
	running        int
	virtual, mean  float64
	ready, waiting bool
}

type naiveClaim struct {
	id      int
	t       *naiveTenant
	asked   time.Duration
	until   time.Duration
	began   time.Duration
	charged float64
}

func (n *naiveSlots) queue(t *naiveTenant) (own []*naiveClaim) {
	for _, w := range n.waiters {
		if w.t == t {
			own = append(own, w)
		}
	}
	return own
}

func (n *naiveSlots) mayRun(t *naiveTenant) bool {
	return t.share > 0 && (n.limits.Mode != Hard || t.running < t.share)
}

// rouse finds who has begun to wait, or has stopped.
func (n *naiveSlots) rouse() {
	for _, t := range n.tenants {
		ready := t.waiting && n.mayRun(t)
		if ready && !t.ready {
			t.virtual = max(t.virtual, n.last)
		}
		t.ready = ready
	}
	for name, t := range n.tenants {
		if t.running == 0 && len(n.queue(t)) == 0 && t.virtual <= n.last {
			delete(n.tenants, name)
		}
	}
}

func (n *naiveSlots) someReady() bool {
	for _, t := range n.tenants {
		if t.ready {
			return true
		}
	}
	return false
}

func (n *naiveSlots) request(now time.Duration, id int, c Claim) Answer {
	n.now = max(n.now, now)
	t := n.tenants[c.Tenant]
	if t == nil {
		t = &naiveTenant{name: c.Tenant}
	}
	if c.Share <= 0 {
		t.share = 0
		n.rouse()
		return Suspended
	}
	n.tenants[c.Tenant] = t
	t.share, t.weight = c.Share, max(c.Weight, 1)
	claim := &naiveClaim{id: id, t: t, asked: n.now, until: c.Until}
	defer n.rouse()
	switch {
	case len(n.running) < n.limits.Slots && !t.waiting && n.mayRun(t) && !n.someReady():
		t.virtual = max(t.virtual, n.last)
		n.start(claim)
		return Run
	case c.Until <= n.now:
		return WouldWait
	case len(n.queue(t)) >= n.limits.Queue:
		return QueueFull
	case len(n.waiters) >= n.limits.Waiters:
		return AllFull
	}
	n.waiters = append(n.waiters, claim)
	t.waiting = true
	return Wait
}

func (n *naiveSlots) start(c *naiveClaim) {
	c.began, c.charged = n.now, Guess(0, c.t.mean, n.mean)
	n.last = max(n.last, c.t.virtual)
	c.t.virtual += c.charged / float64(c.t.weight)
	c.t.running++
	n.running = append(n.running, c)
}

func (n *naiveSlots) release(now time.Duration, id int) {
	n.now = max(n.now, now)
	i := slices.IndexFunc(n.running, func(c *naiveClaim) bool { return c.id == id })
	c := n.running[i]
	n.running = slices.Delete(n.running, i, i+1)
	took := (n.now - c.began).Seconds()
	c.t.virtual += (took - c.charged) / float64(c.t.weight)
	for _, mean := range []*float64{&c.t.mean, &n.mean} {
		if *mean == 0 {
			*mean = took
		} else {
			*mean += (took - *mean) / 8
		}
	}
	c.t.running--
	n.rouse()
}

func (n *naiveSlots) remove(c *naiveClaim) {
	n.waiters = slices.DeleteFunc(n.waiters, func(w *naiveClaim) bool { return w == c })
	c.t.waiting = len(n.queue(c.t)) > 0 && !n.inASet
}

func (n *naiveSlots) expire(now time.Duration) (ids []int) {
	n.now = max(n.now, now)
	late := slices.DeleteFunc(slices.Clone(n.waiters), func(c *naiveClaim) bool { return c.until > n.now })
	slices.SortStableFunc(late, func(a, b *naiveClaim) int { return int(a.until - b.until) })
	for _, c := range late {
		ids = append(ids, c.id)
		n.remove(c)
	}
	n.rouse()
	return ids
}

// next is called behind expire, so nobody who waits is late.
func (n *naiveSlots) next() (int, bool) {
	if len(n.running) >= n.limits.Slots {
		return 0, false
	}
	var best *naiveClaim
	for _, w := range n.waiters { // the first of each tenant is seen first
		if w.t.ready && (best == nil || w.t != best.t && n.before(w.t, best.t)) {
			best = w
		}
	}
	if best == nil {
		return 0, false
	}
	if n.limits.Mode != Shared && 2*(n.now-best.asked) > best.until-best.asked {
		own := n.queue(best.t)
		best = own[len(own)-1]
	}
	n.remove(best)
	n.start(best)
	n.rouse()
	return best.id, true
}

func (n *naiveSlots) before(a, b *naiveTenant) bool {
	if n.limits.Mode == Shared {
		return false // arrival: what was seen first stays
	}
	if x, y := a.running < a.share, b.running < b.share; x != y {
		return x
	}
	return a.virtual < b.virtual // where equal, what was seen first stays
}

// machine drives Slots and its twin side by side.
type machine struct {
	s       *Slots
	n       *naiveSlots
	now     time.Duration
	tickets map[int]SlotTicket
	ids     map[SlotTicket]int
	running []int
	waiting []int
	lastID  int
}

func newMachine(limits SlotLimits) *machine {
	return &machine{
		s: NewSlots(limits), n: &naiveSlots{limits: limits, tenants: map[string]*naiveTenant{}},
		tickets: map[int]SlotTicket{}, ids: map[SlotTicket]int{},
	}
}

func (m *machine) request(t *rapid.T, c Claim) {
	m.lastID++
	ticket, got := m.s.Request(m.now, c)
	if want := m.n.request(m.now, m.lastID, c); got != want {
		t.Fatalf("claim %+v: answered %d, the twin %d", c, got, want)
	}
	switch got {
	case Run:
		m.running = append(m.running, m.lastID)
	case Wait:
		m.waiting = append(m.waiting, m.lastID)
	default:
		return
	}
	m.tickets[m.lastID], m.ids[ticket] = ticket, m.lastID
}

// settle ends and grants whatever is due, and compares.
func (m *machine) settle(t *rapid.T) {
	late := m.n.expire(m.now)
	for _, want := range late {
		ticket, ok := m.s.Expire(m.now)
		if got := m.ids[ticket]; !ok || got != want {
			t.Fatalf("expired %d, the twin %d", got, want)
		}
		m.waiting = slices.DeleteFunc(m.waiting, func(id int) bool { return id == want })
	}
	if ticket, ok := m.s.Expire(m.now); ok {
		t.Fatalf("expired %d, the twin none", m.ids[ticket])
	}
	for {
		want, wantOK := m.n.next()
		ticket, ok := m.s.Next(m.now)
		if got := m.ids[ticket]; ok != wantOK || ok && got != want {
			t.Fatalf("granted %d %v, the twin %d %v", got, ok, want, wantOK)
		}
		if !ok {
			return
		}
		m.waiting = slices.DeleteFunc(m.waiting, func(id int) bool { return id == want })
		m.running = append(m.running, want)
	}
}

func (m *machine) check(t *rapid.T) {
	if m.s.Running() != len(m.running) || m.s.Waiting() != len(m.waiting) {
		t.Fatalf("%d run and %d wait, want %d and %d", m.s.Running(), m.s.Waiting(), len(m.running), len(m.waiting))
	}
	if m.s.Running() > m.s.limits.Slots {
		t.Fatalf("%d run on %d slots", m.s.Running(), m.s.limits.Slots)
	}
	if len(m.s.ids) != len(m.n.tenants) {
		t.Fatalf("%d tenants are remembered, want %d", len(m.s.ids), len(m.n.tenants))
	}
	for name, twin := range m.n.tenants {
		running, _ := m.s.Tenant(name)
		if running != twin.running {
			t.Fatalf("%s has %d running, want %d", name, running, twin.running)
		}
	}
}

// Whatever is asked, released, cancelled and expired in any order: the machine
// with heaps answers as the search through one list does.
func TestSlotsEqualASearchThroughOneList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(SlotLimits{
			Slots:   rapid.IntRange(0, 5).Draw(t, "slots"),
			Mode:    Mode(rapid.IntRange(0, 2).Draw(t, "mode")),
			Queue:   rapid.IntRange(0, 6).Draw(t, "queue"),
			Waiters: rapid.IntRange(0, 15).Draw(t, "waiters"),
		})
		pick := func(of []int) (int, []int) {
			i := rapid.IntRange(0, len(of)-1).Draw(t, "which")
			id := of[i]
			return id, slices.Delete(of, i, i+1)
		}
		request := func(t *rapid.T) {
			m.request(t, Claim{
				Tenant: fmt.Sprint("t", rapid.IntRange(0, 4).Draw(t, "tenant")),
				Share:  rapid.IntRange(0, 3).Draw(t, "share"),
				Weight: rapid.IntRange(0, 3).Draw(t, "weight"),
				Until:  m.now + time.Duration(rapid.IntRange(0, 40).Draw(t, "patience"))*time.Millisecond,
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"request":  request,
			"request2": request,
			"release": func(t *rapid.T) {
				if len(m.running) == 0 {
					t.Skip()
				}
				var id int
				id, m.running = pick(m.running)
				m.n.release(m.now, id)
				if !m.s.Release(m.now, m.tickets[id]) || m.s.Release(m.now, m.tickets[id]) || m.s.Cancel(m.now, m.tickets[id]) {
					t.Fatal("a release must work once and never again")
				}
			},
			"cancel": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip()
				}
				var id int
				id, m.waiting = pick(m.waiting)
				m.n.remove(m.n.waiters[slices.IndexFunc(m.n.waiters, func(c *naiveClaim) bool { return c.id == id })])
				m.n.rouse()
				if !m.s.Cancel(m.now, m.tickets[id]) || m.s.Cancel(m.now, m.tickets[id]) {
					t.Fatal("a cancel must work once and never again")
				}
			},
			"pass": func(t *rapid.T) {
				m.now += time.Duration(rapid.IntRange(-5, 20).Draw(t, "ms")) * time.Millisecond
			},
			"": func(t *rapid.T) {
				m.settle(t)
				m.check(t)
			},
		})
	})
}
