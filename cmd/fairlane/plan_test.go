package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

func TestPlanBucketAsJSON(t *testing.T) {
	out := ok(t, strings.Fields("plan bucket --rate 120 --capacity 240 --burst 300 --idle 1s --offered 200 --for 60s --json")...)
	var got map[string]float64
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"tokens_before_burst": 120, "admitted_in_burst": 120, "denied_in_burst": 180,
		"offered_units": 12_000, "maximum_budget": 7_440, "not_admitted": 4_560,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Every mistake is named with its flag, and is a usage error.
func TestPlanRefusesByFlag(t *testing.T) {
	for line, want := range map[string]string{
		"cap --rate 100 --p99 120":                         "--p99 120: a duration needs a unit, for example 120ms",
		"cap --rate 100 --p99 x":                           "--p99 x: must be a duration with a unit",
		"cap --rate 100 --p99 -1s":                         "--p99 -1s: must be 1µs to 366 days",
		"cap --rate 100 --p99 500d":                        "to 366 days",
		"cap --rate NaN --p99 1s":                          "--rate NaN: must be 0 to 1000000000 a second",
		"cap --rate +Inf --p99 1s":                         "--rate +Inf: must be",
		"cap --rate -1 --p99 1s":                           "--rate -1: must be",
		"cap --rate 5ms --p99 1s":                          "--rate 5ms: a rate is an amount per s, m, h or d, for example 120/s",
		"cap --rate 5/week --p99 1s":                       "--rate 5/week: a rate is",
		"cap --rate 5 --p99 1s --headroom 1.5":             "--headroom 1.5: must be a whole number",
		"cap --rate 5 --p99 1s --slots 0":                  "--slots 0: must be above 0",
		"cap --rate 5":                                     "--rate and --p99 must be given, or --server",
		"cap --rate 5 --server http://x":                   "--server measures",
		"bucket --rate 5":                                  "--capacity must be given",
		"bucket --rate 5 --capacity 240/s":                 "--capacity 240/s: must be a number without a unit",
		"bucket --rate -1 --capacity -1":                   "--capacity -1: must be",
		"window --limit 1.5 --window 1m":                   "--limit 1.5: must be a whole number",
		"window --limit 120 --window 60":                   "--window 60: a duration needs a unit, for example 60ms",
		"fan-out --n 40 --p50 8ms --tail 1ms":              "--tail 1ms: must be above the median",
		"fan-out --n 4.5 --p50 8ms --tail 9ms":             "--n 4.5: must be a whole number",
		"fan-out --n 40 --samples nowhere":                 "nowhere: no such file",
		"retries --rate 5 --failing 120%":                  "--failing 1.2: must be 0 to 1",
		"retries --rate 5 --failing x":                     "--failing x: must be a share, for example 0.1 or 10%",
		"shares --capacity 5":                              "--tenant must be given",
		"shares --capacity 5 --tenant a":                   "--tenant a: must be NAME=WANT",
		"shares --capacity 5 --tenant a=1:0":               "tenants[0].weight 0: must be a whole number from 1 to 1000",
		"shares --capacity 5 --tenant a=1 --tenant a=1":    "must be a name that no other tenant has",
		"fleet --subscriptions 1 --tenants 1 --triggers 1": "--latency, --payload must be given",
		"fleet --subscriptions 1 --tenants 1 --triggers 1 --latency 1s --payload 9s": "--payload 9s: must be a size in bytes, for example 900 or 64KiB",
		"cap --nothing": "unknown flag",
		"cap extra":     "unknown command",
	} {
		code, out, errs := command(t, append([]string{"plan"}, strings.Fields(line)...)...)
		if !strings.Contains(errs, want) || out != "" || code != exitUsage && !strings.Contains(line, "nowhere") {
			t.Errorf("%s: exit %d, %q%q, want %q", line, code, out, errs, want)
		}
	}
}

func TestPlanFanOutReadsSamples(t *testing.T) {
	file := filepath.Join(t.TempDir(), "samples")
	for text, want := range map[string]string{
		"10ms\n\n 20ms\n30ms\n": `"single_p50_ms": 20`,
		"10ms\n20\n":            "samples:2: \"20\": a duration needs a unit",
		"\n":                    "samples: no samples",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out, errs := command(t, "plan", "fan-out", "--n", "2", "--samples", file, "--json")
		if !strings.Contains(out+errs, want) {
			t.Errorf("%q: %s%s, want %s", text, out, errs, want)
		}
	}
}

// Every plan can be drawn, as SVG and PNG.
func TestPlanPlots(t *testing.T) {
	dir := t.TempDir()
	for i, line := range []string{
		"bucket --rate 120 --capacity 240 --burst 300 --idle 1s --offered 200 --for 60s",
		"window --limit 120 --window 1m",
		"cap --rate 100 --p99 120ms --headroom 4",
		"cap --rate 0 --p99 120ms",
		"fan-out --n 40 --p50 8ms --tail 400ms --bad 2s --bad-share 5%",
		"retries --rate 200 --failing 100%",
		"shares --capacity 1200 --tenant big=5000 --tenant small=100 --tenant pro=900:3",
		"fleet --subscriptions 50 --tenants 4 --triggers 2000/s --payload 900 --latency 60ms",
	} {
		for ending, begin := range map[string]string{".svg": "<?xml", ".png": "\x89PNG"} {
			file := filepath.Join(dir, fmt.Sprint(i, ending))
			if out := ok(t, strings.Fields("plan "+line+" --plot "+file)...); out == "" {
				t.Errorf("%s: nothing printed", line)
			}
			if data, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(data), begin) {
				t.Errorf("%s: %v, %.20q", line, err, data)
			}
		}
	}
	for line, want := range map[string]string{
		"bucket --rate 1 --capacity 1 --plot x.svg":   "--plot: there is nothing to draw",
		"cap --rate 1 --p99 1s --plot x.gif":          "must end in .svg or .png",
		"cap --rate 1 --p99 1s --plot no/where/x.svg": "no/where",
	} {
		if code, out, errs := command(t, strings.Fields("plan "+line)...); code == exitOK || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %q %q", line, code, out, errs)
		}
	}
}

