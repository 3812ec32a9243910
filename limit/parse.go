package limit

import (
	"strconv"
	"strings"
	"time"
)

const form = `must be "unlimited", "0" (paused) or an amount per period such as "100/s", "0.1/s", "10/13s", "120/m", "1/h", "1/d"`

// ParseRate reads a contract: an amount, which may have decimals, a slash, and a
// period: a unit (ns us ms s m h d) that may follow a whole number. "0.1/s" is 1
// per 10 s, exactly. "unlimited" ignores the burst; "0" is paused. Nothing else
// is accepted: no sign, exponent or space. Errors are *Invalid and name the rule.
func ParseRate(s string, burst int64) (Rate, error) {
	if s == "unlimited" {
		return Unlimited(), nil
	}
	amount, period, found := strings.Cut(s, "/")
	n, scale, ok := parseAmount(amount)
	if !ok || !found && n != 0 {
		return invalid("rate", strconv.Quote(s), form)
	}
	if n > MaxTokens {
		return invalid("rate", strconv.Quote(s), "must be at most 1000000000 tokens per period, decimals reduced")
	}
	if !found {
		return NewRate(0, 0, burst)
	}
	per, ok := parsePeriod(period)
	if !ok {
		return invalid("rate", strconv.Quote(s), form)
	}
	if per > MaxPeriod/time.Duration(scale) {
		return invalid("period", strconv.Quote(s), "must be 1ms to 366 days per whole token count")
	}
	return NewRate(int64(n), per*time.Duration(scale), burst)
}

// ParseContract is ParseRate where "" is unlimited and a burst of 0 is one second's
// worth: OneSecond, or 1 of a paused rate.
func ParseContract(s string, burst int64) (Rate, error) {
	if s == "" {
		return Unlimited(), nil
	}
	if burst == 0 {
		one, err := ParseRate(s, 1)
		if err != nil {
			return Rate{}, err
		}
		burst = max(1, one.OneSecond())
	}
	return ParseRate(s, burst)
}

// parseAmount reads decimals as n/scale, reduced. What has too many digits is
// answered as more than MaxTokens.
func parseAmount(s string) (n, scale uint64, ok bool) {
	whole, decimals, dot := strings.Cut(s, ".")
	if !digits(whole) || dot && !digits(decimals) {
		return 0, 0, false
	}
	decimals = strings.TrimRight(decimals, "0")
	all := strings.TrimLeft(whole+decimals, "0")
	if len(all) > 18 || len(decimals) > 18 {
		return MaxTokens + 1, 1, true
	}
	scale = 1
	for range decimals {
		scale *= 10
	}
	if all != "" {
		n, _ = strconv.ParseUint(all, 10, 64)
	}
	g := gcd(n, scale)
	return n / g, scale / g, true
}

var units = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond},
}

// parsePeriod reads "s" or "13s". What exceeds MaxPeriod is answered as more.
func parsePeriod(s string) (time.Duration, bool) {
	name := strings.TrimLeft(s, "0123456789")
	number := s[:len(s)-len(name)]
	for _, u := range units {
		if u.name != name {
			continue
		}
		if number == "" {
			return u.size, true
		}
		count, err := strconv.ParseInt(number, 10, 64)
		if err != nil || count > int64(MaxPeriod/u.size) {
			return MaxPeriod + 1, true
		}
		return time.Duration(count) * u.size, true
	}
	return 0, false
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// String returns what ParseRate, given the same burst, reads back as an equal
// Rate: per second where that is whole, else per the largest unit that fits.
func (r *Rate) String() string {
	switch {
	case r.IsUnlimited():
		return "unlimited"
	case r.IsPaused():
		return "0"
	}
	k := r.multiple()
	n, per := int64(r.n)*k, time.Duration(r.per*k)
	for _, u := range units {
		if per%u.size == 0 {
			return strconv.FormatInt(n, 10) + "/" + count(per/u.size) + u.name
		}
	}
	panic("limit: unreachable: a period is a whole number of ns")
}

func count(n time.Duration) string {
	if n == 1 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// multiple returns k such that k*n per k*per is in range and reads best.
func (r *Rate) multiple() int64 {
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		k := int64(unit) / int64(gcd(uint64(unit), uint64(r.per)))
		if int64(r.n) <= MaxTokens/k && r.per <= int64(MaxPeriod)/k {
			return k
		}
	}
	return max(1, (int64(MinPeriod)+r.per-1)/r.per)
}
