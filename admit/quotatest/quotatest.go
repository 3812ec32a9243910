// Package quotatest is what every store of quotas must do: one suite for the store in the
// process and the one in Redis.
package quotatest

import (
	"reflect"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/limit"
)

// Store is a store under test with a clock that the test moves. It begins at an instant that is
// a multiple of every window, in a fresh store.
type Store interface {
	Take(checks []admit.Check) admit.Answer
	Peek(checks []admit.Check) admit.Answer
	Refund(checks []admit.Check, a admit.Answer)
	Advance(d time.Duration)
}

// Start is where the clock begins: a multiple of a second, an hour, a Day, a Month.
const Start = 60 * admit.Month

// The limits of the scripts.
var (
	PerSecond = Bucket("second", 10, time.Second, 10)
	PerDay    = Fixed("day", 25, admit.Day)
	PerMonth  = Sliding("month", 40, admit.Month)
)

// Bucket returns a check of the tenant acme that costs 1.
func Bucket(policy string, n int64, per time.Duration, burst int64) admit.Check {
	return check(policy, admit.Spec{Algorithm: admit.TokenBucket, Limit: n, Window: per, Burst: burst})
}

// Fixed returns one of a fixed window.
func Fixed(policy string, n int64, per time.Duration) admit.Check {
	return check(policy, admit.Spec{Algorithm: admit.FixedWindow, Limit: n, Window: per})
}

// Sliding returns one of a sliding window.
func Sliding(policy string, n int64, per time.Duration) admit.Check {
	return check(policy, admit.Spec{Algorithm: admit.SlidingWindow, Limit: n, Window: per})
}

func check(policy string, s admit.Spec) admit.Check {
	return admit.Check{Policy: policy, Key: []string{"acme"}, Spec: s, Cost: 1}
}

// Of returns the check for another key.
func Of(c admit.Check, key ...string) admit.Check {
	c.Key = key
	return c
}

// At returns the check at another cost.
func At(c admit.Check, cost int64) admit.Check {
	c.Cost = cost
	return c
}

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) { s.run(t, &kit{open(t), t}) })
	}
}

var suite = []struct {
	name string
	run  func(*testing.T, *kit)
}{
	{"a bucket admits its burst, then its rate", bucketThenRate},
	{"a fixed window admits its limit, twice around a boundary", fixedBoundary},
	{"a sliding window never admits more than its limit in any window", slidingBound},
	{"what has left a window does not count", leavesWindow},
	{"a denial records nothing", denialRecordsNothing},
	{"all limits of a decision or none", allOrNothing},
	{"the limit that binds is told", strictest},
	{"waiting as told is enough", promise},
	{"a cost that never fits is told so, and takes nothing", never},
	{"a paused limit admits nothing and takes nothing", paused},
	{"a peek answers as a take and takes nothing", peek},
	{"what is given back can be taken again, once", refund},
	{"what no longer counts is not given back", lateRefund},
	{"a change of limits refills nothing", change},
	{"keys and policies do not mix", apart},
	{"remaining is never negative nor above the limit", bounds},
}

type kit struct {
	Store
	t *testing.T
}

// admits takes until a denial, at most 1,000 times.
func (k *kit) admits(checks ...admit.Check) (n int64) {
	for n < 1000 && k.Take(checks).Allowed {
		n++
	}
	return n
}

