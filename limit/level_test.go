package limit

import (
	"math"
	"testing"
	"time"
)

const (
	ms   = time.Millisecond
	hour = time.Hour
	day  = 24 * time.Hour
)

// row asks for n at instant t.
type row struct {
	t  time.Duration
	n  int64
	ok bool
}

func run(t *testing.T, r Rate, rows []row) {
	t.Helper()
	var l Level
	for i, x := range rows {
		if d := r.Take(&l, x.t, x.n); d.Allowed != x.ok {
			t.Errorf("%s burst %d, row %d: Take(%v, %d) = %+v, want %v", r.String(), r.Burst(), i, x.t, x.n, d, x.ok)
		}
	}
}

// A full bucket, its burst, and the refill.
func TestTakeOnNamedInstants(t *testing.T) {
	run(t, mustParse(t, "10/s", 1), []row{
		{0, 1, true}, {0, 1, false}, {100*ms - 1, 1, false}, {100 * ms, 1, true}, {100 * ms, 1, false}, {200 * ms, 1, true},
	})
	run(t, mustParse(t, "10/s", 3), []row{
		{0, 1, true}, {0, 1, true}, {0, 1, true}, {0, 1, false}, {100 * ms, 1, true}, {100 * ms, 1, false},
		{300 * ms, 2, true}, {300 * ms, 1, false}, {400*ms + 1, 1, true}, {500 * ms, 1, true}, {500 * ms, 1, false},
	})
	run(t, mustParse(t, "10/s", 5), []row{
		{0, 6, false}, {0, 5, true}, {0, 1, false}, {500*ms - 1, 5, false}, {500 * ms, 5, true}, {time.Second, 3, true}, {time.Second, 3, false}, {time.Second, 2, true},
	})
}

// Mission row A1: 1,000/s with bursts to 5,000 lets 5,000 through at once and
// then one each millisecond; what accrues stops at the burst.
func TestContractOfThousandPerSecondBurstFiveThousand(t *testing.T) {
	run(t, mustParse(t, "1000/s", 5000), []row{
		{0, 5000, true}, {0, 1, false}, {ms - 1, 1, false}, {ms, 1, true}, {ms, 1, false},
		{hour, 5000, true}, {hour, 1, false}, {hour + 2500*ms, 2501, false}, {hour + 2500*ms, 2500, true},
	})
}

// Mission row A3: a denial says how long until the cost exists.
// Limiter case L13.
// Limiter case L16.
func TestDenialReturnsTheDeficit(t *testing.T) {
	r := mustParse(t, "3/s", 5)
	var l Level
	r.Take(&l, 0, 5)
	tests := []struct {
		cost int64
		want time.Duration
	}{{1, 333_333_334}, {2, 666_666_667}, {3, time.Second}, {4, 1_333_333_334}, {5, 1_666_666_667}}
	for _, tt := range tests {
		d := r.Take(&l, 0, tt.cost)
		if d.Allowed || d.Reason != Later || d.RetryIn != tt.want || d.ResetIn != 1_666_666_667 {
			t.Errorf("cost %d of an empty bucket: %+v, want RetryIn %v", tt.cost, d, tt.want)
		}
		if r.Peek(&l, tt.want-1, tt.cost).Allowed || !r.Peek(&l, tt.want, tt.cost).Allowed {
			t.Errorf("cost %d does not pass first at %v", tt.cost, tt.want)
		}
	}
	if d := r.Take(&l, 333_333_333, 1); d.RetryIn != 1 {
		t.Errorf("a third of a ns early: %+v, want RetryIn 1ns, never 0", d)
	}
}

// Mission row B2: 240 capacity, 120/s.
func TestBudgetOfAMinuteIsBurstPlusRateTimesTime(t *testing.T) {
	r := mustParse(t, "120/s", 240)
	var l Level
	passed := 0
	for i := range 12_000 { // 200/s: the first at 0, the last after a minute
		if r.Take(&l, time.Duration(i)*time.Minute/11_999, 1).Allowed {
			passed++
		}
	}
	if passed != 7440 {
		t.Errorf("%d of 12,000 pass in a minute, want 240 + 120*60 = 7,440, so that 4,560 are held back", passed)
	}

	l = Level{}
	if got := grab(&r, &l, hour, 300); got != 240 {
		t.Errorf("300 at once: %d pass, want 240", got)
	}
	if got := grab(&r, &l, hour+time.Second, 300); got != 120 {
		t.Errorf("a second later %d pass, want 120", got)
	}
}

