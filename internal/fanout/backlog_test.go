package fanout

import (
	"slices"
	"testing"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"pgregory.net/rapid"
)

// A reference keeps every field through its 16 bytes.
func TestRefKeepsItsFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pos := journal.Position(rapid.Uint64Range(0, 1<<56-1).Draw(t, "pos"))
		if rapid.Bool().Draw(t, "held") {
			pos = journal.HeldPosition(pos.Seq(), pos.Index())
		}
		queue := uint8(rapid.IntRange(0, orderQueues-1).Draw(t, "queue"))
		ms := rapid.Int64Range(0, 1<<42-1).Draw(t, "ms")
		attempt := rapid.Uint32Range(0, attemptMax).Draw(t, "attempt")
		reason := engine.Reason(rapid.IntRange(0, 63).Draw(t, "reason"))
		flags := rapid.Uint64Range(0, 3).Draw(t, "flags")
		r := newRef(pos, ms, attempt, reason, flags).in(queue)
		if r.pos() != pos || r.queue() != queue || r.stamp() != ms || r.attempt() != attempt || r.reason() != reason ||
			r.recorded() != (flags&flagRecorded != 0) || r.due() != (flags&flagDue != 0) {
			t.Fatalf("%+v came back from %v %v %v %v %v", r, pos, ms, attempt, reason, flags)
		}
		if again := r.restamped(7); again.stamp() != 7 || again.due() || again.attempt() != attempt || again.reason() != reason {
			t.Fatalf("restamped: %+v", again)
		}
	})
}

// twin is the backlog written as a sorted slice would be: the two queues as plain slices.
type twin struct{ ready, later []ref }

func (w *twin) head() (ref, bool) {
	var best ref
	found := false
	if len(w.ready) > 0 {
		best, found = w.ready[0], true
	}
	for _, r := range w.later {
		if !found || r.stamp() < best.stamp() || best.due() && r.stamp() == best.stamp() && r.pos() < best.pos() {
			best, found = r, true
		}
	}
	return best, found
}

func (w *twin) remove(r ref) {
	drop := func(x ref) bool { return x == r }
	if i := slices.IndexFunc(w.ready, drop); i >= 0 && !r.due() {
		w.ready = slices.Delete(w.ready, i, i+1)
		return
	}
	w.later = slices.DeleteFunc(w.later, drop)
}

// The head is always the one whose turn it is: first in first out among those without a due
// time, by due time among the others; nothing is lost by any sequence of operations.
func TestBacklogAgainstNaiveTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b backlog
		var w twin
		next := journal.Position(1)
		draw := func(due bool) ref {
			flags := uint64(0)
			if due {
				flags = flagDue
			}
			next++
			return newRef(next, rapid.Int64Range(0, 20).Draw(t, "ms"), 0, engine.ByRate, flags)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) { r := draw(false); b.push(r); w.ready = append(w.ready, r) },
			"due":  func(*rapid.T) { r := draw(true); b.push(r); w.later = append(w.later, r) },
			"front": func(*rapid.T) {
				r := draw(false)
				b.ready.pushFront(r)
				w.ready = slices.Insert(w.ready, 0, r)
			},
			"pop": func(t *rapid.T) {
				if want, ok := w.head(); ok {
					if got, _ := b.pop(); got != want {
						t.Fatalf("popped %+v, want %+v", got, want)
					}
					w.remove(want)
				}
			},
			"dueNow": func(*rapid.T) {
				b.dueNow(5)
				if len(w.later) == 0 {
					return
				}
				for _, r := range w.later {
					w.ready = append(w.ready, r.restamped(5))
				}
				w.later = nil
				slices.SortFunc(w.ready, func(x, y ref) int { return int(x.pos()) - int(y.pos()) })
			},
			"take": func(t *rapid.T) {
				odd := func(r ref) bool { return r.pos()%2 == 1 }
				taken := b.takeIf(odd)
				n := len(w.ready) + len(w.later)
				w.ready = slices.DeleteFunc(w.ready, odd)
				w.later = slices.DeleteFunc(w.later, odd)
				if len(taken) != n-len(w.ready)-len(w.later) {
					t.Fatalf("took %d", len(taken))
				}
			},
			"": func(t *rapid.T) {
				got, ok := b.head()
				want, wok := w.head()
				if ok != wok || got != want {
					t.Fatalf("head %+v %v, want %+v %v", got, ok, want, wok)
				}
				if b.len() != len(w.ready)+len(w.later) {
					t.Fatalf("len %d", b.len())
				}
			},
		})
	})
}

