package redisquota

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/quotatest"
)

// The suite that the store in the process passes.
//
// Limiter case L28.
// Limiter case L29.
// Limiter case L31.
// Limiter case L32.
// Limiter case L49.
// Limiter case L50.
// Limiter case L51.
func TestRedisConforms(t *testing.T) {
	srv := serve(t)
	quotatest.Run(t, func(t *testing.T) quotatest.Store {
		srv.do("FLUSHALL")
		return steer(t, srv.open())
	})
}

// twin is the store in the process with the test's clock.
type twin struct {
	*admit.Local
	now time.Duration
}

var windows = []time.Duration{2 * time.Millisecond, time.Second, time.Minute, admit.Day, admit.Month}

func drawCheck(t *rapid.T, policy string) admit.Check {
	s := admit.Spec{
		Algorithm: admit.Algorithm(rapid.IntRange(0, 2).Draw(t, "algorithm")),
		Limit:     rapid.SampledFrom([]int64{0, 1, 2, 3, 7, 10, 100, 27_000, 999_983, 1_000_000_000}).Draw(t, "limit"),
		Window:    rapid.SampledFrom(windows).Draw(t, "window"),
	}
	if s.Algorithm == admit.TokenBucket {
		s.Burst = rapid.SampledFrom([]int64{1, 2, 5, 40, 18_000, 1_000_000_000}).Draw(t, "burst")
		if s.Validate() != nil {
			s.Burst = 1
		}
	}
	return admit.Check{Policy: policy, Key: []string{"k"}, Spec: s, Cost: 1}
}

// round brings a wait of the process, in ns, to the server's microseconds.
func round(a admit.Answer) admit.Answer {
	for i := range a.Checks {
		d := &a.Checks[i]
		d.RetryIn = (d.RetryIn + time.Microsecond - 1).Truncate(time.Microsecond)
		d.ResetIn = (d.ResetIn + time.Microsecond - 1).Truncate(time.Microsecond)
		d.Epoch = 0 // each store's own
	}
	return a
}

// Both stores give equal answers to equal questions, in every field, over all algorithms, mixed
// windows, costs, refunds and changes of contracts between decisions.
//
// Limiter case L33.
func TestRedisAnswersAsTheProcessDoes(t *testing.T) {
	srv := serve(t)
	st := steer(t, srv.open())
	rapid.Check(t, func(t *rapid.T) {
		srv.do("FLUSHALL")
		l := &twin{admit.NewLocal(100), quotatest.Start}
		st.now = quotatest.Start
		var checks []admit.Check
		for _, p := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "n")] {
			checks = append(checks, drawCheck(t, p))
		}
		var redisTook, localTook admit.Answer
		var took []admit.Check
		var last admit.Answer
		recorded := false
		for range 40 {
			step := drawStep(t, last)
			if st.now+step > 1<<60+1<<59 {
				step = 0 // the process counts from an instant at most 73 years ago
			}
			st.now, l.now = st.now+step, l.now+step
			asked := append([]admit.Check(nil), checks...)
			for i := range asked {
				asked[i].Cost = drawCost(t, asked[i].Spec.Most())
			}
			switch rapid.IntRange(0, 12).Draw(t, "op") {
			case 0:
				if took != nil {
					st.Refund(took, redisTook)
					l.Local.Refund(l.now, took, localTook)
					took = nil
				}
			case 1: // another contract of the same algorithm
				i := rapid.IntRange(0, len(checks)-1).Draw(t, "which")
				next := drawCheck(t, checks[i].Policy)
				// one that nothing was taken from is not in Redis: it is full under any contract
				if next.Spec.Algorithm == checks[i].Spec.Algorithm && recorded {
					checks[i], took = next, nil // what is given back over a change is each store's own
				}
			case 2:
				same(t, st.Peek(asked), l.Local.Peek(l.now, asked))
			default:
				r, p := st.Take(asked), l.Local.Take(l.now, asked)
				same(t, r, p)
				last = r
				if r.Allowed {
					recorded = true
					redisTook, localTook, took = copied(r), copied(p), asked
				}
			}
		}
	})
}

func copied(a admit.Answer) admit.Answer {
	a.Checks = append(a.Checks[:0:0], a.Checks...)
	return a
}

func same(t *rapid.T, redis, process admit.Answer) {
	redis, process = round(copied(redis)), round(copied(process))
	if redis.Allowed != process.Allowed {
		t.Fatalf("redis %+v\nprocess %+v", redis, process)
	}
	for i := range redis.Checks {
		if redis.Checks[i] != process.Checks[i] {
			t.Fatalf("check %d:\nredis   %+v\nprocess %+v", i, redis.Checks[i], process.Checks[i])
		}
	}
}

func drawCost(t *rapid.T, most int64) int64 {
	switch rapid.IntRange(0, 5).Draw(t, "size") {
	case 0:
		return most + 1
	case 1:
		return max(1, most)
	case 2:
		return max(1, most/2)
	}
	return 1
}

func drawStep(t *rapid.T, last admit.Answer) time.Duration {
	var wait, reset time.Duration
	for _, d := range last.Checks {
		wait, reset = max(wait, d.RetryIn), max(reset, d.ResetIn)
	}
	switch rapid.IntRange(0, 6).Draw(t, "step") {
	case 0, 1:
		return 0
	case 2:
		return time.Microsecond
	case 3:
		return wait.Truncate(time.Microsecond)
	case 4:
		return max(0, wait.Truncate(time.Microsecond)-time.Microsecond)
	case 5:
		return reset.Truncate(time.Microsecond)
	}
	return rapid.SampledFrom(windows).Draw(t, "far") / 2
}
