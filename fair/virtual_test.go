package fair

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// player is a tenant of the model: what it offers, and what became of it.
type player struct {
	weight int
	slot   float64 // seconds that each of its sends holds a slot
	every  float64 // seconds between its sends; 0: it always has one waiting
	from   float64 // instant from which it offers
	until  float64 // instant from which it does not; 0: never
	slowed float64 // slot time from 5 s on, while the estimate stays at slot; 0: the same

	virtual  float64
	served   int // order of its last start
	next     float64
	waiting  int
	inFlight int
	mean     float64 // of its slot times so far, 0: none
	used     float64 // slot-seconds, running ones up to now
	most     int     // in flight at most
	index    int32
}

// model shares slots by the rules of this package and by nothing else, in exact
// virtual time: sends end, then others arrive, then free slots are given.
type model struct {
	now     float64
	slots   int
	players []player
	ready   Heap
	running []running
	last    float64 // virtual time of the one served last
	starts  int
	longest float64
	wake    func(own, servedLast float64) float64
	watch   func() // called after every instant
}

type running struct {
	begin, end, charged float64
	player              uint32
}

func newModel(slots int, players ...player) *model {
	m := &model{slots: slots, players: players, wake: Wake, watch: func() {}}
	for i := range m.players {
		p := &m.players[i]
		p.index, p.next = -1, p.from
		m.longest = max(m.longest, p.slot, p.slowed)
	}
	return m
}

func (m *model) Less(a, b uint32) bool {
	x, y := &m.players[a], &m.players[b]
	switch {
	case x.virtual != y.virtual:
		return x.virtual < y.virtual
	case x.served != y.served:
		return x.served < y.served
	}
	return a < b
}

func (m *model) SetIndex(id uint32, i int32) { m.players[id].index = i }

func (m *model) run(end float64) {
	for m.now < end {
		m.finish()
		for i := range m.players {
			m.arrive(uint32(i))
		}
		for len(m.running) < m.slots && m.ready.Len() > 0 {
			m.start()
		}
		m.watch()
		m.pass(min(end, m.nextEvent()))
	}
}

func (m *model) nextEvent() float64 {
	at := math.Inf(1)
	for _, r := range m.running {
		at = min(at, r.end)
	}
	for i := range m.players {
		if p := &m.players[i]; p.index < 0 && p.next > m.now || p.every > 0 {
			at = min(at, p.next)
		}
	}
	return at
}

func (m *model) pass(to float64) {
	for i := range m.players {
		m.players[i].used += float64(m.players[i].inFlight) * (to - m.now)
	}
	m.now = to
}

func (m *model) finish() {
	m.running = slices.DeleteFunc(m.running, func(r running) bool {
		if r.end > m.now {
			return false
		}
		p := &m.players[r.player]
		p.inFlight--
		p.mean = p.slot
		p.virtual = Correct(p.virtual, r.charged, r.end-r.begin, p.weight)
		if p.index >= 0 {
			m.ready.Fix(m, p.index)
		}
		return true
	})
}

func (m *model) arrive(id uint32) {
	p := &m.players[id]
	if p.until > 0 && m.now >= p.until {
		p.next = math.Inf(1)
		p.waiting = 0
		if p.index >= 0 {
			m.ready.Remove(m, p.index)
		}
		return
	}
	switch {
	case m.now < p.next:
		return
	case p.every == 0:
		p.waiting = 1 << 30
		p.next = math.Inf(1)
	default:
		p.waiting++
		p.next += p.every
	}
	if p.index < 0 {
		p.virtual = m.wake(p.virtual, m.last)
		m.ready.Push(m, id)
	}
}

func (m *model) start() {
	id, _ := m.ready.Top()
	p := &m.players[id]
	guess := Guess(p.mean, 0, 0)
	m.last = p.virtual
	m.starts++
	p.served = m.starts
	p.virtual = Charge(p.virtual, guess, p.weight)
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	p.waiting--
	slot := p.slot
	if p.slowed > 0 && m.now >= 5 {
		slot = p.slowed
	}
	m.running = append(m.running, running{begin: m.now, end: m.now + slot, charged: guess, player: id})
	if p.waiting == 0 {
		m.ready.Remove(m, p.index)
		return
	}
	m.ready.Fix(m, p.index)
}

// spread follows how far the use of two players, in slot-seconds per weight, has
// drifted apart over any span in which both waited.
type spread struct {
	a, b      *player
	on        bool
	low, high float64
	worst     float64
}

func (s *spread) see() {
	if s.a.index < 0 || s.b.index < 0 {
		s.on = false
		return
	}
	d := s.a.used/float64(s.a.weight) - s.b.used/float64(s.b.weight)
	if !s.on {
		s.on, s.low, s.high = true, d, d
	}
	s.low, s.high = min(s.low, d), max(s.high, d)
	s.worst = max(s.worst, s.high-s.low)
}

