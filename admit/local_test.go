package admit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/quotatest"
)

// local is a Local with a clock of its own.
type local struct {
	*admit.Local
	now time.Duration
}

func newLocal(bound int) *local { return &local{admit.NewLocal(bound), quotatest.Start} }

func (l *local) Take(c []admit.Check) admit.Answer      { return l.Local.Take(l.now, c) }
func (l *local) Peek(c []admit.Check) admit.Answer      { return l.Local.Peek(l.now, c) }
func (l *local) Refund(c []admit.Check, a admit.Answer) { l.Local.Refund(l.now, c, a) }
func (l *local) Advance(d time.Duration)                { l.now += d }

// Limiter case L28.
// Limiter case L29.
// Limiter case L31.
// Limiter case L32.
// Limiter case L49.
// Limiter case L51.
func TestLocalConforms(t *testing.T) {
	quotatest.Run(t, func(*testing.T) quotatest.Store { return newLocal(1000) })
}

// A counter is forgotten only when it is unused, so forgetting grants nothing: beyond the bound
// newcomers share one counter.
//
// Limiter case L66.
func TestForgettingGrantsNothing(t *testing.T) {
	l := newLocal(3)
	c := quotatest.Bucket("p", 1, time.Second, 5)
	of := func(key string) []admit.Check { return []admit.Check{quotatest.Of(c, key)} }
	for _, key := range []string{"a", "b", "c"} {
		for range 5 {
			l.Take(of(key))
		}
	}
	newcomers := 0
	for range 10 {
		for _, key := range []string{"d", "e", "f"} {
			if l.Take(of(key)).Allowed {
				newcomers++
			}
		}
	}
	if newcomers != 5 {
		t.Errorf("%d of newcomers without room passed, want the 5 of the counter that they share", newcomers)
	}
	for _, key := range []string{"a", "b", "c"} {
		if l.Take(of(key)).Allowed {
			t.Errorf("%s was forgotten with an empty bucket", key)
		}
	}
	l.Advance(4 * time.Second)
	l.Take(of("d"))
	l.Advance(time.Second) // a, b, c are full again, what d to f share is not
	if n := l.Len(); n != 3 {
		t.Errorf("%d counters", n)
	}
	if d := l.Take(of("d")).Checks[0]; d.Remaining != 3 {
		t.Errorf("d has %d left, want those of the shared counter", d.Remaining)
	}
	l.Advance(time.Minute)
	if d := l.Take(of("d")).Checks[0]; d.Remaining != 4 || l.Len() > 3 {
		t.Errorf("d has %d left of a counter of its own, %d counters", d.Remaining, l.Len())
	}
}

// A ticket from before a counter was forgotten gives nothing back to the one that follows.
func TestARefundFindsNoLaterCounter(t *testing.T) {
	l := newLocal(1)
	a, b := []admit.Check{quotatest.PerSecond}, []admit.Check{quotatest.Of(quotatest.PerSecond, "b")}
	first := l.Take(a)
	l.Advance(time.Minute)
	l.Take(b) // takes a's place
	l.Advance(time.Minute)
	for range 10 {
		l.Take(a) // takes b's
	}
	l.Refund(a, first)
	if l.Take(a).Allowed {
		t.Error("an eleventh passed at once")
	}
}

// The same of tickets from the counter that newcomers shared.
func TestARefundOfASharedCounterFindsNoLaterOne(t *testing.T) {
	l := newLocal(1)
	l.Take([]admit.Check{quotatest.Bucket("p", 1, time.Hour, 1)}) // has the only room
	b := []admit.Check{quotatest.Of(quotatest.Bucket("p", 1, time.Second, 5), "b")}
	var tickets []admit.Answer
	for range 20 {
		tickets = append(tickets, l.Take(b))
		l.Advance(time.Second / 2)
	}
	l.Advance(2 * time.Hour)
	for range 5 {
		l.Take(b)
	}
	for _, a := range tickets {
		l.Refund(b, a)
	}
	if l.Take(b).Allowed {
		t.Error("a sixth passed at once")
	}
}

// Each policy has a bound of its own: keys that somebody invents under one take no room of another.
//
// Limiter case L66.
func TestAFloodUnderOnePolicyTakesNoRoomOfAnother(t *testing.T) {
	l := newLocal(10)
	address, tenant := quotatest.Bucket("address", 1, time.Hour, 1), quotatest.Bucket("tenant", 1, time.Hour, 5)
	for i := range 1000 {
		l.Take([]admit.Check{quotatest.Of(address, fmt.Sprint(i))})
	}
	for i := range 10 {
		if d := l.Take([]admit.Check{quotatest.Of(tenant, fmt.Sprint(i))}).Checks[0]; d.Remaining != 4 {
			t.Errorf("tenant %d has %d left of a new counter of its own, want 4", i, d.Remaining)
		}
	}
	if n := l.Len(); n != 20 {
		t.Errorf("%d counters of two policies with room for 10 each", n)
	}
}

// The counters of a policy that a reload took out go, though nobody asks for them.
func TestCountersOfAPolicyThatIsNoMoreGo(t *testing.T) {
	l := newLocal(100)
	for i := range 100 {
		l.Take([]admit.Check{quotatest.Of(quotatest.Bucket("old", 1, time.Second, 1), fmt.Sprint(i))})
	}
	l.Advance(time.Minute)
	for i := range 300 {
		l.Take([]admit.Check{quotatest.Of(quotatest.Bucket("new", 1, time.Hour, 1), fmt.Sprint(i))})
		if i%100 == 99 {
			l.Advance(24 * time.Hour)
		}
	}
	if n := l.Len(); n > 100 {
		t.Errorf("%d counters, of one policy with room for 100", n)
	}
}

// Limiter case L52.
func TestLocalCallersAtOnceNeverPassTheLimit(t *testing.T) {
	l := newLocal(10)
	checks := []admit.Check{quotatest.Fixed("day", 150, admit.Day), quotatest.Sliding("hour", 100, time.Hour)}
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if l.Take(checks).Allowed {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 100 {
		t.Errorf("%d of 400 passed, want the hour's 100", n)
	}
	if d := l.Take(checks).Checks[0]; d.Remaining != 50 {
		t.Errorf("the day has %d left, want 50: denials were recorded", d.Remaining)
	}
}
