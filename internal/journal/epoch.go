package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
)

// An epoch record says that from its place on the writer owns the partitions (bits). It is void
// when one of them has that epoch, or a higher one, already: of two that choose the same number,
// the first in the log wins.
type epochRecord struct {
	header            // epoch is the new one
	seq        uint64 // where it stands
	partitions uint64
}

const allPartitions = 1<<Partitions - 1

func (e epochRecord) encode() []byte {
	b := e.header.append(beginFrame(nil, kindEpoch))
	b = binary.LittleEndian.AppendUint64(b, e.partitions)
	sealFrame(b)
	return b
}

func decodeEpoch(seq uint64, data []byte) (epochRecord, error) {
	body, err := openFrameOf(kindEpoch, data)
	if err != nil {
		return epochRecord{}, damagedAt(outcomesStream, seq, err)
	}
	d := dec{b: body}
	e := epochRecord{header: d.header(), seq: seq, partitions: d.fixed64()}
	return e, damagedAt(outcomesStream, seq, d.end())
}

// epochs says which records count: those of the owner of their partition at that place in
// OUTCOMES. Safe for concurrent use.
type epochs struct {
	mu   sync.RWMutex
	recs []epochRecord // valid ones, in log order
}

// add takes in the next epoch record and reports whether it is valid.
func (e *epochs) add(r epochRecord) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.recs {
		if e.recs[i].partitions&r.partitions != 0 && e.recs[i].epoch >= r.epoch {
			return false
		}
	}
	e.recs = append(e.recs, r)
	return true
}

// highest returns the highest epoch of all.
func (e *epochs) highest() (max uint64) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for i := range e.recs {
		if e.recs[i].epoch > max {
			max = e.recs[i].epoch
		}
	}
	return max
}

// valid reports whether a record of the partition counts in the message with that header at seq: its
// writer owned the partition there. Where no epoch record is known, every record counts.
func (e *epochs) valid(h header, seq uint64, partition uint8) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for i := len(e.recs) - 1; i >= 0; i-- {
		r := &e.recs[i]
		if r.seq < seq && r.partitions&(1<<partition) != 0 {
			return h.epoch == r.epoch && h.writer == r.writer
		}
	}
	return true
}

// assume takes a checkpoint's writer for the owner where the epoch record itself has been trimmed.
func (e *epochs) assume(f *found) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.recs) == 0 || e.recs[0].seq > f.first {
		e.recs = append([]epochRecord{{header: f.header, seq: f.first - 1, partitions: allPartitions}}, e.recs...)
	}
}

// load reads the epoch records of OUTCOMES behind the sequence after.
func (e *epochs) load(ctx context.Context, l *link, after uint64) error {
	for {
		ms, err := l.batch(ctx, outcomesStream, after+1, epochsSubject)
		if err != nil || len(ms) == 0 {
			return err
		}
		for _, m := range ms {
			r, err := decodeEpoch(m.seq, m.data)
			if err != nil {
				return err
			}
			e.add(r)
			after = m.seq
		}
	}
}

// begin starts a new epoch of all partitions: its record is appended, and read back before anything
// else happens. It returns the record.
func (e *epochs) begin(ctx context.Context, l *link, h header) (epochRecord, error) {
	h.epoch = e.highest() + 1
	mine := epochRecord{header: h, partitions: allPartitions}
	seq, err := l.publish(ctx, epochsSubject, mine.encode())
	if err != nil {
		return mine, err
	}
	if err := e.load(ctx, l, h.prev); err != nil {
		return mine, err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, r := range e.recs {
		if r.seq == seq && r.writer == h.writer && r.epoch == h.epoch {
			return r, nil
		}
	}
	return mine, fmt.Errorf("%w: the epoch record is not there, or another process was first", ErrUnavailable)
}
