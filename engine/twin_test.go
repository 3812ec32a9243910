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

// twin is the policies in their plainest form: it keeps every fact by itself,
// scans all lanes for every question, has no heaps, no wake-ups, no laziness.
// Only the order among those that could run is read from the engine's virtual
// times; what these should be has tests of its own.
type twin struct {
	e         *Engine // for virtual times alone
	d         *driver // for the backlogs
	slots     int
	order     Order
	hostLimit int
	rand      retry.Rand
	pool      retry.Pool
	tenants   []*twinTenant
	lanes     []*twinLane
	hosts     map[HostID]*twinHost
	round     time.Duration // of the next measuring round; 0: none
}

type twinTenant struct {
	weight               int
	suspended            bool
	active               bool
	last                 time.Duration
	out, slowOut, probes int
}

type twinLane struct {
	PutLane
	level       limit.Level
	breaker     breaker.State
	window      retry.Window
	paused      bool
	disabled    bool
	removed     bool
	pausedUntil time.Duration
	strikes     uint32
	out         int
	window2     int // ramp: 0 none
	row         int
	credit      int
	account     Counters
	probesOut   map[Ticket]bool
	starts      []start
}

type start struct {
	at   time.Duration
	cost int64
}

type twinHost struct {
	out, limit int
	refused    TenantID
	known      bool
	at, halved time.Duration
}

func (w *twin) host(l *twinLane) *twinHost {
	h := w.hosts[l.Host]
	if h == nil {
		h = &twinHost{limit: w.hostLimit}
		w.hosts[l.Host] = h
	}
	return h
}

func (w *twin) inFlight() (n, probes int) {
	for _, t := range w.tenants {
		n += t.out
		probes += t.probes
	}
	return n, probes
}

func (w *twin) nominal(t *twinTenant) int {
	sum := 0
	for _, o := range w.tenants {
		if o.active {
			sum += o.weight
		}
	}
	if sum == 0 {
		return w.slots
	}
	return max(w.slots*t.weight/sum, 1)
}

// denied lists why an attempt may not start: reasons in the order of checks.
type denied []struct {
	reason Reason
	at     time.Duration
}

func (x *denied) add(r Reason, at time.Duration) {
	*x = append(*x, struct {
		reason Reason
		at     time.Duration
	}{r, at})
}

func (x denied) latest() (at time.Duration) {
	for _, d := range x {
		at = max(at, d.at)
	}
	return at
}

func (w *twin) quick(now time.Duration, l *twinLane) bool {
	m := w.e.lane(l.Lane)
	return m.quick(now)
}

// own lists the lane's own reasons.
func (w *twin) own(now time.Duration, l *twinLane, cost int64) (x denied, probe bool) {
	switch {
	case l.paused || l.removed || w.tenants[l.Tenant].suspended && !l.disabled:
		x.add(ByPause, 0)
	case l.disabled:
		x.add(ByGone, 0)
	}
	if now < l.pausedUntil {
		x.add(ByEndpoint, l.pausedUntil)
	}
	p := l.Profile.Breaker.Ask(&l.breaker, now)
	if !p.OK {
		x.add(ByBreaker, p.At)
	}
	if d := l.Profile.Rate.Peek(&l.level, now, min(cost, l.Profile.Rate.Burst())); !d.Allowed {
		at := time.Duration(0)
		if d.RetryIn > 0 {
			at = now + d.RetryIn
		}
		x.add(ByRate, at)
	}
	if l.Profile.Cap >= 0 && l.out >= l.Profile.Cap || l.window2 > 0 && l.out >= l.window2 {
		x.add(ByCap, 0)
	}
	return x, p.Probe
}

// slot reports whether the lane's tenant may take one.
func (w *twin) slot(now time.Duration, l *twinLane, probe bool) bool {
	used, probes := w.inFlight()
	if used >= w.slots {
		return false
	}
	if w.order == Arrival {
		return true
	}
	t := w.tenants[l.Tenant]
	n := w.nominal(t)
	if probe && (probes >= max(w.slots/20, 1) || t.probes >= max(n/10, 1)) {
		return false
	}
	if t.out < n {
		return true
	}
	if w.slots-used <= w.slots/100 {
		return false
	}
	return t.slowOut < n || w.quick(now, l) && !probe
}

