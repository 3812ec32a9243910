package sim

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width is a 256th of their octave: a quantile is at
// most 0.2 % off, whatever the number of samples, and exact below 512 ns. The zero Histogram is
// empty. It grows with the largest duration seen, to at most 60 KiB.
type Histogram struct {
	counts   []uint32
	n        uint64
	min, max time.Duration
}

const octave = 8 // bits of a bucket's number within its octave

// bucket numbers durations so that the order is kept.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-octave-1, 0)
	return shift<<octave + int(v>>shift)
}

// middle is the duration in the middle of a bucket.
func middle(b int) time.Duration {
	shift := max(b>>octave-1, 0)
	low := uint64(b-shift<<octave) << shift
	return time.Duration(low + 1<<shift>>1)
}

// Add counts a duration; below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	b := bucket(d)
	for b >= len(h.counts) {
		h.counts = append(h.counts, make([]uint32, 1<<octave)...)
	}
	h.counts[b]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
}

// Max is the largest; 0 without any.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the least duration that at least the share p of all does not exceed; 0 without
// any.
func (h *Histogram) Quantile(p float64) time.Duration {
	rank, seen := uint64(p*float64(h.n)), uint64(0)
	if float64(rank) < p*float64(h.n) {
		rank++
	}
	for b, c := range h.counts {
		if seen += uint64(c); seen >= max(rank, 1) {
			return min(max(middle(b), h.min), h.max)
		}
	}
	return h.max
}
