package plan

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/limit"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within || math.IsNaN(got) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// fields are those that an error names.
func fields(err error) (list []string) {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, e := range several.Unwrap() {
			list = append(list, fields(e)...)
		}
		return list
	}
	var bad *Invalid
	if errors.As(err, &bad) {
		list = append(list, bad.Field)
	}
	return list
}

func refuses(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	if got := fields(err); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want errors of %v", what, err, want)
	}
}

func TestTakeStep(t *testing.T) {
	for _, c := range []struct {
		in   Step
		want Stepped
	}{
		{Step{Tokens: 240, Capacity: 240, Refill: 120, Elapsed: 1, Cost: 1}, Stepped{true, 240, 239}},
		{Step{Tokens: 0, Capacity: 240, Refill: 120, Elapsed: 1, Cost: 120}, Stepped{true, 120, 0}},
		{Step{Tokens: 0, Capacity: 240, Refill: 120, Elapsed: 1, Cost: 121}, Stepped{false, 120, 120}},
		{Step{Tokens: -5, Capacity: 10, Refill: 0, Elapsed: 1, Cost: 1}, Stepped{false, 0, 0}},
		{Step{Tokens: 5, Capacity: 0, Refill: 0, Elapsed: 0, Cost: 1}, Stepped{false, 0, 0}},
		{Step{Tokens: 500, Capacity: 10, Refill: 1, Elapsed: 0, Cost: 0.5}, Stepped{true, 10, 9.5}},
		{Step{Tokens: 1, Capacity: 10, Refill: math.MaxFloat64, Elapsed: math.MaxFloat64, Cost: 1}, Stepped{true, 10, 9}},
	} {
		if got, err := TakeStep(c.in); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.in, got, err)
		}
	}
}

func TestTakeStepRefusals(t *testing.T) {
	good := Step{Tokens: 1, Capacity: 1, Refill: 1, Elapsed: 1, Cost: 1}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		for field, set := range map[string]func(*Step){
			"tokens":   func(s *Step) { s.Tokens = bad },
			"capacity": func(s *Step) { s.Capacity = bad },
			"refill":   func(s *Step) { s.Refill = bad },
			"elapsed":  func(s *Step) { s.Elapsed = bad },
			"cost":     func(s *Step) { s.Cost = bad },
		} {
			s := good
			set(&s)
			if _, err := TakeStep(s); field != "tokens" || bad != -1 { // a negative level is clamped
				refuses(t, field, err, field)
			}
		}
	}
	good.Cost = 0
	_, err := TakeStep(good)
	refuses(t, "cost 0", err, "cost")
}

func TestBucketOfTheContract(t *testing.T) {
	r, err := Bucket(BucketInput{Rate: 120, Capacity: 240, Burst: 300, Idle: time.Second, Offered: 200, For: time.Minute})
	want := BucketResult{TokensBeforeBurst: 120, AdmittedInBurst: 120, DeniedInBurst: 180, OfferedUnits: 12_000, MaximumBudget: 7_440, NotAdmitted: 4_560}
	if err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	full, err := Bucket(BucketInput{Rate: 120, Capacity: 240, Burst: 300, Idle: time.Hour})
	if err != nil || full.AdmittedInBurst != 240 || full.DeniedInBurst != 60 {
		t.Errorf("full: %+v, %v", full, err)
	}
}

// The plan says of a burst, and of a budget, what the service's bucket does.
func TestBucketIsWhatTheServiceDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, capacity := rapid.Int64Range(1, 500).Draw(t, "rate"), rapid.Int64Range(1, 500).Draw(t, "capacity")
		burst := rapid.Int64Range(0, 1000).Draw(t, "burst")
		idle := time.Duration(rapid.Int64Range(0, 5000).Draw(t, "idle")) * time.Millisecond
		rate, err := limit.NewRate(n, time.Second, capacity)
		if err != nil {
			t.Fatal(err)
		}
		b := limit.NewBucket(rate)
		b.SetLeft(0, 0)
		admitted := 0.0
		for range burst {
			if b.Take(idle, 1).Allowed {
				admitted++
			}
		}
		r, err := Bucket(BucketInput{Rate: float64(n), Capacity: float64(capacity), Burst: float64(burst), Idle: idle})
		if err != nil || r.AdmittedInBurst != admitted {
			t.Fatalf("%+v, %v; the bucket admits %v", r, err, admitted)
		}
	})
}

