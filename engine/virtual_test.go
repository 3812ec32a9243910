package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ledger keeps virtual times as policies.md words them, and decides by scanning.
type ledger struct {
	tenants    map[TenantID]*account
	lanes      map[LaneID]*account
	lastTenant float64
	lastLane   map[TenantID]float64
	tenantOf   map[LaneID]TenantID
	weight     map[TenantID]int
	waiting    map[LaneID]int
	serves     int
}

type account struct {
	virtual float64
	served  int
}

func (g *ledger) waits(t TenantID) bool {
	for l, n := range g.waiting {
		if n > 0 && g.tenantOf[l] == t {
			return true
		}
	}
	return false
}

// rise is what waking does: idle time earns nothing.
func (g *ledger) rise(l LaneID) {
	t := g.tenantOf[l]
	if !g.waits(t) {
		g.tenants[t].virtual = max(g.tenants[t].virtual, g.lastTenant)
	}
	if g.waiting[l] == 0 {
		g.lanes[l].virtual = max(g.lanes[l].virtual, g.lastLane[t])
	}
}

func (g *ledger) serve(l LaneID, charged float64) {
	t := g.tenantOf[l]
	g.lastTenant, g.lastLane[t] = g.tenants[t].virtual, g.lanes[l].virtual
	g.tenants[t].virtual += charged / float64(g.weight[t])
	g.lanes[l].virtual += charged
	g.serves++
	g.tenants[t].served, g.lanes[l].served = g.serves, g.serves
}

func (g *ledger) before(a, b *account, x, y uint32) bool {
	switch {
	case a.virtual != b.virtual:
		return a.virtual < b.virtual
	case a.served != b.served:
		return a.served < b.served
	}
	return x < y
}

// next is the waiting lane of least tenant, then least lane.
func (g *ledger) next(may func(LaneID) bool) (best LaneID, ok bool) {
	for l := range LaneID(len(g.lanes)) {
		if g.waiting[l] == 0 || !may(l) {
			continue
		}
		t, b := g.tenantOf[l], g.tenantOf[best]
		switch {
		case !ok:
		case t != b && !g.before(g.tenants[t], g.tenants[b], uint32(t), uint32(b)):
			continue
		case t == b && !g.before(g.lanes[l], g.lanes[best], uint32(l), uint32(best)):
			continue
		}
		best, ok = l, true
	}
	return best, ok
}

