package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The leaky bucket answers what the token bucket answers, refunds aside, over
// any contract, change of contract and sequence of instants.
//
// Limiter case L32.
// Limiter case L33.
func TestLeakyEqualsTheBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		b, l := NewBucket(r), NewLeaky(r)
		now, last := time.Duration(0), Decision{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += step(t, &r, last)
			if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
				r = drawChange(t)
				b.SetRate(now, r)
				l.SetRate(now, r)
			}
			cost := magnitude(t, "cost", 1, min(2*MaxTokens, max(r.Burst(), 1)))
			last = b.Peek(now, cost)
			if got := l.Peek(now, cost); !alike(got, last) {
				t.Fatalf("peek: leaky %+v, bucket %+v", got, last)
			}
			last = b.Take(now, cost)
			if got := l.Take(now, cost); !alike(got, last) {
				t.Fatalf("take: leaky %+v, bucket %+v", got, last)
			}
			if water := l.Water(now); !r.IsUnlimited() && water != r.Burst()-b.Left(now) {
				t.Fatalf("water %d, %d left of %d", water, b.Left(now), r.Burst())
			}
		}
	})
}

// alike compares all but the epoch.
func alike(a, b Decision) bool {
	a.Epoch, b.Epoch = 0, 0
	return a == b
}

func drawChange(t *rapid.T) Rate {
	switch rapid.IntRange(0, 4).Draw(t, "to") {
	case 0:
		return Unlimited()
	case 1:
		r, err := NewRate(0, 0, rapid.Int64Range(0, 100).Draw(t, "keeps"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	return drawRate(t)
}
