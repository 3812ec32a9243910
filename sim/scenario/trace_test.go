package scenario

import (
	"fmt"
	"strings"
	"testing"
)

// recorded is a trace of a noisy and a quiet tenant over ten seconds.
func recorded() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, `{"t": %v, "tenant": "noisy", "subscription": "s%d", "size": 900, "outcome": "delivered", "latency": 0.1}`+"\n", 1000+float64(i)/200, i%2)
	}
	for i := range 100 {
		fmt.Fprintf(&b, `{"t": %v, "tenant": "quiet", "subscription": "s0", "outcome": "delivered", "latency": 0.05, "attempts": 1}`+"\n", 1000+float64(i)/10)
	}
	return b.String()
}

func TestATraceIsReplayedThroughOtherLimits(t *testing.T) {
	trace, err := ReadTrace("trace.jsonl", strings.NewReader(recorded()))
	if err != nil {
		t.Fatal(err)
	}
	replay := func(settings ...string) []Replayed {
		l, err := trace.ParseLimits(settings)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := trace.Replay(l, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	before := replay()
	if n, q := before[0], before[1]; n.Offered != 2000 || n.Delivered != 2000 || q.Delivered != 100 || n.P50ms < 100 || n.P50ms > 101 {
		t.Errorf("as recorded: %+v", before)
	}
	after := replay("slots=10", "noisy:rate=10/s", "noisy:cap=2")
	if after[0].Delivered != 2000 || after[0].P99ms < 10_000 || after[0].Parked < 1000 {
		t.Errorf("a limit of 10/s: %+v", after[0])
	}
	if after[1].P99ms > 60 {
		t.Errorf("the quiet one pays: %+v", after[1])
	}
	if dropped := replay("noisy:rate=10/s", "noisy:deny=drop"); dropped[0].Lost < 1500 || dropped[1].Lost > 0 {
		t.Errorf("deny=drop: %+v", dropped)
	}
}

func TestATraceWithAMistakeIsRefused(t *testing.T) {
	good := `{"t": 1, "tenant": "a", "subscription": "s", "size": 1, "outcome": "delivered", "latency": 0.1}`
	for _, c := range []struct{ text, want string }{
		{"", "must have at least one delivery"},
		{good + "\nnonsense", "x.jsonl:2:1: must be an object"},
		{strings.Replace(good, `"t": 1, `, "", 1), "x.jsonl:1:1: t: must be seconds"},
		{strings.Replace(good, `"delivered"`, `"sent"`, 1), "outcome: must be one of delivered, dead"},
		{strings.Replace(good, "0.1", "-1", 1), "latency: must be seconds, from 0 to 3600"},
		{strings.Replace(good, `"a"`, `""`, 1), "tenant: must be 1 to 256 bytes"},
		{strings.Replace(good, `"size"`, `"payload"`, 1), "unknown field"},
		{good + "\n" + strings.Replace(good, `"t": 1`, `"t": 1e9`, 1), "t: must span at most 720h0m0s"},
		{strings.Repeat("x", 70_000), "lines of at most 64 KiB"},
	} {
		if _, err := ReadTrace("x.jsonl", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %s", c.text, err, c.want)
		}
	}
	trace, err := ReadTrace("x.jsonl", strings.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"cap": "KEY=VALUE", "b:cap=1": "no tenant", "cap=x": "must be a whole number", "arrivals=1": "unknown", "order=x": "fair, arrival", "slots=0": "from 1 to",
	} {
		if _, err := trace.ParseLimits([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