// A number names its delivery until it has left, and never another one.
func TestRingNumbersNameOneDelivery(t *testing.T) {
	var q ring
	numbers := map[uint64]journal.Position{}
	for i := journal.Position(1); i <= 100; i++ {
		numbers[q.pushBack(newRef(i, 0, 0, 0, 0))] = i
		if i%3 == 0 {
			q.popFront()
		}
		if i == 50 {
			q.reset([]ref{newRef(7, 0, 0, 0, 0)})
			for number := range numbers {
				if r, ok := q.numbered(number); ok {
					t.Fatalf("number %d names %v after a reset", number, r.pos())
				}
			}
			clear(numbers)
		}
	}
	for number, pos := range numbers {
		if r, ok := q.numbered(number); ok && r.pos() != pos {
			t.Fatalf("number %d names %d, want %d", number, r.pos(), pos)
		}
	}
}

// A queue that was long gives its room back, whether what waited has gone or has become a run; the numbers stay.
func TestRingGivesRoomBack(t *testing.T) {
	var q ring
	grow := func(from, to journal.Position) (last uint64) {
		for i := from; i <= to; i++ {
			last = q.pushBack(newRef(i, 0, 0, 0, 0))
		}
		return last
	}
	check := func(what string, last uint64, want ...journal.Position) {
		t.Helper()
		if len(q.buf) > ringKeeps {
			t.Errorf("%s: room for %d where %d wait", what, len(q.buf), q.n)
		}
		for i, pos := range want {
			if got := q.at(i).pos(); got != pos {
				t.Errorf("%s: %d. is %d, want %d", what, i, got, pos)
			}
		}
		if r, waits := q.numbered(last); !waits || r.pos() != want[len(want)-1] || q.n != len(want) {
			t.Errorf("%s: %d wait, want %d; the last by its number: %v", what, q.n, len(want), waits)
		}
	}
	last := grow(1, 1000)
	for range 997 {
		q.popFront()
	}
	check("popped", last, 998, 999, 1000)
	last = grow(1001, 2000)
	q.replace(1, 1001, newRef(journal.HeldPosition(7, 0), 0, 1001, 0, flagRun))
	check("replaced", last, 998, journal.HeldPosition(7, 0), 2000)
	if q.more != 1000 {
		t.Errorf("%d more in runs, want 1000", q.more)
	}
}

// What our own decision stopped is next, whatever is claimed ahead; a retry waits for its time.
func TestWhatIsPutBackGoesBeforeWhatIsClaimed(t *testing.T) {
	var b backlog
	b.claimed = []claim{{ref: newRef(5, 50, 0, engine.ByRate, flagRecorded), mark: 1}}
	b.push(newRef(6, 60, 0, engine.ByRate, flagRecorded))
	b.putBack(newRef(4, 70, 0, engine.ByBreaker, flagRecorded))
	b.putBack(newRef(3, 80, 1, engine.ByRetry, flagRecorded|flagDue))
	for i, want := range []journal.Position{4, 5, 6, 3} {
		if r, mark := b.pop(); r.pos() != want || (mark != 0) != (want == 5) {
			t.Errorf("the %d. is %d, claimed by %d; want %d", i+1, r.pos(), mark, want)
		}
	}
}
