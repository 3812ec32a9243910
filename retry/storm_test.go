package retry

import (
	"container/heap"
	"slices"
	"testing"
	"time"
)

// storm is a small model of an outage: 200 requests a second, healthy for 60 s,
// then failing for 60 s, each answer after 50 ms, at most four attempts, no cap
// and no breaker. A refused retry waits in a queue. Neighbours succeed all the
// time at ten times the rate; with shared, all of them use one budget.
type storm struct {
	budgeted, shared bool

	budget   Budget
	schedule Schedule
	own, all Window
	pool     Pool
	queue    events
	parked   []event
	woken    bool // a wake is in the queue
	starts   []time.Duration
}

const (
	stormRate  = 200
	stormBegin = 60 * time.Second
	stormEnd   = 120 * time.Second
	stormReply = 50 * time.Millisecond
)

type eventKind uint8

const (
	start eventKind = iota
	reply
	wake
	neighbour
)

type event struct {
	at       time.Duration
	kind     eventKind
	attempts uint32 // made before
	perm     Permit
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (s *storm) window() *Window {
	if s.shared {
		return &s.all
	}
	return &s.own
}

func (s *storm) run() {
	for i := range int(stormEnd.Seconds()) * stormRate {
		at := time.Duration(i) * time.Second / stormRate
		heap.Push(&s.queue, event{at: at, kind: start})
		heap.Push(&s.queue, event{at: at, kind: neighbour})
	}
	rnd := seeded(1)
	for s.queue.Len() > 0 {
		e := heap.Pop(&s.queue).(event)
		if e.at >= stormEnd {
			return
		}
		switch e.kind {
		case neighbour:
			for range 10 {
				s.budget.Succeeded(&s.all, &s.pool, e.at, Refused, 0)
			}
		case start:
			s.start(e)
		case wake:
			s.woken = false
			s.drain(e.at)
		case reply:
			s.reply(e, rnd)
		}
	}
}

func (s *storm) start(e event) {
	if e.attempts > 0 && s.budgeted {
		s.parked = append(s.parked, e)
		s.drain(e.at)
		return
	}
	s.send(e)
}

func (s *storm) send(e event) {
	if e.at >= stormBegin {
		s.starts = append(s.starts, e.at)
	}
	heap.Push(&s.queue, event{at: e.at + stormReply, kind: reply, attempts: e.attempts + 1, perm: e.perm})
}

// drain sends what is parked as far as the budget goes.
func (s *storm) drain(now time.Duration) {
	for len(s.parked) > 0 {
		perm, wait := s.budget.Ask(s.window(), &s.pool, now)
		if perm == Refused {
			if !s.woken {
				s.woken = true
				heap.Push(&s.queue, event{at: now + wait, kind: wake})
			}
			return
		}
		s.budget.Spend(s.window(), &s.pool, now, perm)
		s.send(event{at: now, attempts: s.parked[0].attempts, perm: perm})
		s.parked = s.parked[1:]
	}
}

func (s *storm) reply(e event, rnd Rand) {
	if e.at < stormBegin {
		s.budget.Succeeded(s.window(), &s.pool, e.at, e.perm, e.at-stormReply)
		return
	}
	s.budget.Failed(s.window(), e.at)
	if e.attempts < quickAttempts {
		heap.Push(&s.queue, event{at: e.at + s.schedule.Delay(e.attempts, false, rnd), kind: start, attempts: e.attempts})
	}
}

// perRequest returns the attempts per request over the outage, and the largest
// over any span of it that begins at a tenth of a second.
func (s *storm) perRequest(span time.Duration) (mean, peak float64) {
	for from := stormBegin; from+span <= stormEnd; from += 100 * time.Millisecond {
		first, _ := slices.BinarySearch(s.starts, from) // in order of time
		end, _ := slices.BinarySearch(s.starts, from+span)
		n := end - first
		peak = max(peak, float64(n)/(span.Seconds()*stormRate))
	}
	return float64(len(s.starts)) / ((stormEnd - stormBegin).Seconds() * stormRate), peak
}

func (s *storm) report(t *testing.T, name string) (mean, peak10 float64) {
	s.run()
	mean, peak10 = s.perRequest(10 * time.Second)
	_, peak1 := s.perRequest(time.Second)
	t.Logf("%-22s attempts per request %.3f, peak over 10 s %.3f, over 1 s %.3f", name, mean, peak10, peak1)
	return mean, peak10
}

// Field case 38.
func TestARetryStormCostsATenth(t *testing.T) {
	if mean, peak := (&storm{}).report(t, "no budget"); mean < 3.9 || peak < 4.0 {
		t.Errorf("no budget: %.3f attempts per request, peak %.3f; want at least 3.9 and 4.0", mean, peak)
	}
	if mean, peak := (&storm{budgeted: true}).report(t, "budget"); mean > 1.1 || peak > 1.25 {
		t.Errorf("budget: %.3f attempts per request, peak %.3f; want at most 1.1 and 1.25", mean, peak)
	}
	// The proof that the model can tell: what is wrong must fail.
	if mean, _ := (&storm{budgeted: true, shared: true}).report(t, "budget of all together"); mean < 1.5 {
		t.Errorf("one budget of all lanes: %.3f attempts per request; the healthy neighbours should have paid", mean)
	}
}
