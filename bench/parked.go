package main

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// A parking is a run of the parked row: many tenants, each with a contract, and many deliveries that wait,
// interleaved one by one. All is measured at the receiver, but for memory, reads and CPU time, which the service's
// metrics say.
type parking struct {
	*platform
	b       *bench
	n       int // deliveries in all
	rate    float64
	burst   int
	tenants []string
	subs    []string // the subscription of each tenant
	live    float64  // heap, when it was looked at last
	figures []figure
}

// parked parks deliveries, kills the service, drains all, parks as many again, and drains a hundredth of the tenants.
func (b *bench) parkedRow() ([]figure, error) {
	plat, err := b.platformOf(setup{MaxBytes: b.maxBytes})
	if err != nil {
		return nil, err
	}
	defer plat.close()
	p := &parking{platform: plat, b: b, n: pick(b, b.parked, min(b.parked, 2_000)), rate: pick(b, b.contract, 40), burst: 5}
	if err := p.subscribeAll(max(pick(b, b.tenants, 20), 1)); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.fill, p.restart, p.drainAll, p.refill, p.drainSome} {
		if err := step(); err != nil {
			return p.figures, err
		}
		if err := b.ctx.Err(); err != nil {
			return p.figures, err
		}
	}
	return p.figures, nil
}

func (p *parking) add(f figure) {
	p.figures = append(p.figures, f)
	p.b.say("  %s: %s %s", f.What, short(f.Rounds.median()), f.Unit)
}

// subscribeAll makes the tenants, paused, over some receivers.
func (p *parking) subscribeAll(n int) error {
	urls, err := p.fast(endpointCount, p.tracker)
	if err != nil {
		return err
	}
	p.tenants, p.subs = make([]string, n), make([]string, n)
	for i := range p.tenants {
		p.tenants[i] = fmt.Sprintf("t%d", i)
	}
	return p.each(p.tenants, func(i int) error {
		if err := p.call(http.MethodPut, "/v1/tenants/"+p.tenants[i], map[string]any{}, nil); err != nil {
			return err
		}
		var made struct{ ID string }
		err := p.call(http.MethodPost, "/v1/subscriptions", map[string]any{
			"tenant": p.tenants[i], "url": fmt.Sprintf("%s%d", urls[i%len(urls)], i), "topics": []string{"bench.event"},
			"rate": fmt.Sprintf("%d/100s", int64(p.rate*100)), "burst": p.burst, "paused": true,
		}, &made)
		p.subs[i] = made.ID
		return err
	})
}

// each does something for every tenant, several at once, and returns the first error.
func (p *parking) each(tenants []string, do func(i int) error) error {
	var next, failed atomic.Int64
	var first atomic.Pointer[error]
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(tenants)) && failed.Load() == 0; i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	workers.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *parking) pause(subs []string, paused bool) error {
	return p.each(subs, func(i int) error {
		return p.call(http.MethodPatch, "/v1/subscriptions/"+subs[i], map[string]any{"paused": paused}, nil)
	})
}

// fill parks a quarter after the other and says what memory each took.
func (p *parking) fill() error {
	var live series
	for quarter := range 4 {
		l := atOnce(p.tracker, p.host(), p.n/4, p.tenants...)
		l.run(p.b.ctx)
		if err := l.err(); err != nil {
			return err
		}
		waits := (quarter + 1) * (p.n / 4)
		if err := p.awaitParked(waits); err != nil {
			return err
		}
		if err := p.memory(fmt.Sprintf("with %s waiting", short(float64(waits)))); err != nil {
			return err
		}
		live = append(live, p.live)
	}
	p.n = p.n / 4 * 4
	p.add(one("live heap per delivery that waits, from a quarter on", (live[3]-live[0])/float64(p.n/4*3), "bytes", nil).
		note("the cache of packs, which is bounded, is full by then if a quarter is over 64 MB"))
	return nil
}

// memory adds what the process takes now.
func (p *parking) memory(when string) error {
	m, err := p.metrics()
	if err != nil {
		return err
	}
	live, err := p.heap()
	if err != nil {
		return err
	}
	p.live = live
	p.add(one("live heap "+when, live/1e6, "MB", nil).note("%s references in memory, %s MB in HELD",
		short(m["fairlane_waiting_references"]), short(m[`fairlane_journal_stream_bytes{stream="held"}`]/1e6)))
	p.add(one("resident memory "+when, m["process_resident_memory_bytes"]/1e6, "MB", nil).note("what the collector has not given back is in it"))
	return nil
}

// restart kills the service and starts it again.
func (p *parking) restart() error {
	if err := p.kill(); err != nil {
		return err
	}
	bytes, err := size(p.setup.Dir)
	if err != nil {
		return err
	}
	took, err := p.again()
	if err != nil {
		return err
	}
	if err := p.awaitParked(p.n); err != nil {
		return err
	}
	gb := float64(bytes) / 1e9
	p.add(one("ready after kill -9", took.Seconds(), "s", nil).note("data directory of %s GB; all parked again", short(gb)))
	p.add(one("ready after kill -9, per GB", took.Seconds()/gb, "s/GB", nil))
	return p.memory("after it")
}

// drainAll lets all tenants go.
func (p *parking) drainAll() error { return p.drain("all", p.subs, p.tenants, p.loadsNow()) }

// refill parks as many again.
func (p *parking) refill() error {
	if err := p.pause(p.subs, true); err != nil {
		return err
	}
	l := atOnce(p.tracker, p.host(), p.n, p.tenants...)
	l.run(p.b.ctx)
	if err := l.err(); err != nil {
		return err
	}
	return p.awaitParked(p.n)
}

