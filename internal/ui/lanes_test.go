package ui

import (
	"cmp"
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

// The page that is cut out of the order is the one that going through all lanes would give, for every column, way,
// state, search and place.
func TestSortedPageIsOfTheWhole(t *testing.T) {
	searches := []string{"", "sub_", "tenant-1", "nothing", "e\x00h", "a.example", "3"}
	check := func(seed uint16, column, state, search uint8, down bool, offset, limit uint8) bool {
		lanes := newPlatform(int(seed) % 700)
		x := newLaneIndex(lanes)
		c, st, text := &columns[int(column)%len(columns)], append(states, laneState{})[int(state)%(len(states)+1)], searches[int(search)%len(searches)]
		var want []int32
		for i := range lanes {
			l := &lanes[i]
			if (st.is == nil || st.is(l)) && (strings.Contains(l.Subscription, text) || strings.Contains(l.TenantID, text) || strings.Contains(l.HostName, text)) {
				want = append(want, int32(i))
			}
		}
		slices.SortFunc(want, func(a, b int32) int {
			d := int(a - b)
			switch x, y := &lanes[a], &lanes[b]; {
			case c.text != nil:
				d = cmp.Or(strings.Compare(c.text(x), c.text(y)), d)
			default:
				d = cmp.Or(cmp.Compare(c.value(x), c.value(y)), d)
			}
			if down {
				return -d
			}
			return d
		})
		page, passing := x.page(laneQuery{c.Name, st.name, text}, down, int(offset), int(limit))
		from, to := min(int(offset), len(want)), min(int(offset)+int(limit), len(want))
		return passing == len(want) && slices.Equal(page, want[from:to])
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 500}); err != nil {
		t.Error(err)
	}
}

// What was asked of a snapshot is made before the next one is shown, and nothing else: visitors do not wait for it.
func TestANewSnapshotComesWithWhatIsLookedAt(t *testing.T) {
	first, second, third := newLaneIndex(newPlatform(60)), newLaneIndex(newPlatform(60)), newLaneIndex(newPlatform(60))
	q := laneQuery{"parked", "dead", "sub"}
	first.page(q, true, 0, 10)
	second.prepare(first)
	third.prepare(second)
	made := func(x *laneIndex) (parts []string) {
		for i := range x.orders {
			if x.orders[i].value != nil {
				parts = append(parts, columns[i].Name)
			}
		}
		for q := range x.narrow {
			parts = append(parts, fmt.Sprint(q))
		}
		if x.reasons.value != nil {
			parts = append(parts, "reasons")
		}
		return parts
	}
	want := []string{"parked", fmt.Sprint(q)}
	if got := made(second); !slices.Equal(got, want) {
		t.Errorf("the second came with %q, want %q", got, want)
	}
	if got := made(third); slices.Contains(got, want[1]) {
		t.Errorf("the third came with %q, that nobody asked of the second", got)
	}
	for i := range 2 * maxNarrow {
		first.page(laneQuery{"parked", "", fmt.Sprint(i)}, true, 0, 1)
	}
	if n := len(first.narrow); n > maxNarrow {
		t.Errorf("%d searches are kept", n)
	}
}

// pageOfLanes is a request for the list, by an administrator.
func pageOfLanes(f platform) (*UI, func(query string) *httptest.ResponseRecorder) {
	u := New(Options{Platform: f, Identify: func(string) (Who, bool) { return Who{}, true }, API: http.NotFoundHandler(), Links: func(string) uint32 { return 0 }})
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
	for _, query := range []string{"", "?sort=parked", "?sort=subscription", "?q=sub_", "?q=9e3779b1", "?sort=offered&page=9"} {
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