// bound is the longest slot time, over the smaller weight, times the slots of
// the two.
func (s *spread) bound(m *model) float64 {
	return m.longest * float64(s.a.most+s.b.most) / float64(min(s.a.weight, s.b.weight))
}

// watchAll follows every pair.
func watchAll(m *model) []*spread {
	var all []*spread
	for i := range m.players {
		for j := range i {
			all = append(all, &spread{a: &m.players[i], b: &m.players[j]})
		}
	}
	m.watch = func() {
		for _, s := range all {
			s.see()
		}
	}
	return all
}

func checkSpreads(t fataler, m *model, all []*spread) {
	for _, s := range all {
		if bound := s.bound(m); s.worst > bound*(1+1e-9) {
			t.Fatalf("slot-seconds per weight of two that both wait differ by %.4f, bound %.4f: %+v and %+v", s.worst, bound, *s.a, *s.b)
		}
	}
}

type fataler interface{ Fatalf(string, ...any) }

// oracle returns the slots that each should hold on average by pouring water.
func (m *model) oracle() []float64 {
	var demands []Demand
	for i := range m.players {
		p := &m.players[i]
		want := float64(m.slots) // nobody can use more
		if p.every > 0 {
			want = p.slot / p.every
		}
		demands = append(demands, Demand{want, float64(p.weight)})
	}
	return pour(float64(m.slots), demands)
}

// checkShares compares with the oracle over the span since the uses before. The
// margin is what the bound and the slots in flight at both ends leave open.
func checkShares(t fataler, m *model, before []float64, span float64) {
	want := m.oracle()
	margin := 3 * m.longest * float64(m.slots)
	for i := range m.players {
		got := m.players[i].used - before[i]
		if math.Abs(got-want[i]*span) > margin {
			t.Fatalf("player %d used %.2f slot-seconds in %.0f s, want %.2f within %.2f: %+v", i, got, span, want[i]*span, margin, m.players[i])
		}
	}
}

func (m *model) uses() []float64 {
	var u []float64
	for i := range m.players {
		u = append(u, m.players[i].used)
	}
	return u
}

func TestSlotsByVirtualTimeAreMaxMinShares(t *testing.T) {
	tests := []struct {
		name    string
		slots   int
		players []player
	}{
		{"three tenants", 12, []player{
			{weight: 1, slot: 0.05},
			{weight: 1, slot: 0.05},
			{weight: 1, slot: 0.05},
		}},
		{"three tenants, one wants little", 10, []player{
			{weight: 1, slot: 0.05},
			{weight: 3, slot: 0.02},
			{weight: 1, slot: 0.03, every: 0.02},
		}},
		{"weights 1, 3 and 1,000", 100, []player{
			{weight: 1, slot: 0.05},
			{weight: 3, slot: 0.05},
			{weight: 1000, slot: 0.05},
		}},
		{"half at 1 s, half at 20 ms", 20, halves(10, 1, 0.020)},
		{"one of which the estimate says a tenth", 10, []player{
			{weight: 1, slot: 0.02, slowed: 0.2},
			{weight: 1, slot: 0.02},
			{weight: 2, slot: 0.05},
		}},
		{"more tenants than slots", 12, halves(40, 0.05, 0.02)},
		{"enough for all", 20, []player{
			{weight: 1, slot: 0.05, every: 0.01},
			{weight: 5, slot: 0.1, every: 0.02},
			{weight: 1, slot: 0.02, every: 0.005},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel(tt.slots, tt.players...)
			all := watchAll(m)
			m.run(10)
			before := m.uses()
			m.run(70)
			checkSpreads(t, m, all)
			checkShares(t, m, before, 60)
		})
	}
}

func halves(n int, slow, fast float64) []player {
	var p []player
	for i := range n {
		slot := fast
		if i%2 == 0 {
			slot = slow
		}
		p = append(p, player{weight: 1, slot: slot})
	}
	return p
}

