package fair

// Items is what a Heap asks its owner. Less must be a strict order: break ties,
// and the heap is deterministic. What Less reads of an id may change only
// together with Fix.
type Items interface {
	Less(a, b uint32) bool
	SetIndex(id uint32, i int32) // where id now stands; -1 when it leaves
}

// Heap is a binary heap of ids, 4 bytes each, least first by its owner's Less.
// The owner keeps each id's position (intrusive) and names an id by it: Push,
// Fix, Remove and Pop are O(log n), nothing is searched and nothing allocated
// but for growth. Every method that orders takes the same owner. The zero Heap
// is empty. Not safe for concurrent use.
//
// The owner is an interface and not a type parameter: method calls on a type
// parameter go through a dictionary and measured slower.
type Heap struct{ ids []uint32 }

// Len returns the number of ids.
func (h *Heap) Len() int { return len(h.ids) }

// Top returns the least id, or false if there is none.
func (h *Heap) Top() (uint32, bool) {
	if len(h.ids) == 0 {
		return 0, false
	}
	return h.ids[0], true
}

// Push adds an id that is not in the heap.
func (h *Heap) Push(items Items, id uint32) {
	h.ids = append(h.ids, id)
	h.up(items, len(h.ids)-1, id)
}

// Fix restores the order after the id at i changed.
func (h *Heap) Fix(items Items, i int32) {
	h.settle(items, int(i), h.ids[i])
}

// Remove takes the id at i out and returns it.
func (h *Heap) Remove(items Items, i int32) uint32 {
	id := h.ids[i]
	last := len(h.ids) - 1
	moved := h.ids[last]
	h.ids = h.ids[:last]
	if int(i) < last {
		h.settle(items, int(i), moved)
	}
	items.SetIndex(id, -1)
	return id
}

// Pop takes the least id out, or returns false if there is none.
func (h *Heap) Pop(items Items) (uint32, bool) {
	if len(h.ids) == 0 {
		return 0, false
	}
	return h.Remove(items, 0), true
}

// settle puts id, which belongs at i or above or below, where it belongs.
func (h *Heap) settle(items Items, i int, id uint32) {
	if i > 0 && items.Less(id, h.ids[(i-1)/2]) {
		h.up(items, i, id)
		return
	}
	h.down(items, i, id)
}

// up moves the hole at i towards the top until id fits into it.
func (h *Heap) up(items Items, i int, id uint32) {
	for i > 0 {
		parent := (i - 1) / 2
		if !items.Less(id, h.ids[parent]) {
			break
		}
		h.put(items, i, h.ids[parent])
		i = parent
	}
	h.put(items, i, id)
}

// down moves the hole at i away from the top until id fits into it.
func (h *Heap) down(items Items, i int, id uint32) {
	for {
		child := 2*i + 1
		if child >= len(h.ids) {
			break
		}
		if child+1 < len(h.ids) && items.Less(h.ids[child+1], h.ids[child]) {
			child++
		}
		if !items.Less(h.ids[child], id) {
			break
		}
		h.put(items, i, h.ids[child])
		i = child
	}
	h.put(items, i, id)
}

func (h *Heap) put(items Items, i int, id uint32) {
	h.ids[i] = id
	items.SetIndex(id, int32(i))
}