func (k *kit) want(what string, got, want any) {
	k.t.Helper()
	if !reflect.DeepEqual(got, want) {
		k.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (k *kit) first(c admit.Check) limit.Decision { return k.Take([]admit.Check{c}).Checks[0] }

func (k *kit) left(c admit.Check) int64 {
	c.Cost = 1
	a := k.Peek([]admit.Check{c})
	if a.Allowed {
		return a.Checks[0].Remaining + 1
	}
	return a.Checks[0].Remaining
}

func bucketThenRate(t *testing.T, k *kit) {
	k.want("at once", k.admits(PerSecond), int64(10))
	k.Advance(99 * time.Millisecond)
	k.want("after 99 ms", k.admits(PerSecond), int64(0))
	k.Advance(time.Millisecond)
	k.want("after 100 ms", k.admits(PerSecond), int64(1))
	k.Advance(time.Hour)
	k.want("after an hour", k.admits(PerSecond), int64(10))
	third := Bucket("third", 3, time.Second, 1) // 333,333 1/3 us
	k.want("a third", k.admits(third), int64(1))
	k.Advance(333_333 * time.Microsecond)
	k.want("a third, early", k.admits(third), int64(0))
	k.Advance(time.Microsecond)
	k.want("a third", k.admits(third), int64(1))
}

func fixedBoundary(t *testing.T, k *kit) {
	c := Fixed("minute", 120, time.Minute)
	k.Advance(59*time.Second + 900*time.Millisecond)
	k.want("before the boundary", k.admits(c), int64(120))
	k.Advance(99 * time.Millisecond)
	k.want("1 ms before it", k.admits(c), int64(0))
	k.Advance(time.Millisecond)
	k.want("on it", k.admits(c), int64(120))
}

func slidingBound(t *testing.T, k *kit) {
	c := Sliding("minute", 120, time.Minute)
	const step = 250 * time.Millisecond
	var took []int64
	for range 4 * 240 {
		took = append(took, k.admits(c))
		k.Advance(step)
	}
	var inWindow, most, all int64
	for i, n := range took {
		inWindow += n
		all += n
		if i >= 240 {
			inWindow -= took[i-240]
		}
		most = max(most, inWindow)
	}
	k.want("most in a minute", most, int64(120))
	if least := int64(4 * 120 * admit.SlidingParts / (admit.SlidingParts + 1)); all < least {
		t.Errorf("%d admitted in four minutes, want at least %d", all, least)
	}
}

func leavesWindow(t *testing.T, k *kit) {
	c := Sliding("minute", 10, time.Minute)
	k.want("at first", k.admits(c), int64(10))
	k.Advance(time.Minute + time.Minute/admit.SlidingParts)
	k.want("after the window and a sub-window", k.admits(c), int64(10))
	k.Advance(admit.Month)
	k.want("after a month", k.admits(c), int64(10))
}

func denialRecordsNothing(t *testing.T, k *kit) {
	for _, c := range []admit.Check{PerSecond, PerDay, PerMonth} {
		k.admits(c)
		before := k.Peek([]admit.Check{c})
		for range 50 {
			k.Take([]admit.Check{c})
		}
		k.want(c.Policy, k.Peek([]admit.Check{c}), before)
	}
	k.Advance(admit.Day)
	k.want("a day later", k.left(PerDay), int64(25))
}

func allOrNothing(t *testing.T, k *kit) {
	k.Take([]admit.Check{At(PerDay, 24)})
	all := []admit.Check{PerSecond, PerMonth, PerDay}
	k.want("together", k.admits(all...), int64(1))
	k.want("left of the second", k.left(PerSecond), int64(9))
	k.want("left of the month", k.left(PerMonth), int64(39))
	k.want("left of the day", k.left(PerDay), int64(0))
	a := k.Take(all)
	k.want("remaining of what was not taken", a.Checks[0].Remaining, int64(9))
	k.want("and of the month", a.Checks[1].Remaining, int64(39))
	k.want("allowed alone", [3]bool{a.Checks[0].Allowed, a.Checks[1].Allowed, a.Checks[2].Allowed}, [3]bool{true, true, false})
}

func strictest(t *testing.T, k *kit) {
	all := []admit.Check{PerSecond, PerDay, PerMonth}
	a := k.Take(all)
	k.want("allowed: the least left", a.Strictest(), 0)
	k.admits(PerDay)
	a = k.Take(all)
	k.want("denied: the one that denies", a.Strictest(), 1)
	k.admits(PerSecond)
	a = k.Take(all)
	k.want("denied twice: the longest wait", a.Strictest(), 1)
}

func promise(t *testing.T, k *kit) {
	for _, c := range []admit.Check{PerSecond, PerDay, PerMonth, Bucket("seventh", 7, time.Second, 3), Sliding("odd", 5, 14*time.Millisecond)} {
		k.Advance(1234 * time.Microsecond)
		c.Cost = 3
		k.admits(c)
		d := k.first(c)
		k.want(c.Policy+" waits", d.Allowed || d.RetryIn <= 0, false)
		k.Advance(d.RetryIn - time.Microsecond)
		k.want(c.Policy+" a hair before", k.first(c).Allowed, false)
		k.Advance(time.Microsecond)
		k.want(c.Policy+" as told", k.first(c).Allowed, true)
	}
}

func never(t *testing.T, k *kit) {
	for _, c := range []admit.Check{At(PerSecond, 11), At(PerDay, 26), At(PerMonth, 41)} {
		d := k.first(c)
		k.want(c.Policy, [3]any{d.Allowed, d.Reason, d.RetryIn}, [3]any{false, limit.Never, time.Duration(0)})
		k.want(c.Policy+" remaining", d.Remaining, c.Spec.Most())
	}
}

func paused(t *testing.T, k *kit) {
	none := Fixed("none", 0, time.Second)
	a := k.Take([]admit.Check{PerSecond, none})
	k.want("allowed", a.Allowed, false)
	k.want("reason", a.Checks[1].Reason, limit.Paused)
	k.want("the other's remaining", a.Checks[0].Remaining, int64(10))
	k.want("left", k.left(PerSecond), int64(10))
	k.want("alone", k.Take([]admit.Check{none}).Allowed, false)
	k.want("no checks", k.Take(nil).Allowed, true)
}

func peek(t *testing.T, k *kit) {
	all := []admit.Check{At(PerSecond, 2), PerDay, PerMonth}
	for range 7 {
		p := k.Peek(all)
		k.want("the same again", k.Peek(all), p)
		k.want("the take", k.Take(all), p)
	}
}

func refund(t *testing.T, k *kit) {
	all := []admit.Check{At(PerSecond, 4), At(PerDay, 4), At(PerMonth, 4)}
	k.Take(all)
	a := k.Take(all)
	k.Advance(time.Millisecond)
	k.Refund(all, a)
	k.want("second", k.left(PerSecond), int64(6))
	k.want("day", k.left(PerDay), int64(21))
	k.want("month", k.left(PerMonth), int64(36))
	a = k.Take([]admit.Check{At(PerSecond, 7)})
	k.Refund([]admit.Check{At(PerSecond, 7)}, a) // denied: there is nothing to give back
	k.want("second, after the refund of a denial", k.left(PerSecond), int64(6))
}

func lateRefund(t *testing.T, k *kit) {
	all := []admit.Check{PerSecond, PerDay, PerMonth}
	a := k.Take(all)
	k.Advance(2 * admit.Month)
	k.admits(PerSecond)
	k.Take([]admit.Check{At(PerDay, 5), At(PerMonth, 5)})
	k.Refund(all, a)
	k.want("second", k.left(PerSecond), int64(0))
	k.want("day", k.left(PerDay), int64(20))
	k.want("month", k.left(PerMonth), int64(35))
}

func change(t *testing.T, k *kit) {
	few, many := Bucket("tier", 2, time.Second, 10), Bucket("tier", 100, time.Second, 300)
	k.Take([]admit.Check{At(few, 7)})
	k.want("bucket, raised", k.left(many), int64(3))
	k.admits(many)
	k.Advance(50 * time.Millisecond)
	k.want("bucket, accrued", k.left(many), int64(5))
	k.Take([]admit.Check{many})
	k.want("bucket, lowered", k.left(few), int64(4))
	before := k.Take([]admit.Check{At(few, 3)})
	k.left(many)
	k.Take([]admit.Check{At(few, 1)})
	k.Refund([]admit.Check{At(few, 3)}, before)
	k.want("bucket, after a refund of what was taken before two changes", k.left(few), int64(0))
	small, big := Fixed("quota", 10, admit.Day), Fixed("quota", 20, admit.Day)
	k.Take([]admit.Check{At(small, 8)})
	k.want("window, raised", k.left(big), int64(12))
	k.Take([]admit.Check{At(big, 7)})
	k.want("window, lowered below what was used", k.left(small), int64(0))
	k.want("window, another width", k.left(Fixed("quota", 20, time.Hour)), int64(5))
	k.Take([]admit.Check{At(PerMonth, 30)})
	k.want("sliding, another width", k.left(Sliding("month", 40, admit.Day)), int64(10))
}

func apart(t *testing.T, k *kit) {
	one := Fixed("p", 1, admit.Day)
	for _, c := range []admit.Check{
		Of(one, "ab", "c"), Of(one, "a", "bc"), Of(one, "abc"), Of(one), Of(one, ""), Of(one, "", ""), Of(one, "}"), Of(one, "{a}"), Of(one, "a:1:b"), Of(one, "a", "b"),
		Sliding("p", 1, admit.Day), Bucket("p", 1, admit.Day, 1), one, Fixed("p4:acme", 1, admit.Day),
	} {
		k.want("first of "+string(c.AppendKey(nil)), k.admits(c), int64(1))
	}
}

func bounds(t *testing.T, k *kit) {
	for _, c := range []admit.Check{PerSecond, PerDay, PerMonth} {
		for i := range int64(60) {
			d := k.first(At(c, 1+i%4))
			if d.Remaining < 0 || d.Remaining > c.Spec.Most() {
				t.Errorf("%s: remaining %d", c.Policy, d.Remaining)
			}
			k.Advance(30 * time.Millisecond)
		}
	}
}
