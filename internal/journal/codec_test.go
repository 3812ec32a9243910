package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"pgregory.net/rapid"
)

func drawHeader(t *rapid.T) header {
	return header{
		writer: rapid.Uint64().Draw(t, "writer"), counter: rapid.Uint64().Draw(t, "counter"), prev: rapid.Uint64().Draw(t, "prev"),
		other: rapid.Uint64().Draw(t, "other"), epoch: rapid.Uint64().Draw(t, "epoch"),
	}
}

func drawTime(t *rapid.T, unit time.Duration) time.Time {
	n := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "time")
	if unit == time.Microsecond {
		return time.UnixMicro(n).UTC()
	}
	return time.UnixMilli(n).UTC()
}

func drawTrigger(t *rapid.T) *Trigger {
	text := rapid.SampledFrom([]string{"", "a", "a.b", "\x00\"", strings.Repeat("z", 300)})
	tr := &Trigger{
		Accepted: drawTime(t, time.Microsecond),
		Audience: Audience{Broadcast: rapid.Bool().Draw(t, "broadcast"), Tenants: rapid.SliceOfN(text, 0, 3).Draw(t, "tenants")},
		Topic:    text.Draw(t, "topic"), ContentType: text.Draw(t, "type"), Producer: text.Draw(t, "producer"), Key: text.Draw(t, "key"),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "attributes") {
		tr.Attributes = append(tr.Attributes, Attribute{text.Draw(t, "name"), text.Draw(t, "value")})
	}
	if tr.Key != "" {
		rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "fingerprint")
		copy(tr.Fingerprint[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "fingerprint"))
	}
	return tr
}

func TestPackComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, seq := drawHeader(t), rapid.Uint64Range(1, 1<<50).Draw(t, "seq")
		want := &Pack{Seq: seq, At: drawTime(t, time.Millisecond), header: h}
		var entries [][]byte
		for i := range rapid.IntRange(1, 6).Draw(t, "entries") {
			e := Entry{Position: position(seq, i)}
			if rapid.IntRange(0, 4).Draw(t, "marker") == 0 {
				e.Marker = &Marker{Kind: "tenant", ID: rapid.StringN(0, 8, 8).Draw(t, "id"), Revision: rapid.Uint64().Draw(t, "revision")}
				entries = append(entries, encodeMarker(e.Marker))
			} else {
				e.Trigger = drawTrigger(t)
				entries = append(entries, appendTrigger(nil, e.Trigger))
				e.Trigger.Position = e.Position
				e.Trigger.ID = triggerID(h.writer, e.Position, e.Trigger.Producer, e.Trigger.Key)
			}
			want.Entries = append(want.Entries, e)
		}
		data := encodePack(h, entries)
		want.Bytes = len(data)
		got, err := decodePack(seq, want.At, data)
		if err != nil {
			t.Fatal(err)
		}
		normal(want)
		normal(got)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("\n%+v\n%+v", got, want)
		}
	})
}

// normal makes nil and empty alike.
func normal(p *Pack) {
	for _, e := range p.Entries {
		if tr := e.Trigger; tr != nil {
			if len(tr.Audience.Tenants) == 0 {
				tr.Audience.Tenants = nil
			}
			if len(tr.Payload) == 0 {
				tr.Payload = nil
			}
		}
	}
}

func drawRecord(t *rapid.T) Record {
	r := Record{
		Kind: Kind(rapid.IntRange(1, int(Purged)).Draw(t, "kind")), Partition: uint8(rapid.IntRange(0, Partitions-1).Draw(t, "partition")),
		Lane: engine.LaneID(rapid.Uint32().Draw(t, "lane")), Position: Position(rapid.Uint64().Draw(t, "position")),
		Attempt: rapid.Uint32().Draw(t, "attempt"), Reason: engine.Reason(rapid.Byte().Draw(t, "reason")), Status: rapid.Uint16().Draw(t, "status"),
		Took: time.Duration(rapid.Uint32().Draw(t, "took")) * time.Microsecond, At: drawTime(t, time.Millisecond),
		N: rapid.Uint32().Draw(t, "n"), Ref: rapid.Uint64().Draw(t, "ref"), Detail: rapid.StringN(0, 20, 60).Draw(t, "detail"),
	}
	if rapid.Bool().Draw(t, "has due") {
		r.Due = drawTime(t, time.Millisecond)
	}
	for range rapid.IntRange(0, 3).Draw(t, "positions") {
		r.Positions = append(r.Positions, Position(rapid.Uint64().Draw(t, "one of them")))
	}
	return r
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, want := drawHeader(t), rapid.SliceOfN(rapid.Custom(drawRecord), 1, 20).Draw(t, "records")
		e := recordEncoder{most: 1 << 20}
		for i := range want {
			e.add(&want[i])
		}
		gotHeader, got, err := decodeRecords(e.message(h))
		if err != nil || gotHeader != h || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\n%+v\n%+v", err, got, want)
		}
	})
}

