package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, time.October, 21, 7, 26, 0, 0, time.UTC)

// Field case 31.
func TestRetryAfterAsADateInAllThreeForms(t *testing.T) {
	due := noon.Add(2 * time.Minute)
	for _, form := range []string{
		"Wed, 21 Oct 2026 07:28:00 GMT",
		"Wednesday, 21-Oct-26 07:28:00 GMT",
		"Wed Oct 21 07:28:00 2026",
	} {
		if got, ok := RetryAfter([]string{form}, "", noon); !ok || got != 2*time.Minute {
			t.Errorf("%s: %v, %v", form, got, ok)
		}
	}
	early := time.Date(2026, time.October, 1, 7, 28, 0, 0, time.UTC)
	if got, ok := RetryAfter([]string{early.Format(time.ANSIC)}, "", early.Add(-time.Hour)); !ok || got != time.Hour {
		t.Errorf("a day of one digit: %v, %v", got, ok)
	}
	if got, ok := RetryAfter([]string{due.Format(http.TimeFormat)}, "", due.Add(time.Hour)); !ok || got != 0 {
		t.Errorf("an hour ago: %v, %v", got, ok)
	}
}

// Field case 31.
func TestRetryAfterUsesTheEndpointsOwnClock(t *testing.T) {
	fast := noon.Add(10 * time.Minute)
	line := fast.Add(30 * time.Second).Format(http.TimeFormat)
	for date, want := range map[string]time.Duration{
		fast.Format(http.TimeFormat):     30 * time.Second,
		" " + fast.Format(rfc850) + "\t": 30 * time.Second,
		"":                               10*time.Minute + 30*time.Second,
		"yesterday":                      10*time.Minute + 30*time.Second,
		time.Unix(0, 0).UTC().Format(http.TimeFormat):     MaxRetryAfter,
		fast.AddDate(1, 0, 0).UTC().Format(time.ANSIC):    0,
		strings.TrimSuffix(fast.Format(rfc850), "GMT"):    10*time.Minute + 30*time.Second,
		fast.Format(http.TimeFormat) + ", 21 Oct 2026 x ": 10*time.Minute + 30*time.Second,
	} {
		if got, ok := RetryAfter([]string{line}, date, noon); !ok || got != want {
			t.Errorf("Date %q: %v, %v; want %v", date, got, ok, want)
		}
	}
	if got, _ := RetryAfter([]string{"7"}, fast.Format(http.TimeFormat), noon); got != 7*time.Second {
		t.Errorf("seconds do not depend on Date: %v", got)
	}
}

// Field case 31.
func TestLongestOfSeveralRetryAfterLinesHolds(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  time.Duration
		ok    bool
	}{
		{[]string{"10", "120", "30"}, 120 * time.Second, true},
		{[]string{"junk", "30"}, 30 * time.Second, true},
		{[]string{"30", "junk"}, 30 * time.Second, true},
		{[]string{"junk", "-1"}, 0, false},
		{[]string{"0"}, 0, true},
		{nil, 0, false},
	} {
		if got, ok := RetryAfter(c.lines, "", noon); got != c.want || ok != c.ok {
			t.Errorf("%q: %v, %v; want %v, %v", c.lines, got, ok, c.want, c.ok)
		}
	}
}

// Field case 32.
func TestMalformedRetryAfterCountsAsAbsent(t *testing.T) {
	for _, s := range []string{
		"-5", "+3", "1.5", "120junk", "", " ", "120, 30", "1 2", "0x10", "1e3", "\u0661", "12\xff", "\xff", "1\x00",
		"Tue, 30 Feb 2027 00:00:00 GMT",
		"Tue, 21 Oct 2026 07:28:00 GMT", // a Wednesday
		"Wed, 21 Oct 2026 07:28:00 UTC", "Wed, 21 Oct 2026 07:28:00 CET", "Wed, 21 Oct 2026 07:28:00",
		"Wed, 21 Oct 2026 07:28:00.5 GMT", "Wed, 21 Oct 2026 24:00:00 GMT", "wed, 21 oct 2026 07:28:00 gmt",
		"Wed, 21 Oct 26 07:28:00 GMT", "Wed, 1 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-2026 07:28:00 GMT",
		"Wednesday, 21-Oct-26 07:28:00 PST", "Thursday, 21-Oct-26 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00.5 GMT", "Thu Oct 01 07:28:00 2026", "Wed Oct 21 07:28:00 2026 GMT",
		"2026-10-21T07:28:00Z", "1792567680s",
	} {
		if got, ok := RetryAfter([]string{s}, "", noon); ok || got != 0 {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	for s, want := range map[string]time.Duration{
		" 120 ": 120 * time.Second, "\t7\t": 7 * time.Second, "007": 7 * time.Second,
		"86400": MaxRetryAfter, "86401": MaxRetryAfter, "18446744073709551617": MaxRetryAfter,
		strings.Repeat("9", 1000): MaxRetryAfter, "Wed, 21 Oct 2099 07:28:00 GMT": MaxRetryAfter,
	} {
		if got, ok := RetryAfter([]string{s}, "", noon); !ok || got != want {
			t.Errorf("%.40q: %v, %v; want %v", s, got, ok, want)
		}
	}
}

// Field case 31.
func TestTwoDigitYearIsAtMostFiftyYearsAhead(t *testing.T) {
	for _, year := range []int{1977, 1999, 2000, 2025, 2026, 2068, 2069, 2075} {
		day := time.Date(year, time.March, 1, 12, 0, 0, 0, time.UTC)
		got, ok := parseDate(day.Format(rfc850), noon)
		if !ok || !got.Equal(day) {
			t.Errorf("%s: %v, %v; want %v", day.Format(rfc850), got, ok, day)
		}
	}
}

func TestDatesOfAllFormsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := noon.Add(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "now")) * time.Second)
		at := now.Add(time.Duration(rapid.Int64Range(-86400*365*45, 86400*365*45).Draw(t, "at")) * time.Second)
		for _, layout := range []string{http.TimeFormat, rfc850, time.ANSIC} {
			got, ok := parseDate(at.Format(layout), now)
			if !ok || !got.Equal(at) {
				t.Fatalf("%s: %v, %v", at.Format(layout), got, ok)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "-5", "Wed, 21 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00 GMT", "Wed Oct 21 07:28:00 2026", "120, 30"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, line, date string) {
		got, ok := RetryAfter([]string{line}, date, noon)
		if got < 0 || got > MaxRetryAfter || !ok && got != 0 {
			t.Fatalf("%q, Date %q: %v, %v", line, date, got, ok)
		}
		if !ok {
			return
		}
		s := strings.Trim(line, " \t")
		if _, err := http.ParseTime(s); err == nil {
			return
		}
		if n, err := strconv.ParseUint(s, 10, 64); err == nil && n < 86400 && got != time.Duration(n)*time.Second {
			t.Fatalf("%q: %v", line, got)
		} else if strings.Trim(s, "0123456789") != "" {
			t.Fatalf("%q taken as %v", line, got)
		}
	})
}