// drainSome lets a hundredth of the tenants go, spread over all.
func (p *parking) drainSome() error {
	var subs, tenants []string
	for i := 0; i < len(p.subs); i += min(100, max(len(p.subs)/2, 1)) {
		subs, tenants = append(subs, p.subs[i]), append(tenants, p.tenants[i])
	}
	loads := p.loadsNow()
	return p.drain(fmt.Sprintf("%d of %d", len(subs), len(p.subs)), subs, tenants, loads[len(loads)-1:])
}

// loadsNow are all loads so far.
func (p *parking) loadsNow() []*load { return *p.loads.Load() }

// drain lets these tenants go and holds what arrives against their contracts.
func (p *parking) drain(who string, subs, tenants []string, loads []*load) error {
	before, err := p.metrics()
	if err != nil {
		return err
	}
	due := 0
	chosen := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		chosen[t] = true
	}
	for _, l := range loads {
		for i := range l.shots {
			if chosen[l.shots[i].tenant] {
				due++
			}
		}
	}
	arrived := func() (n int) {
		for _, l := range loads {
			n += int(l.arrivals.Load())
		}
		return n
	}
	begin := time.Now()
	if err := p.pause(subs, false); err != nil {
		return err
	}
	released := time.Since(begin)
	peak, last, moved := 0.0, 0, time.Now()
	for last < due && time.Since(moved) < time.Minute {
		sleep(p.b.ctx, 500*time.Millisecond)
		if p.b.ctx.Err() != nil {
			return p.b.ctx.Err()
		}
		if n := arrived(); n > last {
			last, moved = n, time.Now()
		}
		m, err := p.metrics()
		if err != nil {
			return err
		}
		peak = max(peak, m["process_resident_memory_bytes"])
	}
	after, err := p.metrics()
	if err != nil {
		return err
	}
	if err := p.judge(who, due, chosen, loads); err != nil {
		return err
	}
	n := float64(due)
	p.figures[len(p.figures)-1].Note = fmt.Sprintf("all were let go within %s s; resident memory at most %s MB", short(released.Seconds()), short(peak/1e6))
	reads := func(stream string) float64 {
		name := fmt.Sprintf("fairlane_journal_reads_total{stream=%q}", stream)
		return (after[name] - before[name]) / n
	}
	p.add(one(who+": read back, packs per delivery", reads("triggers"), "", nil).note("and %s messages of HELD", short(reads("held"))))
	p.add(one(who+": CPU per delivery", (after["process_cpu_seconds_total"]-before["process_cpu_seconds_total"])/n*1e3, "ms", nil).
		note("of the service; two processors give 2,000 ms a second to it and to the receiver"))
	return p.memory("after " + who)
}

// judge adds what the receiver says of each tenant, and fails if something is missing or came that was not due.
func (p *parking) judge(who string, due int, chosen map[string]bool, loads []*load) error {
	arrivals := make(map[string][]time.Duration, len(chosen))
	missing, repeated := 0, 0
	var first, last time.Duration
	for _, l := range loads {
		offset := l.start.Sub(loads[0].start)
		repeated += l.duplicates()
		for i := range l.shots {
			s := &l.shots[i]
			switch {
			case s.requests.Load() == 0 && chosen[s.tenant]:
				missing++
			case s.requests.Load() > 0 && !chosen[s.tenant]:
				return fmt.Errorf("%s: a delivery of %s arrived, which is paused", who, s.tenant)
			case s.requests.Load() > 0:
				at := offset + time.Duration(s.arrived.Load())
				arrivals[s.tenant] = append(arrivals[s.tenant], at)
				if first == 0 || at < first {
					first = at
				}
				last = max(last, at)
			}
		}
	}
	if missing > 0 {
		return fmt.Errorf("%s: %d of %d did not arrive", who, missing, due)
	}
	contract := receiver.Contract{Tokens: int64(p.rate * 100), Per: 100 * time.Second, Burst: int64(p.burst)}
	var share series
	over := 0.0
	for _, all := range arrivals {
		slices.Sort(all)
		over = max(over, receiver.OverContract(all, contract))
		if took := all[len(all)-1] - all[0]; took > 0 {
			share = append(share, max(float64(len(all)-p.burst), 0)/p.rate/took.Seconds())
		}
	}
	if len(share) == 0 {
		return fmt.Errorf("%s: every tenant had its deliveries at once", who)
	}
	p.add(one(who+": share of the contract, least of a tenant", share.low(), "", atLeast(0.95)).
		note("the contract is %s/s, burst %d; what it lets through in the time from a tenant's first arrival to its last", short(p.rate), p.burst))
	p.add(one(who+": share of the contract, median", share.median(), "", atLeast(0.95)))
	p.add(one(who+": above B + rT, worst tenant", over, "", atMost(0.99)).
		note("deliveries, by arrival, where transit can bunch up to the cap more; %d repeats", repeated))
	p.add(one(who+": deliveries per second", float64(due)/(last-first).Seconds(), "/s", nil))
	return nil
}

// metrics are the service's, by name with labels.
func (s *service) metrics() (map[string]float64, error) {
	req, err := http.NewRequestWithContext(s.bench.ctx, http.MethodGet, s.addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all := make(map[string]float64)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, found := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(text, 64); found && err == nil {
			all[name] = v
		}
	}
	return all, lines.Err()
}
