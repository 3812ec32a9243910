package journal

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/minio/highwayhash"
)

// padMarker is the kind of the one marker in a pack that stands in the place of a lost one. Readers pass over
// markers whose kind they do not know, those of earlier releases too.
const padMarker = "lost"

// padMost bounds how many places are filled behind the end of a stream.
const padMost = 1 << 24

// blockRecord is one record of a block, as the server wrote it.
type blockRecord struct {
	raw     []byte
	seq     uint64 // with its flags
	at      int64  // ns
	subject string
	data    []byte // behind the headers; nil where the sequence has a flag
}

// blockHash is the server's checksum of a record, in the block with that number of the stream.
func blockHash(stream string, block int, record []byte) []byte {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, block))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	h.Write(record[4:20])
	body := record[recordHead:]
	subject := binary.LittleEndian.Uint16(record[20:])
	h.Write(body[:subject])
	if body = body[subject:]; binary.LittleEndian.Uint32(record)&lengthHeaders != 0 {
		body = body[4:]
	}
	h.Write(body)
	return h.Sum(nil)
}

// appendBlockRecord writes a record without headers.
func appendBlockRecord(b []byte, stream string, block int, seq uint64, at int64, subject string, data []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(recordLeast+len(subject)+len(data)))
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(subject)))
	b = append(append(b, subject...), data...)
	return append(b, blockHash(stream, block, b[start:])...)
}

// soundRecord takes the first record off data, if its checksum is right.
func soundRecord(stream string, block int, data []byte) (r blockRecord, ok bool) {
	n := cutRecord(data)
	if n == 0 {
		return r, false
	}
	raw := data[:n:n]
	length, size := binary.LittleEndian.Uint32(raw), int(binary.LittleEndian.Uint16(raw[20:]))
	body := raw[recordHead+size : n-8]
	headers := 0
	if length&lengthHeaders != 0 {
		if len(body) < 4 {
			return r, false
		}
		headers = 4 + int(binary.LittleEndian.Uint32(body))
	}
	if headers > len(body) || !bytes.Equal(blockHash(stream, block, raw[:n-8]), raw[n-8:]) {
		return r, false
	}
	r = blockRecord{raw: raw, seq: binary.LittleEndian.Uint64(raw[4:]), at: int64(binary.LittleEndian.Uint64(raw[12:])), subject: string(raw[recordHead : recordHead+size])}
	if r.seq&(seqErased|seqTombstone) == 0 {
		r.data = body[headers:]
	}
	return r, true
}

// salvage reads one stream's blocks, keeps what is sound, and fills the places of what is not.
type salvage struct {
	stream  string
	dir     string
	ours    bool              // every sequence is there, and every message is a frame
	visit   func(blockRecord) // of every message that is kept
	deleted func(seq uint64)  // of every message that was kept, and deleted since
	pad     func(seq uint64, next *blockRecord) (subject string, data []byte)
	first   uint64 // sequences kept
	last    uint64
	at      int64 // time of the last one
	end     int   // number of the newest block
	lost    []lostRange
	found   []RepairDamage
	cut     []cutOut
}

// cutOut is what was cut out behind the sequence after.
type cutOut struct {
	after uint64
	data  []byte
	end   bool // of the newest block
}

type lostRange struct{ from, to uint64 }

// run mends all blocks.
func (s *salvage) run() error {
	files, err := blockFiles(s.dir)
	if err != nil {
		return err
	}
	for i, f := range files {
		s.end = blockNumber(f)
		data, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		kept, err := s.block(data, i == len(files)-1)
		if err != nil {
			return err
		}
		if bytes.Equal(kept, data) {
			continue
		}
		if err := writeDurable(f, kept); err != nil {
			return err
		}
	}
	return s.forget()
}