func (w *twin) hostFull(l *twinLane) bool {
	return w.hostLimit > 0 && w.host(l).out >= w.host(l).limit
}

func (w *twin) budget(now time.Duration, l *twinLane, attempt uint32, probe bool) (retry.Permit, time.Duration) {
	if attempt == 0 || probe || l.Profile.NoBudget {
		return retry.Own, 0
	}
	p, wait := l.Profile.Budget.Ask(&l.window, &w.pool, now)
	return p, wait
}

// could reports whether the head of the lane's backlog could start now.
func (w *twin) could(now time.Duration, l *twinLane) bool {
	b := *w.d.backlog(l.Lane)
	if l.removed || len(b) == 0 || b[0].at > now || l.Profile.Ordered && l.out > 0 {
		return false
	}
	x, probe := w.own(now, l, int64(b[0].cost))
	if len(x) > 0 || w.hostFull(l) || !w.slot(now, l, probe) {
		return false
	}
	perm, _ := w.budget(now, l, b[0].attempt, probe)
	return perm != retry.Refused
}

// offer says what should become of a fresh delivery. waits are the lanes that
// could start, in the order in which a free slot would go to them.
func (w *twin) offer(now time.Duration, d Delivery) (k Kind, r Reason, at time.Duration, probe bool) {
	l := w.lanes[d.Lane]
	switch {
	case l.removed:
		return Drop, Deleted, 0, false
	case !l.Profile.Rate.IsUnlimited() && !l.Profile.Rate.IsPaused() && int64(d.Cost) > l.Profile.Rate.Burst():
		return Bury, TooCostly, 0, false
	}
	x, probe := w.own(now, l, int64(d.Cost))
	if len(x) == 0 {
		x = w.common(now, l, probe)
	}
	if len(x) == 0 {
		return Send, None, 0, probe
	}
	if l.Profile.Drop && (x[0].reason == ByRate || x[0].reason == ByCap) {
		return Drop, x[0].reason, x.latest(), false
	}
	return Park, x[0].reason, x.latest(), false
}

func (w *twin) common(now time.Duration, l *twinLane, probe bool) (x denied) {
	if w.behind(now, l) {
		x.add(ByOrder, 0)
	}
	if w.hostFull(l) {
		x.add(ByHost, 0)
	}
	used, _ := w.inFlight()
	if !w.slot(now, l, probe) || w.otherFirst(now, l) {
		if probe && used < w.slots {
			x.add(ByBreaker, 0)
		} else {
			x.add(BySlots, 0)
		}
	}
	return x
}

func (w *twin) behind(now time.Duration, l *twinLane) bool {
	b := *w.d.backlog(l.Lane)
	if l.Profile.Ordered {
		return len(b) > 0 || l.out > 0
	}
	if len(b) == 0 || b[0].at > now {
		return false
	}
	probe := l.Profile.Breaker.Ask(&l.breaker, now).Probe
	if perm, _ := w.budget(now, l, b[0].attempt, probe); perm == retry.Refused {
		return false
	}
	return now-b[0].at < 10*time.Second || l.credit >= 4
}

// otherFirst reports whether a waiting lane other than l would get a free slot.
func (w *twin) otherFirst(now time.Duration, l *twinLane) bool {
	first := w.first(now)
	return first != nil && first != l
}

// first returns the lane that a free slot goes to. Of a tenant's lanes that may
// probe only the one that may since the longest is a candidate.
func (w *twin) first(now time.Duration) (best *twinLane) {
	w.touchWaiting(now)
	for _, l := range w.lanes {
		if l == nil || !w.could(now, l) || w.probesLater(now, l) {
			continue
		}
		if best == nil || w.before(l, best) {
			best = l
		}
	}
	return best
}

