package demo

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// three phases with figures that a person can add up.
func figures() (alone, with, without *measured) {
	all := []tenant{
		{name: steady, rate: 100}, {name: failing, rate: 50}, {name: "noisy", rate: 400, contract: 20, burst: 40},
	}
	run := phases(all)
	got := func(delivered, attempts, duplicates int, p99 time.Duration) receiver.Report {
		return receiver.Report{
			Tally: receiver.Tally{Delivered: delivered, Attempts: attempts, Duplicates: duplicates},
			Timed: delivered, P50: p99 / 2, P99: p99,
		}
	}
	alone = &measured{phase: run[0], received: []receiver.Report{got(1200, 1200, 0, 30*time.Millisecond)}}
	with = &measured{
		phase:   run[1],
		posting: posting{accepted: []int{1200, 600, 4800}},
		account: []engine.Counters{
			{Offered: 1200, Delivered: 1200},
			{Offered: 600, Parked: 590, InFlight: 10},
			{Offered: 4800, Delivered: 330, Parked: 4400, Dead: 40, Cancelled: 20, Dropped: 10},
		},
		received: []receiver.Report{got(1200, 1201, 1, 36*time.Millisecond), got(0, 30, 0, 0), got(330, 332, 2, 9*time.Second)},
		served:   []mean{{sum: 12, n: 12}, {}, {sum: 9, n: 12}},
	}
	without = &measured{phase: run[2], posting: posting{accepted: []int{1200, 600, 4800}}, received: []receiver.Report{got(900, 900, 0, 3*time.Second), got(0, 2000, 0, 0), got(320, 320, 0, time.Second)}}
	return alone, with, without
}

func TestReportAddsUp(t *testing.T) {
	r := makeReport(figures())
	if !r.Balanced {
		t.Error("not balanced")
	}
	if r.Offered != 6600 || r.Delivered != 1530 || r.Parked != 4990 || r.Dead != 40 ||
		r.InFlight != 10 || r.Cancelled != 20 || r.Dropped != 10 || r.Duplicates != 3 {
		t.Errorf("%+v", r)
	}
	if *r.SteadyP99Alone != 30 || *r.SteadyP99With != 36 || *r.SteadyP99Unprotected != 3000 {
		t.Errorf("p99s %v %v %v", *r.SteadyP99Alone, *r.SteadyP99With, *r.SteadyP99Unprotected)
	}
	if r.FailingAmplification != 0.05 {
		t.Errorf("30 attempts for 600: %v", r.FailingAmplification)
	}
	if want := round(1.75 * 1.75 / (2 * (1 + 0.75*0.75))); r.Jain != want || r.ShortChanged != 1 {
		t.Errorf("jain %v, short %d; want %v, 1", r.Jain, r.ShortChanged, want)
	}
}

// What the sender believes does not count as delivered; a difference shows.
func TestReportIsUnbalancedWhen(t *testing.T) {
	for name, spoil := range map[string]func(with *measured){
		"the receiver saw one less than the sender believes": func(m *measured) { m.received[0].Delivered-- },
		"the receiver saw one more":                          func(m *measured) { m.received[2].Delivered++ },
		"a parked delivery is gone":                          func(m *measured) { m.account[1].Parked-- },
		"an accepted trigger was never offered":              func(m *measured) { m.posting.accepted[0]++ },
		"two tenants' errors cancel each other out": func(m *measured) {
			m.account[1].Parked++
			m.account[2].Parked--
		},
	} {
		alone, with, without := figures()
		spoil(with)
		if makeReport(alone, with, without).Balanced {
			t.Errorf("balanced although %s", name)
		}
	}
}

// The JSON is a documented contract: names, order of meaning, and null where there is no figure.
func TestReportAsJSON(t *testing.T) {
	b, err := json.Marshal(makeReport(figures()))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`balanced cancelled dead delivered dropped duplicates failing_amplification in_flight jain offered
		parked short_changed steady_p99_alone_ms steady_p99_unprotected_ms steady_p99_with_ms tenants`)
	if !slices.Equal(keys(got), want) {
		t.Errorf("%v, want %v", keys(got), want)
	}
	rows := got["tenants"].([]any)
	row := rows[1].(map[string]any)
	want = strings.Fields(`attempts burst cancelled cap dead delivered dropped in_flight max_in_flight offered
		over_contract p50_ms p99_ms parked rate tenant`)
	if !slices.Equal(keys(row), want) {
		t.Errorf("%v, want %v", keys(row), want)
	}
	for _, none := range []string{"rate", "burst", "p50_ms", "p99_ms"} {
		if row[none] != nil {
			t.Errorf("%s of a tenant without one is %v, want null", none, row[none])
		}
	}
	if noisy := rows[2].(map[string]any); noisy["rate"] != 20.0 || noisy["burst"] != 40.0 || noisy["p99_ms"] != 9000.0 {
		t.Errorf("%v", noisy)
	}
}

func keys(m map[string]any) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func TestMeanLeavesOutRoundsWithoutEntitlement(t *testing.T) {
	var m mean
	for _, x := range []float64{1, math.NaN(), 0.5} {
		m.add(x)
	}
	if m != (mean{1.5, 2}) {
		t.Errorf("%+v", m)
	}
}

func TestContractOfATenant(t *testing.T) {
	noisy := tenant{contract: 20, burst: 40}
	if got, want := contractOf(noisy, 16), (receiver.Contract{Tokens: 20, Per: time.Second, Burst: 40, Cap: 16}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := contractOf(tenant{}, 16); got != (receiver.Contract{Cap: 16}) {
		t.Errorf("no contract: %+v", got)
	}
}

func TestScheduleIsTheSameHealthyLoadInEveryPhase(t *testing.T) {
	run := phases(tenants)
	alone := schedule(7, run[0].tenants, 3*time.Second)
	var beside []shot
	for _, s := range schedule(7, run[1].tenants, 3*time.Second) {
		if s.tenant == 0 {
			beside = append(beside, s)
		}
	}
	if !reflect.DeepEqual(alone, beside) {
		t.Error("steady's load differs between phases")
	}
	if reflect.DeepEqual(alone, schedule(8, run[0].tenants, 3*time.Second)) {
		t.Error("the seed changes nothing")
	}
}

func TestScheduleOffersExactlyTheRate(t *testing.T) {
	const seconds = 12
	perSecond := make([][seconds]int, len(tenants))
	var last time.Duration
	for _, s := range schedule(1, tenants, seconds*time.Second) {
		if s.at < last {
			t.Fatalf("%v after %v", s.at, last)
		}
		last = s.at
		perSecond[s.tenant][s.at/time.Second]++
		var c crossing
		if err := json.Unmarshal(s.payload, &c); err != nil || s.topic != "geofence."+c.Event || c.Vehicle == "" {
			t.Fatalf("%s: %s: %v", s.topic, s.payload, err)
		}
	}
	for i, t2 := range tenants {
		total := 0
		for second, n := range perSecond[i] {
			total += n
			if n < t2.rate-1 || n > t2.rate+1 {
				t.Errorf("%s: %d in second %d, want %d", t2.name, n, second, t2.rate)
			}
		}
		if total != t2.rate*seconds {
			t.Errorf("%s: %d in all, want %d", t2.name, total, t2.rate*seconds)
		}
	}
}
