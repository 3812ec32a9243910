package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// Every message is a frame: version, kind, CRC32C (4 bytes, little-endian, over version, kind and
// body), body. The frame itself never changes, so that a checksum can be told from a new version.
const (
	frameVersion = 1
	frameHead    = 6

	kindPack       = 'P' // TRIGGERS
	kindRecords    = 'R' // OUTCOMES
	kindCheckpoint = 'C' // OUTCOMES
	kindEpoch      = 'E' // OUTCOMES
	kindHeld       = 'H' // HELD
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// beginFrame appends the head of a frame to an empty buf; sealFrame completes it.
func beginFrame(buf []byte, kind byte) []byte {
	return append(buf, frameVersion, kind, 0, 0, 0, 0)
}

func sealFrame(f []byte) { binary.LittleEndian.PutUint32(f[2:], frameSum(f)) }

func frameSum(f []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, f[:2]), castagnoli, f[frameHead:])
}

// openFrame checks a message and returns its kind and body.
func openFrame(f []byte) (kind byte, body []byte, err error) {
	if len(f) < frameHead {
		return 0, nil, fmt.Errorf("%w: message of %d bytes", ErrDamaged, len(f))
	}
	if binary.LittleEndian.Uint32(f[2:]) != frameSum(f) {
		return 0, nil, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	if f[0] != frameVersion {
		return 0, nil, fmt.Errorf("journal: a message has version %d, this release reads %d", f[0], frameVersion)
	}
	return f[1], f[frameHead:], nil
}

// openFrameOf is openFrame for one kind.
func openFrameOf(want byte, f []byte) ([]byte, error) {
	kind, body, err := openFrame(f)
	if err == nil && kind != want {
		err = fmt.Errorf("%w: message of kind %q, expected %q", ErrDamaged, kind, want)
	}
	return body, err
}

// header is where a message comes from. (writer, counter) is written once on purpose, and twice
// when an acknowledgement got lost; prev is the sequence of the newest message of the same stream
// that the writer knew, so a second copy is always behind it.
type header struct {
	writer  uint64
	counter uint64
	prev    uint64
	other   uint64 // newest acknowledged sequence of OUTCOMES in a pack, of TRIGGERS elsewhere
	epoch   uint64 // of the writer; 0 in packs, which need none
}

func (h header) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, h.writer)
	for _, v := range [...]uint64{h.counter, h.prev, h.other, h.epoch} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func (d *dec) header() header {
	return header{writer: d.fixed64(), counter: d.uvarint(), prev: d.uvarint(), other: d.uvarint(), epoch: d.uvarint()}
}

// dec reads the primitives of a body. After the first error everything reads as zero. It never
// allocates by a length that it has not checked against what is there.
type dec struct {
	b   []byte
	err error
}

func (d *dec) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrDamaged, what)
	}
	d.b = nil
}

func (d *dec) byte() byte {
	if len(d.b) == 0 {
		d.fail("ends early")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *dec) fixed64() uint64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (d *dec) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *dec) uvarint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail("number out of range")
		return 0
	}
	return uint32(v)
}

func (d *dec) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// take returns the next n bytes, not copied.
func (d *dec) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("length beyond the end")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *dec) bytes() []byte { return d.take(d.uvarint()) }

// str returns a string; before is the one that stood here last time and is reused when equal.
func (d *dec) str(before string) string {
	b := d.bytes()
	if string(b) == before {
		return before
	}
	return string(b)
}

// count returns a number of items of which each takes at least one byte.
func (d *dec) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail("count beyond the end")
		return 0
	}
	return int(n)
}

// end returns the first error; bytes left over are one.
func (d *dec) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("bytes behind the end")
	}
	return d.err
}

func appendString[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