func (w *twin) probesLater(now time.Duration, l *twinLane) bool {
	if w.order == Arrival || w.e.lane(l.Lane).at != inProbe {
		return false
	}
	for _, o := range w.lanes {
		if o != nil && o != l && o.Tenant == l.Tenant && w.e.lane(o.Lane).at == inProbe && (*keyOrder)(w.e).Less(uint32(o.Lane), uint32(l.Lane)) {
			return true
		}
	}
	return false
}

// before orders by the engine's virtual times: tenants, then lanes.
func (w *twin) before(a, b *twinLane) bool {
	switch {
	case w.order == Arrival:
		return (*arrivalOrder)(w.e).Less(uint32(a.Lane), uint32(b.Lane))
	case a.Tenant != b.Tenant:
		return w.e.tenantLess(uint32(a.Tenant), uint32(b.Tenant))
	}
	return w.e.laneLess(uint32(a.Lane), uint32(b.Lane))
}

// begin takes what a start takes.
func (w *twin) begin(t *rapid.T, now time.Duration, k Ticket, cost int64) {
	l := w.lanes[k.Lane]
	tn := w.tenants[l.Tenant]
	p := l.Profile.Breaker.Ask(&l.breaker, now)
	if !p.OK || p.Probe != (k.Flags&FlagProbe != 0) {
		t.Fatalf("lane %d: started as %+v where the breaker says %+v", k.Lane, k, p)
	}
	if k.Flags&FlagProbe == 0 && k.Attempt > 0 && !l.Profile.NoBudget {
		perm, _ := l.Profile.Budget.Ask(&l.window, &w.pool, now)
		if perm == retry.Refused || perm != k.Flags.spent() {
			t.Fatalf("lane %d: retry %+v went where the budget says %v", k.Lane, k, perm)
		}
		l.Profile.Budget.Spend(&l.window, &w.pool, now, perm)
	}
	l.Profile.Breaker.Take(&l.breaker, now, p)
	cost = min(cost, l.Profile.Rate.Burst())
	if d := l.Profile.Rate.Take(&l.level, now, cost); !d.Allowed {
		t.Fatalf("lane %d: started beyond its contract", k.Lane)
	}
	l.starts = append(l.starts, start{now, cost})
	w.touch(now, tn)
	l.out++
	tn.out++
	w.host(l).out++
	if k.Flags&FlagSlow != 0 {
		tn.slowOut++
	}
	if k.Flags&FlagProbe != 0 {
		tn.probes++
		l.probesOut[k] = true
	}
	l.account.InFlight++
}

// end says what should become of an attempt.
func (w *twin) end(now time.Duration, k Ticket, r Result) Verdict {
	l := w.lanes[k.Lane]
	tn, h := w.tenants[l.Tenant], w.hosts[k.Host]
	l.out--
	tn.out--
	h.out--
	if k.Flags&FlagSlow != 0 {
		tn.slowOut--
	}
	if k.Flags&FlagProbe != 0 {
		tn.probes--
		delete(l.probesOut, k)
	}
	l.account.InFlight--
	if l.removed {
		if r.Kind == OK {
			l.account.Delivered++
			return Verdict{Kind: Done}
		}
		l.account.Cancelled++
		return Verdict{Kind: Drop, Reason: Deleted}
	}
	w.hostSays(now, l, h, k, r)
	v := w.result(now, l, k, r)
	switch v.Kind {
	case Done:
		l.account.Delivered++
	case Bury:
		l.account.Dead++
	case Park:
		l.account.Parked++
	}
	return v
}

func (w *twin) hostSays(now time.Duration, l *twinLane, h *twinHost, k Ticket, r Result) {
	if w.hostLimit < 0 || r.Kind == NotSent || r.Kind == Unknown {
		return
	}
	if r.Refused {
		two := h.known && h.refused != l.Tenant && now-h.at <= 10*time.Second
		h.known, h.refused, h.at = true, l.Tenant, now
		if two && k.Started >= h.halved {
			h.halved = now
			h.limit = max(min(h.limit, h.out)/2, 2)
		}
	}
	if r.Kind == OK && h.limit < w.hostLimit {
		h.limit++
	}
}