// grab asks n times for 1 and returns how many pass.
func grab(r *Rate, l *Level, now time.Duration, n int) (passed int) {
	for range n {
		if r.Take(l, now, 1).Allowed {
			passed++
		}
	}
	return passed
}

// Limiter case L12.
func TestNthTokenExistsAtExactlyNIntervals(t *testing.T) {
	for _, tt := range []struct {
		rate   string
		n, per int64
	}{{"10/13s", 10, 13e9}, {"3/s", 3, 1e9}, {"27000/s", 27_000, 1e9}, {"7/m", 7, 60e9}, {"999999937/s", 999_999_937, 1e9}} {
		r := mustParse(t, tt.rate, 10)
		var l Level
		r.Take(&l, 0, 10)
		for i := range int64(100_000) {
			at := time.Duration(((i+1)*tt.per + tt.n - 1) / tt.n) // rounded up to the ns
			if !r.Take(&l, at, 1).Allowed {
				t.Fatalf("%s: token %d does not exist at %v", tt.rate, i+1, at)
			}
			if i%1000 == 999 && r.Left(&l, at) > 1 {
				t.Fatalf("%s: %d more after token %d", tt.rate, r.Left(&l, at), i+1)
			}
		}
	}
}

// Field case 13.
func TestSlowRatesDenyOncePerTokenAndCountExactly(t *testing.T) {
	for _, s := range []string{"1/h", "1/d", "0.1/h", "7/d", "1/366d"} {
		r := mustParse(t, s, 1)
		var l Level
		var now time.Duration
		passed, end := int64(0), 1000*day
		for now <= end {
			d := r.Take(&l, now, 1)
			if d.Allowed {
				passed++
				continue
			}
			if d.RetryIn <= 0 {
				t.Fatalf("%s: denied with RetryIn %v", s, d.RetryIn)
			}
			now += d.RetryIn
			if now <= end && !r.Peek(&l, now, 1).Allowed {
				t.Fatalf("%s: denied again at its promised instant %v", s, now)
			}
		}
		want := 1 + int64(r.PerSecond()*end.Seconds()+1e-6)
		if passed < want-1 || passed > want {
			t.Errorf("%s: %d pass in 1000 days, want %d", s, passed, want)
		}
	}
}

// Field case 9.
// Limiter case L20.
// Limiter case L21.
func TestCostAboveTheBurstIsNeverAndChangesNothing(t *testing.T) {
	r := mustParse(t, "100/s", 5)
	var l Level
	r.Take(&l, 0, 2)
	before := l
	for _, cost := range []int64{6, 1000, math.MaxInt64} {
		d := r.Take(&l, 0, cost)
		if d != (Decision{Reason: Never, Remaining: 3, ResetIn: 20 * ms}) {
			t.Errorf("cost %d over burst 5: %+v, want never, 3 left, no RetryIn", cost, d)
		}
		if d := r.Take(&l, 100*day, cost); d.Reason != Never || d.RetryIn != 0 {
			t.Errorf("cost %d after 100 days: %+v, want never", cost, d)
		}
	}
	if l != before {
		t.Errorf("the level changed from %+v to %+v", before, l)
	}
	if !r.Take(&l, 0, 3).Allowed {
		t.Error("what can pass is held up by what never can")
	}
}

// Field case 10.
// Limiter case L8.
// Limiter case L9.
func TestPausedLetsNothingThroughNotEvenTheBurst(t *testing.T) {
	r := mustParse(t, "0", 5)
	var l Level
	for _, at := range []time.Duration{0, hour, 1000 * day} {
		for _, cost := range []int64{1, 5, 6} {
			if d := r.Take(&l, at, cost); d != (Decision{Reason: Paused}) {
				t.Errorf("paused, cost %d at %v: %+v", cost, at, d)
			}
		}
	}
	five := mustParse(t, "5/s", 5)
	five.Change(&l, hour, &r)
	if got := grab(&five, &l, hour, 10); got != 5 {
		t.Errorf("from 0 to 5: %d of 10 pass at once, want 5", got)
	}
}

