package delivery

import (
	"net/http"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait that an endpoint can ask for.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter returns the wait that the Retry-After lines of an answer ask for,
// between 0 and MaxRetryAfter, and whether any line was valid (RFC 9110 10.2.3:
// 1*DIGIT, or one of the three forms of HTTP-date; all else counts as absent).
// Of several lines the longest wait holds. A date is taken relative to the
// answer's Date (date, "" if it had none), so that the endpoint's clock need
// not be right, else to now. Past dates are 0.
func RetryAfter(lines []string, date string, now time.Time) (wait time.Duration, ok bool) {
	if len(lines) == 0 {
		return 0, false
	}
	if t, valid := parseDate(trim(date), now); valid {
		now = t
	}
	for _, line := range lines {
		if d, valid := parseWait(trim(line), now); valid {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// parseWait may return less than 0, for a date in the past.
func parseWait(s string, now time.Time) (time.Duration, bool) {
	if d, ok := parseSeconds(s); ok {
		return d, true
	}
	t, ok := parseDate(s, now)
	if !ok {
		return 0, false
	}
	return min(t.Sub(now), MaxRetryAfter), true
}

// parseSeconds takes digits alone, however many.
func parseSeconds(s string) (time.Duration, bool) {
	var d time.Duration
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		d = min(10*d+time.Duration(s[i]-'0')*time.Second, MaxRetryAfter)
	}
	return d, s != ""
}

const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// parseDate takes the three forms of RFC 9110 5.6.7 and nothing that only
// resembles them: what time.Parse lets through (fractions, other zones, a wrong
// weekday) does not survive being written again.
func parseDate(s string, now time.Time) (time.Time, bool) {
	for _, layout := range []string{http.TimeFormat, time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, t.Format(layout) == s
		}
	}
	t, err := time.Parse(rfc850, s)
	if err != nil {
		return time.Time{}, false
	}
	t = century(t, now)
	return t, t.Format(rfc850) == s
}

// century reads a two-digit year as the last one with these digits that is not
// more than 50 years ahead of now.
func century(t, now time.Time) time.Time {
	limit := now.UTC().AddDate(50, 0, 0)
	years := limit.Year()/100*100 + t.Year()%100 - t.Year()
	if moved := t.AddDate(years, 0, 0); !moved.After(limit) {
		return moved
	}
	return t.AddDate(years-100, 0, 0)
}

// trim removes optional whitespace around a field value (RFC 9110 5.6.3).
func trim(s string) string { return strings.Trim(s, " \t") }
