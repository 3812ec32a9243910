package fanout

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// On an ordered lane everything parks behind what waits or is in flight. It has one queue, or, ordered by key,
// 64 into which keys hash; of each at most one delivery is in flight, and one that must be tried again goes back
// to its front. The engine is told only of the fronts whose turn has come (Backlog.Count), and that a fresh
// delivery is behind another (Delivery.Behind): limits, shares and the account are the engine's as on any lane.

const orderQueues = 64

// OrderKey is the attribute whose value orders the deliveries of a lane that is ordered by key: CloudEvents'
// partitioning extension. Triggers without it are of one key.
const OrderKey = "partitionkey"

func newBacklog(order string) backlog {
	switch order {
	case journal.OrderAll:
		return backlog{ordered: make([]queue, 1)}
	case journal.OrderKey:
		return backlog{ordered: make([]queue, orderQueues)}
	}
	return backlog{}
}

// queueOf is the number of the queue for a trigger: FNV-1a of its key, folded. It must never change while
// anything waits: a key would be in two queues.
func (l *lane) queueOf(t *journal.Trigger) uint8 {
	if l.sub.Order != journal.OrderKey {
		return 0
	}
	for _, a := range t.Attributes {
		if a.Name == OrderKey {
			h := fnv.New32a()
			h.Write([]byte(a.Value))
			sum := h.Sum32()
			return uint8((sum ^ sum>>16 ^ sum>>8) % orderQueues)
		}
	}
	return 0
}

// choose takes the front that goes next: of those that may, the one with the least due time, or the one that has
// waited longest; with fresh, of those that were never tried.
func (b *backlog) choose(fresh bool) (least ref, ok bool) {
	for i := range b.ordered {
		q := &b.ordered[i]
		if !q.may() {
			continue
		}
		r, _ := q.front()
		if fresh && r.attempt() > 0 || ok && !earlier(r, least) {
			continue
		}
		b.chosen, least, ok = q, r, true
	}
	return least, ok
}

// behind reports whether a fresh delivery must wait for another of its queue.
func (b *backlog) behind(queue uint8) bool {
	if b.ordered == nil {
		return false
	}
	q := &b.ordered[queue]
	return q.busy || q.stopped || q.entries() > 0
}

// occupy and vacate note that one of the queue is in flight.
func (b *backlog) occupy(queue uint8) { b.setBusy(queue, true) }
func (b *backlog) vacate(queue uint8) { b.setBusy(queue, false) }

func (b *backlog) setBusy(queue uint8, busy bool) {
	if b.ordered != nil {
		b.ordered[queue].busy = busy
	}
}

// again reports whether what waits was revived by a replay.
func (l *lane) again(r ref) bool { return l.past[r.pos()].Job != 0 }

// putBetween puts a revived delivery of an ordered lane into its queue behind the older ones that wait there, and
// reports whether there were any but revived ones. Only one that was never attempted has older ones in front of it:
// it died in its place and not as the head, over its tenant's quota.
func (f *Fanout) putBetween(now time.Duration, l *lane, r ref) bool {
	if l.backlog.ordered == nil || r.attempt() > 0 {
		return false
	}
	q := l.backlog.of(r.queue())
	at := 0
	for at < q.entries() && !q.entry(at).run() && l.again(q.entry(at)) {
		at++
	}
	if at == q.entries() || !q.entry(at).before(r) {
		return false
	}
	f.unclaim(now, l)
	f.writeLate(now, l) // numbers name others from here on
	for at < q.ready.n && q.ready.at(at).before(r) {
		at++
	}
	q.ready.insert(at, r)
	return true
}

// before reports whether what waits in a queue is older than one that was never attempted. The names in HELD of what
// was not attempted are in log order (pickOrdered), and what is there is older than what is not, but for a head that
// was in flight when the others moved.
func (r ref) before(never ref) bool {
	if r.pos().Held() == never.pos().Held() {
		return r.pos() < never.pos()
	}
	return r.pos().Held() || r.attempt() > 0
}

// stopAtDead stops the queues that have a dead letter, if the lane's rule says so, and lets the others go. It
// looks only when their number has changed.
func (l *lane) stopAtDead() {
	stop := l.sub.OnDead == journal.OnDeadStop
	if l.backlog.ordered == nil || l.stops == stop && (!stop || l.deadSeen == len(l.dead)) {
		return
	}
	l.stops, l.deadSeen = stop, len(l.dead)
	for i := range l.backlog.ordered {
		l.backlog.ordered[i].stopped = false
	}
	if stop {
		for _, r := range l.dead {
			l.backlog.of(r.queue()).stopped = true
		}
	}
}

// stoppedQueues is how many queues wait behind a dead letter.
func (b *backlog) stoppedQueues() (n int) {
	for i := range b.ordered {
		if b.ordered[i].stopped {
			n++
		}
	}
	return n
}

// recovered is a reference that was recovered, with its place in the order: the position of its trigger.
type recovered struct {
	ref
	origin journal.Position
}

// inOrder gives what was recovered of an ordered lane its queues and its order: records of a crash are not in
// it, and neither they nor a checkpoint know queues. What is ordered by key, and what is in HELD, is loaded for
// that.
func (f *Fanout) inOrder(l *lane, refs []ref) []ref {
	if l.backlog.ordered == nil {
		return refs
	}
	all := make([]recovered, len(refs))
	for i, r := range refs {
		all[i] = f.recoverOrder(l, r)
	}
	slices.SortStableFunc(all, func(x, y recovered) int { return cmp.Compare(x.origin, y.origin) })
	for i, r := range all {
		refs[i] = r.ref
	}
	return refs
}

func (f *Fanout) recoverOrder(l *lane, r ref) recovered {
	if l.sub.Order != journal.OrderKey && !r.pos().Held() {
		return recovered{r, r.pos()}
	}
	ctx, done := context.WithTimeout(f.ctx, 10*time.Second)
	defer done()
	t, err := f.journal.Load(ctx, r.pos())
	if err != nil {
		f.log.Error("a payload could not be read: its delivery is not in order", "position", uint64(r.pos()), "subscription", l.subID, "error", err)
		return recovered{r, r.pos().Unheld()}
	}
	return recovered{r.in(l.queueOf(t)), t.Position}
}