func (w *twin) result(now time.Duration, l *twinLane, k Ticket, r Result) Verdict {
	p, probe, spent := l.Profile, k.Flags&FlagProbe != 0, k.Flags.spent()
	if r.Kind != OK {
		l.row = 0
	}
	neutral := func() { p.Breaker.Neutral(&l.breaker, now, k.BreakerGen, probe) }
	failure := func() {
		p.Budget.Failed(&l.window, now)
		p.Breaker.Failure(&l.breaker, now, k.BreakerGen, probe, l.window.Calls(), float64(l.window.Failures), w.rand)
	}
	switch r.Kind {
	case OK:
		p.Budget.Succeeded(&l.window, &w.pool, now, spent, k.Started)
		l.strikes = 0
		if p.Breaker.Success(&l.breaker, now, k.BreakerGen, probe) {
			l.window.Failures = 0
			l.window2, l.row = 1, 0
			return Verdict{Kind: Done, Flush: true}
		}
		w.climb(now, l)
		return Verdict{Kind: Done}
	case RejectedR:
		neutral()
		p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
		return Verdict{Kind: Bury, Reason: Rejected, Attempt: k.Attempt + 1}
	case Later:
		switch {
		case !r.Answered:
			failure()
		case r.Denied:
			p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
			p.Breaker.Denial(&l.breaker, now, k.BreakerGen, probe, w.rand)
		default:
			p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
			neutral()
		}
		return w.retry(now, l, k, true)
	case Failed:
		failure()
		return w.retry(now, l, k, false)
	case Throttled:
		neutral()
		p.Budget.GiveBack(&l.window, &w.pool, now, spent, k.Started)
		l.pausedUntil = max(l.pausedUntil, now+retry.Pause(r.RetryAfter, l.strikes, w.rand))
		l.strikes++
		l.window2, l.row = 1, 0
		return Verdict{Kind: Park, Reason: ByEndpoint, At: l.pausedUntil, Attempt: k.Attempt}
	case Gone:
		neutral()
		p.Budget.Answered(&l.window, &w.pool, now, spent, k.Started)
		l.disabled = true
		return Verdict{Kind: Park, Reason: ByGone, Attempt: k.Attempt + 1}
	case Unknown:
		neutral()
		return Verdict{Kind: Park, Reason: ByShutdown, Attempt: k.Attempt + 1}
	}
	neutral()
	p.Budget.GiveBack(&l.window, &w.pool, now, spent, k.Started)
	p.Rate.Refund(&l.level, now, int64(k.Cost), k.BucketEpoch)
	w.unsend(l, k)
	if l.paused || l.disabled || w.tenants[l.Tenant].suspended {
		return Verdict{Kind: Park, Reason: ByPause, Attempt: k.Attempt}
	}
	return Verdict{Kind: Park, Reason: ByLocal, At: now + time.Second, Due: true, Attempt: k.Attempt}
}

// unsend forgets a start of which no byte left.
func (w *twin) unsend(l *twinLane, k Ticket) {
	for i, s := range l.starts {
		if s.at == k.Started && s.cost == int64(k.Cost) {
			l.starts = append(l.starts[:i], l.starts[i+1:]...)
			return
		}
	}
}

func (w *twin) retry(now time.Duration, l *twinLane, k Ticket, slow bool) Verdict {
	n := k.Attempt + 1
	if k.Flags&FlagProbe != 0 {
		return Verdict{Kind: Park, Reason: ByBreaker, At: l.breaker.NextProbe(), Attempt: n}
	}
	if m := l.Profile.MaxAttempts; m > 0 && n >= m {
		return Verdict{Kind: Bury, Reason: Exhausted, Attempt: n}
	}
	due := now + l.Profile.Schedule.Delay(n, slow, w.rand)
	if due > k.Born+l.Profile.Horizon {
		return Verdict{Kind: Bury, Reason: Expired, Attempt: n}
	}
	return Verdict{Kind: Park, Reason: ByRetry, At: due, Due: true, Attempt: n}
}

