package journal

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// A message of a checkpoint: header, id (the same in all its messages), number of this message,
// whether it is the last one, sequence of the first one (0 in the first itself), sequence of the
// first message of the newest complete checkpoint before (0: none), then a piece of the body.
//
// The body: cursor, clean, time, registry revision; lanes, each with counters, tokens, waiting and
// dead references; open attempts; deliveries at or beyond the cursor that are decided; where there are
// any, pasts and jobs (past.go). A lane with more references than fit one message goes on in the next.
type checkpointPart struct {
	header
	id     uint64
	number uint64
	last   bool
	first  uint64
	before uint64
	body   []byte
}

func (p *checkpointPart) encode() []byte {
	b := p.header.append(beginFrame(make([]byte, 0, len(p.body)+frameHead+128), kindCheckpoint))
	for _, v := range [...]uint64{p.id, p.number, bit(p.last), p.first, p.before} {
		b = binary.AppendUvarint(b, v)
	}
	b = append(b, p.body...)
	sealFrame(b)
	return b
}

func bit(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

// decodeCheckpointPart reads one message; its body aliases data.
func decodeCheckpointPart(data []byte) (*checkpointPart, error) {
	body, err := openFrameOf(kindCheckpoint, data)
	if err != nil {
		return nil, err
	}
	d := dec{b: body}
	p := &checkpointPart{header: d.header(), id: d.uvarint(), number: d.uvarint(), last: d.uvarint() == 1, first: d.uvarint(), before: d.uvarint()}
	p.body = d.b
	return p, d.err
}

// encodeCheckpoint hands the body to emit in pieces of about limit bytes, cut between any two items.
func encodeCheckpoint(cp *Checkpoint, limit int, emit func(piece []byte, last bool) error) error {
	w := checkpointWriter{b: make([]byte, 0, limit+1024), limit: limit, emit: emit}
	w.uvarints(uint64(cp.Cursor), bit(cp.Clean))
	w.b = binary.AppendVarint(w.b, cp.At.UnixMilli())
	w.uvarints(cp.Registry, uint64(len(cp.Lanes)))
	for i := range cp.Lanes {
		w.lane(&cp.Lanes[i])
	}
	w.uvarints(uint64(len(cp.Open)))
	for _, o := range cp.Open {
		w.uvarints(uint64(o.Lane), uint64(o.Position), uint64(o.Attempt))
	}
	w.uvarints(uint64(len(cp.decided)))
	for _, k := range cp.decided {
		w.uvarints(uint64(k.Lane), uint64(k.Position))
	}
	w.pasts(cp)
	if w.err != nil {
		return w.err
	}
	return emit(w.b, true)
}

// checkpointWriter collects items and hands on what is enough for a piece. After an error it does nothing.
type checkpointWriter struct {
	b     []byte
	limit int
	emit  func(piece []byte, last bool) error
	err   error
}

func (w *checkpointWriter) spill() {
	if len(w.b) < w.limit {
		return
	}
	if w.err == nil {
		w.err = w.emit(w.b, false)
	}
	w.b = w.b[:0]
}

func (w *checkpointWriter) uvarints(vs ...uint64) {
	for _, v := range vs {
		w.b = binary.AppendUvarint(w.b, v)
	}
	w.spill()
}

func (w *checkpointWriter) lane(l *LaneState) {
	w.b = appendLane(w.b, l)
	for _, refs := range [...][]Ref{l.Waiting, l.Dead} {
		w.uvarints(uint64(len(refs)))
		var last Ref
		for _, r := range refs {
			w.b = appendRef(w.b, r, last)
			last = r
			w.spill()
		}
	}
}

func appendLane(b []byte, l *LaneState) []byte {
	b = binary.AppendUvarint(b, uint64(l.Lane))
	c := l.Counters
	for _, v := range [...]uint64{c.Offered, c.Delivered, c.Dead, c.Cancelled, c.Dropped, c.Parked, c.InFlight} {
		b = binary.AppendUvarint(b, v)
	}
	return binary.AppendVarint(b, l.Tokens)
}

func appendRef(b []byte, r, last Ref) []byte {
	b = binary.AppendVarint(b, int64(r.Position-last.Position))
	b = binary.AppendVarint(b, r.Stamp-last.Stamp)
	b = binary.AppendUvarint(b, uint64(r.Attempt)<<1|bit(r.Due))
	if r.Run < 2 {
		return append(b, byte(r.Reason))
	}
	b = append(b, byte(r.Reason)|refIsRun)
	return binary.AppendUvarint(b, uint64(r.Run))
}

const refIsRun = 0x80 // in the byte of the reason

const (
	laneMinBytes = 11
	refMinBytes  = 4
	openMinBytes = 3
	keyMinBytes  = 2
)

// decodeCheckpoint reads a whole body.
func decodeCheckpoint(body []byte) (*Checkpoint, error) {
	d := dec{b: body}
	cp := &Checkpoint{Cursor: Position(d.uvarint()), Clean: d.uvarint() == 1, At: time.UnixMilli(d.varint()).UTC(), Registry: d.uvarint()}
	cp.Lanes = make([]LaneState, d.countOf(laneMinBytes))
	for i := range cp.Lanes {
		d.lane(&cp.Lanes[i])
	}
	cp.Open = make([]OpenAttempt, d.countOf(openMinBytes))
	for i := range cp.Open {
		cp.Open[i] = OpenAttempt{Lane: engine.LaneID(d.uvarint32()), Position: Position(d.uvarint()), Attempt: d.uvarint32()}
	}
	if n := d.countOf(keyMinBytes); n > 0 {
		cp.decided = make([]DeliveryKey, n)
		for i := range cp.decided {
			cp.decided[i] = DeliveryKey{Lane: engine.LaneID(d.uvarint32()), Position: Position(d.uvarint())}
		}
	}
	d.pasts(cp)
	return cp, d.end()
}

// countOf returns a number of items of at least size bytes each.
func (d *dec) countOf(size int) int {
	n := d.count()
	if n > len(d.b)/size {
		d.fail(fmt.Sprintf("%d items in %d bytes", n, len(d.b)))
		return 0
	}
	return n
}

func (d *dec) lane(l *LaneState) {
	l.Lane = engine.LaneID(d.uvarint32())
	c := &l.Counters
	for _, v := range [...]*uint64{&c.Offered, &c.Delivered, &c.Dead, &c.Cancelled, &c.Dropped, &c.Parked, &c.InFlight} {
		*v = d.uvarint()
	}
	l.Tokens = d.varint()
	l.Waiting = d.refs()
	l.Dead = d.refs()
}

func (d *dec) refs() []Ref {
	n := d.countOf(refMinBytes)
	if n == 0 {
		return nil
	}
	refs := make([]Ref, n)
	var last Ref
	for i := range refs {
		last = d.ref(last)
		refs[i] = last
	}
	return refs
}

func (d *dec) ref(last Ref) Ref {
	r := Ref{Position: last.Position + Position(d.varint()), Stamp: last.Stamp + d.varint()}
	v := d.uvarint()
	r.Due = v&1 == 1
	if r.Attempt = uint32(v >> 1); uint64(r.Attempt) != v>>1 {
		d.fail("attempt out of range")
	}
	reason := d.byte()
	if reason&refIsRun != 0 {
		reason &^= refIsRun
		if r.Run = uint16(d.uvarint32()); r.Run < 2 || r.Run > packMaxEntries {
			d.fail("run out of range")
		}
	}
	r.Reason = engine.Reason(reason)
	return r
}