// Idle time earns nothing: the one that wakes has its share from then on, and
// takes nothing back of what the others used meanwhile.
func TestOneThatWakesGetsItsShareAndNoArrears(t *testing.T) {
	play := func(wake func(own, last float64) float64) (m *model, all []*spread, first, share float64) {
		m = newModel(10,
			player{weight: 1, slot: 0.05},
			player{weight: 1, slot: 0.05},
			player{weight: 2, slot: 0.05, from: 30},
		)
		m.wake = wake
		all = watchAll(m)
		m.run(30)
		before := m.players[2].used
		m.run(31)
		first = m.players[2].used - before
		m.run(60)
		return m, all, first, m.players[2].used / 30
	}

	m, all, first, share := play(Wake)
	checkSpreads(t, m, all)
	if math.Abs(first-5) > 0.5 {
		t.Errorf("in its first second it used %.2f slot-seconds, want its share of 5", first)
	}
	if math.Abs(share-5) > 0.05 {
		t.Errorf("it held %.3f slots on average, want 5", share)
	}

	_, _, first, _ = play(func(own, _ float64) float64 { return own })
	if first < 9 {
		t.Errorf("without the rule it would take all 10 slots, and took %.2f: the test shows nothing", first)
	}
}

// One that lent its slots and comes back takes them back as sends end, within
// one of the others' slot times; one that was ahead is not forgiven by a nap.
func TestOneThatComesBackIsServedWithinOneSlotTime(t *testing.T) {
	m := newModel(10,
		player{weight: 1, slot: 0.2},
		player{weight: 1, slot: 0.2, from: 10, until: 20},
	)
	all := watchAll(m)
	m.run(10)
	if m.players[0].inFlight != 10 {
		t.Fatalf("alone it holds %d of 10 slots", m.players[0].inFlight)
	}
	m.run(10.2 + 1e-6)
	m.watch()
	if got := m.players[1].inFlight; got < 5 {
		t.Errorf("one slot time after it came back it holds %d of 10", got)
	}
	m.run(30)
	checkSpreads(t, m, all)
	if m.players[0].inFlight != 10 {
		t.Errorf("alone again it holds %d of 10 slots", m.players[0].inFlight)
	}

	if own := Wake(7, 3); own != 7 {
		t.Errorf("one that is ahead wakes at %v, want its own 7", own)
	}
}

// The bound over random tenants, weights and slot times, with arrivals and
// naps; and the oracle, where demand is steady.
func TestBoundAndOracleOverRandomTenants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var players []player
		steady := rapid.Bool().Draw(t, "steady")
		for range rapid.IntRange(2, 6).Draw(t, "tenants") {
			p := player{
				weight: rapid.SampledFrom([]int{1, 1, 2, 3, 10}).Draw(t, "weight"),
				slot:   rapid.SampledFrom([]float64{0.02, 0.05, 0.1, 0.5}).Draw(t, "slot"),
			}
			if rapid.Bool().Draw(t, "modest") {
				p.every = p.slot * rapid.Float64Range(0.2, 3).Draw(t, "every")
			}
			if !steady && rapid.Bool().Draw(t, "naps") {
				p.from = rapid.Float64Range(0, 10).Draw(t, "from")
				p.until = p.from + rapid.Float64Range(0.1, 10).Draw(t, "for")
			}
			players = append(players, p)
		}
		m := newModel(rapid.IntRange(1, 12).Draw(t, "slots"), players...)
		all := watchAll(m)
		m.run(2)
		before := m.uses()
		m.run(22)
		checkSpreads(t, m, all)
		if steady {
			checkShares(t, m, before, 20)
		}
	})
}

func TestGuessTakesTheNearestMean(t *testing.T) {
	tests := []struct{ lane, tenant, platform, want float64 }{
		{0.3, 0.2, 0.1, 0.3}, {0, 0.2, 0.1, 0.2}, {0, 0, 0.1, 0.1}, {0, 0, 0, 0.020}, {-1, -1, -1, 0.020},
	}
	for _, tt := range tests {
		if got := Guess(tt.lane, tt.tenant, tt.platform); got != tt.want {
			t.Errorf("Guess(%v, %v, %v) = %v, want %v", tt.lane, tt.tenant, tt.platform, got, tt.want)
		}
	}
}

// A wrong estimate moves service in time, never in sum.
func TestChargeAndCorrectionAddUpToWhatWasUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		virtual, want := 0.0, 0.0
		weight := rapid.IntRange(1, 1000).Draw(t, "weight")
		for range 50 {
			guess, took := rapid.Float64Range(0, 20).Draw(t, "guess"), rapid.Float64Range(0, 20).Draw(t, "took")
			virtual = Correct(Charge(virtual, guess, weight), guess, took, weight)
			want += took / float64(weight)
		}
		if !near(virtual, want) {
			t.Fatalf("virtual time %v, used %v per weight", virtual, want)
		}
	})
}

// Two equal tenants on four slots, each send a second: turn by turn.
func ExampleCharge() {
	virtual := []float64{0, 0}
	for range 4 {
		least := 0
		if virtual[1] < virtual[0] {
			least = 1
		}
		virtual[least] = Charge(virtual[least], 1, 1)
		fmt.Print(least, " ")
	}
	// Output: 0 1 0 1
}
