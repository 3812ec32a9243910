package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
)

// sim runs an engine in virtual time: endpoints that take a while, arrivals, and
// a driver that does its duties. At one instant ends come before arrivals.
type sim struct {
	*driver
	t      testing.TB
	rnd    *rand.Rand
	events events
	count  uint64

	serve func(id LaneID) (took time.Duration, r Result)

	tenantOf []TenantID
	used     []float64       // slot seconds by tenant, integrated
	since    []time.Duration // until when
	out      []int           // in flight by tenant

	starts map[LaneID]int
	waits  map[LaneID][]time.Duration // from acceptance to start, of first attempts
	done   map[LaneID]int
	ended  func(k Ticket, r Result, v Verdict)
}

type event struct {
	at     time.Duration
	kind   int // 0 end, 1 arrival or other
	seq    uint64
	ticket Ticket
	result Result
	do     func()
}

type events = pile[event]

func (a event) before(b event) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.kind != b.kind:
		return a.kind < b.kind
	}
	return a.seq < b.seq
}

func newSim(t testing.TB, c Config) *sim {
	s := &sim{
		driver: newDriver(c), t: t, rnd: rand.New(rand.NewPCG(7, 8)),
		starts: map[LaneID]int{}, waits: map[LaneID][]time.Duration{}, done: map[LaneID]int{},
		serve: func(LaneID) (time.Duration, Result) { return 20 * time.Millisecond, Result{Kind: OK} },
		ended: func(Ticket, Result, Verdict) {},
	}
	s.driver.started = s.start
	return s
}

func (s *sim) add(tenant TenantID, id LaneID, p Profile) {
	s.t.Helper()
	s.lane(s.t, tenant, id, p)
	for len(s.tenantOf) <= int(id) {
		s.tenantOf = append(s.tenantOf, 0)
	}
	s.tenantOf[id] = tenant
	for len(s.used) <= int(tenant) {
		s.used, s.out, s.since = append(s.used, 0), append(s.out, 0), append(s.since, s.now)
	}
}

// fill puts n deliveries into a lane's backlog.
func (s *sim) fill(id LaneID, n int) {
	s.e.Settle(s.now, id, ToResent, uint32(n))
	b := s.backlog(id)
	for range n {
		s.seq++
		b.push(entry{at: s.now, born: s.now, seq: s.seq, cost: 1})
	}
	s.state(id)
}

func (s *sim) start(k Ticket, x entry) {
	s.held(s.tenantOf[k.Lane], 1)
	s.starts[k.Lane]++
	if k.Attempt == 0 {
		s.waits[k.Lane] = append(s.waits[k.Lane], s.now-x.born)
	}
	took, r := s.serve(k.Lane)
	s.push(event{at: s.now + took, ticket: k, result: r})
}

func (s *sim) push(x event) {
	s.count++
	x.seq = s.count
	s.events.push(x)
}

// at does something at an instant.
func (s *sim) at(at time.Duration, do func()) { s.push(event{at: at, kind: 1, do: do}) }

// arrive offers to a lane, the gaps drawn from gap, from an instant to another.
func (s *sim) arrive(id LaneID, from, to time.Duration, gap func() time.Duration) {
	if from >= to {
		return
	}
	s.at(from, func() {
		s.offer(id)
		s.arrive(id, from+gap(), to, gap)
	})
}

func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// run goes on until nothing happens before the instant end.
func (s *sim) run(end time.Duration) {
	for {
		s.drain()
		next := end + 1
		if len(s.events) > 0 {
			next = s.events[0].at
		}
		if at, ok := s.e.NextWake(); ok {
			next = min(next, at)
		}
		if next > end {
			break
		}
		s.step(next)
	}
	s.to(end)
	for i := range s.used {
		s.held(TenantID(i), 0)
	}
}

func (s *sim) step(at time.Duration) {
	s.to(at)
	for len(s.events) > 0 && s.events[0].at <= at {
		x := s.events.pop()
		if x.do != nil {
			x.do()
			continue
		}
		s.held(s.tenantOf[x.ticket.Lane], -1)
		if x.result.Kind == OK {
			s.done[x.ticket.Lane]++
		}
		v := s.finish(x.ticket, x.result)
		s.ended(x.ticket, x.result, v)
	}
}

// held adds up a tenant's slot time before its number in flight changes.
func (s *sim) held(t TenantID, by int) {
	s.used[t] += float64(s.out[t]) * (s.now - s.since[t]).Seconds()
	s.since[t] = s.now
	s.out[t] += by
}

// usedIn runs to an instant and returns what each tenant used until then, from now.
func (s *sim) usedIn(until time.Duration) []float64 {
	before := slices.Clone(s.used)
	s.run(until)
	used := make([]float64, len(s.used))
	for i := range used {
		used[i] = s.used[i] - before[i]
	}
	return used
}

// water is the oracle: raise the level until the capacity is used up.
func water(capacity float64, want, weight []float64) []float64 {
	low, high := 0.0, capacity+1
	for _, w := range want {
		high = max(high, w+1)
	}
	share := make([]float64, len(want))
	for range 200 {
		level, sum := (low+high)/2, 0.0
		for i := range want {
			share[i] = min(want[i], level*weight[i])
			sum += share[i]
		}
		if sum > capacity {
			high = level
		} else {
			low = level
		}
	}
	return share
}

// logNormal draws a service time with the mean and the p99 given.
func logNormal(rnd *rand.Rand, mean, p99 time.Duration) time.Duration {
	// ln p99 - ln mean = 2.3263 sigma - sigma^2/2
	r := math.Log(float64(p99) / float64(mean))
	sigma := 2.3263 - math.Sqrt(2.3263*2.3263-2*r)
	mu := math.Log(float64(mean)) - sigma*sigma/2
	return time.Duration(math.Exp(mu + sigma*rnd.NormFloat64()))
}

func p99(waits []time.Duration) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	sorted := slices.Clone(waits)
	slices.Sort(sorted)
	return sorted[min(len(sorted)*99/100, len(sorted)-1)]
}

// open is a profile with every protection of the lane's own switched off.
func open() Profile {
	return Profile{Cap: -1, NoBudget: true, Breaker: breaker.Config{Off: true}}
}
