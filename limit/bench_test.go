package limit

import (
	"testing"
	"time"
)

func BenchmarkBucketTake(b *testing.B) {
	for _, c := range []struct {
		name string
		rate string
		cost int64
	}{{"one", "27000/s", 1}, {"many", "27000/s", 7}, {"thirds", "3/s", 1}} {
		b.Run(c.name, func(b *testing.B) {
			r, err := ParseRate(c.rate, 18_000)
			if err != nil {
				b.Fatal(err)
			}
			bucket := NewBucket(r)
			b.ReportAllocs()
			now := time.Duration(0)
			for b.Loop() {
				now += 1000
				bucket.Take(now, c.cost)
			}
		})
	}
}
