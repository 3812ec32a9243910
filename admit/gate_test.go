package admit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/limit"
)

const minute = time.Minute

func bucket(n int64, per time.Duration, burst int64) Spec {
	return Spec{Algorithm: TokenBucket, Limit: n, Window: per, Burst: burst}
}

func tiers() []Tier { return []Tier{{Name: "free", Share: 2}, {Name: "pro", Share: 6, Weight: 3}} }

func newGate(t *testing.T, c Config) *Gate {
	t.Helper()
	g, _, err := NewGate(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// decide asks a plan's local checks, as a door does.
func decide(g *Gate, l *Local, now time.Duration, r Request) Verdict {
	p := g.Plan(&r)
	o := Outcome{Local: l.Take(now, p.Local)}
	for i := range p.WatchLocal {
		ask := l.Peek
		if o.Local.Allowed {
			ask = l.Take
		}
		o.WatchLocal = append(o.WatchLocal, ask(now, p.WatchLocal[i:i+1]).Checks[0])
	}
	return p.Verdict(&o)
}

// A policy that denies keeps all others from counting the request.
// Limiter case L49.
func TestADenialIsRecordedNowhere(t *testing.T) {
	g := newGate(t, Config{Policies: []Policy{
		{Name: "all", Spec: bucket(1, minute, 10), Percent: 100},
		{Name: "tenant", Key: []Part{ByTenant}, Spec: bucket(1, minute, 2), Percent: 100},
		{Name: "route", Key: []Part{ByTenant, ByRoute}, Spec: Spec{Algorithm: SlidingWindow, Limit: 5, Window: minute}, Percent: 100},
	}})
	l := NewLocal(100)
	for i := range 50 {
		if v := decide(g, l, time.Hour, Request{Tenant: "noisy", Route: "a"}); v.Allowed != (i < 2) {
			t.Fatalf("request %d: allowed %v", i, v.Allowed)
		}
	}
	v := decide(g, l, time.Hour, Request{Tenant: "quiet", Route: "a"})
	if !v.Allowed || v.Limits[0].Decision.Remaining != 7 || v.Limits[2].Decision.Remaining != 4 {
		t.Errorf("another tenant finds %+v", v.Limits)
	}
}

// The answer is that of the strictest: a denial before what is allowed, the longest
// wait of the denials.
// Limiter case L51.
func TestTheStrictestAnswers(t *testing.T) {
	g := newGate(t, Config{Policies: []Policy{
		{Name: "short", Spec: bucket(1, time.Second, 1), Percent: 100},
		{Name: "long", Spec: bucket(1, minute, 1), Percent: 100},
		{Name: "wide", Spec: bucket(1, time.Second, 100), Percent: 100},
	}})
	l := NewLocal(10)
	if v := decide(g, l, 0, Request{}); v.Limits[v.Binding].Policy != "long" {
		t.Errorf("allowed: bound by %s, want the one with the least left for the longest", v.Limits[v.Binding].Policy)
	}
	v := decide(g, l, 0, Request{})
	if hit, _ := v.Limit(); v.Allowed || hit.Policy != "long" || hit.Decision.RetryIn != minute {
		t.Errorf("denied: %+v", v.Limits[v.Binding])
	}
}

// An observed policy says what it would have refused. It changes no answer and no
// counter of an enforced policy.
// Limiter case L53.
func TestObservingChangesNothing(t *testing.T) {
	enforced := Policy{Name: "on", Key: []Part{ByTenant}, Spec: bucket(1, minute, 5), Percent: 100}
	watched := Policy{Name: "off", Key: []Part{ByTenant}, Spec: bucket(1, minute, 2)}
	plain := newGate(t, Config{Policies: []Policy{enforced}})
	both := newGate(t, Config{Policies: []Policy{enforced, watched}})
	a, b := NewLocal(10), NewLocal(10)
	would := 0
	for i := range 8 {
		now := time.Duration(i) * time.Second
		v, w := decide(plain, a, now, Request{Tenant: "x"}), decide(both, b, now, Request{Tenant: "x"})
		if v.Allowed != w.Allowed || v.Limits[0] != w.Limits[0] {
			t.Fatalf("request %d: %+v with an observed policy, %+v without", i, w.Limits, v.Limits)
		}
		if len(w.Would) > 0 {
			would++
		}
	}
	if would != 6 {
		t.Errorf("would have denied %d, want 6: also those that the enforced one denied", would)
	}
}

// A percentage is of keys and stable by key; a higher one adds to a lower one.
func TestAPercentageIsStableByKey(t *testing.T) {
	p := Policy{Name: "rollout", Key: []Part{ByTenant}}
	on := map[int]map[string]bool{}
	for _, percent := range []int{0, 10, 50, 99, 100} {
		p.Percent = percent
		on[percent] = map[string]bool{}
		for i := range 10_000 {
			key := []string{fmt.Sprint("tenant", i)}
			on[percent][key[0]] = p.enforces(key)
			if p.enforces(key) != on[percent][key[0]] {
				t.Fatal("not stable")
			}
		}
	}
	for _, pair := range [][2]int{{0, 10}, {10, 50}, {50, 99}, {99, 100}} {
		for key, is := range on[pair[0]] {
			if is && !on[pair[1]][key] {
				t.Fatalf("%s is in %d %% and not in %d %%", key, pair[0], pair[1])
			}
		}
	}
	n := 0
	for _, is := range on[10] {
		if is {
			n++
		}
	}
	if n < 900 || n > 1100 || len(on[100]) != 10_000 {
		t.Errorf("10 %% of 10,000 are %d", n)
	}
}

// A tier that changes gives its limits to the next request and refills nothing.
// Limiter case L64.
func TestATierThatChangesHoldsForTheNextRequestAndRefillsNothing(t *testing.T) {
	free, pro := bucket(2, time.Second, 10), bucket(20, time.Second, 60)
	g := newGate(t, Config{Tiers: tiers(), Policies: []Policy{
		{Name: "rate", Key: []Part{ByTenant}, Tiers: map[string]*Spec{"free": &free, "pro": &pro}, Percent: 100},
	}})
	l := NewLocal(10)
	ask := func(tier string) *Hit {
		v := decide(g, l, time.Hour, Request{Tenant: "acme", Tier: tier})
		hit, _ := v.Limit()
		return hit
	}
	for range 7 {
		ask("free")
	}
	for _, step := range []struct {
		tier      string
		allowed   bool
		remaining int64
	}{
		{"pro", true, 2}, // three were left: not 60 less what was used, nor 60
		{"free", true, 1}, {"pro", true, 0}, {"pro", false, 0}, {"free", false, 0},
	} {
		if h := ask(step.tier); h.Decision.Allowed != step.allowed || h.Decision.Remaining != step.remaining {
			t.Errorf("%s: %+v, want allowed %v and %d left", step.tier, h.Decision, step.allowed, step.remaining)
		}
	}
}

// Counters are forgotten only when nothing is used, and a reload of the same
// policies, as another Gate, finds them as they were.
// Limiter case L66.
func TestEvictionAndReloadGrantNothing(t *testing.T) {
	config := Config{Policies: []Policy{{Name: "rate", Key: []Part{ByTenant}, Spec: bucket(1, time.Hour, 3), Percent: 100}}}
	l := NewLocal(50)
	passed := map[string]int{}
	for round := range 20 {
		g := newGate(t, config) // a reload
		for i := range 200 {
			tenant := fmt.Sprint("t", i)
			if decide(g, l, time.Duration(round)*time.Second, Request{Tenant: tenant}).Allowed {
				passed[tenant]++
			}
		}
	}
	if l.Len() > 50 {
		t.Errorf("%d counters, bound 50", l.Len())
	}
	for tenant, n := range passed {
		if n > 3 {
			t.Errorf("%s passed %d times with a burst of 3", tenant, n)
		}
	}
}

// A clock that steps back by a year neither grants nor stalls.
// Limiter case L2.
func TestAClockStepNeitherGrantsNorStalls(t *testing.T) {
	const year = 365 * 24 * time.Hour
	g := newGate(t, Config{Policies: []Policy{
		{Name: "rate", Key: []Part{ByTenant}, Spec: bucket(1, time.Second, 2), Percent: 100},
		{Name: "day", Key: []Part{ByTenant}, Spec: Spec{Algorithm: FixedWindow, Limit: 100, Window: Day}, Percent: 100},
	}})
	l := NewLocal(10)
	for _, step := range []struct {
		now     time.Duration
		allowed bool
	}{
		{2 * year, true}, {2 * year, true}, {2 * year, false},
		{year, false}, {0, false}, {2*year - 1, false}, // back: as if no time had passed
		{2*year + time.Second, true}, {2*year + time.Second, false},
	} {
		if v := decide(g, l, step.now, Request{Tenant: "a"}); v.Allowed != step.allowed {
			t.Errorf("at %v: allowed %v", step.now, v.Allowed)
		}
	}
}

// Costs are the route's, or the policy's for that route; a cost above this
// tenant's burst is never, not later.
// Limiter case L21.
func TestCostsAreByRoute(t *testing.T) {
	small, large := bucket(1, time.Second, 5), bucket(1, time.Second, 100)
	g := newGate(t, Config{
		Tiers:       tiers(),
		Routes:      []Route{{Name: "report", Methods: []string{"POST"}, Path: "/reports/**", Cost: 10}, {Name: "read", Path: "/reports/**", Cost: 2}},
		DefaultCost: 1,
		Policies: []Policy{
			{Name: "rate", Key: []Part{ByTenant}, Tiers: map[string]*Spec{"free": &small, "pro": &large}, Percent: 100},
			{Name: "calls", Spec: bucket(1, time.Second, 50), Costs: map[string]int64{"report": 1}, Percent: 100},
		},
	})
	l := NewLocal(10)
	for _, step := range []struct {
		method, path, tier string
		cost, calls        int64
		reason             limit.Reason
	}{
		{"POST", "/reports/1", "pro", 10, 1, limit.Passed},
		{"GET", "/reports/1", "pro", 2, 2, limit.Passed},
		{"GET", "/other", "pro", 1, 1, limit.Passed},
		{"POST", "/reports", "free", 10, 1, limit.Never},
	} {
		route, _ := g.Route(step.method, step.path)
		v := decide(g, l, 0, Request{Tenant: step.tier, Tier: step.tier, Route: route})
		if h := v.Limits[0]; h.Cost != step.cost || v.Limits[1].Cost != step.calls || h.Decision.Reason != step.reason {
			t.Errorf("%s %s: costs %d and %d, %s", step.method, step.path, h.Cost, v.Limits[1].Cost, h.Decision.Reason)
		}
	}
}

// Parts of keys cannot be glued so that two keys become one.
// Limiter case L61.
func TestKeysAreJoinedUnambiguously(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[0-9:;|/a]{0,4}`)
		a, b := []string{part.Draw(t, "a1"), part.Draw(t, "a2")}, []string{part.Draw(t, "b1"), part.Draw(t, "b2")}
		x, y := Check{Policy: "p", Key: a}, Check{Policy: "p", Key: b}
		if (string(x.AppendKey(nil)) == string(y.AppendKey(nil))) != slices.Equal(a, b) {
			t.Fatalf("%q and %q share a key, or do not share their own", a, b)
		}
	})
}

// A client behind trusted proxies is the rightmost hop that is none of them;
// nobody else's word counts.
// Field case 89.
// Limiter case L62.
// Limiter case L63.
func TestTheClientIsTheRightmostUntrustedHop(t *testing.T) {
	proxies := Proxies{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		NAT64:   []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")},
	}
	for _, tc := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"192.0.2.1", []string{"1.2.3.4"}, "192.0.2.1"}, // not a proxy of ours
		{"10.0.0.1", nil, "10.0.0.1"},
		{"10.0.0.1", []string{"6.6.6.6, 192.0.2.7"}, "192.0.2.7"},
		{"10.0.0.1", []string{"6.6.6.6", "192.0.2.7"}, "192.0.2.7"},
		{"10.0.0.1", []string{"6.6.6.6, 192.0.2.7, 10.9.9.9"}, "192.0.2.7"},
		{"10.0.0.1", []string{"6.6.6.6, garbage, 10.9.9.9"}, "10.9.9.9"},
		{"10.0.0.1", []string{"garbage"}, "10.0.0.1"},
		{"10.0.0.1", []string{"192.0.2.7,"}, "10.0.0.1"},
		{"10.0.0.1", []string{"192.0.2.7:1234"}, "192.0.2.7"},
		{"10.0.0.1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"10.0.0.1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.0.0.1", []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{"::ffff:10.0.0.1", []string{"::ffff:192.0.2.7"}, "192.0.2.7"},
		{"fd00::1", []string{"64:ff9b::c000:207"}, "192.0.2.7"},
		{"::ffff:192.0.2.9", []string{"1.2.3.4"}, "192.0.2.9"},
		{"10.0.0.1", []string{strings.Repeat("10.1.1.1, ", 10_000) + "10.1.1.1"}, "10.1.1.1"},
	} {
		if got := proxies.Client(netip.MustParseAddr(tc.peer), tc.forwarded); got.String() != tc.want {
			t.Errorf("%s with %.60q: %s, want %s", tc.peer, tc.forwarded, got, tc.want)
		}
	}
}

// Addresses of one customer's network are one key, addresses of different IPv4
// customers never are, however they are written.
// Limiter case L59.
// Limiter case L60.
func TestNetworksAreWhatOneCustomerHas(t *testing.T) {
	for _, tc := range []struct {
		a, b   string
		v4, v6 int
		same   bool
	}{
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", 32, 64, true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", 32, 64, false},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", 32, 48, true},
		{"::ffff:1.2.3.4", "::ffff:1.2.3.5", 32, 56, false},
		{"::ffff:1.2.3.4", "1.2.3.4", 32, 64, true},
		{"1.2.3.4", "1.2.3.200", 24, 64, true},
		{"fe80::1%eth0", "fe80::1", 32, 64, true},
	} {
		a, b := Network(netip.MustParseAddr(tc.a), tc.v4, tc.v6), Network(netip.MustParseAddr(tc.b), tc.v4, tc.v6)
		if (a == b) != tc.same {
			t.Errorf("%s and %s by /%d and /%d: %s and %s", tc.a, tc.b, tc.v4, tc.v6, a, b)
		}
	}
	if got := Network(netip.Addr{}, 32, 64); got != "unknown" {
		t.Errorf("no address: %s", got)
	}
}

// Requests without a valid credential count against the policies for them and
// against no other.
// Field case 88.
func TestFailedCredentialsCountAgainstTheirAddressAlone(t *testing.T) {
	g := newGate(t, Config{Policies: []Policy{
		{Name: "tenant", Key: []Part{ByTenant}, Spec: bucket(1, minute, 5), Percent: 100},
		{Name: "all", Spec: bucket(1, minute, 5), Percent: 100},
		{Name: "guessing", Key: []Part{ByAddress}, Spec: bucket(1, minute, 2), Percent: 100, Failed: true},
	}})
	l := NewLocal(100)
	evil := netip.MustParseAddr("192.0.2.6")
	denied := 0
	for range 10_000 {
		if v := decide(g, l, 0, Request{Address: evil, Failed: true}); !v.Allowed {
			denied++
		}
	}
	if denied != 9_998 || l.Len() != 1 {
		t.Errorf("%d denied and %d counters, want 9998 and 1", denied, l.Len())
	}
	if v := decide(g, l, 0, Request{Tenant: "acme", Address: evil}); !v.Allowed || v.Limits[0].Decision.Remaining != 4 || v.Limits[1].Decision.Remaining != 4 {
		t.Errorf("a valid request finds %+v", v.Limits)
	}
}

// A configuration is refused with each field and rule that is wrong.
func TestNewGateRefusesWhatCannotWork(t *testing.T) {
	fits, tiny := bucket(1, time.Second, 100), bucket(1, time.Second, 3)
	for name, tc := range map[string]struct {
		config Config
		want   string
	}{
		"no limit for a tier": {Config{Tiers: tiers(), Policies: []Policy{{Name: "p", Tiers: map[string]*Spec{"free": &fits}}}}, "policies.p.tiers: lacks a limit for tier pro"},
		"unknown tier":        {Config{Tiers: tiers()[:1], Policies: []Policy{{Name: "p", Tiers: map[string]*Spec{"free": &fits, "gold": &fits}}}}, "policies.p.tiers.gold: is no tier"},
		"cost":                {Config{Routes: []Route{{Name: "r", Path: "/", Cost: 4}}, Policies: []Policy{{Name: "p", Spec: tiny}}}, "never lets route r through: it costs 4, more than every burst"},
		"window":              {Config{Policies: []Policy{{Name: "p", Spec: Spec{Algorithm: FixedWindow, Limit: 1}}}}, "window"},
		"user alone":          {Config{Policies: []Policy{{Name: "p", Key: []Part{ByUser}, Spec: fits}}}, "must name tenant beside user"},
		"part twice":          {Config{Policies: []Policy{{Name: "p", Key: []Part{ByRoute, ByRoute}, Spec: fits}}}, "must name route once"},
		"percent of one":      {Config{Policies: []Policy{{Name: "p", Spec: fits, Percent: 10}}}, "without a key"},
		"name":                {Config{Policies: []Policy{{Name: `a"b`, Spec: fits}}}, NameRule},
		"twice":               {Config{Policies: []Policy{{Name: "p", Spec: fits}, {Name: "p", Spec: fits}}}, "must stand once"},
		"route":               {Config{Policies: []Policy{{Name: "p", Spec: fits, Routes: []string{"zz"}}}}, "names zz, which is no route"},
		"path":                {Config{Routes: []Route{{Name: "r", Path: "/a/**/b"}}}, "routes.r.path"},
		"failed tenant":       {Config{Policies: []Policy{{Name: "p", Key: []Part{ByTenant}, Spec: fits, Failed: true}}}, "without a valid credential has none"},
		"bits":                {Config{Policies: []Policy{{Name: "p", Spec: fits, V6: 8}}}, "16 to 128 bits"},
		"share":               {Config{Tiers: []Tier{{Name: "a", Share: -1}}}, "tiers.a.share"},
	} {
		_, _, err := NewGate(tc.config)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, warnings, err := NewGate(Config{
		Tiers: tiers(), Routes: []Route{{Name: "r", Path: "/", Cost: 4}},
		Policies: []Policy{{Name: "p", Tiers: map[string]*Spec{"free": &tiny, "pro": &fits}}},
	})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Rule, "for some tiers") {
		t.Errorf("a cost that some tiers cannot pay: %v, %v", warnings, err)
	}
}

// All invariants at once, against a search for a window in which too much passed.
func TestNoKeyPassesMoreThanItsContractUnderAnySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := bucket(rapid.Int64Range(1, 5).Draw(t, "n"), time.Second, rapid.Int64Range(1, 6).Draw(t, "burst"))
		g, _, err := NewGate(Config{Policies: []Policy{
			{Name: "tenant", Key: []Part{ByTenant}, Spec: spec, Percent: 100},
			{Name: "all", Spec: bucket(7, time.Second, 9), Percent: 100},
		}})
		if err != nil {
			t.Fatal(err)
		}
		l := NewLocal(2)
		passed := map[string][]time.Duration{}
		var now, seen time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += time.Duration(rapid.IntRange(-200, 900).Draw(t, "ms")) * time.Millisecond
			now = max(now, 0)
			seen = max(seen, now) // an earlier instant is that
			tenant := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "tenant"))
			if v := decide(g, l, now, Request{Tenant: tenant}); v.Allowed {
				passed[tenant] = append(passed[tenant], seen)
			} else if hit, _ := v.Limit(); hit.Decision.RetryIn <= 0 || hit.Decision.Remaining < 0 {
				t.Fatalf("denied with %+v", hit.Decision)
			}
		}
		for tenant, at := range passed {
			for i := range at {
				for j := i; j < len(at); j++ {
					span := (at[j] - at[i]).Seconds() + 1e-9
					if most := float64(spec.Burst) + span*float64(spec.Limit); float64(j-i+1) > most {
						t.Fatalf("%s passed %d within %.2f s", tenant, j-i+1, span)
					}
				}
			}
		}
	})
}
