package retry

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBudgetRows(t *testing.T) {
	const s = time.Second
	type step struct {
		at        time.Duration
		successes int // recorded before the question
		answers   int
		failures  int
		spend     bool // if permitted
		want      Permit
		wait      time.Duration // to a grain
	}
	rows := []struct {
		name   string
		budget Budget
		steps  []step
	}{
		{"nothing succeeded: the reserve, once", Budget{}, []step{
			{at: 0, spend: true, want: Reserved},
			{at: 0, want: Refused, wait: grain(halfLife)}, // R is 1: any decay is enough
			{at: s, spend: true, want: Reserved},
			{at: s, want: Refused, wait: 9500 * time.Millisecond}, // R is 1.933: below 1 after 9.51 s
			{at: 11 * s, spend: true, want: Reserved},
		}},
		{"own credit at ten successes, inclusive", Budget{}, []step{
			{at: s, successes: 9, want: Reserved},
			{at: s, successes: 1, spend: true, want: Own},
			{at: s, spend: true, want: Reserved}, // R is 1, below 1 + 1
			{at: s, want: Refused, wait: grain(halfLife)},
			{at: s, successes: 20, spend: true, want: Own}, // R + 1 is 3
			{at: s, want: Reserved},
		}},
		{"own credit fades", Budget{}, []step{
			{at: s, successes: 10, want: Own},
			{at: s + 20*time.Millisecond, want: Reserved},
			{at: time.Hour, want: Reserved},
		}},
		{"answers that are no 2xx prove it alive", Budget{}, []step{
			{at: s, answers: 10, spend: true, want: Own},
		}},
		{"failures give nothing", Budget{}, []step{
			{at: s, failures: 1000, spend: true, want: Reserved},
			{at: s, failures: 1000, want: Refused, wait: grain(halfLife)},
		}},
		{"a ratio of a half, a reserve of three", Budget{Ratio: 0.5, Reserve: 3}, []step{
			{at: s, successes: 2, spend: true, want: Own},
			{at: s, spend: true, want: Reserved},
			{at: s, spend: true, want: Reserved},
			{at: s, spend: true, want: Reserved},
			{at: s, want: Refused, wait: grain(halfLife)},
		}},
		{"no ratio: the reserve only", Budget{Ratio: -1}, []step{
			{at: s, successes: 1000, spend: true, want: Reserved},
			{at: s, successes: 1000, want: Refused, wait: grain(halfLife)},
		}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			var w Window
			for i, step := range r.steps {
				for range step.successes {
					r.budget.Succeeded(&w, nil, step.at, Refused, 0)
				}
				for range step.answers {
					r.budget.Answered(&w, nil, step.at, Refused, 0)
				}
				for range step.failures {
					r.budget.Failed(&w, step.at)
				}
				got, wait := r.budget.Ask(&w, nil, step.at)
				if got != step.want || (wait-step.wait).Abs() > grain(halfLife) {
					t.Fatalf("step %d at %v: %v, wait %v; want %v, %v", i, step.at, got, wait, step.want, step.wait)
				}
				if step.spend {
					r.budget.Spend(&w, nil, step.at, got)
				}
			}
		})
	}
}

// Field case 36.
// Limiter case L86.
func TestAskChangesNothing(t *testing.T) {
	var b Budget
	var w Window
	var p Pool
	for range 5 {
		b.Succeeded(&w, &p, time.Second, Refused, 0)
	}
	b.Spend(&w, &p, time.Second, Reserved)
	b.Spend(&w, &p, time.Second, Reserved)
	wBefore, pBefore := w, p
	for now := time.Second; now < 20*time.Second; now += 3 * time.Millisecond {
		b.Ask(&w, &p, now)
		p.Fill(now)
		w.Offered(now, 0)
	}
	if w != wBefore || p != pBefore {
		t.Errorf("questions moved the state: %v, %v; was %v, %v", w, p, wBefore, pBefore)
	}
}

// Limiter case L85.
// Field case 38.
func TestAQuietLaneIsNeverWithoutARetry(t *testing.T) {
	var b Budget
	var w Window
	var p Pool
	for hour := range 200 {
		now := time.Duration(hour) * time.Hour
		b.Failed(&w, now) // one message an hour, and each fails
		perm, _ := b.Ask(&w, &p, now+time.Second)
		if perm != Reserved {
			t.Fatalf("hour %d: %v", hour, perm)
		}
		b.Spend(&w, &p, now+time.Second, perm)
		b.Failed(&w, now+2*time.Second)
	}
}

