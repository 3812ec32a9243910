package fanout

import (
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// ends counts what deliveries came to, where it is written into the ledger: the counters and the ledger cannot
// differ. Guarded by Fanout.mu.
type ends struct {
	by      [len(endNames)][reasons]uint64
	parked  uint64 // fresh deliveries that the engine refused and the backlog took, or the quota buried
	refused uint64 // and those that were dropped by their lane's choice
}

// reasons bounds the reasons, as engine.Stats does.
const reasons = len(engine.Stats{}.Denials)

// endNames are the ends by kind of record. Revived is the end of a death.
var endNames = [...]string{
	journal.Delivered: "delivered", journal.Dead: "dead", journal.Cancelled: "cancelled", journal.Dropped: "dropped",
	journal.Revived: "revived", journal.Resent: "resent", journal.Purged: "purged",
}

// End is how many deliveries came to one end, for one reason.
type End struct {
	Result string // delivered, dead, cancelled, dropped, purged; revived and resent take a delivery back
	Reason engine.Reason
	N      uint64
}

// write hands a record to the ledger and counts it; the caller holds the lock.
func (f *Fanout) write(rec journal.Record) journal.Mark {
	f.ends.count(&rec)
	return f.journal.Record(rec)
}

func (e *ends) count(rec *journal.Record) {
	kind, n := rec.Kind, uint64(max(rec.N, 1))
	if kind == journal.LaneCancelled { // of those that wait, which may be none
		kind, n = journal.Cancelled, uint64(rec.N)
	}
	if int(kind) < len(endNames) && endNames[kind] != "" {
		e.by[kind][rec.Reason] += n
	}
}

// list is every end that was reached.
func (e *ends) list() (out []End) {
	for kind, name := range endNames {
		for r, n := range e.by[kind] {
			if n > 0 {
				out = append(out, End{name, engine.Reason(r), n})
			}
		}
	}
	return out
}

// gap is the engine's denials less what the backlog and the quota took for them.
func (e *ends) gap(s *engine.Stats) (n int64) {
	for _, d := range s.Denials {
		n += int64(d)
	}
	return n - int64(e.parked) - int64(e.refused)
}
