package journal

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// A message of records: header, base time (wall ms), number of records, records. A record is its
// kind, a byte of flags that name the optional fields, partition, lane, position (difference to the
// record before), time (ms from the base), attempt, then the optional fields.
const (
	hasReason = 1 << iota
	hasStatus
	hasTook
	hasDue
	hasN
	hasRef
	hasDetail
	hasPositions
	allFlags = hasPositions<<1 - 1

	detailMaxBytes = 256
	recordMinBytes = 7
	recordMaxBytes = detailMaxBytes + 80 // encoded, with every field at its longest

	messageMaxRecords = 1 << 16
)

// recordEncoder makes messages of records, of about most bytes.
type recordEncoder struct {
	most  int
	buf   []byte
	base  int64
	last  Position
	count int
}

// full reports whether another record might not fit.
func (e *recordEncoder) full() bool {
	return e.count == messageMaxRecords || len(e.buf)+recordMaxBytes > e.most && e.count > 0
}

func (e *recordEncoder) add(r *Record) {
	if e.count == 0 {
		e.base = r.At.UnixMilli()
	}
	e.buf = appendRecord(e.buf, r, e.base, e.last)
	e.last = r.Position
	e.count++
}

// message returns everything added, as one message, and starts over.
func (e *recordEncoder) message(h header) []byte {
	b := h.append(beginFrame(make([]byte, 0, len(e.buf)+frameHead+64), kindRecords))
	b = binary.AppendVarint(b, e.base)
	b = binary.AppendUvarint(b, uint64(e.count))
	b = append(b, e.buf...)
	sealFrame(b)
	*e = recordEncoder{most: e.most, buf: e.buf[:0]}
	return b
}

func appendRecord(b []byte, r *Record, base int64, last Position) []byte {
	at := r.At.UnixMilli()
	flags := r.flags()
	b = append(b, byte(r.Kind), flags, r.Partition)
	b = binary.AppendUvarint(b, uint64(r.Lane))
	b = binary.AppendVarint(b, int64(r.Position-last))
	b = binary.AppendVarint(b, at-base)
	b = binary.AppendUvarint(b, uint64(r.Attempt))
	if flags&hasReason != 0 {
		b = append(b, byte(r.Reason))
	}
	if flags&hasStatus != 0 {
		b = binary.AppendUvarint(b, uint64(r.Status))
	}
	if flags&hasTook != 0 {
		b = binary.AppendUvarint(b, uint64(r.Took.Microseconds()))
	}
	if flags&hasDue != 0 {
		b = binary.AppendVarint(b, r.Due.UnixMilli()-at)
	}
	if flags&hasN != 0 {
		b = binary.AppendUvarint(b, uint64(r.N))
	}
	if flags&hasRef != 0 {
		b = binary.AppendUvarint(b, r.Ref)
	}
	if flags&hasDetail != 0 {
		b = appendString(b, r.Detail[:min(len(r.Detail), detailMaxBytes)])
	}
	if flags&hasPositions != 0 {
		b = appendPositions(b, r.Positions)
	}
	return b
}

// appendPositions writes a list of at most a pack's length, each as the difference to the one before.
func appendPositions(b []byte, list []Position) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	var last Position
	for _, p := range list {
		b = binary.AppendVarint(b, int64(p-last))
		last = p
	}
	return b
}

func (r *Record) flags() (f byte) {
	for _, field := range [...]struct {
		there bool
		flag  byte
	}{
		{r.Reason != engine.None, hasReason},
		{r.Status != 0, hasStatus},
		{r.Took >= time.Microsecond, hasTook},
		{!r.Due.IsZero(), hasDue},
		{r.N != 0, hasN},
		{r.Ref != 0, hasRef},
		{r.Detail != "", hasDetail},
		{len(r.Positions) > 0, hasPositions},
	} {
		if field.there {
			f |= field.flag
		}
	}
	return f
}

// decodeRecords reads a message of records.
func decodeRecords(data []byte) (header, []Record, error) {
	body, err := openFrameOf(kindRecords, data)
	if err != nil {
		return header{}, nil, err
	}
	d := dec{b: body}
	h := d.header()
	base := d.varint()
	n := d.count()
	if n > messageMaxRecords || n > len(d.b)/recordMinBytes {
		d.fail(fmt.Sprintf("message of %d records in %d bytes", n, len(d.b)))
		return header{}, nil, d.err
	}
	recs := make([]Record, n)
	var last Position
	for i := range recs {
		d.record(&recs[i], base, last)
		last = recs[i].Position
	}
	return h, recs, d.end()
}

func (d *dec) record(r *Record, base int64, last Position) {
	r.Kind = Kind(d.byte())
	if r.Kind < Delivered || r.Kind > Purged {
		d.fail(fmt.Sprintf("record of kind %d", r.Kind))
	}
	flags := d.byte()
	if flags&^byte(allFlags) != 0 {
		d.fail(fmt.Sprintf("record with flags %#x", flags))
	}
	if r.Partition = d.byte(); r.Partition >= Partitions {
		d.fail(fmt.Sprintf("record of partition %d", r.Partition))
	}
	r.Lane = engine.LaneID(d.uvarint32())
	r.Position = last + Position(d.varint())
	at := base + d.varint()
	r.At = time.UnixMilli(at).UTC()
	r.Attempt = d.uvarint32()
	d.recordOptions(r, flags, at)
}

func (d *dec) recordOptions(r *Record, flags byte, at int64) {
	if flags&hasReason != 0 {
		r.Reason = engine.Reason(d.byte())
	}
	if flags&hasStatus != 0 {
		v := d.uvarint32()
		if r.Status = uint16(v); uint32(r.Status) != v {
			d.fail("status out of range")
		}
	}
	if flags&hasTook != 0 {
		r.Took = time.Duration(d.uvarint32()) * time.Microsecond
	}
	if flags&hasDue != 0 {
		r.Due = time.UnixMilli(at + d.varint()).UTC()
	}
	if flags&hasN != 0 {
		r.N = d.uvarint32()
	}
	if flags&hasRef != 0 {
		r.Ref = d.uvarint()
	}
	if flags&hasDetail != 0 {
		b := d.bytes()
		if len(b) > detailMaxBytes {
			d.fail("detail too long")
			return
		}
		r.Detail = string(b)
	}
	if flags&hasPositions != 0 {
		r.Positions = d.positions()
	}
}

func (d *dec) positions() []Position {
	n := d.countOf(1)
	if n > packMaxEntries {
		d.fail(fmt.Sprintf("%d positions in a record", n))
		return nil
	}
	list := make([]Position, n)
	var last Position
	for i := range list {
		last += Position(d.varint())
		list[i] = last
	}
	return list
}
