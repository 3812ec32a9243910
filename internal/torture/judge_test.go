package torture

import (
	"maps"
	"slices"
	"testing"
	"time"
)

const (
	// cutWindow is how long before a kill an answer may come and yet be repeated: some flushes.
	cutWindow = 200 * time.Millisecond
	// stallWindow is the same while the disk stalls: after a second without a flush no request starts.
	stallWindow = time.Second
)

// verdict is what the judge found out about duplicates.
type verdict struct {
	duplicates int           // requests after, or beside, one that was answered with 2xx
	inFlight   int           // of those: the first was in flight at the kill
	furthest   time.Duration // the largest distance from an answer to the kill that excuses the repetition
	stalled    map[kill]bool // kills that excuse one answered longer than cutWindow before
}

func (v *verdict) add(o verdict) {
	v.duplicates += o.duplicates
	v.inFlight += o.inFlight
	v.furthest = max(v.furthest, o.furthest)
	if v.stalled == nil {
		v.stalled = make(map[kill]bool)
	}
	maps.Copy(v.stalled, o.stalled)
}

// judgeDuplicates fails the test for every request that repeats a delivered one without a kill that
// excuses it: the first was in flight then, or answered so shortly before that its outcome was not on
// disk.
func judgeDuplicates(t *testing.T, e *endpoint, kills []kill) verdict {
	t.Helper()
	v := verdict{stalled: make(map[kill]bool)}
	for _, rs := range e.byID() {
		i := slices.IndexFunc(rs, func(r request) bool { return r.accepted() })
		if i < 0 {
			continue
		}
		for _, again := range rs[i+1:] {
			v.duplicates++
			k, excused := excuse(rs[i], again, kills)
			distance := k.from - rs[i].answered
			switch {
			case !excused:
				t.Errorf("%s: sent again without a kill since: first %+v, again %+v", e.name, rs[i], again)
				continue
			case distance >= stallWindow:
				t.Errorf("%s: answered %v before the kill, sent again: first %+v, again %+v", e.name, distance, rs[i], again)
			case distance >= cutWindow:
				v.stalled[k] = true
			case distance <= 0:
				v.inFlight++
			}
			v.furthest = max(v.furthest, distance)
		}
	}
	return v
}

// excuse finds the first kill between two requests of one delivery.
func excuse(first, again request, kills []kill) (kill, bool) {
	for _, k := range kills {
		if first.at <= k.to && k.from <= again.at {
			return k, true
		}
	}
	return kill{}, false
}

// judgeDelivered fails the test for every acknowledged trigger that its subscription has neither
// accepted nor, where refused says so, refused. It returns what was seen.
func judgeDelivered(t *testing.T, e *endpoint, acked map[string]trigger, refused func(id string) bool) (accepted, rejected, unacked int) {
	t.Helper()
	missing := 0
	seen := e.byID()
	for _, id := range slices.Sorted(maps.Keys(acked)) {
		ok := slices.ContainsFunc(seen[id], func(r request) bool { return r.accepted() || refused(id) && r.status == 422 })
		if ok {
			continue
		}
		if missing++; missing <= 5 {
			t.Errorf("%s: acknowledged trigger %+v is lost; its requests: %+v", e.name, acked[id], seen[id])
		}
	}
	if missing > 0 {
		t.Errorf("%s: %d of %d lost", e.name, missing, len(acked))
	}
	for id, rs := range seen {
		if _, ok := acked[id]; !ok {
			unacked++
		}
		if slices.ContainsFunc(rs, func(r request) bool { return r.accepted() }) {
			accepted++
		} else if refused(id) {
			rejected++
		}
	}
	return accepted, rejected, unacked
}

// judgeRate fails the test if any interval has more arrivals than burst + rate * T + cap: transit may
// bunch the requests of one cap. It returns the most that an interval had beyond rate * T.
func judgeRate(t *testing.T, e *endpoint, rate float64, burst, limit int) (most float64) {
	t.Helper()
	rs := e.requests()
	// Arrivals i..j are too many if j-i+1 > burst+cap + rate*(at(j)-at(i)): keep the i with the least i - rate*at(i).
	least := 0.0
	for j, r := range rs {
		at := r.at.Seconds()
		if x := float64(j) - rate*at; j == 0 || x < least {
			least = x
		}
		over := float64(j+1) - rate*at - least
		if most = max(most, over); over > float64(burst+limit)+1e-9 {
			t.Errorf("%s: at %v the contract of %v/s and %d at once was exceeded: %.1f", e.name, r.at, rate, burst, over)
			break
		}
	}
	return most
}

// judgeOrder fails the test unless what an endpoint took was new to it in the order of the log.
func judgeOrder(t *testing.T, e *endpoint, acked map[string]trigger) {
	t.Helper()
	taken := make(map[string]bool)
	var last trigger
	for _, r := range e.requests() {
		tr, known := acked[r.id]
		if !r.accepted() || !known || taken[r.id] {
			continue
		}
		if taken[r.id] = true; tr.position <= last.position {
			t.Errorf("%s: %+v was taken after %+v", e.name, tr, last)
			return
		}
		last = tr
	}
}

// judgeIDs fails the test if a trigger has two ids: one that was posted again with its key would have
// become a second trigger. ids is by the trigger's name, over all endpoints.
func judgeIDs(t *testing.T, e *endpoint, ids map[string]string) {
	t.Helper()
	for _, r := range e.requests() {
		if r.posted == "" {
			t.Errorf("%s: %s came without its payload", e.name, r.id)
			continue
		}
		if known, ok := ids[r.posted]; ok && known != r.id {
			t.Errorf("%s: trigger %s came as %s and as %s", e.name, r.posted, known, r.id)
		}
		ids[r.posted] = r.id
	}
}