// Limiter case L88.
// Field case 38.
func TestAnExhaustedLaneDoesNotPunishAnother(t *testing.T) {
	var b Budget
	var x, y Window
	var p Pool
	for now := time.Duration(0); now < time.Minute; now += time.Millisecond { // 1,000/s, all fail
		b.Failed(&x, now)
		if perm, _ := b.Ask(&x, &p, now); perm != Refused {
			b.Spend(&x, &p, now, perm)
		}
	}
	if perm, _ := b.Ask(&y, &p, time.Minute); perm != Reserved {
		t.Errorf("the other lane's single failure: %v", perm)
	}
}

// Limiter case L87.
func TestTheBudgetRemembersWhatHasFinished(t *testing.T) {
	var b Budget
	var w Window
	permitted := 0
	for now := time.Duration(0); now < 10*time.Second; now += 10 * time.Millisecond {
		// Each retry has finished before the next is asked for: an in-flight count would pass all.
		if perm, _ := b.Ask(&w, nil, now); perm != Refused {
			b.Spend(&w, nil, now, perm)
			b.Failed(&w, now)
			permitted++
		}
	}
	if permitted > 3 {
		t.Errorf("%d retries in 10 s without a success", permitted)
	}
}

// Limiter case L89.
func TestTheDenominatorDoesNotShrinkWithFailures(t *testing.T) {
	var b Budget
	var w Window
	for range 100 {
		b.Succeeded(&w, nil, time.Second, Refused, 0)
	}
	for range 1000 {
		b.Failed(&w, time.Second)
	}
	permitted := 0
	for {
		perm, _ := b.Ask(&w, nil, time.Second)
		if perm == Refused {
			break
		}
		b.Spend(&w, nil, time.Second, perm)
		permitted++
	}
	if permitted != 11 {
		t.Errorf("%d retries for 100 successes, want 10 and the reserve", permitted)
	}
}

// Limiter case L90.
func TestCountsStayWithinTheirBounds(t *testing.T) {
	var b Budget
	var w Window
	var p Pool
	for range 100 { // given back more than was ever spent
		b.Succeeded(&w, &p, time.Second, Reserved, time.Second)
		b.GiveBack(&w, &p, time.Second, Reserved, time.Second)
	}
	if w.Retries != 0 || p.used != 0 || p.Fill(time.Second) != 1 {
		t.Errorf("retries %v, reserve used %v", w.Retries, p.used)
	}
	w = Window{Successes: 1 << 24}
	b.Succeeded(&w, nil, 0, Refused, 0)
	if w.Successes != 1<<24 {
		t.Errorf("count %v left its range", w.Successes)
	}
}

// Refused by the lane's reserve and by the platform's: the later instant decides.
func TestTheWaitIsForBothReserves(t *testing.T) {
	rows := []struct {
		name    string
		retries int // of the lane, at 0
		others  int // of other lanes, at 0
		wait    time.Duration
	}{
		{"neither", 0, 0, 0},
		{"lane", 2, 0, 10 * time.Second},
		{"platform", 0, 10, 100 * time.Millisecond},
		{"both, the lane later", 2, 10, 10 * time.Second},
		{"both, the platform later", 1, 9, 100 * time.Millisecond},
	}
	for _, r := range rows {
		var b Budget
		var w, other Window
		var p Pool
		for range r.retries {
			b.Spend(&w, &p, 0, Reserved)
		}
		for range r.others {
			b.Spend(&other, &p, 0, Reserved)
		}
		if _, wait := b.Ask(&w, &p, 0); (wait - r.wait).Abs() > grain(halfLife) {
			t.Errorf("%s: wait %v, want %v", r.name, wait, r.wait)
		}
	}
}

