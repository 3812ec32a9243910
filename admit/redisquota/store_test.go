package redisquota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/quotatest"
	"github.com/fairlane-dev/fairlane/limit"
)

func contract() []admit.Check {
	return []admit.Check{quotatest.PerSecond, quotatest.PerDay, quotatest.PerMonth}
}

// Row D7: all limits of a decision are one script call.
func TestADecisionIsOneRoundTrip(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	st.Take(contract())
	srv.do("CONFIG", "RESETSTAT")
	for range 10 {
		st.Take(contract())
	}
	calls := regexp.MustCompile(`cmdstat_(evalsha|eval|time|multi|exec|script\|load):calls=(\d+)`).FindAllStringSubmatch(srv.do("INFO", "commandstats"), -1)
	if len(calls) != 1 || calls[0][1] != "evalsha" || calls[0][2] != "10" {
		t.Errorf("ten decisions of three limits are %v", calls)
	}
}

// Real time, real concurrency: check and record are one unit, so callers at once get what is there.
//
// Limiter case L42.
// Limiter case L52.
func TestCallersAtOnceNeverPassTheLimit(t *testing.T) {
	srv := serve(t)
	checks := []admit.Check{quotatest.Fixed("month", 150, admit.Month), quotatest.Sliding("day", 100, admit.Day), quotatest.Bucket("burst", 1, admit.Day, 120)}
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		st := srv.open()
		for range 8 {
			wg.Go(func() {
				for range 20 {
					a, err := st.Take(bg, checks)
					if err != nil || a.Away {
						t.Error(err, a.Away)
					}
					if a.Allowed {
						passed.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := passed.Load(); n != 100 {
		t.Errorf("%d of 480 passed, want the day's 100", n)
	}
	if used, err := srv.open().Usage(bg, checks[0]); used != 100 || err != nil {
		t.Errorf("the month has %d, %v: denials were recorded", used, err)
	}
}

// The server's time is asked for outside the script where it is refused inside; never is another
// clock taken for it.
//
// Limiter case L6.
func TestAServerThatTellsNoTimeInAScript(t *testing.T) {
	srv := serve(t)
	st := srv.open()
	st.outside.Store(true)
	c := []admit.Check{quotatest.Bucket("slow", 1, admit.Day, 2)}
	for i, want := range []bool{true, true, false} {
		if a, err := st.Take(bg, c); err != nil || a.Away || a.Allowed != want {
			t.Errorf("take %d: %+v, %v", i, a, err)
		}
	}
	srv.do("ACL", "SETUSER", "untimely", "on", ">pw", "~*", "+@all", "-time")
	un := srv.open(func(c *Config) { c.URL = "redis://untimely:pw@127.0.0.1:" + srv.port })
	a, err := un.Take(bg, c)
	if err != nil || !a.Away || a.Allowed || !un.outside.Load() {
		t.Errorf("without any time: %+v, %v", a, err)
	}
	if s := un.Stats(); s.Doubt != 0 {
		t.Errorf("a decision without an instant was not made: %+v", s)
	}
}

// Limiter case L14.
// Limiter case L39.
func TestAWrongCheckIsATypedErrorBeforeTheStore(t *testing.T) {
	st, err := Open(Config{URL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	two := quotatest.PerDay
	for field, checks := range map[string][]admit.Check{
		"window":    {quotatest.Fixed("p", 1, 500*time.Microsecond)},
		"limit":     {quotatest.Sliding("p", -1, time.Second)},
		"rate":      {quotatest.Bucket("p", -1, time.Second, 1)},
		"period":    {quotatest.Bucket("p", 1, 0, 1)},
		"burst":     {quotatest.Bucket("p", 1, time.Second, 0)},
		"cost":      {quotatest.At(two, 0)},
		"policy":    {quotatest.Fixed("", 1, time.Second)},
		"key":       {two, two},
		"checks":    make([]admit.Check, admit.MaxChecks+1),
		"algorithm": {{Policy: "p", Cost: 1, Spec: admit.Spec{Algorithm: 3}}},
		"away":      {{Policy: "p", Cost: 1, Away: 3}},
	} {
		_, err := st.Take(bg, checks)
		var invalid *limit.Invalid
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if s := st.Stats(); s.Asked != 0 {
		t.Errorf("the store was asked: %+v", s)
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	_, err := Open(Config{URL: "redis://h:1", Prefix: "a{b", Deadline: 1, Replicas: -1, LocalKeys: -1})
	for _, field := range []string{"prefix", "deadline", "replicas", "local keys"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	if _, err := Open(Config{URL: "redis://user:secret@h:not-a-port"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong URL: %v", err)
	}
}

// A key outlives what it counts, so expiry is no early refill, and it does expire.
//
// Limiter case L18.
// Limiter case L39.
func TestAKeyLivesAsLongAsItCounts(t *testing.T) {
	srv := serve(t)
	for _, c := range []struct {
		check admit.Check
		least time.Duration
	}{
		{quotatest.Bucket("tenth", 1, 10*time.Second, 1), 10 * time.Second},
		{quotatest.Bucket("fast", 1_000_000_000, time.Second, 1), 0},
		{quotatest.Fixed("ms", 1, time.Millisecond), time.Millisecond},
		{quotatest.Sliding("half", 1, 500*time.Millisecond), 500 * time.Millisecond},
		{quotatest.PerMonth, admit.Month},
	} {
		srv.do("FLUSHALL")
		steer(t, srv.open()).Take([]admit.Check{c.check})
		var ms int64
		fmt.Sscan(srv.do("PTTL", srv.onlyKey()), &ms)
		ttl := time.Duration(ms) * time.Millisecond
		if most := c.least + c.least/8 + 3*time.Second; ttl < c.least || ttl > most {
			t.Errorf("%s: lives %v, want %v to %v", c.check.Policy, ttl, c.least, most)
		}
	}
}

// Limiter case L38.
func TestALostExpiryBlocksNobodyAndIsRepaired(t *testing.T) {
	srv := serve(t)
	for _, c := range contract() {
		srv.do("FLUSHALL")
		st := steer(t, srv.open())
		for st.Take([]admit.Check{c}).Allowed {
		}
		key := srv.onlyKey()
		srv.do("PERSIST", key)
		if got := srv.do("PTTL", key); got != "-1" {
			t.Fatalf("expiry %s", got)
		}
		st.Advance(2 * c.Spec.Window)
		if !st.Take([]admit.Check{c}).Allowed {
			t.Errorf("%s is blocked by a key without expiry", c.Policy)
		}
		if got := srv.do("PTTL", key); strings.HasPrefix(got, "-") {
			t.Errorf("%s: expiry %s after the next admission", c.Policy, got)
		}
	}
}

// Limiter case L40.
func TestAdmissionsDoNotExtendTheWindow(t *testing.T) {
	st := steer(t, serve(t).open())
	c := []admit.Check{quotatest.Fixed("second", 10, time.Second)}
	for range 10 {
		st.Take(c)
		st.Advance(99 * time.Millisecond)
	}
	if d := st.Take(c).Checks[0]; d.RetryIn != 10*time.Millisecond {
		t.Errorf("wait %v, want the 10 ms to the end of the first second", d.RetryIn)
	}
	st.Advance(10 * time.Millisecond)
	if d := st.Take(c).Checks[0]; !d.Allowed || d.Remaining != 9 {
		t.Errorf("in the next second: %+v", d)
	}
}

// Limiter case L41.
func TestAMissingKeyIsAFreshCounter(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	for range 2 {
		a := st.Take(contract())
		if !a.Allowed || a.Checks[0].Remaining != 9 {
			t.Errorf("%+v", a)
		}
		for _, key := range srv.keys() {
			srv.do("DEL", key)
		}
		st.Refund(contract(), a) // of what is gone: nothing
		if keys := srv.keys(); len(keys) != 0 {
			t.Errorf("a refund made %q", keys)
		}
	}
}

// Limiter case L37.
func TestAFlushedScriptIsSentAgain(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	for i := range int64(3) {
		a := st.Take(contract())
		if a.Checks[1].Remaining != 24-i {
			t.Errorf("%+v", a)
		}
		srv.do("SCRIPT", "FLUSH")
	}
}

// A decision's keys are in one slot, and the script touches no other.
//
// Limiter case L34.
// Limiter case L35.
// Limiter case L36.
func TestADecisionIsOneSlotOfACluster(t *testing.T) {
	srv := serve(t, "--cluster-enabled", "yes")
	srv.do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	until(t, "the cluster is up", func() bool { return strings.Contains(srv.do("CLUSTER", "INFO"), "cluster_state:ok") })
	global := quotatest.Of(quotatest.PerMonth)
	user := quotatest.Of(quotatest.PerDay, "acme", "}ann{")
	for _, a := range []admit.Answer{
		steer(t, srv.open()).Take([]admit.Check{quotatest.PerSecond, user, global}),
		steer(t, srv.open(func(c *Config) { c.Prefix, c.PerTenant = "t", true })).Take([]admit.Check{quotatest.PerSecond, user}),
	} {
		if !a.Allowed {
			t.Errorf("%+v", a)
		}
	}
	slots := map[string]map[string]bool{}
	for _, key := range srv.keys() {
		store, _, _ := strings.Cut(key, ":")
		if slots[store] == nil {
			slots[store] = map[string]bool{}
		}
		slots[store][srv.do("CLUSTER", "KEYSLOT", key)] = true
	}
	if len(slots["fairlane"]) != 1 || len(slots["t"]) != 1 {
		t.Errorf("slots %v", slots)
	}
}

// With a slot for each tenant, tenants spread, and what cannot be in one slot is refused.
//
// Limiter case L35.
func TestPerTenantSpreadsAndRefusesWhatItCannotKeepTogether(t *testing.T) {
	st, err := Open(Config{URL: "redis://127.0.0.1:1", PerTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	c := quotatest.PerDay
	one, two := quotatest.Of(c, "one"), quotatest.Of(c, "two")
	if st.key(&one)[:20] == st.key(&two)[:20] {
		t.Errorf("%s and %s", st.key(&one), st.key(&two))
	}
	for _, checks := range [][]admit.Check{{quotatest.Of(c)}, {one, two}} {
		if _, err := st.Take(bg, checks); err == nil || !strings.Contains(err.Error(), `"day"`) {
			t.Errorf("%v: %v", checks, err)
		}
	}
}

func TestALongKeyIsShortInTheStore(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	long := strings.Repeat("x", 100_000)
	st.Take([]admit.Check{quotatest.Of(quotatest.PerDay, long)})
	st.Take([]admit.Check{quotatest.Of(quotatest.PerDay, long+"y")})
	for _, key := range srv.keys() {
		if len(key) > 300 {
			t.Errorf("a key of %d bytes", len(key))
		}
	}
	if n := len(srv.keys()); n != 2 {
		t.Errorf("%d keys", n)
	}
}

// Limiter case L43.
func TestCheckNamesSettingsThatLoseQuotas(t *testing.T) {
	srv := serve(t)
	if w, err := srv.open().Check(bg); err != nil || len(w) != 0 {
		t.Errorf("a sound server: %q, %v", w, err)
	}
	srv.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	srv.do("CONFIG", "SET", "appendonly", "no")
	srv.do("REPLICAOF", "127.0.0.1", "1")
	w, err := srv.open().Check(bg)
	if err != nil || len(w) != 3 {
		t.Errorf("%q, %v", w, err)
	}
	if a, err := srv.open().Take(bg, contract()); err != nil || !a.Away || a.Allowed {
		t.Errorf("a replica decided: %+v, %v", a, err)
	}
}

// One key that holds something else is that decision's trouble alone.
func TestAForeignValueIsNoGrantAndNoOutage(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	st.Take([]admit.Check{quotatest.PerDay})
	key := srv.onlyKey()
	for _, foreign := range [][]string{{"SET", key, "1.5"}, {"SET", key, ""}, {"SET", key, strings.Repeat("x", 26)}, {"SET", key, "b1" + strings.Repeat("x", 72)}, {"LPUSH", key, "x"}} {
		srv.do("DEL", key)
		srv.do(foreign...)
		for range 10 {
			if a, err := st.Store.Take(bg, []admit.Check{quotatest.PerDay}); err != nil || !a.Away || a.Allowed {
				t.Errorf("%q: %+v, %v", foreign, a, err)
			}
		}
	}
	st.Take([]admit.Check{quotatest.PerMonth}) // fails the test if the store is away
	if s := st.Stats(); s.Doubt != 0 {
		t.Errorf("%+v", s)
	}
}

// The server's wall clock may step: an hour back stalls nothing beyond one period, and what was
// used stays used; forward admits one period's worth.
//
// Limiter case L2.
// Limiter case L3.
// Limiter case L5.
func TestAStepOfTheServersClockIsWorthOnePeriod(t *testing.T) {
	st := steer(t, serve(t).open())
	for _, c := range []admit.Check{quotatest.PerSecond, quotatest.Fixed("minute", 10, time.Minute), quotatest.Sliding("sliding", 10, time.Minute)} {
		checks := []admit.Check{c}
		take := func() (n int) {
			for st.Take(checks).Allowed {
				n++
			}
			return n
		}
		st.Advance(59 * time.Second)
		if n := take(); n != 10 {
			t.Fatalf("%s: %d at first", c.Policy, n)
		}
		st.Advance(-time.Hour)
		if n := take(); n != 0 {
			t.Errorf("%s: a step back admitted %d", c.Policy, n)
		}
		if wait := st.Take(checks).Checks[0].RetryIn; wait > c.Spec.Window*17/16 {
			t.Errorf("%s: a step back stalls %v", c.Policy, wait)
		}
		st.Advance(c.Spec.Window * 17 / 16)
		if n := take(); n != 10 {
			t.Errorf("%s: %d a period after the step back", c.Policy, n)
		}
		st.Advance(366 * admit.Day)
		if n := take(); n != 10 {
			t.Errorf("%s: a step of a year forward admitted %d", c.Policy, n)
		}
	}
}

// Integers only: what is stored is integers by its format, and none is negative or near 2^53.
func TestValuesAreWholeNumbers(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	checks := []admit.Check{
		quotatest.Bucket("odd", 999_983, 13*time.Second, 1_000), quotatest.Bucket("huge", 1, 366*admit.Day, 50),
		quotatest.Fixed("f", limit.MaxTokens, 366*admit.Day), quotatest.Sliding("s", limit.MaxTokens, 7*time.Millisecond),
	}
	for range 20 {
		st.Take(checks)
		st.Advance(1_234_567 * time.Microsecond)
	}
	for _, key := range srv.keys() {
		v := []byte(srv.do("GET", key))
		for v = v[2:]; len(v) >= 8; v = v[8:] {
			if n := binary.LittleEndian.Uint64(v); n >= 1<<53 {
				t.Errorf("%s holds %d", key, n)
			}
		}
		if len(v) != 0 {
			t.Errorf("%s is cut", key)
		}
	}
	real := srv.open(func(c *Config) { c.Prefix = "real" })
	for range 5 { // the server's own clock gives such numbers too
		if a, err := real.Take(bg, checks); err != nil || a.Away {
			t.Errorf("%+v, %v", a, err)
		}
	}
}