func TestLongestRecordIsNoLongerThanReserved(t *testing.T) {
	const far = 1<<63 - 1
	r := Record{Kind: Purged, Partition: 63, Lane: 1<<32 - 1, Position: 1 << 63, Attempt: 1<<32 - 1, Reason: 255, Status: 1<<16 - 1,
		Took: 1<<63 - 1, At: time.UnixMilli(-far / 2), Due: time.UnixMilli(far / 2), N: 1<<32 - 1, Ref: 1<<64 - 1, Detail: strings.Repeat("d", 400)}
	if n := len(appendRecord(nil, &r, far/2, 0)); n > recordMaxBytes {
		t.Errorf("%d bytes, %d reserved", n, recordMaxBytes)
	}
	least := Record{Kind: Delivered}
	if n := len(appendRecord(nil, &least, least.At.UnixMilli(), 0)); n != recordMinBytes {
		t.Errorf("%d bytes, at least %d expected", n, recordMinBytes)
	}
}

func drawRefs(t *rapid.T) []Ref {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Ref {
		return Ref{
			Position: Position(rapid.Uint64().Draw(t, "position")), Stamp: rapid.Int64().Draw(t, "stamp"),
			Attempt: rapid.Uint32().Draw(t, "attempt"), Reason: engine.Reason(rapid.ByteMax(0x7f).Draw(t, "reason")), Due: rapid.Bool().Draw(t, "due"),
		}
	}), 0, 8).Draw(t, "refs")
}

func drawCheckpoint(t *rapid.T) *Checkpoint {
	cp := &Checkpoint{
		Cursor: Position(rapid.Uint64().Draw(t, "cursor")), Clean: rapid.Bool().Draw(t, "clean"),
		At: drawTime(t, time.Millisecond), Registry: rapid.Uint64().Draw(t, "registry"), Lanes: []LaneState{}, Open: []OpenAttempt{},
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "lanes") {
		n := rapid.Uint64()
		cp.Lanes = append(cp.Lanes, LaneState{
			Lane: engine.LaneID(i * 1000), Tokens: rapid.Int64().Draw(t, "tokens"), Waiting: drawRefs(t), Dead: drawRefs(t),
			Counters: engine.Counters{Offered: n.Draw(t, "o"), Delivered: n.Draw(t, "d"), Dead: n.Draw(t, "x"), Cancelled: n.Draw(t, "c"),
				Dropped: n.Draw(t, "y"), Parked: n.Draw(t, "p"), InFlight: n.Draw(t, "i")},
		})
	}
	for range rapid.IntRange(0, 5).Draw(t, "open") {
		cp.decided = append(cp.decided, DeliveryKey{Lane: 4, Position: Position(rapid.Uint64().Draw(t, "decided"))})
		cp.Open = append(cp.Open, OpenAttempt{Lane: 3, Position: Position(rapid.Uint64().Draw(t, "open position")), Attempt: rapid.Uint32().Draw(t, "open attempt")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "pasts") {
		n, ms := rapid.Uint32(), rapid.Int64()
		cp.Past = append(cp.Past, PastOf{DeliveryKey{Lane: 3, Position: Position(rapid.Uint64().Draw(t, "past position"))}, Past{
			Job: n.Draw(t, "job"), Deaths: n.Draw(t, "deaths"), Replays: n.Draw(t, "replays"), Attempts: n.Draw(t, "attempts"),
			First: engine.Reason(rapid.Byte().Draw(t, "first")), FirstAt: ms.Draw(t, "first at"), Revived: ms.Draw(t, "revived"),
		}})
		cp.Jobs = append(cp.Jobs, JobCount{Number: n.Draw(t, "number"), Taken: rapid.Uint64().Draw(t, "taken"), Dead: 1 << 40})
	}
	return cp
}

func TestCheckpointComesBackHoweverItIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawCheckpoint(t)
		var body []byte
		ends := 0
		err := encodeCheckpoint(want, rapid.IntRange(1, 300).Draw(t, "limit"), func(piece []byte, last bool) error {
			if ends > 0 {
				t.Fatal("a piece behind the last")
			}
			if last {
				ends++
			}
			body = append(body, piece...)
			return nil
		})
		if err != nil || ends != 1 {
			t.Fatal(err, ends)
		}
		got, err := decodeCheckpoint(body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Lanes {
			l := &want.Lanes[i]
			if len(l.Waiting) == 0 {
				l.Waiting = nil
			}
			if len(l.Dead) == 0 {
				l.Dead = nil
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("\n%+v\n%+v", got, want)
		}
	})
}

func TestCheckpointPartAndEpochComeBack(t *testing.T) {
	h := header{writer: 1 << 60, counter: 2, prev: 300, other: 4, epoch: 5}
	p := &checkpointPart{header: h, id: 9, number: 3, last: true, first: 297, before: 12, body: []byte("body")}
	got, err := decodeCheckpointPart(p.encode())
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v", got, err)
	}
	e := epochRecord{header: h, partitions: 0xf0f0, seq: 77}
	back, err := decodeEpoch(77, e.encode())
	if err != nil || back != e {
		t.Errorf("%+v, %v", back, err)
	}
}

