package retry

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is the naive twin of a Budget, a Window and a Pool: it keeps every
// event and computes each sum anew, in float64 and in continuous time.
type world struct {
	ratio, reserve float64
	h              time.Duration
	successes      []time.Duration
	retries        []time.Duration // not given back
}

func (m *world) sum(events []time.Duration, now time.Duration) (sum float64) {
	for _, at := range events {
		sum += math.Exp2(-float64(now-at) / float64(m.h))
	}
	return sum
}

// permits answers by the two inequalities of the policy; sure is false within the error.
func (m *world) permits(now time.Duration) (perm Permit, sure bool) {
	s, r := m.sum(m.successes, now), m.sum(m.retries, now)
	margin := (m.ratio*s+r)*windowError + 1e-6
	sure = math.Abs(r+1-m.ratio*s) > margin && math.Abs(r-m.ratio*s-m.reserve) > margin
	switch {
	case r+1 <= m.ratio*s:
		return Own, sure
	case r < m.ratio*s+m.reserve:
		return Reserved, sure
	default:
		return Refused, sure
	}
}

func (m *world) remove(at time.Duration) {
	for i, x := range m.retries {
		if x == at {
			m.retries = append(m.retries[:i], m.retries[i+1:]...)
			return
		}
	}
	panic("not spent")
}

type spent struct {
	perm Permit
	at   time.Duration
}

// Naive twin, without a pool.
func TestBudgetAgainstKeptEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{
			Ratio:    rapid.SampledFrom([]float64{0, 0.05, 0.2, 1}).Draw(t, "ratio"),
			HalfLife: rapid.SampledFrom([]time.Duration{0, time.Second, 7 * time.Minute}).Draw(t, "half-life"),
			Reserve:  rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "reserve"),
		}
		twin := world{ratio: b.ratio(), reserve: b.reserve(), h: orHalfLife(b.HalfLife)}
		var w Window
		var out []spent
		now := time.Duration(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now += gap(t, twin.h)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				b.Succeeded(&w, nil, now, Refused, 0)
				twin.successes = append(twin.successes, now)
			case 1:
				if len(out) == 0 {
					continue
				}
				s := out[len(out)-1]
				out = out[:len(out)-1]
				twin.remove(s.at)
				if rapid.Bool().Draw(t, "succeeded") {
					b.Succeeded(&w, nil, now, s.perm, s.at)
					twin.successes = append(twin.successes, now)
				} else {
					b.GiveBack(&w, nil, now, s.perm, s.at)
				}
			case 2:
				b.Failed(&w, now)
			default:
				got, wait := b.Ask(&w, nil, now)
				if want, sure := twin.permits(now); sure && got != want {
					t.Fatalf("at %v: %v, want %v", now, got, want)
				}
				if (wait == 0) != (got != Refused) {
					t.Fatalf("at %v: %v, wait %v", now, got, wait)
				}
				if got != Refused {
					b.Spend(&w, nil, now, got)
					twin.retries = append(twin.retries, now)
					out = append(out, spent{got, now})
				}
			}
		}
	})
}

// The wait is exact: permitted then, refused a nanosecond before.
func TestTheWaitIsTheLeastThatPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{Reserve: rapid.SampledFrom([]float64{0, 0.01, 0.5, 20}).Draw(t, "reserve")}
		var w Window
		var p Pool
		now := time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += gap(t, halfLife)
			if rapid.Bool().Draw(t, "success") {
				b.Succeeded(&w, &p, now, Refused, 0)
			} else {
				b.Spend(&w, &p, now, Reserved)
			}
		}
		now += gap(t, halfLife)
		if rapid.Bool().Draw(t, "others take the reserve") {
			drainPool(&p, now)
		}
		now += gap(t, 20*time.Millisecond)
		perm, wait := b.Ask(&w, &p, now)
		if perm != Refused {
			return
		}
		if wait <= 0 || wait > time.Hour {
			t.Fatalf("wait %v", wait)
		}
		if perm, _ := b.Ask(&w, &p, now+wait); perm == Refused {
			t.Fatalf("refused after the wait of %v", wait)
		}
		if perm, again := b.Ask(&w, &p, now+wait-1); perm != Refused || again != 1 {
			t.Fatalf("a nanosecond before the wait of %v: %v, %v", wait, perm, again)
		}
	})
}

// I12: in any window what is spent and not given back is bounded, and it is
// never zero for ever.
func TestRetriesAreBoundedInEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Budget
		var w Window
		twin := world{ratio: budgetRatio, reserve: budgetReserve, h: halfLife}
		var out []spent
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += gap(t, halfLife)
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				b.Succeeded(&w, nil, now, Refused, 0)
				twin.successes = append(twin.successes, now)
			case 2:
				if len(out) > 0 {
					s := out[0]
					out = out[1:]
					b.Succeeded(&w, nil, now, s.perm, s.at)
					twin.successes = append(twin.successes, now)
					twin.remove(s.at)
				}
			default:
				perm, wait := b.Ask(&w, nil, now)
				if perm == Refused {
					if wait > time.Hour {
						t.Fatalf("refused for %v", wait)
					}
					continue
				}
				b.Spend(&w, nil, now, perm)
				out = append(out, spent{perm, now})
				twin.retries = append(twin.retries, now)
			}
		}
		checkBound(t, &twin)
	})
}

func checkBound(t *rapid.T, m *world) {
	for i, from := range m.retries {
		for j := i; j < len(m.retries); j++ {
			to := m.retries[j]
			bound := m.ratio * m.sum(before(m.successes, from), from)
			for _, at := range m.successes {
				if at >= from && at <= to {
					bound += m.ratio
				}
			}
			bound += (m.reserve + 1) * (1 + math.Ln2*float64(to-from)/float64(m.h))
			if n := float64(j - i + 1); n > bound*(1+windowError) {
				t.Fatalf("%v retries from %v to %v, bound %v", n, from, to, bound)
			}
		}
	}
}

func before(events []time.Duration, t time.Duration) []time.Duration {
	for i, at := range events {
		if at >= t {
			return events[:i]
		}
	}
	return events
}
