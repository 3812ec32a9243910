package fanout

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
	"github.com/fairlane-dev/fairlane/sim"
	"github.com/fairlane-dev/fairlane/sim/scenario"
)

// The fan-out and the simulator are two drivers of one engine. Here both run one setup: the simulator in its own
// virtual time, the fan-out, on the real journal, in a bubble's. A setup's arrivals are posted, its endpoints are
// the sender. Lane by lane, both must ask the engine the same at the same instants, and hear the same.
//
// The real one has no order among goroutines that wake at one instant, so the setup is moved a little first (apart).
// No time passes in the journal (NoPause).

// apart moves a setup's instants so that what is independent does not happen at one instant: arrivals are at
// whole microseconds, as the log stores them, and apart, as the simulator knows a delivery by its instant; answers and timeouts are not; a probe expires after its timeout.
func apart(s *sim.Setup) {
	for i := range s.Lanes {
		l := &s.Lanes[i]
		for k, p := range l.Arrivals {
			l.Arrivals[k] = func(n uint64, last time.Duration, rnd *rand.Rand) (time.Duration, bool) {
				at, more := p(n, last, rnd)
				if at = at.Truncate(time.Microsecond); n > 0 {
					at = max(at, last+time.Microsecond)
				}
				return at, more
			}
		}
		odd := 137*time.Microsecond + time.Duration(i%9973)*11*time.Nanosecond + 7
		if l.Profile.Timeout == 0 {
			l.Profile.Timeout = 15 * time.Second
		}
		l.Profile.Timeout += odd
		l.Profile.Breaker.ProbeExpiry = l.Profile.Timeout + time.Millisecond
		l.Endpoint.Phases = slices.Clone(l.Endpoint.Phases)
		for k := range l.Endpoint.Phases {
			l.Endpoint.Phases[k].After += odd
		}
		if draw := l.Endpoint.Latency; draw != nil {
			l.Endpoint.Latency = func(rnd *rand.Rand) time.Duration {
				return draw(rnd) + time.Duration(1+rnd.Int64N(99_998))
			}
		}
	}
}

// script is what one driver asked of the engine and heard, by lane.
type script map[engine.LaneID][]sim.Step

func (s script) add(x sim.Step) { s[x.Lane] = append(s[x.Lane], x) }

func (s script) len() (n int) {
	for _, steps := range s {
		n += len(steps)
	}
	return n
}

// differs returns the first difference of a lane, or "".
func (s script) differs(o script, lanes int) string {
	for lane := range engine.LaneID(lanes) {
		a, b := s[lane], o[lane]
		for i := range max(len(a), len(b)) {
			var x, y sim.Step
			if i < len(a) {
				x = a[i]
			}
			if i < len(b) {
				y = b[i]
			}
			if x != y {
				return fmt.Sprintf("lane %d, step %d of %d and %d:\n  sim     %s\n  fan-out %s", lane, i, len(a), len(b), told(x), told(y))
			}
		}
	}
	return ""
}

func told(x sim.Step) string {
	call := map[sim.Call]string{0: "nothing", sim.Offered: "offer", sim.Ended: "finish", sim.Granted: "next"}[x.Call]
	return fmt.Sprintf("%v %s: %v %v until %v, attempt %d", x.At, call, x.Kind, x.Reason, x.Until, x.Attempt)
}

// simulated runs a setup in the simulator.
func simulated(t *testing.T, s *sim.Setup) (steps script, arrivals []sim.Step, end time.Duration) {
	t.Helper()
	steps = script{}
	run := *s
	run.Engine.Rand = rand.New(rand.NewPCG(s.Seed, 1))
	run.Watch = func(x sim.Step) {
		steps.add(x)
		if x.Call == sim.Offered {
			arrivals = append(arrivals, x)
		}
	}
	f, err := sim.Run(&run)
	if err != nil {
		t.Fatal(err)
	}
	return steps, arrivals, f.End
}

// between stands between the fan-out and its engine: it notes what is asked and heard.
type between struct {
	*engine.Engine
	w *world
}

// fault is what a broken driver does.
type fault int

const (
	none        fault = iota
	twice             // finishes an attempt again
	onItsOwn          // repeats what has failed, without asking Next
	ownClock          // tells the engine of ends in a time of its own, that of another clock's milliseconds
	saysNothing       // does not state a retry that waits
)

