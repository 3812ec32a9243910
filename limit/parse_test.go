package limit

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRateReadsEveryForm(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		in   string
		n    int64
		per  time.Duration
		text string // as String writes it
	}{
		{"100/s", 100, time.Second, "100/s"},
		{"0.1/s", 1, 10 * time.Second, "1/10s"},
		{"1.5/s", 3, 2 * time.Second, "3/2s"},
		{"2.50/m", 5, 2 * time.Minute, "1/24s"},
		{"10/13s", 10, 13 * time.Second, "10/13s"},
		{"120/m", 2, time.Second, "2/s"},
		{"3/m", 1, 20 * time.Second, "1/20s"},
		{"1/h", 1, time.Hour, "1/h"},
		{"1/d", 1, day, "1/d"},
		{"0.5/d", 1, 2 * day, "1/2d"},
		{"1/366d", 1, 366 * day, "1/366d"},
		{"5/500ms", 10, time.Second, "10/s"},
		{"1/1ms", 1000, time.Second, "1000/s"},
		{"1/ms", 1000, time.Second, "1000/s"},
		{"1/1500us", 2, 3 * time.Millisecond, "2000/3s"},
		{"27000/s", 27000, time.Second, "27000/s"},
		{"1000000000/s", MaxTokens, time.Second, "1000000000/s"},
		{"1000000000/ms", MaxTokens, time.Millisecond, "1000000000/ms"},
		{"0001/01s", 1, time.Second, "1/s"},
		{"0.000000001/ms", 1, 1_000_000 * time.Second, "1/1000000s"},
	}
	for _, tt := range tests {
		got, err := ParseRate(tt.in, 9)
		if err != nil {
			t.Errorf("ParseRate(%q): %v", tt.in, err)
			continue
		}
		if want := mustRate(t, tt.n, tt.per, 9); got != want {
			t.Errorf("ParseRate(%q) = %+v, want %d per %v", tt.in, got, tt.n, tt.per)
		}
		if got.String() != tt.text {
			t.Errorf("ParseRate(%q).String() = %q, want %q", tt.in, got.String(), tt.text)
		}
	}
}

// Field case 10.
// Limiter case L14.
func TestZeroIsPausedAndUnlimitedIsAWord(t *testing.T) {
	for _, s := range []string{"0", "0/s", "0.0/h", "00"} {
		if r := mustParse(t, s, 5); !r.IsPaused() || r.String() != "0" {
			t.Errorf("%q: %v, want paused", s, r.String())
		}
	}
	if r := mustParse(t, "unlimited", 0); !r.IsUnlimited() || r.String() != "unlimited" {
		t.Errorf("unlimited: %v", r.String())
	}
}

// Field case 10.
func TestParseRateRefusesAndNamesTheRule(t *testing.T) {
	form := []string{
		"", "/", "/s", "1", "100", "1/", "s", "-1", "-1/s", "+1/s", "1 /s", "1/ s", " 1/s", "1e3/s", "1e308", "1e308/s",
		"NaN", "NaN/s", "Inf", "inf/s", "null", "none", "Unlimited", "unlimited/s", "1/s/s", "1./s", ".5/s", "1.2.3/s",
		"1/x", "1/S", "1/1.5s", "1/-1s", "1/w", "١/s", "0x10/s", "1_000/s", "1,000/s", "0/", "0/x",
	}
	for _, s := range form {
		if field, rule := refusal(t, s, 1); field != "rate" || !strings.Contains(rule, `"100/s"`) {
			t.Errorf("ParseRate(%q) names %s: %s; want the form of a rate", s, field, rule)
		}
	}
	tests := []struct {
		in    string
		burst int64
		field string
	}{
		{"1000000001/s", 1, "rate"},
		{"99999999999999999999999999/s", 1, "rate"},
		{"0.0000000000000000001/s", 1, "rate"},
		{"0.3333333333333/s", 1, "rate"},
		{"1/0s", 1, "period"},
		{"1/999us", 1, "period"},
		{"1/367d", 1, "period"},
		{"0.001/d", 1, "period"},
		{"1/99999999999999999999999s", 1, "period"},
		{"1/s", 0, "burst"},
		{"1/s", -1, "burst"},
		{"0", -1, "burst"},
		{"1/366d", MaxTokens, "burst"},
	}
	for _, tt := range tests {
		if field, _ := refusal(t, tt.in, tt.burst); field != tt.field {
			t.Errorf("ParseRate(%q, %d) names %q, want %q", tt.in, tt.burst, field, tt.field)
		}
	}
}

func refusal(t *testing.T, s string, burst int64) (field, rule string) {
	t.Helper()
	r, err := ParseRate(s, burst)
	var inv *Invalid
	if !errors.As(err, &inv) {
		t.Errorf("ParseRate(%q, %d) = %v, %v; want *Invalid", s, burst, r.String(), err)
		return "", ""
	}
	return inv.Field, inv.Rule
}

func TestStringReadsBackAsTheSameRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		got, err := ParseRate(r.String(), r.Burst())
		if err != nil || got != r {
			t.Fatalf("%+v writes %q, which reads as %+v, %v", r, r.String(), got, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"100/s", "0.1/s", "10/13s", "120/m", "1/h", "1/d", "unlimited", "0", "1e308/s", "-1/s", "9.9/500ms", "0.000000001/ms", "1/7001us"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, s string, burst int64) {
		r, err := ParseRate(s, burst)
		if err != nil {
			var inv *Invalid
			if !errors.As(err, &inv) || inv.Field == "" || inv.Rule == "" {
				t.Fatalf("ParseRate(%q, %d): error without field and rule: %v", s, burst, err)
			}
			return
		}
		again, err := ParseRate(r.String(), burst)
		if err != nil || again != r {
			t.Fatalf("ParseRate(%q, %d) writes %q, which reads as %+v, %v", s, burst, r.String(), again, err)
		}
		var l Level
		d := r.Take(&l, time.Second, 1)
		if d.Allowed == r.IsPaused() {
			t.Fatalf("ParseRate(%q, %d): first take of a full bucket: %+v", s, burst, d)
		}
	})
}

// One second's worth is one rule for everybody who lets a burst be left out.
func TestABurstThatIsLeftOutIsOneSecondsWorth(t *testing.T) {
	for _, c := range []struct {
		text       string
		burst      int64
		want, once int64
	}{
		{"100/s", 0, 100, 100},
		{"3/2s", 0, 2, 2}, // rounded up
		{"0.1/s", 0, 1, 1},
		{"120/m", 0, 2, 2},
		{"100/s", 7, 7, 100},
		{"0", 0, 1, 0},
		{"unlimited", 0, math.MaxInt64, 0},
		{"", 5, math.MaxInt64, 0},
	} {
		r, err := ParseContract(c.text, c.burst)
		if err != nil || r.Burst() != c.want || r.OneSecond() != c.once {
			t.Errorf("%q, %d: burst %d, one second %d, %v", c.text, c.burst, r.Burst(), r.OneSecond(), err)
		}
	}
	if _, err := ParseContract("100", 0); err == nil {
		t.Error("an amount without a period was read")
	}
}