// Slots go by virtual time exactly as the policy words it: charged at the start,
// corrected at the end, raised when one begins to wait.
// Limiter case L74.
func TestSlotsGoByVirtualTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(Config{Slots: rapid.IntRange(1, 12).Draw(t, "slots"), HostLimit: -1})
		g := &ledger{
			tenants: map[TenantID]*account{}, lanes: map[LaneID]*account{}, lastLane: map[TenantID]float64{},
			tenantOf: map[LaneID]TenantID{}, weight: map[TenantID]int{}, waiting: map[LaneID]int{},
		}
		tenants := rapid.IntRange(1, 4).Draw(t, "tenants")
		for i := range tenants {
			w := rapid.SampledFrom([]int{1, 1, 2, 7}).Draw(t, "weight")
			g.tenants[TenantID(i)], g.weight[TenantID(i)] = &account{}, w
			_ = d.e.Apply(0, PutTenant{Tenant: TenantID(i), Weight: w})
		}
		lanes := rapid.IntRange(1, 8).Draw(t, "lanes")
		for i := range lanes {
			id, tn := LaneID(i), TenantID(i%tenants)
			g.lanes[id], g.tenantOf[id] = &account{}, tn
			_ = d.e.Apply(0, PutLane{LaneSpec: LaneSpec{Lane: id, Tenant: tn, Host: HostID(i), Profile: open()}})
		}
		var out []Ticket
		started := func(k Ticket) {
			g.serve(k.Lane, float64(k.Charged))
			out = append(out, k)
		}
		may := func(id LaneID) bool {
			l := d.e.lane(id)
			tn := d.e.tenants.at(uint32(l.tenant))
			n := d.e.nominal(tn)
			return d.e.inFlight < d.e.slots && (tn.inFlight < n || tn.slowOut < n || l.quick(d.now))
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				id := LaneID(rapid.IntRange(0, lanes-1).Draw(t, "lane"))
				v := d.e.Offer(d.now, Delivery{Lane: id, Born: d.now})
				g.rise(id)
				if v.Kind == Send {
					started(v.Ticket)
				} else {
					d.park(id, v, d.now, 1)
					g.waiting[id]++
				}
			case 2:
				if len(out) > 0 {
					i := rapid.IntRange(0, len(out)-1).Draw(t, "ticket")
					k := out[i]
					out = append(out[:i], out[i+1:]...)
					took := seconds(d.now - k.Started)
					g.tenants[g.tenantOf[k.Lane]].virtual += (took - float64(k.Charged)) / float64(g.weight[g.tenantOf[k.Lane]])
					g.lanes[k.Lane].virtual += took - float64(k.Charged)
					d.finish(k, Result{Kind: OK})
				}
			case 3:
				d.to(d.now + time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms"))*time.Millisecond)
			}
			for {
				want, some := g.next(may)
				got, ok := d.next()
				if ok != some || ok && got.Lane != want {
					t.Fatalf("at %v granted %v %d, want %v %d", d.now, ok, got.Lane, some, want)
				}
				if !ok {
					break
				}
				g.waiting[want]--
				started(got.Ticket)
			}
			for id, a := range g.lanes {
				if v := d.e.lane(id).virtual; math.Abs(v-a.virtual) > 1e-9*max(1, v) {
					t.Fatalf("lane %d: virtual %v, want %v", id, v, a.virtual)
				}
			}
			for id, a := range g.tenants {
				if v := d.e.tenants.at(uint32(id)).virtual; math.Abs(v-a.virtual) > 1e-9*max(1, v) {
					t.Fatalf("tenant %d: virtual %v, want %v", id, v, a.virtual)
				}
			}
		}
	})
}

// A start is charged the lane's mean slot time, else its tenant's, else the
// platform's, else 20 ms.
func TestAStartIsChargedTheMostSpecificMean(t *testing.T) {
	d := newDriver(Config{HostLimit: -1})
	d.apply(t, PutTenant{Tenant: 0}, PutTenant{Tenant: 1})
	for i := range 4 {
		d.lane(t, TenantID(i/2), LaneID(i), open())
	}
	charge := func(id LaneID, took time.Duration) float64 {
		v := d.offer(id)
		d.to(d.now + took)
		d.finish(v.Ticket, Result{Kind: OK})
		return float64(v.Ticket.Charged)
	}
	for _, row := range []struct {
		name string
		lane LaneID
		want float64
	}{
		{"nobody ever answered", 0, 0.020},
		{"the lane's own mean", 0, 0.3},
		{"its tenant's mean", 1, 0.3},
		{"the platform's mean", 2, 0.3},
	} {
		if got := charge(row.lane, 300*time.Millisecond); math.Abs(got-row.want) > 1e-6 {
			t.Errorf("%s: charged %v, want %v", row.name, got, row.want)
		}
	}
}

// Not sent gives back the virtual time as if nothing had started.
func TestNotSentGivesVirtualTimeBack(t *testing.T) {
	d := newDriver(Config{HostLimit: -1, Rand: rand.New(rand.NewPCG(1, 1))})
	d.apply(t, PutTenant{Tenant: 0, Weight: 3})
	d.lane(t, 0, 0, open())
	k := d.offer(0).Ticket
	d.to(300 * time.Millisecond)
	d.finish(k, Result{Kind: OK})
	l, tn := d.e.lane(0), d.e.tenants.at(0)
	lane, tenant := l.virtual, tn.virtual
	k = d.offer(0).Ticket
	if l.virtual == lane || tn.virtual == tenant {
		t.Fatal("a start charged nothing")
	}
	d.to(7 * time.Second)
	d.finish(k, Result{Kind: NotSent})
	if math.Abs(l.virtual-lane) > 1e-12 || math.Abs(tn.virtual-tenant) > 1e-12 {
		t.Errorf("virtual times %v and %v, were %v and %v", l.virtual, tn.virtual, lane, tenant)
	}
}