func TestWindowEdge(t *testing.T) {
	r, err := Window(WindowInput{Limit: 120, Width: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	want := []WindowRow{
		{"fixed", 120, 120, 240, 240, 0},
		{"sliding", 120, 0, 120, 120, 59_900},
		{"exact", 120, 0, 120, 120, 59_800},
		{"bucket", 120, 0, 120, 240, 300},
	}
	if !slices.Equal(r.Rules, want) || r.SlidingMS != 66_000 || r.GapMS != 200 {
		t.Errorf("%+v", r)
	}
}

func TestCapByLittlesLaw(t *testing.T) {
	for _, c := range []struct {
		in       CapInput
		inFlight float64
		cap      float64
	}{
		{CapInput{Rate: 100, P99: 120 * time.Millisecond, Headroom: 4}, 12, 16},
		{CapInput{Rate: 100, P99: 70 * time.Millisecond}, 7, 7}, // not 8: 100 * 0.07 in floats is a hair above 7
		{CapInput{Rate: 0.1, P99: 10 * time.Second}, 1, 1},
		{CapInput{Rate: 100, P99: 121 * time.Millisecond}, 12.1, 13},
		{CapInput{Rate: 0, P99: time.Second, Headroom: 2}, 0, 2},
	} {
		r, err := Cap(c.in)
		if err != nil || r.InFlight != c.inFlight || r.Cap != c.cap {
			t.Errorf("%+v: %+v, %v", c.in, r, err)
		}
	}
	r, err := Cap(CapInput{Rate: 100, P99: 120 * time.Millisecond, Headroom: 4, Timeout: 10 * time.Second})
	if err != nil || r.HangsWithout != 1000 || r.HangsWith != 16 {
		t.Errorf("%+v, %v", r, err)
	}
	near(t, "uncapped", r.ShareWithout, 0.83, 0.005)
	near(t, "capped", r.ShareWith, 0.013, 0.0005)
}

func TestFanOutIdentities(t *testing.T) {
	r, err := FanOut(FanOutInput{N: 40, Median: 8 * time.Millisecond, Tail: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "0.999^40", r.P999Becomes, 0.961, 0.0005)
	near(t, "0.5^(1/40)", r.SingleOfP50, 0.983, 0.0005)
	near(t, "single median", r.SingleP50, 8, 1e-9)
	near(t, "completion's median", r.CompletionP50, 116, 1)
	for i, p := range r.Curve {
		if p.Completion <= p.Single || i > 0 && p.Single <= r.Curve[i-1].Single {
			t.Errorf("curve at %v: %+v", p.Quantile, p)
		}
	}
	one, err := FanOut(FanOutInput{N: 1, Median: 8 * time.Millisecond, Tail: 400 * time.Millisecond})
	if err != nil || one.CompletionP99 != one.SingleP99 || r.CompletionP99 <= r.SingleP99 {
		t.Errorf("%+v, %v", one, err)
	}
}

// The closed form is what drawing says, with a pathological tenant and without.
func TestFanOutIsTheMaximumOfDraws(t *testing.T) {
	const n, rounds = 20, 40_000
	in := FanOutInput{N: n, Median: 10 * time.Millisecond, Tail: 100 * time.Millisecond, TailAt: 0.999, Bad: 150 * time.Millisecond, BadShare: 0.2}
	r, err := FanOut(in)
	if err != nil {
		t.Fatal(err)
	}
	rnd, draw := rand.New(rand.NewPCG(5, 6)), logNormal(in)
	var plain, with []float64
	for range rounds {
		most := 0.0
		for range n {
			most = max(most, draw(rnd.Float64()))
		}
		plain = append(plain, most)
		if rnd.Float64() < in.BadShare {
			most = max(most, 150)
		}
		with = append(with, most)
	}
	slices.Sort(plain)
	slices.Sort(with)
	near(t, "p50", r.CompletionP50, plain[rounds/2], 0.03*plain[rounds/2])
	near(t, "p99", r.CompletionP99, plain[rounds*99/100], 0.05*plain[rounds*99/100])
	near(t, "p50 with", r.WithBadP50, with[rounds/2], 0.03*with[rounds/2])
	near(t, "p99 with", r.WithBadP99, with[rounds*99/100], 0.05*with[rounds*99/100])
}

func TestFanOutOfSamples(t *testing.T) {
	var samples []time.Duration
	for i := range 1000 {
		samples = append(samples, time.Duration(1000-i)*time.Millisecond)
	}
	r, err := FanOut(FanOutInput{N: 2, Samples: samples})
	if err != nil || r.SingleP50 != 500 || r.CompletionP50 != 708 || !r.Resolved { // 0.5^(1/2) = 0.7071
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = FanOut(FanOutInput{N: 40, Samples: samples}); err != nil || r.Resolved || r.CompletionP99 != 1000 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRetriesOfAnOutage(t *testing.T) {
	r, err := Retries(RetriesInput{Rate: 200, Failing: 1})
	if err != nil || r.Without != 4 || r.With > 1.1 || r.Lower < 3.6 {
		t.Errorf("%+v, %v", r, err)
	}
	near(t, "credit lasts", r.CreditMS, 481, 1) // empties within a second
	healthy, err := Retries(RetriesInput{Rate: 200, Failing: 0})
	if err != nil || healthy.Without != 1 || healthy.With != 1 {
		t.Errorf("%+v, %v", healthy, err)
	}
	one, err := Retries(RetriesInput{Rate: 200, Failing: 1, Attempts: 1})
	if err != nil || one.Without != 1 || one.With != 1 {
		t.Errorf("%+v, %v", one, err)
	}
}

func TestRetriesRiseWithFailuresAndStayBelowUnlimited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := RetriesInput{
			Rate:     rapid.Float64Range(0.01, 1e6).Draw(t, "rate"),
			Failing:  rapid.Float64Range(0, 1).Draw(t, "failing"),
			Attempts: rapid.IntRange(1, 20).Draw(t, "attempts"),
		}
		r, err := Retries(in)
		if err != nil || r.With < 1 || r.With > r.Without || r.Without > float64(in.Attempts)+1e-9 || math.IsNaN(r.With) {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

func TestSharesAreMaxMin(t *testing.T) {
	r, err := Shares(SharesInput{Capacity: 1200, Tenants: []Tenant{{"big", 5000, 1}, {"small", 100, 1}, {"pro", 900, 3}}})
	if err != nil || r.Level != 275 || r.Unused != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []Share{{Tenant{"big", 5000, 1}, 275, false}, {Tenant{"small", 100, 1}, 100, true}, {Tenant{"pro", 900, 3}, 825, false}} {
		if r.Tenants[i] != want {
			t.Errorf("%+v, want %+v", r.Tenants[i], want)
		}
	}
	r, err = Shares(SharesInput{Capacity: 100, Tenants: []Tenant{{"a", 10, 1}, {"b", 20, 1}}})
	if err != nil || r.Level != 0 || r.Unused != 70 || r.Jain != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFleetAddsUp(t *testing.T) {
	in := FleetInput{Subscriptions: 1000, Tenants: 100, Triggers: 100, FanOut: 5, Payload: 936, Latency: 100 * time.Millisecond, Outage: time.Hour}
	r, err := Fleet(in)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "deliveries", r.Deliveries, 500, 0)
	near(t, "busy", r.SlotsBusy, 50, 1e-9)
	near(t, "slots", r.Slots, 72, 0)
	near(t, "log", r.LogBytes, 100*1000+500*16, 0)
	near(t, "disk", r.Disk, 100*1000*3600*2, 0)
	if len(r.Assumptions) == 0 {
		t.Error("no assumptions")
	}
	more := in
	more.Subscriptions *= 50
	if m, err := Fleet(more); err != nil || m.MemoryBytes <= r.MemoryBytes {
		t.Errorf("%+v, %v", m, err)
	}
}

// Every field of every plan refuses NaN, infinities, negatives and absurd
// figures, by its name.
func TestPlansRefuseByName(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
		for field, f := range map[string]func() error{
			"rate":     func() error { _, err := Bucket(BucketInput{Rate: bad}); return err },
			"capacity": func() error { _, err := Bucket(BucketInput{Capacity: bad}); return err },
			"burst":    func() error { _, err := Bucket(BucketInput{Burst: bad}); return err },
			"offered":  func() error { _, err := Bucket(BucketInput{Offered: bad}); return err },
			"headroom": func() error { _, err := Cap(CapInput{P99: 1000, Headroom: bad}); return err },
			"slots":    func() error { _, err := Cap(CapInput{P99: 1000, Slots: bad}); return err },
			"tail_at":  func() error { _, err := FanOut(FanOutInput{N: 1, Median: 1, Tail: 2, TailAt: bad}); return err },
			"failing":  func() error { _, err := Retries(RetriesInput{Rate: 1, Failing: bad}); return err },
			"ratio":    func() error { _, err := Retries(RetriesInput{Rate: 1, Ratio: bad}); return err },
			"subscriptions": func() error {
				_, err := Fleet(FleetInput{Subscriptions: bad, Tenants: math.Inf(-1), Latency: 1000})
				return err
			},
			"triggers": func() error {
				_, err := Fleet(FleetInput{Subscriptions: 1, Tenants: 1, Triggers: bad, Latency: 1000})
				return err
			},
			"fan_out": func() error {
				_, err := Fleet(FleetInput{Subscriptions: 1, Tenants: 1, FanOut: bad, Latency: 1000})
				return err
			},
			"payload": func() error {
				_, err := Fleet(FleetInput{Subscriptions: 1, Tenants: 1, Payload: bad, Latency: 1000})
				return err
			},
			"tenants[0].want": func() error {
				_, err := Shares(SharesInput{Capacity: 1, Tenants: []Tenant{{"a", bad, 1}}})
				return err
			},
			"tenants[0].weight": func() error {
				_, err := Shares(SharesInput{Capacity: 1, Tenants: []Tenant{{"a", 1, bad}}})
				return err
			},
		} {
			if err := f(); !slices.Contains(fields(err), field) {
				t.Errorf("%s %v: %v", field, bad, err)
			}
		}
	}
}

func TestPlansRefuseDurationsAndCounts(t *testing.T) {
	for _, c := range []struct {
		err    error
		fields []string
	}{
		{second(Bucket(BucketInput{Idle: -1, For: MaxTime + 1, Capacity: 1.5})), []string{"capacity", "idle", "for"}},
		{second(Window(WindowInput{})), []string{"limit", "window", "gap"}},
		{second(Window(WindowInput{Limit: 1, Width: time.Minute, Parts: -1, Gap: time.Hour})), []string{"parts", "gap"}},
		{second(Cap(CapInput{P99: 0, Timeout: -1})), []string{"p99", "timeout"}},
		{second(FanOut(FanOutInput{N: 0, Median: 2, Tail: 1})), []string{"n", "tail"}},
		{second(FanOut(FanOutInput{N: 1, Samples: []time.Duration{1, -1}, BadShare: 2})), []string{"samples", "bad_share", "bad"}},
		{second(Retries(RetriesInput{})), []string{"rate"}},
		{second(Retries(RetriesInput{Rate: 1, Attempts: -1, HalfLife: 1, For: -1})), []string{"attempts", "half_life", "for"}},
		{second(Shares(SharesInput{Capacity: -1})), []string{"capacity", "tenants"}},
		{second(Shares(SharesInput{Tenants: []Tenant{{"a", 1, 1}, {"a", 1, 1.5}}})), []string{"tenants[1].tenant", "tenants[1].weight"}},
		{second(Fleet(FleetInput{Subscriptions: 1, Tenants: 2})), []string{"tenants", "latency"}},
	} {
		refuses(t, "", c.err, c.fields...)
	}
}

func second[T any](_ T, err error) error { return err }