func (w *twin) climb(now time.Duration, l *twinLane) {
	if l.window2 == 0 || now < l.pausedUntil {
		return
	}
	l.row++
	if l.row < l.window2 {
		return
	}
	l.window2, l.row = l.window2*2, 0
	if l.Profile.Cap >= 0 && l.window2 >= l.Profile.Cap {
		l.window2 = 0
	}
}

func (w *twin) touch(now time.Duration, t *twinTenant) {
	t.active, t.last = true, now
	if w.round == 0 {
		w.round = now + time.Second
	}
}

// touchWaiting counts tenants as active whose lanes wait for a slot.
func (w *twin) touchWaiting(now time.Duration) {
	for i, t := range w.tenants {
		if w.e.tenants.at(uint32(i)).claims > 0 {
			w.touch(now, t)
		}
	}
}

// tick lets tenants that were idle for a minute stop counting, once a second.
func (w *twin) tick(now time.Duration) {
	if w.round == 0 || now < w.round {
		return
	}
	left := false
	for i, t := range w.tenants {
		if w.e.tenants.at(uint32(i)).claims > 0 || t.out > 0 {
			t.last = now
		}
		t.active = t.active && now-t.last < time.Minute
		left = left || t.active
	}
	w.round = 0
	if left {
		w.round = now + time.Second
	}
}

// wantContract checks B + rT over every interval between two starts.
func (l *twinLane) wantContract(t *rapid.T) {
	r := l.Profile.Rate
	if r.IsUnlimited() {
		return
	}
	for i := range l.starts {
		sum := int64(0)
		for j := i; j < len(l.starts); j++ {
			sum += l.starts[j].cost
			span := (l.starts[j].at - l.starts[i].at).Seconds()
			if float64(sum) > float64(r.Burst())+r.PerSecond()*span+1e-6 {
				t.Fatalf("lane %d: %d tokens in %vs, contract %v", l.Lane, sum, span, r.String())
			}
		}
	}
}

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
	all := make([]Profile, 8)
	for i := range all {
		all[i] = base
	}
	all[1].Rate, all[1].Cap = mustRate(10, time.Second, 3), 4
	all[2].Rate, all[2].Drop = mustRate(2, time.Second, 1), true
	all[3].Cap, all[3].NoBudget, all[3].MaxAttempts = 2, true, 3
	all[4].Ordered, all[4].Cap = true, 5
	all[5].Rate = mustRate(0, time.Second, 5)
	all[6].Cap, all[6].Drop = 1, true
	all[7].Cap = 0
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
		s.w.lanes = append(s.w.lanes, &twinLane{PutLane: c, paused: c.Paused, probesOut: map[Ticket]bool{}})
		return
	}
	l := s.w.lanes[id]
	c.Profile.Rate.Change(&l.level, s.now, &l.Profile.Rate)
	if c.Profile.Rate != l.Profile.Rate {
		l.starts = nil // another contract: its own intervals
	}
	l.PutLane = c
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
		"pause", "edit", "suspend", "remove", "slots", "expire", "revive",
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
	s.e.wakeDue(s.now) // Offer does; the twin reads virtual times before it
	if !l.removed {
		s.w.touch(s.now, s.w.tenants[l.Tenant])
		l.window.Offer(s.now, 0)
	}
	s.w.touchWaiting(s.now)
	kind, reason, at, _ := s.w.offer(s.now, Delivery{Lane: id, Cost: cost})
	first := s.w.first(s.now)
	held, firstHeld := s.woken(l), s.woken(first)
	passes := kind == Send && len(*s.backlog(id)) > 0 && (*s.backlog(id))[0].at <= s.now
	l.account.Offered++
	v := s.offerCost(id, cost)
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
	l.account.Dead--
	l.account.Parked++
	l.window2, l.row = 1, 0
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
