package fanout

// ring is a growing queue. Each element has a number: first is the number of the front.
// The numbers start at 1, far enough from 0 for pushFront.
type ring struct {
	buf   []ref
	start int
	n     int
	more  int // deliveries in runs beyond one a reference
	first uint64
}

func (q *ring) at(i int) ref { return q.buf[(q.start+i)&(len(q.buf)-1)] }

func (q *ring) pushBack(r ref) uint64 {
	q.grow()
	q.buf[(q.start+q.n)&(len(q.buf)-1)] = r
	q.n++
	q.more += r.count() - 1
	return q.first + uint64(q.n) - 1
}

func (q *ring) pushFront(r ref) {
	q.grow()
	q.start = (q.start - 1) & (len(q.buf) - 1)
	q.buf[q.start] = r
	q.n++
	q.first--
}

// popFront takes out the first delivery: a run is left shorter.
func (q *ring) popFront() ref {
	r := q.buf[q.start]
	if r.run() {
		q.buf[q.start] = r.rest()
		q.more--
		return r.first()
	}
	q.start = (q.start + 1) & (len(q.buf) - 1)
	q.n--
	q.first++
	q.shrink()
	return r
}

// numbered returns the element with the number, if it still waits.
func (q *ring) numbered(number uint64) (*ref, bool) {
	if number < q.first || number >= q.first+uint64(q.n) {
		return nil, false
	}
	return &q.buf[(q.start+int(number-q.first))&(len(q.buf)-1)], true
}

func (q *ring) grow() {
	if q.first == 0 {
		q.first = 1 << 32
	}
	if q.n == len(q.buf) {
		q.resize(max(4, 2*q.n))
	}
}

// shrink gives room back, down to ringKeeps: references of all lanes are bounded together, and each lane may have had
// most of them at one time.
func (q *ring) shrink() {
	size := len(q.buf)
	for size > ringKeeps && q.n <= size/4 {
		size /= 2
	}
	if size < len(q.buf) {
		q.resize(size)
	}
}

const ringKeeps = 32

// resize gives the queue the room, a power of two.
func (q *ring) resize(size int) {
	next := make([]ref, size)
	for i := range q.n {
		next[i] = q.at(i)
	}
	q.buf, q.start = next, 0
}

// insert puts r in front of the i-th element. The numbers from it on name others then.
func (q *ring) insert(i int, r ref) {
	q.pushBack(r)
	mask := len(q.buf) - 1
	for j := q.n - 1; j > i; j-- {
		q.buf[(q.start+j)&mask] = q.at(j - 1)
	}
	q.buf[(q.start+i)&mask] = r
}

// replace puts r in the place of the m elements from the i-th on. Those behind keep their numbers.
func (q *ring) replace(i, m int, r ref) {
	for j := i; j < i+m; j++ {
		q.more -= q.at(j).count() - 1
	}
	q.more += r.count() - 1
	mask := len(q.buf) - 1
	for j := i - 1; j >= 0; j-- {
		q.buf[(q.start+j+m-1)&mask] = q.at(j)
	}
	q.start = (q.start + m - 1) & mask
	q.n -= m - 1
	q.first += uint64(m - 1)
	q.buf[(q.start+i)&mask] = r
	q.shrink()
}

// reset replaces the content; the numbers given out before name nothing any more.
func (q *ring) reset(refs []ref) {
	first := q.first + uint64(q.n) + 1
	*q = ring{first: first}
	for _, r := range refs {
		q.pushBack(r)
	}
}
