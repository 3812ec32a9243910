package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// platform is a platform of n lanes, some of which need attention.
type platform []fanout.LaneStatus

func newPlatform(n int) platform {
	f := make(platform, n)
	for i := range f {
		l := &f[i]
		l.Lane, l.Subscription, l.TenantID, l.HostName = engine.LaneID(i), fmt.Sprintf("sub_%08x", uint32(i)*2654435761), fmt.Sprintf("tenant-%d", i%4000), "https://a.example:443"
		l.Rate, l.Cap, l.Offered, l.P99 = "unlimited", 16, float64(i*7919%1000)/10, 20e6
		l.Counters.Offered, l.Counters.Delivered = uint64(i), uint64(i)
		if i%50 == 0 {
			l.Counters.Parked, l.Blocked = uint64(i%977), engine.ByRate
		}
	}
	return f
}

func (f platform) Lanes() []fanout.LaneStatus { return slices.Clone(f) }

func (f platform) Lane(string) (fanout.LaneStatus, bool) { return fanout.LaneStatus{}, false }

func (f platform) Tenants() []fanout.TenantStatus { return nil }

func (f platform) Stats() fanout.Stats { return fanout.Stats{Lanes: len(f)} }

// The page that is cut out of the whole list is the one that sorting all of it would give, for every column, way
// and place.
func TestSortedPageIsOfTheWhole(t *testing.T) {
	check := func(seed uint16, column uint8, down bool, offset, limit uint8) bool {
		lanes := newPlatform(int(seed) % 700)
		s := &snapshot{lanes: lanes, values: valuesOf(lanes)}
		by := columns[int(column)%len(columns)].Name
		odd := func(l *fanout.LaneStatus) bool { return l.Lane%3 != 1 }
		whole, n := sortLanes(s, by, down, odd, 0, len(lanes))
		if !slices.IsSortedFunc(whole, func(a, b int32) int { return slicesOrder(lanes, by, down, a, b) }) || n != len(whole) {
			return false
		}
		page, passing := sortLanes(s, by, down, odd, int(offset), int(limit))
		from, to := min(int(offset), n), min(int(offset)+int(limit), n)
		return passing == n && slices.Equal(page, whole[from:to])
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 300}); err != nil {
		t.Error(err)
	}
}

// slicesOrder is the order that a column asks for, said again.
func slicesOrder(lanes platform, by string, down bool, a, b int32) int {
	c, x, y := columnOf(by), &lanes[a], &lanes[b]
	less := c.value != nil && c.value(x) < c.value(y) || c.text != nil && c.text(x) < c.text(y)
	more := c.value != nil && c.value(x) > c.value(y) || c.text != nil && c.text(x) > c.text(y)
	switch {
	case less != down && (less || more):
		return -1
	case less || more:
		return 1
	}
	return int(a - b)
}

// pageOfLanes is a request for the list, by an administrator.
func pageOfLanes(f platform) (*UI, func(query string) *httptest.ResponseRecorder) {
	u := New(Options{Platform: f, Identify: func(string) (Who, bool) { return Who{}, true }, API: http.NotFoundHandler()})
	enter := httptest.NewRecorder()
	form := httptest.NewRequest("POST", "/ui/sign-in", strings.NewReader("key=k"))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	u.Handler().ServeHTTP(enter, form)
	cookies := enter.Result().Cookies()
	return u, func(query string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/ui/lanes"+query, nil)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		u.Handler().ServeHTTP(w, r)
		return w
	}
}

// The list of 50,000 lanes against that of 500: docs/pages.md has the figures.
func BenchmarkLanesPage(b *testing.B) {
	for _, query := range []string{"", "?sort=parked", "?sort=subscription", "?q=tenant-77", "?sort=offered&page=9"} {
		for _, n := range []int{500, 50_000} {
			b.Run(fmt.Sprintf("%s/%d", query, n), func(b *testing.B) {
				u, get := pageOfLanes(newPlatform(n))
				defer u.Close()
				if w := get(query); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
				b.ReportAllocs()
				for b.Loop() {
					get(query)
				}
			})
		}
	}
}