// forget removes what the server has written down of its blocks: it reads them anew.
func (s *salvage) forget() error {
	err := os.Remove(filepath.Join(s.dir, "index.db"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// block returns what one block should hold.
func (s *salvage) block(data []byte, newest bool) (kept []byte, err error) {
	kept = make([]byte, 0, len(data))
	for at := 0; at < len(data); {
		r, ok := soundRecord(s.stream, s.end, data[at:])
		if ok && s.follows(r) {
			if kept, err = s.keep(kept, r); err != nil {
				return nil, err
			}
			at += len(r.raw)
			continue
		}
		next := s.resume(data, at+1)
		what := fmt.Sprintf("%d.blk is unreadable from byte %d to %d", s.end, at, next)
		if newest && next == len(data) {
			what = fmt.Sprintf("the end of %d.blk was not written completely: %d bytes", s.end, next-at)
		}
		s.found = append(s.found, RepairDamage{Stream: s.stream, What: what, Mend: "cut out"})
		s.cut = append(s.cut, cutOut{after: s.last, data: data[at:next], end: newest && next == len(data)})
		at = next
	}
	return kept, nil
}

// resume returns where the next sound record begins that can stand there, or the end.
func (s *salvage) resume(data []byte, i int) int {
	for ; ; i++ {
		i = nextRecord(s.stream, s.end, data, i)
		if r, ok := soundRecord(s.stream, s.end, data[i:]); !ok || s.follows(r) {
			return i
		}
	}
}

// follows reports whether a sound record can stand behind what was kept.
func (s *salvage) follows(r blockRecord) bool {
	if !s.ours || r.data == nil {
		return true
	}
	_, _, err := decodeHeader(r.data)
	return r.seq > s.last && !errors.Is(err, ErrDamaged)
}

// keep takes in a record, and fills the gap before it.
func (s *salvage) keep(kept []byte, r blockRecord) ([]byte, error) {
	if r.data == nil {
		if r.seq&seqTombstone == 0 {
			s.last = max(s.last, r.seq&^seqErased)
		}
		s.deleted(r.seq &^ (seqErased | seqTombstone))
		return append(kept, r.raw...), nil
	}
	if s.ours && s.last > 0 {
		var err error
		if kept, err = s.fill(kept, r.seq-1, &r); err != nil {
			return nil, err
		}
	}
	if s.first == 0 {
		s.first = r.seq
	}
	s.last, s.at = max(s.last, r.seq), r.at
	s.visit(r)
	return append(kept, r.raw...), nil
}

// fill puts something in every place behind the last up to the sequence to.
func (s *salvage) fill(kept []byte, to uint64, next *blockRecord) ([]byte, error) {
	if to <= s.last {
		return kept, nil
	}
	from := s.last + 1
	if to-from >= padMost {
		return nil, fmt.Errorf("journal: %s: %d messages are missing: that is no damage that can be mended", s.stream, to-s.last)
	}
	at := s.time(next)
	for seq := from; seq <= to; seq++ {
		subject, data := s.pad(seq, nil)
		if seq == to {
			subject, data = s.pad(seq, next)
		}
		kept = appendBlockRecord(kept, s.stream, s.end, seq, at, subject, data)
		s.visit(blockRecord{seq: seq, at: at, subject: subject, data: data})
	}
	if s.first == 0 {
		s.first = from
	}
	s.last = to
	s.lose(from, to)
	return kept, nil
}

// time is what a filling gets: that of its neighbour before, or behind; the server takes none without.
func (s *salvage) time(next *blockRecord) int64 {
	if s.at == 0 && next != nil {
		return next.at
	}
	return cmp.Or(s.at, time.Now().UnixNano())
}

func (s *salvage) lose(from, to uint64) {
	s.lost = append(s.lost, lostRange{from, to})
	s.found = append(s.found, RepairDamage{Stream: s.stream, From: from, To: to, What: "messages are lost", Mend: "their places are filled"})
}

// extend makes the sequence to the last one of the stream: with what fills a place, or for a stream with
// gaps with a record that says that it was deleted.
func (s *salvage) extend(to uint64) error {
	if to <= s.last {
		return nil
	}
	s.end = max(s.end, 1)
	file := filepath.Join(s.dir, fmt.Sprintf("%d.blk", s.end))
	kept, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	if s.ours {
		kept, err = s.fill(kept, to, nil)
	} else {
		s.lose(s.last+1, to)
		kept, s.last, err = appendBlockRecord(kept, s.stream, s.end, to|seqErased, s.time(nil), "", nil), to, nil
	}
	if err != nil {
		return err
	}
	return errors.Join(writeDurable(file, kept), s.forget())
}

// padPack stands in TRIGGERS in the place of a lost pack: one marker that means nothing.
func padPack(seq uint64, _ *blockRecord) (string, []byte) {
	return triggersSubject, encodePack(header{counter: seq, prev: seq - 1}, [][]byte{encodeMarker(&Marker{Kind: padMarker})})
}

// padOutcomes returns what stands in OUTCOMES in the place of a lost message: no records, or, where the
// writer of what follows had begun its epoch there, that beginning.
func padOutcomes(known func() uint64) func(uint64, *blockRecord) (string, []byte) {
	return func(seq uint64, next *blockRecord) (string, []byte) {
		h := header{counter: seq, prev: seq - 1}
		if next != nil {
			kind, n, err := decodeHeader(next.data)
			if err == nil && kind != kindEpoch && n.epoch > known() {
				h.writer, h.epoch = n.writer, n.epoch
				return epochsSubject, epochRecord{header: h, partitions: allPartitions}.encode()
			}
		}
		e := recordEncoder{}
		return recordsSubject, e.message(h)
	}
}
