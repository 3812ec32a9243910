package sim

import (
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// promptIn is how soon a delivery must be sent to count as served, as in the engine's own index.
const promptIn = time.Second

// tally is what is counted of one tenant, of what was first offered in the measured span.
type tally struct {
	offered   uint32
	delivered uint32 // before the span's end
	prompt    uint32 // first sent within promptIn
	started   uint32 // first attempts that began in the span, whenever they were offered
}

// group is a group of tenants as it runs.
type group struct {
	Group
	held    float64       // slot-seconds up to since
	since   time.Duration // of held
	out     int           // attempts in flight
	waiting int
	probes  int
	work    float64 // seconds that endpoints took for answers
	answers uint64
}

// book keeps the figures while a run goes on.
type book struct {
	setup   *Setup
	measure Span
	bin     time.Duration
	groups  []group
	tenants []tally
	waiting int // parked in all backlogs, and at gates in memory
	slots   int
	upTo    int // bins up to here are complete
}

func (b *book) open(s *Setup, slots int) {
	*b = book{setup: s, measure: s.Measure, bin: s.Bin, slots: slots}
	if b.measure == (Span{}) {
		b.measure = Span{0, s.Until}
	}
	if b.bin == 0 {
		b.bin = time.Second
	}
	if b.slots <= 0 {
		b.slots = 1200
	}
	b.groups, b.tenants = make([]group, s.Groups), make([]tally, len(s.Tenants))
	for i := range b.groups {
		b.groups[i].BreakerOpened = -1
	}
	for _, t := range s.Tenants {
		b.groups[t.Group].Tenants++
	}
}

// to completes the bins before an instant.
func (b *book) to(now time.Duration) {
	for ; b.bin*time.Duration(b.upTo+1) <= now; b.upTo++ {
		for i := range b.groups {
			g := &b.groups[i]
			g.integrate(b.bin*time.Duration(b.upTo+1), b)
			point := g.point(b.upTo)
			point.Waiting = g.waiting
		}
	}
}

// integrate adds up slot time, in all, in the bin and in the measured span.
func (g *group) integrate(now time.Duration, b *book) {
	if now <= g.since {
		return
	}
	held := float64(g.out) * (now - g.since).Seconds()
	g.held += held
	if g.out > 0 {
		g.point(int(g.since / b.bin)).Held += held / b.bin.Seconds()
		from, to := max(g.since, b.measure.From), min(now, b.measure.To)
		g.MeasuredHeld += float64(g.out) * max(to-from, 0).Seconds()
	}
	g.since = now
}

// point is a bin of the series.
func (g *group) point(bin int) *Point {
	for len(g.Series) <= bin {
		g.Series = append(g.Series, Point{})
	}
	return &g.Series[bin]
}

func (b *book) now(g *group, at time.Duration) *Point { return g.point(int(at / b.bin)) }

func (b *book) offered(l *lane, born time.Duration) {
	l.group.Offered++
	b.now(l.group, born).Offered++
	if b.measure.Has(born) {
		l.tenant.offered++
	}
}

// denied counts one that must wait by the engine's decision, or after a failure.
func (b *book) denied(now time.Duration, l *lane, r engine.Reason) {
	l.group.Parked++
	if r == engine.ByBreaker && l.group.BreakerOpened < 0 {
		l.group.BreakerOpened = now
	}
}

// gated counts one that a gate keeps waiting.
func (b *book) gated(l *lane) { l.group.Parked++ }

// wait counts what waits, parked or in memory.
func (b *book) wait(l *lane, by int) {
	b.waiting += by
	l.group.waiting += by
	l.group.MostWaiting = max(l.group.MostWaiting, l.group.waiting)
}

// drop counts one that is lost: nobody will try it again.
func (b *book) drop(l *lane) { l.group.Lost++ }

// started counts a slot that is taken.
func (b *book) started(now time.Duration, l *lane, k *engine.Ticket, born time.Duration) {
	g := l.group
	g.integrate(now, b)
	g.out++
	g.Attempts++
	b.now(g, now).Attempts++
	if k.Attempt == 0 && b.measure.Has(now) {
		l.tenant.started++
	}
	if k.Attempt > 0 {
		g.Retries++
	} else if now-born <= promptIn && b.measure.Has(born) {
		l.tenant.prompt++
	}
	if k.Flags&engine.FlagProbe != 0 {
		g.probes++
		g.MostProbes = max(g.MostProbes, g.probes)
	}
}

// sent counts a request that reaches the endpoint.
func (b *book) sent(l *lane, a *answer) {
	l.group.Requests++
	if a.result.Kind == engine.OK {
		l.group.answers++
		l.group.work += a.after.Seconds()
	}
}

// effect counts what the receiver did; twice for one delivery is a duplicate.
func (b *book) effect(l *lane, before uint64) {
	if before != 0 {
		l.group.Duplicates++
	}
}

func (b *book) ended(now time.Duration, l *lane, k *engine.Ticket) {
	g := l.group
	g.integrate(now, b)
	g.out--
	g.LastEnd = now
	if k.Flags&engine.FlagProbe != 0 {
		g.probes--
	}
}

func (b *book) delivered(now time.Duration, l *lane, born time.Duration) {
	g := l.group
	g.Delivered++
	b.now(g, now).Delivered++
	if !b.measure.Has(born) {
		return
	}
	g.Latency.Add(now - born)
	if now < b.measure.To {
		l.tenant.delivered++
	}
}

func (b *book) close(now time.Duration) {
	for i := range b.groups {
		g := &b.groups[i]
		g.integrate(now, b)
		g.Waiting = g.waiting
		g.InFlight = g.out
	}
}