// The caps of a running service, from what was offered between two looks.
func TestPlanCapOfARunningService(t *testing.T) {
	t.Setenv(adminKeyVar, "k")
	var looks atomic.Int64
	lane := func(id, rate, breaker string, offered, p99 float64) string {
		return fmt.Sprintf(`{"subscription":%q,"tenant":"acme","rate":%q,"breaker":%q,"cap":2,"p99_ms":%v,"account":{"offered":%v}}`, id, rate, breaker, p99, offered)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			more := float64(looks.Add(1)-1) * 1e6 // far above every contract
			fmt.Fprintf(w, `{"items":[%s,%s],"next":"n"}`, lane("busy", "100/s", "closed", more, 120), lane("broken", "100/s", "open", more, 120))
			return
		}
		fmt.Fprintf(w, `{"items":[%s,%s]}`, lane("new", "unlimited", "closed", 0, 0), lane("quiet", "unlimited", "closed", 5, 80))
	}))
	t.Cleanup(service.Close)
	args := []string{"plan", "cap", "--server", service.URL, "--watch", "1ms", "--headroom", "4"}
	var got struct{ Lanes []laneCap }
	if err := json.Unmarshal([]byte(ok(t, append(args, "--json")...)), &got); err != nil || len(got.Lanes) != 4 {
		t.Fatal(got, err)
	}
	for i, want := range []struct {
		id, note string
		cap      float64
	}{{"busy", "offered beyond its contract", 16}, {"broken", "breaker open", 2}, {"new", "no success yet", 0}, {"quiet", "", 4}} {
		l := got.Lanes[i]
		if l.Subscription != want.id || l.Note != want.note || (l.Recommended == nil) != (want.cap == 0) || l.Recommended != nil && *l.Recommended != want.cap {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
	if out := ok(t, args...); !regexp.MustCompile(`(?m)^  busy +acme +\S+/s +120 ms +2 +16 +offered beyond its contract$`).MatchString(out) {
		t.Errorf("printed %s", out)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 12: "12", 1200: "1,200", 1234567: "1,234,567", 0.5: "0.5", 0.83333: "0.8333", -1200: "-1,200", 999.99999: "1000", 1500.5: "1,501"} {
		if got := num(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}