func (b *between) note(c sim.Call, at time.Duration, lane engine.LaneID, v engine.Verdict) {
	if b.w.over {
		return
	}
	b.w.steps.add(sim.Step{At: at, Lane: lane, Call: c, Kind: v.Kind, Reason: v.Reason, Until: v.At, Attempt: v.Attempt})
}

func (b *between) Offer(now time.Duration, d engine.Delivery) engine.Verdict {
	v := b.Engine.Offer(now, d)
	b.note(sim.Offered, now, d.Lane, v)
	return v
}

func (b *between) Next(now time.Duration) (engine.Grant, bool) {
	g, ok := b.Engine.Next(now)
	if ok {
		b.note(sim.Granted, now, g.Lane, engine.Verdict{Kind: engine.Send, Attempt: g.Ticket.Attempt})
		head, _ := b.w.f.index.lanes[g.Lane].backlog.head() // what the fan-out is about to take
		b.w.granted++
		b.w.turn[request{g.Lane, head.pos()}] = b.w.granted
	}
	return g, ok
}

func (b *between) Finish(now time.Duration, k engine.Ticket, r engine.Result) (v engine.Verdict) {
	defer b.survive()
	told := now
	if b.w.fault == ownClock {
		told = now.Truncate(time.Millisecond)
	}
	v = b.Engine.Finish(told, k, r)
	b.note(sim.Ended, now, k.Lane, v)
	if b.w.fault == twice {
		b.Engine.Finish(told, k, r)
	}
	return v
}

func (b *between) Waiting(now time.Duration, lane engine.LaneID, what engine.Backlog) {
	defer b.survive()
	if b.w.fault != saysNothing || what.HeadAttempt == 0 {
		b.Engine.Waiting(now, lane, what)
	}
}

// survive notes what the engine says of a faulty driver. A sound one is not to hear it.
func (b *between) survive() {
	if b.w.fault == none {
		return
	}
	if said := recover(); said != nil && b.w.refused == "" {
		b.w.refused = fmt.Sprint(said)
	}
}

// Apply puts in the setup's profile, of which the service has some settings for all lanes alike.
func (b *between) Apply(now time.Duration, c engine.Change) error {
	switch c := c.(type) {
	case engine.PutTenant:
		c.Weight = b.w.setup.Tenants[c.Tenant].Weight
		return b.Engine.Apply(now, c)
	case engine.PutLane:
		c.Profile, c.Host = b.w.setup.Lanes[c.Lane].Profile, b.w.setup.Lanes[c.Lane].Host
		return b.Engine.Apply(now, c)
	}
	return b.Engine.Apply(now, c)
}

// request names what is on its way.
type request struct {
	lane engine.LaneID
	pos  journal.Position
}

// asked is a request that waits for its answer.
type asked struct {
	request
	at     time.Duration
	number int // of those asked
	result engine.Result
	answer chan delivery.Outcome
}

// world is everything around the fan-out: its producer, its endpoints and the time.
type world struct {
	setup    *sim.Setup
	fault    fault
	f        *Fanout
	j        *journal.Journal
	to       *sim.Receivers
	steps    script
	turn     map[request]int // which grant each is, from 1; the fan-out's lock guards it
	granted  int
	refused  string // what the engine panicked with
	over     bool   // what comes now is the stop's
	onTheWay answers
	asked    int
	begun    chan struct{} // holds one token when a request has begun

	mu  sync.Mutex
	new []*asked
}

// answers is a heap: what ends first.
type answers []*asked

func (h answers) Len() int { return len(h) }
func (h answers) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}
func (h answers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *answers) Push(x any)   { *h = append(*h, x.(*asked)) }
func (h *answers) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

func (w *world) Close() {}

// Send is every endpoint.
func (w *world) Send(ctx context.Context, r *delivery.Request) delivery.Outcome {
	if !r.Start() {
		return *notSent("removed", "")
	}
	a := &asked{answer: make(chan delivery.Outcome, 1)}
	fmt.Sscanf(r.URL, "http://lane%d.test/", &a.lane)
	a.pos, _ = journal.PositionOf(r.ID)
	w.mu.Lock()
	w.new = append(w.new, a)
	w.mu.Unlock()
	select {
	case w.begun <- struct{}{}:
	default:
	}
	select {
	case out := <-a.answer:
		return out
	case <-ctx.Done():
		return delivery.Outcome{Result: engine.Result{Kind: engine.Failed}, Reason: delivery.ReasonCut}
	}
}

