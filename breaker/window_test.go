package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/retry"
)

type full struct{}

func (full) Float64() float64 { return 0 }

// lane is a breaker and the counts that it judges by, as a caller keeps them.
type lane struct {
	config breaker.Config
	budget retry.Budget
	state  breaker.State
	counts retry.Window
}

// attempt makes one attempt at now, and reports whether it was permitted and
// whether the breaker opened by its failure.
func (l *lane) attempt(now time.Duration, fails bool) (sent, opened bool) {
	p := l.config.Ask(&l.state, now)
	if !p.OK {
		return false, false
	}
	l.config.Take(&l.state, now, p)
	if !fails {
		l.budget.Succeeded(&l.counts, nil, now, retry.Refused, 0)
		if l.config.Success(&l.state, now, p.Gen, p.Probe) {
			l.counts.Failures = 0
		}
		return true, false
	}
	l.budget.Failed(&l.counts, now)
	return true, l.config.Failure(&l.state, now, p.Gen, p.Probe, l.counts.Calls(), float64(l.counts.Failures), full{})
}

// Limiter case L80.
func TestAFailingBurstOpensWhereverItFalls(t *testing.T) {
	// A window that is emptied every 10 s would see the burst in two halves.
	for begin := 25 * time.Second; begin < 35*time.Second; begin += 250 * time.Millisecond {
		var l lane
		for now := time.Duration(0); now < begin; now += 500 * time.Millisecond {
			l.attempt(now, false)
		}
		opened := false
		for i := 0; i < 80 && !opened; i++ { // two of three fail, never five in a row
			_, opened = l.attempt(begin+time.Duration(i)*100*time.Millisecond, i%3 != 0)
		}
		if !opened {
			t.Errorf("a burst at %v stayed hidden", begin)
		}
	}
}

func TestAClosedBreakerDoesNotReopenForTheOutage(t *testing.T) {
	var l lane
	now := time.Duration(0)
	for range 2000 { // 100/s, and half of them fail
		l.attempt(now, false)
		now += 10 * time.Millisecond
		l.attempt(now, true)
		now += 10 * time.Millisecond
	}
	for { // then one more than half
		if _, opened := l.attempt(now, true); opened {
			break
		}
		now += 10 * time.Millisecond
	}
	now = l.state.NextProbe()
	if sent, _ := l.attempt(now, false); !sent || l.state.Phase(now) != breaker.Closed {
		t.Fatal("the probe did not close it")
	}
	if _, opened := l.attempt(now, true); opened {
		t.Error("the first failure after the outage opened it again")
	}
}

// Field case 30.
func TestAnOutageOfMinutesHealsByItself(t *testing.T) {
	var l lane
	sent, failed := 0, 0
	closedAt := time.Duration(0)
	for now := time.Duration(0); now < 10*time.Minute; now += 100 * time.Millisecond {
		down := now < 3*time.Minute
		ok, _ := l.attempt(now, down)
		if ok && down {
			failed++
		}
		if ok && !down {
			sent++
			if closedAt == 0 {
				closedAt = now
			}
		}
	}
	if failed > 5+3 { // five open it, probes at 30 s, 90 s (and 210 s, after the outage)
		t.Errorf("%d attempts into the outage", failed)
	}
	if closedAt > 211*time.Second || sent < 3800 {
		t.Errorf("closed at %v, then %d sent", closedAt, sent)
	}
}

// A black hole with a timeout of 10 s: what it holds of a slot over ten minutes.
func TestABlackHoleHoldsOneProbeAtATime(t *testing.T) {
	const timeout = 10 * time.Second
	l := lane{config: breaker.Config{ProbeExpiry: timeout}}
	var out []breaker.Permit
	var ends []time.Duration
	held := time.Duration(0)
	openedAt := time.Duration(-1)
	for now := time.Duration(0); now < 10*time.Minute; now += 10 * time.Millisecond {
		for len(ends) > 0 && ends[0] <= now {
			l.budget.Failed(&l.counts, now)
			opened := l.config.Failure(&l.state, now, out[0].Gen, out[0].Probe, l.counts.Calls(), float64(l.counts.Failures), full{})
			if opened && openedAt < 0 {
				openedAt = now
			}
			out, ends = out[1:], ends[1:]
		}
		if p := l.config.Ask(&l.state, now); p.OK && len(out) < 16 {
			l.config.Take(&l.state, now, p)
			out, ends = append(out, p), append(ends, now+timeout)
			held += timeout
		}
		if openedAt >= 0 && now > openedAt+timeout && len(out) > 1 {
			t.Fatalf("%d in flight at %v", len(out), now)
		}
	}
	share := held.Seconds() / (1200 * 600)
	t.Logf("opened at %v; held share of 1,200 slots over 10 min: %.5f", openedAt, share)
	if openedAt < 0 || openedAt > 11*time.Second || share > 0.001 {
		t.Errorf("opened at %v, held share %.5f; want within 11 s, at most 0.001", openedAt, share)
	}
}

func Example() {
	var config breaker.Config
	var state breaker.State
	now := time.Second
	for range 5 {
		p := config.Ask(&state, now)
		config.Take(&state, now, p)
		config.Failure(&state, now, p.Gen, p.Probe, 0, 0, full{})
	}
	refused := config.Ask(&state, now)
	fmt.Println(state.Phase(now), "ask again at", refused.At)

	now = refused.At
	probe := config.Ask(&state, now)
	config.Take(&state, now, probe)
	fmt.Println(state.Phase(now), "others pass:", config.Ask(&state, now).OK)

	config.Success(&state, now, probe.Gen, probe.Probe)
	fmt.Println(state.Phase(now))
	// Output:
	// open ask again at 31s
	// half-open others pass: false
	// closed
}
