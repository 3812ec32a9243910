package receiver

import (
	"reflect"
	"testing"
	"time"
)

func TestBookCountsDeliveriesAndDuplicatesByID(t *testing.T) {
	var b Book
	answer := func(id string, status int) { b.End(b.Begin(id, 0), status, ms) }
	answer("a", 503) // refused
	answer("a", 200) // delivered
	answer("a", 503) // repeated after a 2xx: a duplicate, whatever it got
	answer("b", 0)
	answer("c", 204)
	answer("", 200)

	first, second := b.Begin("d", 0), b.Begin("d", 0) // at once, both answered 2xx
	b.End(first, 200, ms)
	b.End(second, 200, ms)
	b.Begin("e", 0) // still there

	want := Tally{
		Attempts: 9, InFlight: 1, Delivered: 3, Duplicates: 2, Nameless: 1,
		Answers: map[int]int{0: 1, 200: 4, 204: 1, 503: 2},
	}
	if got := b.Tally(); !reflect.DeepEqual(got, want) {
		t.Errorf("tally\n%+v, want\n%+v", got, want)
	}
}

func TestBookCountsATrickledAnswerOnce(t *testing.T) {
	var b Book
	n := b.Begin("a", 0)
	b.Accept(n, 10*ms)
	if got := b.Tally(); got.Delivered != 1 || got.InFlight != 1 {
		t.Errorf("after the headers: %+v", got)
	}
	b.End(n, 200, time.Second)
	if got := b.Tally(); got.Delivered != 1 || got.Duplicates != 0 || got.InFlight != 0 {
		t.Errorf("after the body: %+v", got)
	}
	b.Posted("a", 0)
	if got := b.Report(Contract{}); got.P99 != 10*ms {
		t.Errorf("p99 %v, want the time to the headers, 10ms", got.P99)
	}
}

func TestBookMeasuresFromThePostToTheFirst2xx(t *testing.T) {
	var b Book
	b.Posted("early", 10*ms)
	b.Posted("early", 99*ms) // the first call counts
	b.End(b.Begin("early", 20*ms), 500, 25*ms)
	b.End(b.Begin("early", 40*ms), 200, 50*ms)
	b.End(b.Begin("early", 60*ms), 200, 70*ms)
	b.End(b.Begin("late", 30*ms), 200, 40*ms)
	b.Posted("late", 25*ms) // its 202 came after the delivery
	b.End(b.Begin("unknown", 0), 200, time.Second)
	b.Posted("never delivered", 0)

	r := b.Report(Contract{})
	if r.Timed != 2 || r.P50 != 15*ms || r.P99 != 40*ms {
		t.Errorf("%d timed, p50 %v, p99 %v; want 2, 15ms, 40ms", r.Timed, r.P50, r.P99)
	}
}

func TestBookReportsAgainstTheContract(t *testing.T) {
	var b Book
	for range 4 {
		b.Begin("x", 0)
	}
	r := b.Report(Contract{Tokens: 1, Per: time.Second, Burst: 1, Cap: 2})
	if r.MaxInFlight != 4 || r.OverContract != 1 {
		t.Errorf("%d in flight, %v over; want 4 (never answered) and 4 - 1 - 2 = 1", r.MaxInFlight, r.OverContract)
	}
}

func TestBookRefusesASecondEnd(t *testing.T) {
	var b Book
	n := b.Begin("a", 0)
	b.End(n, 200, 0)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.End(n, 200, 0)
}