// settle lets everything happen that happens at this instant.
func (w *world) settle() {
	synctest.Wait()
	<-time.After(0)
	synctest.Wait()
}

// collect asks the endpoints what has begun, in the order in which the engine let it go.
func (w *world) collect() {
	w.mu.Lock()
	list := w.new
	w.new = nil
	w.mu.Unlock()
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	slices.SortFunc(list, func(a, b *asked) int {
		return cmp.Or(cmp.Compare(w.turn[a.request], w.turn[b.request]), cmp.Compare(a.pos, b.pos))
	})
	now := w.f.clock.now()
	for _, a := range list {
		after, result := w.to.Ask(now, a.lane)
		if w.fault == onItsOwn && result.Kind == engine.Failed {
			var again time.Duration
			again, result = w.to.Ask(now+after, a.lane)
			after += again
		}
		w.asked++
		a.at, a.number, a.result = now+after, w.asked, result
		heap.Push(&w.onTheWay, a)
	}
}

// run posts the arrivals and answers the requests until an instant.
func (w *world) run(t *testing.T, arrivals []sim.Step, end time.Duration) {
	for {
		w.settle()
		w.collect()
		at, ends := end, false
		if len(arrivals) > 0 {
			at = min(at, arrivals[0].At)
		}
		if len(w.onTheWay) > 0 && w.onTheWay[0].at <= at {
			at, ends = w.onTheWay[0].at, true
		}
		wait := time.NewTimer(at - w.f.clock.now())
		select {
		case <-w.begun:
			wait.Stop()
			continue
		case <-wait.C:
		}
		w.settle() // the clock first
		w.collect()
		switch {
		case ends:
			a := heap.Pop(&w.onTheWay).(*asked)
			a.answer <- delivery.Outcome{Result: a.result, Status: 200}
		case len(arrivals) > 0:
			w.post(t, arrivals[0])
			arrivals = arrivals[1:]
		default:
			return
		}
	}
}

