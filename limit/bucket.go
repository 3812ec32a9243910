package limit

import (
	"sync"
	"time"
)

// Bucket is a Rate and a Level, safe for concurrent use. The zero Bucket is
// unlimited. It remembers the largest now it has seen and takes an earlier one
// for that, inside the critical section: callers that read the clock in one
// order and arrive in another mint nothing. RetryIn and ResetIn count from that
// largest instant. A Bucket must not be copied.
type Bucket struct {
	mu    sync.Mutex
	last  time.Duration
	rate  Rate
	level Level
}

// NewBucket returns a full bucket.
func NewBucket(r Rate) *Bucket { return &Bucket{rate: r} }

// Take takes cost tokens or none, as Rate.Take.
func (b *Bucket) Take(now time.Duration, cost int64) (d Decision) {
	if cost < 1 {
		panic("limit: cost must be at least 1") // not under the lock
	}
	b.mu.Lock()
	b.rate.take(&d, &b.level, instant(b.seenLocked(now)), cost)
	b.mu.Unlock()
	return d
}

// Peek decides as Take would and takes nothing.
func (b *Bucket) Peek(now time.Duration, cost int64) Decision {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	b.mu.Lock()
	d := b.rate.Peek(&b.level, b.seenLocked(now), cost)
	b.mu.Unlock()
	return d
}

// Refund gives the tokens of one take back, as Rate.Refund.
func (b *Bucket) Refund(now time.Duration, cost int64, epoch uint16) {
	if cost < 1 {
		panic("limit: cost must be at least 1")
	}
	b.mu.Lock()
	b.rate.Refund(&b.level, b.seenLocked(now), cost, epoch)
	b.mu.Unlock()
}

// Left returns the whole tokens.
func (b *Bucket) Left(now time.Duration) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rate.Left(&b.level, b.seenLocked(now))
}

// SetLeft sets the whole tokens, as Rate.SetLeft.
func (b *Bucket) SetLeft(now time.Duration, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate.SetLeft(&b.level, b.seenLocked(now), n)
}

// SetRate changes the contract and keeps whole tokens, as Rate.Change.
func (b *Bucket) SetRate(now time.Duration, r Rate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Change(&b.level, b.seenLocked(now), &b.rate)
	b.rate = r
}

// seenLocked clamps now to the largest seen.
func (b *Bucket) seenLocked(now time.Duration) time.Duration {
	b.last = max(b.last, now)
	return b.last
}