// Limiter case L10.
func TestUnlimitedAlwaysAllowsAndIsLeftForAFullBucket(t *testing.T) {
	r := Unlimited()
	var l Level
	for _, cost := range []int64{1, math.MaxInt64} {
		if d := r.Take(&l, 0, cost); d != (Decision{Allowed: true, Remaining: math.MaxInt64}) {
			t.Errorf("unlimited, cost %d: %+v", cost, d)
		}
	}
	r.Refund(&l, 0, 1, l.Epoch())
	limited := mustParse(t, "1/s", 5)
	limited.Change(&l, hour, &r)
	if got := grab(&limited, &l, hour, 100); got != 5 {
		t.Errorf("after unlimited %d pass at once, want the burst 5", got)
	}
	r.Change(&l, hour, &limited)
	if !r.Take(&l, hour, 1000).Allowed {
		t.Error("unlimited denies after a limit")
	}
}

// Field case 11.
// Limiter case L7.
// Limiter case L17.
func TestAfterIdlingExactlyTheBurstPasses(t *testing.T) {
	for _, tt := range []struct {
		rate  string
		burst int64
	}{{"3/m", 3}, {"3/m", 1}, {"10/s", 1}, {"27000/s", 18_000}, {"10/13s", 7}} {
		r := mustParse(t, tt.rate, tt.burst)
		for _, idle := range []time.Duration{0, 10 * time.Minute, day, 366 * day, 60 * 366 * day, math.MaxInt64} {
			var l Level
			r.Take(&l, 0, tt.burst)
			r.SetLeft(&l, 0, tt.burst)
			if got := grab(&r, &l, idle, int(tt.burst)+50); got != int(tt.burst) {
				t.Errorf("%s burst %d: %d pass after %v, want the burst", tt.rate, tt.burst, got, idle)
			}
		}
	}
	run(t, mustParse(t, "3/m", 1), []row{
		{hour, 1, true}, {hour, 1, false}, {hour + 20*time.Second - 1, 1, false}, {hour + 20*time.Second, 1, true},
	})
}

// Limiter case L11.
func TestExtremesOfTheRangeNeitherOverflowNorOpenTheBucket(t *testing.T) {
	for _, tt := range []struct {
		n   int64
		per time.Duration
		b   int64
	}{{1, 1 << 32, 1 << 29}, {1, MaxPeriod, 72}, {MaxTokens, MinPeriod, MaxTokens}, {MaxTokens - 1, MaxPeriod, MaxTokens}, {1, MinPeriod, MaxTokens}} {
		r := mustRate(t, tt.n, tt.per, tt.b)
		for _, now := range []time.Duration{math.MinInt64, -1, 0, 1, 1 << 60, 1<<61 - 1, 1 << 61, 1<<61 + 1, math.MaxInt64} {
			var l Level
			if d := r.Take(&l, now, tt.b); !d.Allowed || d.Remaining != 0 || d.ResetIn <= 0 {
				t.Errorf("%+v at %d: the whole burst of a full bucket: %+v", tt, now, d)
			}
			if d := r.Take(&l, now, tt.b); d.Allowed || d.RetryIn <= 0 || d.RetryIn > MaxFill {
				t.Errorf("%+v at %d: the burst a second time: %+v", tt, now, d)
			}
			r.Refund(&l, now, tt.b, l.Epoch())
			if left := r.Left(&l, now); left != tt.b {
				t.Errorf("%+v at %d: %d left after the refund, want %d", tt, now, left, tt.b)
			}
		}
	}
}

// A remainder that carries into the 65th bit of the product.
//
// Limiter case L11.
func TestWholeTokensCarryBeyond64Bits(t *testing.T) {
	const gap, frac = (1<<64 - 6) / 10, 6 // gap*10 + frac is 2^64
	r := mustRate(t, 10, MaxPeriod-1, 700)
	l := Level{tat: gap, frac: frac}
	want := 700 - int64(math.Ceil(float64(1<<64)/float64(MaxPeriod-1)))
	if left := r.Left(&l, 0); left != want {
		t.Errorf("%d left, want %d", left, want)
	}
}

