package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The embedded server's block files, as nats-server 2 writes them without compression and encryption:
// records of length (bit 31: has headers), sequence, time (ns), length of the subject, subject,
// (length of the headers, headers,) data, 8 bytes of its own checksum. Little-endian.
//
// They are looked at before the server reads them: it cuts a block at the first record that it cannot read,
// and what stands behind is gone, and it believes a sequence that it reads, and fills the gap before it
// in memory. Here an end that was not written to the end is told from damage inside, and with damage the
// server is not started, so that everything stays as it is for a person.
const (
	recordHead  = 22
	recordLeast = recordHead + 8
	recordMost  = 32 << 20

	lengthHeaders = 1 << 31
	seqErased     = 1 << 63 // was deleted: its data means nothing
	seqTombstone  = 1 << 62 // says that an earlier one was deleted
	seqMostGap    = 1 << 32 // where messages are deleted one by one
)

// cleanFile says that the last process has closed the server; the first thing of the next is to remove it.
const cleanFile = "clean"

// checkBlocks looks through the block files below the server's directory: all, or the newest of each
// stream. It returns Damage, an error of the file system, or nil. An end that was cut off is nil,
// unless the other stream knows what stood there; said is told.
func checkBlocks(dir string, all bool, said func(stream, file string, bytes int)) error {
	dirs, err := fs.Glob(os.DirFS(dir), "jetstream/*/streams/*/msgs")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	seen := make(map[string]*blockScan)
	for _, d := range dirs {
		s := &blockScan{stream: filepath.Base(filepath.Dir(d))}
		s.ours = s.stream == triggersStream || s.stream == outcomesStream
		seen[s.stream] = s
		if err := s.directory(filepath.Join(dir, d), all, said); err != nil {
			return err
		}
	}
	return errors.Join(seen[triggersStream].missing(seen[outcomesStream]), seen[outcomesStream].missing(seen[triggersStream]))
}

// blockScan reads one stream's blocks in order.
type blockScan struct {
	stream string
	ours   bool   // every sequence is there, and every message is a frame with a header
	last   uint64 // sequence of the last record
	other  uint64 // highest sequence of the other stream that a header names
	torn   string // the file whose end was cut off
}

// missing is the damage of an end that was cut off although the other stream knows what stood there.
func (s *blockScan) missing(other *blockScan) error {
	if s == nil || other == nil || s.torn == "" || other.other <= s.last {
		return nil
	}
	return &Damage{Stream: s.stream, From: s.last + 1, To: other.other, What: "the end of " + s.torn + " is unreadable, and was acknowledged"}
}

func (s *blockScan) directory(dir string, all bool, said func(stream, file string, bytes int)) error {
	files, err := blockFiles(dir)
	if err != nil {
		return err
	}
	if !all && len(files) > 1 {
		files = files[len(files)-1:]
	}
	for i, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		at := s.block(data, blockNumber(f))
		if at == len(data) {
			continue
		}
		next := s.resume(data, at, blockNumber(f))
		if next > 0 || i < len(files)-1 {
			return &Damage{Stream: s.stream, From: s.last + 1, To: max(next, s.last+2) - 1, What: fmt.Sprintf("%s is unreadable at byte %d", f, at)}
		}
		s.torn = f
		said(s.stream, f, len(data)-at)
	}
	return nil
}

// blockFiles returns a stream's block files in order.
func blockFiles(dir string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(dir), "*.blk")
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(blockNumber(a), blockNumber(b)) })
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
}

func blockNumber(file string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".blk"))
	return n
}

// block reads records up to the first that is not one, and returns where that stands.
func (s *blockScan) block(data []byte, number int) (at int) {
	for at < len(data) {
		r, ok := soundRecord(s.stream, number, data[at:])
		if !ok || !s.follows(r.seq, r.data) {
			break
		}
		at += len(r.raw)
	}
	return at
}

// cutRecord returns the length of the first record of data, 0 when there is none.
func cutRecord(data []byte) (n int) {
	if len(data) < recordLeast {
		return 0
	}
	n = int(binary.LittleEndian.Uint32(data) &^ lengthHeaders)
	subject := int(binary.LittleEndian.Uint16(data[20:]))
	if n < recordLeast || n > recordMost || n > len(data) || recordLeast+subject > n {
		return 0
	}
	return n
}

// follows takes in a record and reports whether it can stand here.
func (s *blockScan) follows(seq uint64, frame []byte) bool {
	if seq&seqTombstone != 0 {
		return true
	}
	erased := seq&seqErased != 0
	seq &^= seqErased
	switch {
	case s.last == 0:
	case seq <= s.last: // a placeholder; the server passes over it
		return erased || !s.ours
	case s.ours && seq != s.last+1, seq-s.last > seqMostGap:
		return false
	}
	if s.ours && frame != nil {
		_, h, err := decodeHeader(frame)
		if errors.Is(err, ErrDamaged) {
			return false
		}
		s.other = max(s.other, h.other)
	}
	s.last = seq
	return true
}

// resume looks for a record behind one that cannot be read, and returns its sequence; 0 is none. It does
// not lose what s knows.
func (s *blockScan) resume(data []byte, at, number int) uint64 {
	for i := at + 1; ; i++ {
		i = nextRecord(s.stream, number, data, i)
		r, ok := soundRecord(s.stream, number, data[i:])
		switch {
		case !ok:
			return 0
		case r.data != nil && r.seq > s.last:
			return r.seq
		}
	}
}

// nextRecord returns where the next sound record begins from the place i on, or the end.
func nextRecord(stream string, number int, data []byte, i int) int {
	for ; i+recordLeast <= len(data); i++ {
		subject := data[i+recordHead:]
		if bytes.HasPrefix(subject, []byte("fairlane.")) || bytes.HasPrefix(subject, []byte("$KV.")) {
			if _, ok := soundRecord(stream, number, data[i:]); ok {
				return i
			}
		}
	}
	return len(data)
}
