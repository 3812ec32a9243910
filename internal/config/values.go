package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

const day = 24 * time.Hour

var errUnit = errors.New("not a number with a unit")

// ParseDuration reads "15s", "1h30m", "3d". The unit is required. "d" is 24 hours and stands alone.
func ParseDuration(s string) (time.Duration, error) { return strictyaml.ParseDuration(s) }

// FormatDuration writes what ParseDuration reads back, as short as it goes.
func FormatDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var units = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads "20GiB", "512MiB", "64KiB", "100B": whole numbers, the unit required.
func ParseSize(s string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(digits, " "), 10, 63)
		if err != nil || int64(n) > math.MaxInt64/u.size {
			return 0, errUnit
		}
		return int64(n) * u.size, nil
	}
	return 0, errUnit
}

// FormatSize writes what ParseSize reads back, in the greatest unit that divides n.
func FormatSize(n int64) string {
	for _, u := range units {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}

// isOrigin reports whether s is scheme, host and port alone, as a Content-Security-Policy reads them.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && s == u.Scheme+"://"+u.Host && !strings.ContainsAny(s, " ;,'\"*")
}