// samples are one message of each kind.
func samples() map[byte][]byte {
	h := header{writer: 0x0102030405060708, counter: 2, prev: 3, other: 4, epoch: 5}
	tr := trigger(1)
	tr.Key, tr.Audience.Broadcast, tr.Attributes = "k", true, []Attribute{{"source", "/x"}}
	e := recordEncoder{most: 1 << 20}
	r := Record{Kind: Failed, Partition: 7, Lane: 300, Position: 1 << 20, Attempt: 2, Reason: engine.ByRetry, Status: 503, Took: time.Millisecond,
		At: time.UnixMilli(1_800_000_000_000), Due: time.UnixMilli(1_800_000_060_000), N: 1, Ref: 2, Detail: "status"}
	e.add(&r)
	cp := &Checkpoint{Cursor: 512, Clean: true, At: time.UnixMilli(1_800_000_000_000), Registry: 3,
		Lanes: []LaneState{{Lane: 1, Tokens: -2, Counters: engine.Counters{Offered: 2, Parked: 1, Dead: 1},
			Waiting: []Ref{{Position: 300, Stamp: 5, Attempt: 1, Reason: engine.ByRate, Due: true}}, Dead: []Ref{{Position: 301, Stamp: 6, Reason: engine.Rejected}}}},
		Open: []OpenAttempt{{Lane: 1, Position: 302, Attempt: 1}}, decided: []DeliveryKey{{Lane: 1, Position: 700}}}
	part := &checkpointPart{header: h, id: 1, last: true}
	encodeCheckpoint(cp, 1<<20, func(b []byte, _ bool) error { part.body = b; return nil })
	return map[byte][]byte{
		kindPack:       encodePack(header{writer: 9, counter: 1}, [][]byte{appendTrigger(nil, tr), encodeMarker(&Marker{"tenant", "acme", 7})}),
		kindRecords:    e.message(h),
		kindCheckpoint: part.encode(),
		kindEpoch:      epochRecord{header: h, partitions: 1}.encode(),
	}
}

// decodeAny decodes a message of any kind.
func decodeAny(data []byte) error {
	kind, _, err := openFrame(data)
	if err != nil {
		return err
	}
	switch kind {
	case kindPack:
		_, err = decodePack(5, time.Time{}, data)
	case kindRecords:
		_, _, err = decodeRecords(data)
	case kindCheckpoint:
		var p *checkpointPart
		if p, err = decodeCheckpointPart(data); err == nil {
			_, err = decodeCheckpoint(p.body)
		}
	case kindEpoch:
		_, err = decodeEpoch(1, data)
	}
	return err
}