// Field case 14.
// Limiter case L64.
// Limiter case L65.
func TestChangeKeepsWholeTokensAndNeverRefills(t *testing.T) {
	tests := []struct {
		name     string
		from     string
		fromB    int64
		left     int64
		to       string
		toB      int64
		wantLeft int64
	}{
		{"burst raised, bucket empty", "1/s", 10, 0, "1/s", 1000, 0},
		{"burst raised, bucket full: not the used amount", "1/s", 10, 10, "1/s", 1000, 10},
		{"burst lowered, bucket full", "1000/s", 1000, 1000, "1/s", 1, 1},
		{"burst lowered, some left", "1000/s", 1000, 3, "1/s", 5, 3},
		{"rate raised", "1/m", 5, 2, "100/s", 5, 2},
		{"rate lowered", "100/s", 5, 4, "1/d", 5, 4},
		{"pause and its end", "5/s", 5, 2, "0", 5, 2},
		{"pause without burst", "5/s", 5, 2, "0", 0, 0},
		{"the same", "5/s", 5, 2, "5/s", 5, 2},
	}
	for _, tt := range tests {
		old, next := mustParse(t, tt.from, tt.fromB), mustParse(t, tt.to, tt.toB)
		var l Level
		old.SetLeft(&l, hour, tt.left)
		next.Change(&l, hour, &old)
		if got := next.Left(&l, hour); got != tt.wantLeft {
			t.Errorf("%s: %d left, want %d", tt.name, got, tt.wantLeft)
		}
	}
}

// Field case 14.
func TestBacklogDrainsAtTheNewRateAtOnce(t *testing.T) {
	slow, fast := mustParse(t, "1/m", 1), mustParse(t, "100/s", 100)
	var l Level
	slow.Take(&l, 0, 1)
	if d := slow.Take(&l, 0, 1); d.RetryIn != time.Minute {
		t.Fatalf("%+v", d)
	}
	fast.Change(&l, time.Second, &slow)
	if d := fast.Take(&l, time.Second, 1); d.RetryIn != 10*ms {
		t.Errorf("after the raise: %+v, want the next in 10ms", d)
	}
	if got := grab(&fast, &l, 2*time.Second, 600); got != 100 {
		t.Errorf("%d pass within a second of the raise, want 100", got)
	}
}

// An edit that is repeated, or goes to a pause and back, earns nothing.
//
// Limiter case L64.
func TestPauseAndBackKeepsWhatWasLeftWithoutCredit(t *testing.T) {
	r, paused := mustParse(t, "5/s", 5), mustParse(t, "0", 5)
	var l Level
	r.Take(&l, 0, 4)
	paused.Change(&l, 0, &r)
	if d := paused.Take(&l, hour, 1); d.Reason != Paused {
		t.Errorf("paused: %+v", d)
	}
	if left := paused.Left(&l, hour); left != 1 {
		t.Errorf("paused: %d kept, want 1", left)
	}
	r.Change(&l, hour, &paused)
	if got := grab(&r, &l, hour, 10); got != 1 {
		t.Errorf("after an hour's pause %d pass at once, want the 1 that was left", got)
	}
}

// A checkpoint holds whole tokens: restoring it never raises what was left, and
// downtime earns nothing.
func TestSetLeftRestoresACheckpoint(t *testing.T) {
	r := mustParse(t, "10/13s", 7)
	for n := int64(-1); n <= 8; n++ {
		var l Level
		r.SetLeft(&l, hour, n)
		want := min(max(n, 0), 7)
		if got := r.Left(&l, hour); got != want {
			t.Errorf("SetLeft(%d): Left %d, want %d", n, got, want)
		}
		if got := grab(&r, &l, hour, 20); got != int(want) {
			t.Errorf("SetLeft(%d): %d pass, want %d", n, got, want)
		}
		if want < 7 && !r.Peek(&l, hour+1300*ms, 1).Allowed {
			t.Errorf("SetLeft(%d): no token after 1.3s", n)
		}
	}
}

func TestCostBelowOneIsTheCallersBug(t *testing.T) {
	r := mustParse(t, "1/s", 1)
	for _, cost := range []int64{0, -1, math.MinInt64} {
		for name, f := range map[string]func(){
			"Take":   func() { r.Take(new(Level), 0, cost) },
			"Peek":   func() { r.Peek(new(Level), 0, cost) },
			"Refund": func() { r.Refund(new(Level), 0, cost, 0) },
			"Bucket": func() { NewBucket(r).Take(0, cost) },
			"paused": func() { p, _ := NewRate(0, 0, 0); p.Take(new(Level), 0, cost) },
			"any":    func() { new(Rate).Take(new(Level), 0, cost) },
		} {
			if !panics(f) {
				t.Errorf("%s: cost %d does not panic", name, cost)
			}
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