func TestSuccessesOfAllLanesFillThePool(t *testing.T) {
	var b Budget
	var p Pool
	lanes := make([]Window, 100)
	for i := range 72_135 { // as many as 5,000/s hold
		b.Succeeded(&lanes[i%100], &p, 0, Refused, 0)
	}
	for i := range 72_135 {
		b.Answered(&lanes[i%100], &p, 0, Refused, 0)
	}
	if got := drainPool(&p, 0); got != 100 {
		t.Errorf("%d passed of 1 %% of 10,000/s", got)
	}
}

func TestGiveBackUndoesASpend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Budget
		var with, without Window
		now := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
		for range rapid.IntRange(0, 50).Draw(t, "successes") {
			b.Succeeded(&with, nil, now, Refused, 0)
			b.Succeeded(&without, nil, now, Refused, 0)
		}
		at := now
		b.Spend(&with, nil, at, Own)
		for range rapid.IntRange(0, 20).Draw(t, "others") {
			now += gap(t, time.Second)
			b.Spend(&with, nil, now, Own)
			b.Spend(&without, nil, now, Own)
		}
		b.GiveBack(&with, nil, now, Own, at)
		b.Spend(&without, nil, now, Refused)
		if got, want := float64(with.Retries), float64(without.Retries); math.Abs(got-want) > 1e-5 {
			t.Fatalf("retries %v, without the spend %v", got, want)
		}
	})
}

func TestASpendIsNotGivenBackTwiceOver(t *testing.T) {
	var b Budget
	var w Window
	b.Spend(&w, nil, 0, Own)
	b.Spend(&w, nil, 10*time.Second, Own)
	b.GiveBack(&w, nil, 10*time.Second, Own, 0) // half of it has decayed by itself
	if w.Retries != 1 {
		t.Errorf("%v retries left, want the second in full", w.Retries)
	}
}

// Field case 38.
func TestADeadEndpointGetsOnlyTheReserve(t *testing.T) {
	const minutes = 10
	var b Budget
	var w Window
	var p Pool
	retries := 0
	for now := time.Duration(0); now < minutes*time.Minute; now += 5 * time.Millisecond { // 200/s wait for a retry
		if perm, _ := b.Ask(&w, &p, now); perm != Refused {
			b.Spend(&w, &p, now, perm)
			b.Failed(&w, now)
			retries++
		}
	}
	if retries < minutes*6 || retries > minutes*6+2 {
		t.Errorf("%d retries in %d minutes, want one in 10 s", retries, minutes)
	}
}

func TestTheWholePlatformDeadGetsOnlyThePool(t *testing.T) {
	const lanes, seconds = 150, 20
	var b Budget
	w := make([]Window, lanes)
	var p Pool
	retries := 0
	for now := time.Duration(0); now < seconds*time.Second; now += 20 * time.Millisecond {
		for i := range w {
			if perm, _ := b.Ask(&w[i], &p, now); perm != Refused {
				b.Spend(&w[i], &p, now, perm)
				retries++
			}
		}
	}
	if retries < seconds*10 || retries > seconds*10+10 {
		t.Errorf("%d retries in %d s, want 10/s and a depth of 10", retries, seconds)
	}
}

// 10,000 wait on an endpoint that has come back: cap 16, 20 ms each.
func TestARecoveredEndpointDrainsAtFullPace(t *testing.T) {
	const backlog, inFlight, service = 10_000, 16, 20 * time.Millisecond
	var b Budget
	var w Window
	var p Pool
	now := 10 * time.Minute
	b.Spend(&w, &p, now, Reserved) // the last futile one
	b.Failed(&w, now)

	var flight []spent // in order of their end
	done := 0
	start := now
	for waiting := backlog; done < backlog; {
		for waiting > 0 && len(flight) < inFlight {
			perm, wait := b.Ask(&w, &p, now)
			if perm == Refused {
				if len(flight) == 0 {
					now += wait
					continue
				}
				break
			}
			b.Spend(&w, &p, now, perm)
			flight = append(flight, spent{perm, now})
			waiting--
		}
		s := flight[0]
		flight = flight[1:]
		now = s.at + service
		b.Succeeded(&w, &p, now, s.perm, s.at)
		done++
	}
	ideal := backlog / inFlight * service
	if took := now - start; took > ideal+3*time.Second {
		t.Errorf("drained in %v, the cap alone allows %v", took, ideal)
	} else {
		t.Logf("drained in %v, the cap alone allows %v", took, ideal)
	}
}