func (w *world) post(t *testing.T, x sim.Step) {
	_, err := w.j.Append(t.Context(), &journal.Trigger{
		Audience: journal.Audience{Tenants: []string{tenantName(w.setup.Lanes[x.Lane].Tenant)}},
		Topic:    laneTopic(x.Lane), Accepted: w.f.clock.wall(x.At), Payload: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func tenantName(id engine.TenantID) string { return fmt.Sprintf("tenant%d", id) }
func laneTopic(id engine.LaneID) string    { return fmt.Sprintf("lane%d", id) }

// fannedOut runs a setup through the fan-out, with the arrivals that the simulator saw.
func fannedOut(t *testing.T, s *sim.Setup, arrivals []sim.Step, end time.Duration, broken fault) *world {
	w, dir := &world{setup: s, fault: broken, to: sim.NewReceivers(s), steps: script{}, turn: map[request]int{}}, t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w.begun = make(chan struct{}, 1)
		var err error
		if w.j, err = journal.Open(t.Context(), journal.Options{Dir: dir, MaxBytes: 1 << 30, NoSync: true, NoPause: true}); err != nil {
			t.Fatal(err)
		}
		w.register(t)
		now := time.Now()
		<-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)) // the log's milliseconds are the engine's
		w.f, err = Start(t.Context(), Options{
			Journal: w.j, Sender: w, Engine: s.Engine, Tiers: map[string]Tier{"default": {}},
			decide: func(c engine.Config) decider {
				c.Rand = rand.New(rand.NewPCG(s.Seed, 1))
				return &between{engine.New(c), w}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.run(t, arrivals, end)
		w.end(t)
	})
	return w
}

func (w *world) register(t *testing.T) {
	r := w.j.Registry()
	for i := range w.setup.Tenants {
		if _, _, err := r.PutTenant(t.Context(), journal.Tenant{ID: tenantName(engine.TenantID(i))}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.setup.Lanes {
		sub := journal.Subscription{
			Tenant: tenantName(w.setup.Lanes[i].Tenant), URL: fmt.Sprintf("http://lane%d.test/", i), Secrets: [][]byte{make([]byte, 24)},
		}
		sub.SetMatching([]string{laneTopic(engine.LaneID(i))}, nil)
		if _, _, err := r.PutSubscription(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) end(t *testing.T) {
	w.f.mu.Lock()
	w.over = true
	w.f.mu.Unlock()
	w.f.StopSends()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.f.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := w.j.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

type shrunk struct {
	scenario         string
	tables, policies []string
	edits            []string // what, by what
}

// smaller are the shipped scenarios of deliveries, with what makes them small enough for a real disk: every
// rate, the slots and the times, in proportion. Rows that only the simulator has are left out: gates outside of
// the engine, a pooled budget.
var smaller = []shrunk{
	{"herd", []string{""}, []string{"none", "equal", "decorrelated", "full"}, []string{"tenants: 1000", "tenants: 50", "workers: 10", "workers: 1"}},
	{"burst", []string{""}, []string{"none", "drop", "defer", "fair"}, []string{
		"duration: 100s", "slots: 6\nduration: 4s", "from: 10s, to: 100s", "from: 1s, to: 4s",
		"tenants: 3999", "tenants: 19", "40000/s", "200/s", "27000/s", "135/s", "18000", "90", "50000/s", "250/s", "burst: 50000", "burst: 250", "cap: 1200", "cap: 6",
	}},
	{"black-hole", []string{"others-150", "others-300"}, []string{"shared", "cap", "breaker"}, []string{
		"duration: 10m", "slots: 120\nduration: 30s", "to: 10m", "to: 30s", "100/s", "10/s", "150/s", "15/s", "300/s", "30/s",
	}},
	{"retry-storm", []string{""}, []string{"per-request", "budget"}, []string{
		"duration: 180s", "duration: 30s", "from: 60s, to: 120s", "from: 10s, to: 20s", "200/s", "10/s", "2000/s", "15/s",
	}},
	{"outage", []string{""}, []string{"shipped", "five-attempts"}, []string{
		"duration: 8h", "duration: 8m", "from: 1h, to: 7h", "from: 1m, to: 7m", "rate: 2/s", "rate: 1/s",
	}},
	{"many-keys", []string{""}, []string{"by-subscription", "by-tenant"}, []string{
		"slots: 50", "slots: 2", "duration: 40s", "duration: 3s", "to: 40s", "to: 3s", "from: 10s", "from: 1s", "subscriptions: 1000", "subscriptions: 20",
		"5/s", "10/s", "5000/s", "200/s", "cap: 50", "cap: 2",
	}},
}

// small is one row of a shipped scenario, made smaller.
func small(t *testing.T, name, table, policy string, edits []string) *sim.Setup {
	t.Helper()
	text, err := scenario.Source(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		if !bytes.Contains(text, []byte(edits[i])) {
			t.Errorf("%s has no %q any more", name, edits[i])
		}
	}
	s, err := scenario.Parse(name, []byte(strings.NewReplacer(edits...).Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	setup, err := s.Setup(table, policy, 1)
	if err != nil {
		t.Fatal(err)
	}
	apart(setup)
	return setup
}

// The simulator's driver and the service's ask the engine the same at the same instants, and hear the same.
func TestTheSimulatorIsTheService(t *testing.T) {
	for _, x := range smaller {
		for _, table := range x.tables {
			for _, policy := range x.policies {
				t.Run(strings.Join([]string{x.scenario, table, policy}, "/"), func(t *testing.T) {
					s := small(t, x.scenario, table, policy, x.edits)
					want, arrivals, end := simulated(t, s)
					got := fannedOut(t, s, arrivals, end, none).steps
					if d := want.differs(got, len(s.Lanes)); d != "" {
						t.Error(d)
					}
					t.Log(want.len(), "verdicts and grants of", len(arrivals), "deliveries,", end)
				})
			}
		}
	}
}

// What is shipped and made of deliveries is compared.
func TestEveryScenarioOfDeliveriesIsCompared(t *testing.T) {
	list, err := scenario.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		compared := slices.ContainsFunc(smaller, func(x shrunk) bool { return x.scenario == s.Name })
		if s.Kind == "delivery" != compared {
			t.Errorf("%s is of kind %s; compared: %t", s.Name, s.Kind, compared)
		}
	}
}

// A driver that does something else than the simulator's is found out.
func TestAFaultyDriverIsFoundOut(t *testing.T) {
	edits := []string{"duration: 180s", "duration: 6s", "from: 60s, to: 120s", "from: 2s, to: 4s", "200/s", "20/s", "2000/s", "20/s"}
	for _, x := range []struct {
		name  string
		fault fault
		found bool
	}{
		{"none", none, false}, {"a double Finish", twice, true}, {"a retry without Next", onItsOwn, true},
		{"its own clock", ownClock, true}, {"a missing Waiting", saysNothing, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			setup := small(t, "retry-storm", "", "budget", edits)
			want, arrivals, end := simulated(t, setup)
			w := fannedOut(t, setup, arrivals, end, x.fault)
			d := want.differs(w.steps, len(setup.Lanes))
			if (d != "") != x.found {
				t.Errorf("found %q", d)
			}
			t.Log(d, w.refused)
		})
	}
}

// So do they for setups that mix what the shipped ones have apart, and what none of those has: contracts, weights,
// several lanes a tenant, host limits, 429, rejections, slow and silent endpoints, few workers, lost answers.
func TestTheSimulatorIsTheServiceOnMixedSetups(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := mixed(seed)
			apart(s)
			want, arrivals, end := simulated(t, s)
			if d := want.differs(fannedOut(t, s, arrivals, end, none).steps, len(s.Lanes)); d != "" {
				t.Error(d)
			}
			t.Log(want.len(), "verdicts and grants of", len(arrivals), "deliveries,", end)
		})
	}
}

func mixed(seed uint64) *sim.Setup {
	const until = 6 * time.Second
	rnd := rand.New(rand.NewPCG(seed, 2))
	s := &sim.Setup{
		Seed: seed, Groups: 1, Until: until, Drain: 20 * time.Second,
		Engine: engine.Config{Slots: 2 + rnd.IntN(12), HostLimit: rnd.IntN(4) - 1},
	}
	server := &sim.Server{Workers: 1 + rnd.IntN(3)}
	for i := range 6 {
		if i%2 == 0 {
			s.Tenants = append(s.Tenants, sim.Tenant{Weight: 1 + rnd.IntN(5)})
		}
		l := sim.Lane{
			Tenant: engine.TenantID(len(s.Tenants) - 1), Host: engine.HostID(rnd.IntN(3)),
			Arrivals: []sim.Process{sim.Poisson(2+20*rnd.Float64(), sim.Span{To: until}), sim.Burst(uint64(1+rnd.IntN(15)), 4*time.Second, sim.Span{From: time.Second, To: until})},
			Profile: engine.Profile{
				Cap: 1 + rnd.IntN(6), Timeout: 800*time.Millisecond + time.Duration(rnd.Int64N(4e8)), MaxAttempts: uint32(rnd.IntN(2) * 6), NoBudget: rnd.IntN(3) == 0, Drop: rnd.IntN(5) == 0,
				Schedule: retry.Schedule{Slow: []time.Duration{3 * time.Second, 7 * time.Second}},
				Breaker:  breaker.Config{Off: rnd.IntN(4) == 0, Open: 2 * time.Second},
			},
			Endpoint: sim.Endpoint{
				Latency: sim.LogNormal(30*time.Millisecond, 150*time.Millisecond), Errors: 0.2 * rnd.Float64(), Lost: 0.05 * rnd.Float64(),
				Phases: []sim.Phase{{
					Span: sim.Span{From: 3 * time.Second, To: time.Duration(3+rnd.IntN(5)) * time.Second},
					Kind: []sim.PhaseKind{sim.Fails, sim.Slows, sim.BlackHole, sim.Rejects}[rnd.IntN(4)], After: 20 * time.Millisecond,
				}},
			},
		}
		if rnd.IntN(2) == 0 {
			l.Profile.Rate, _ = limit.ParseRate(fmt.Sprintf("%d/s", 3+rnd.IntN(20)), 1+rnd.Int64N(10))
		} else {
			l.Profile.Rate = limit.Unlimited()
		}
		if rnd.IntN(3) == 0 {
			rate, _ := limit.ParseRate("5/s", 5)
			l.Endpoint.Throttle = &sim.Throttle{Rate: rate, Quiet: rnd.IntN(2) == 0}
		}
		if rnd.IntN(3) == 0 {
			l.Server = server
		}
		s.Lanes = append(s.Lanes, l)
	}
	return s
}
