package fair

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lanes is an owner: a key and a position for each id.
type lanes struct {
	key   []int
	index []int32
}

func newLanes(n int) *lanes {
	l := &lanes{key: make([]int, n), index: make([]int32, n)}
	for i := range l.index {
		l.index[i] = -1
	}
	return l
}

func (l *lanes) Less(a, b uint32) bool {
	return l.key[a] < l.key[b] || l.key[a] == l.key[b] && a < b
}
func (l *lanes) SetIndex(id uint32, i int32) { l.index[id] = i }

// A slice that is sorted afresh for every question is the twin.
func TestHeapEqualsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 40
		l := newLanes(n)
		var h Heap
		var in []uint32
		for range 150 {
			id := uint32(rapid.IntRange(0, n-1).Draw(t, "id"))
			held := l.index[id] >= 0
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op == 0:
				got, ok := h.Pop(l)
				if ok != (len(in) > 0) || ok && got != in[0] {
					t.Fatalf("Pop %d, %v; want the first of %v", got, ok, in)
				}
				in = in[min(1, len(in)):]
			case op == 1 && held:
				if got := h.Remove(l, l.index[id]); got != id {
					t.Fatalf("Remove of %d took %d", id, got)
				}
				in = slices.DeleteFunc(in, func(x uint32) bool { return x == id })
			default:
				l.key[id] = rapid.IntRange(0, 12).Draw(t, "key")
				if held {
					h.Fix(l, l.index[id])
				} else {
					h.Push(l, id)
					in = append(in, id)
				}
			}
			slices.SortFunc(in, func(a, b uint32) int {
				if l.Less(a, b) {
					return -1
				}
				return 1
			})
			checkHeap(t, &h, l, in)
		}
	})
}

func checkHeap(t *rapid.T, h *Heap, l *lanes, in []uint32) {
	top, ok := h.Top()
	if h.Len() != len(in) || ok != (len(in) > 0) || ok && top != in[0] {
		t.Fatalf("%d ids, top %d, %v; want %v", h.Len(), top, ok, in)
	}
	held := 0
	for id, i := range l.index {
		if i < 0 {
			continue
		}
		held++
		if h.ids[i] != uint32(id) {
			t.Fatalf("%d says it stands at %d, where %d stands", id, i, h.ids[i])
		}
	}
	if held != len(in) {
		t.Fatalf("%d ids hold a position, want %d", held, len(in))
	}
}

func TestHeapAllocatesOnlyForGrowth(t *testing.T) {
	l := newLanes(100)
	var h Heap
	fill := func() {
		for id := range uint32(100) {
			l.key[id] = int(id * 37 % 101)
			h.Push(l, id)
		}
		for h.Len() > 0 {
			l.key[h.ids[h.Len()/2]] += 5
			h.Fix(l, int32(h.Len()/2))
			h.Pop(l)
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The one served goes behind, as a tenant does with each grant.
func BenchmarkHeapFixTop(b *testing.B) {
	for _, n := range []int{100, 50_000} {
		b.Run(map[int]string{100: "100", 50_000: "50000"}[n], func(b *testing.B) {
			l, rnd := newLanes(n), rand.New(rand.NewPCG(1, 2))
			var h Heap
			for id := range uint32(n) {
				h.Push(l, id)
			}
			b.ReportAllocs()
			for b.Loop() {
				id, _ := h.Top()
				l.key[id] += rnd.IntN(1000)
				h.Fix(l, 0)
			}
		})
	}
}
