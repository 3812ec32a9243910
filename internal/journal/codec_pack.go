package journal

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// A pack's body: header, number of entries, entries. An entry is a kind and its fields.
const (
	entryTrigger = 1
	entryMarker  = 2

	flagBroadcast = 1 << 0
	flagKey       = 1 << 1

	packMaxEntries = 256       // the index takes the low byte of a position
	packMaxBytes   = 512 << 10 // a larger trigger is a pack of its own
	messageBytes   = 8 << 20   // the server's max_payload
	entryMaxBytes  = messageBytes - 4<<10
)

// appendTrigger encodes one entry; position and id are not stored, they follow from the place.
func appendTrigger(b []byte, t *Trigger) []byte {
	var flags byte
	if t.Audience.Broadcast {
		flags |= flagBroadcast
	}
	if t.Key != "" {
		flags |= flagKey
	}
	b = append(b, entryTrigger, flags)
	b = binary.AppendVarint(b, t.Accepted.UnixMicro())
	b = binary.AppendUvarint(b, uint64(len(t.Audience.Tenants)))
	for _, id := range t.Audience.Tenants {
		b = appendString(b, id)
	}
	b = appendString(b, t.Topic)
	b = appendString(b, t.ContentType)
	b = appendString(b, t.Producer)
	b = binary.AppendUvarint(b, uint64(len(t.Attributes)))
	for _, a := range t.Attributes {
		b = appendString(appendString(b, a.Name), a.Value)
	}
	if t.Key != "" {
		b = appendString(b, t.Key)
		b = append(b, t.Fingerprint[:]...)
	}
	return appendString(b, t.Payload)
}

func encodeMarker(m *Marker) []byte {
	b := appendString(appendString([]byte{entryMarker}, m.Kind), m.ID)
	return binary.AppendUvarint(b, m.Revision)
}

// encodePack makes a message of encoded entries.
func encodePack(h header, entries [][]byte) []byte {
	size := frameHead + 64
	for _, e := range entries {
		size += len(e)
	}
	b := h.append(beginFrame(make([]byte, 0, size), kindPack))
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for _, e := range entries {
		b = append(b, e...)
	}
	sealFrame(b)
	return b
}

// decodePack reads a message of TRIGGERS. It keeps nothing of data.
func decodePack(seq uint64, at time.Time, data []byte) (*Pack, error) {
	body, err := openFrameOf(kindPack, data)
	if err != nil {
		return nil, err
	}
	d := dec{b: body}
	p := &Pack{Seq: seq, At: at, Bytes: len(data), header: d.header()}
	n := d.count()
	if n < 1 || n > packMaxEntries {
		d.fail(fmt.Sprintf("pack of %d entries", n))
		return nil, d.err
	}
	p.Entries = make([]Entry, n)
	before := &Trigger{}
	for i := range p.Entries {
		e := &p.Entries[i]
		e.Position = position(seq, i)
		d.entry(e, before)
		if e.Trigger != nil {
			before = e.Trigger
			before.ID = triggerID(p.header.writer, e.Position, before.Producer, before.Key)
		}
	}
	return p, d.end()
}

func (d *dec) entry(e *Entry, before *Trigger) {
	switch kind := d.byte(); kind {
	case entryTrigger:
		e.Trigger = d.trigger(before)
		e.Trigger.Position = e.Position
	case entryMarker:
		e.Marker = &Marker{Kind: d.str(""), ID: d.str(""), Revision: d.uvarint()}
	default:
		d.fail(fmt.Sprintf("entry of kind %d", kind))
	}
}

// trigger reads one; strings equal to those of before are shared with it.
func (d *dec) trigger(before *Trigger) *Trigger {
	t := &Trigger{}
	flags := d.byte()
	if flags&^(flagBroadcast|flagKey) != 0 {
		d.fail(fmt.Sprintf("trigger with flags %#x", flags))
	}
	t.Accepted = time.UnixMicro(d.varint()).UTC()
	t.Audience.Broadcast = flags&flagBroadcast != 0
	t.Audience.Tenants = d.tenants(before.Audience.Tenants)
	t.Topic = d.str(before.Topic)
	t.ContentType = d.str(before.ContentType)
	t.Producer = d.str(before.Producer)
	if n := d.count(); n > 0 {
		t.Attributes = make([]Attribute, n)
		for i := range t.Attributes {
			t.Attributes[i] = Attribute{Name: d.str(""), Value: d.str("")}
		}
	}
	if flags&flagKey != 0 {
		if t.Key = d.str(""); t.Key == "" {
			d.fail("empty key")
		}
		copy(t.Fingerprint[:], d.take(uint64(len(t.Fingerprint))))
	}
	t.Payload = slices.Clone(d.bytes())
	return t
}

func (d *dec) tenants(before []string) []string {
	n := d.count()
	if n == 0 {
		return nil
	}
	ids := make([]string, n)
	for i := range ids {
		var same string
		if i < len(before) {
			same = before[i]
		}
		ids[i] = d.str(same)
	}
	return ids
}

// last is the position of the last entry.
func (p *Pack) last() Position { return position(p.Seq, max(len(p.Entries), 1)-1) }

func position(seq uint64, index int) Position { return Position(seq<<8 | uint64(index)) }