// The bytes on disk do not change by accident: a release reads what the one before has written.
func TestFormatIsTheOneOnDisk(t *testing.T) {
	for kind, want := range map[byte]string{
		kindPack:       goldenPack,
		kindRecords:    goldenRecords,
		kindCheckpoint: goldenCheckpoint,
		kindEpoch:      goldenEpoch,
	} {
		got := samples()[kind]
		if hex.EncodeToString(got) != want {
			t.Errorf("message of kind %q is now\n%x", kind, got)
		}
		if err := decodeAny(got); err != nil {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
}

// Field case 78.
func TestOneWrongBitAnywhereIsDamage(t *testing.T) {
	for kind, data := range samples() {
		for bit := range len(data) * 8 {
			bad := bytes.Clone(data)
			bad[bit/8] ^= 1 << (bit % 8)
			if err := decodeAny(bad); !errors.Is(err, ErrDamaged) {
				t.Fatalf("kind %q, bit %d: %v", kind, bit, err)
			}
		}
		for n := range data {
			if err := decodeAny(data[:n]); !errors.Is(err, ErrDamaged) {
				t.Fatalf("kind %q cut at %d: %v", kind, n, err)
			}
		}
	}
}

func TestUnknownVersionIsRefusedAndIsNoDamage(t *testing.T) {
	for _, data := range samples() {
		data[0]++
		sealFrame(data)
		if err := decodeAny(data); err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "version 2") {
			t.Error(err)
		}
	}
}

// Field case 78.
func TestNoAllocationByAnUncheckedLength(t *testing.T) {
	for kind := range samples() {
		for n := range 40 {
			h := header{}.append(beginFrame(nil, kind))
			data := append(h, bytes.Repeat([]byte{1}, n)...)
			data = binary.AppendUvarint(data, 1<<31)
			data = append(data, make([]byte, 64)...)
			sealFrame(data)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			decodeAny(data)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
				t.Fatalf("kind %q, length at %d: %d bytes", kind, n, got)
			}
		}
	}
}

// FuzzDecode takes bodies behind a right checksum: no panic, and what decodes encodes to something that
// decodes alike.
func FuzzDecode(f *testing.F) {
	for kind, data := range samples() {
		f.Add(kind, data[frameHead:])
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		data := append(beginFrame(nil, kind), body...)
		sealFrame(data)
		if decodeAny(data) != nil {
			return
		}
		switch kind {
		case kindRecords:
			h, recs, _ := decodeRecords(data)
			if len(recs) == 0 {
				return
			}
			e := recordEncoder{most: 1 << 30}
			for i := range recs {
				e.add(&recs[i])
			}
			if _, again, err := decodeRecords(e.message(h)); err != nil || !reflect.DeepEqual(again, recs) {
				t.Fatalf("%v\n%+v\n%+v", err, again, recs)
			}
		case kindPack:
			p, _ := decodePack(5, time.Time{}, data)
			var entries [][]byte
			for _, e := range p.Entries {
				if e.Marker != nil {
					entries = append(entries, encodeMarker(e.Marker))
				} else {
					entries = append(entries, appendTrigger(nil, e.Trigger))
				}
			}
			again, err := decodePack(5, time.Time{}, encodePack(p.header, entries))
			if err != nil || !reflect.DeepEqual(again.Entries, p.Entries) {
				t.Fatalf("%v\n%+v\n%+v", err, again, p)
			}
		}
	})
}

// Field case 53.
func TestIdsAreStableAndHaveNoDot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		writer, p := rapid.Uint64().Draw(t, "writer"), Position(rapid.Uint64().Draw(t, "position"))
		producer, key := rapid.String().Draw(t, "producer"), rapid.String().Draw(t, "key")
		id := triggerID(writer, p, producer, key)
		if !strings.HasPrefix(id, "msg_") || strings.Contains(id, ".") {
			t.Fatal(id)
		}
		got, ok := PositionOf(id)
		if key == "" && (!ok || got != p) || key != "" && (ok || id != triggerID(writer+1, p+1, producer, key)) {
			t.Fatal(id, got, ok)
		}
	})
	if triggerID(1, 1, "ab", "c") == triggerID(1, 1, "a", "bc") {
		t.Error("producer and key are glued")
	}
	if triggerID(1<<60, 256, "", "") == triggerID(1<<61, 256, "", "") {
		t.Error("two installations give out the same id")
	}
}

const (
	goldenPack       = "0150c92543c00900000000000000010000000201038280c489e5c5b206010461636d650a6f726465722e70616964106170706c69636174696f6e2f6a736f6e0670726f645f310106736f75726365022f78016b0000000000000000000000000000000000000000000000000000000000000000077b226e223a317d020674656e616e740461636d6507"
	goldenRecords    = "0152d7f375f108070605040302010203040580c0e285e36801027f07ac028080800100020af703e807c0a907010206737461747573"
	goldenCheckpoint = "014313e8f2aa080706050403020102030405010001000080040180c0e285e368030101020001000001000301d8040a030401da040c000e0101ae02010101bc05"
	goldenEpoch      = "0145047011eb0807060504030201020304050100000000000000"
)
