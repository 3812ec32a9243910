package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTextSaysWhatTheFiguresMean(t *testing.T) {
	var out bytes.Buffer
	if err := writeText(&out, makeReport(figures())); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"steady      1200       1200       0     0          0          0        0      1201   18 ms   36 ms  0 of 16         -     -\n",
		"noisy       4800        330    4400    40          0         20       10       332",
		"all         6600       1530    4990    40         10         20       10      1563\n",
		"20/s+40   0.0",
		"Every trigger is accounted for: 6600 offered",
		"within 30 ms alone, within 36 ms (1.2x) beside 2 neighbours,\nand of the 900 of 1200 that arrived at all within 3.00 s (100x) beside",
		"No endpoint had more than its cap in flight",
		"Where to look next:",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

func TestTableLeavesOutWhatNobodyHas(t *testing.T) {
	alone, with, without := figures()
	if text := table(makeReport(alone, with, without)); !strings.Contains(text, "cancelled") || !strings.Contains(text, "dropped") {
		t.Errorf("hides figures:\n%s", text)
	}
	with.account[2].Dropped = 0
	if text := table(makeReport(alone, with, without)); !strings.Contains(text, "cancelled") || strings.Contains(text, "dropped") {
		t.Errorf("shows a column of zeros, or hides another:\n%s", text)
	}
}

func TestTextSaysWhenTheAccountDoesNotAddUp(t *testing.T) {
	alone, with, without := figures()
	with.account[0].Offered++
	var out bytes.Buffer
	if err := writeText(&out, makeReport(alone, with, without)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "THE ACCOUNT DOES NOT ADD UP") {
		t.Error(out.String())
	}
}

func TestTextNamesTheTenantWhoseLimitsDidNotHold(t *testing.T) {
	for name, spoil := range map[string]func(with *measured){
		"steady": func(m *measured) { m.received[0].MaxInFlight = laneCap + 1 },
		"noisy":  func(m *measured) { m.received[2].OverContract = 0.5 },
	} {
		alone, with, without := figures()
		spoil(with)
		if got := limits(makeReport(alone, with, without)); got != "LIMITS DID NOT HOLD for "+name+".\n" {
			t.Errorf("%q, want %s named", got, name)
		}
	}
}

func TestMeaningWithoutFigures(t *testing.T) {
	if got := meaning(Report{}); !strings.Contains(got, "too little to compare") {
		t.Error(got)
	}
	ms := 10.0
	if got := meaning(Report{SteadyP99Alone: &ms, SteadyP99With: &ms}); !strings.Contains(got, "none arrived") {
		t.Error(got)
	}
}

func TestSpanKeepsTheDigitsThatMatter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1.2 ms", 23456 * time.Microsecond: "23 ms",
		1234 * time.Millisecond: "1.23 s", 12345 * time.Millisecond: "12.3 s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
