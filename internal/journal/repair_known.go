package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// known is what the messages that are left say about others.
type known struct {
	triggers, outcomes, heldTo uint64 // highest sequence that is named

	epochs   epochs
	assembly assembly
	newest   *found // complete checkpoint

	held    map[uint64][]DeliveryKey // what the messages of HELD hold
	names   map[string]named         // of registry records, by key
	markers map[string]uint64        // the revisions that TRIGGERS announces, by kind and id
	err     error
}

// named is a part of a registry record.
type named struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	seq    uint64
}

func (k *known) fail(err error) {
	if k.err == nil && err != nil {
		k.err = fmt.Errorf("%w: %w", ErrBeyondRepair, err)
	}
}

// pack takes in a message of TRIGGERS.
func (k *known) pack(r blockRecord) {
	p, err := decodePack(r.seq, time.Time{}, r.data)
	if err != nil {
		k.fail(damagedAt(triggersStream, r.seq, err))
		return
	}
	k.order(triggersStream, r.seq, p.header)
	k.outcomes = max(k.outcomes, p.header.other)
	for i := range p.Entries {
		if m := p.Entries[i].Marker; m != nil && m.Kind != padMarker {
			of := m.Kind + " " + m.ID
			k.markers[of] = max(k.markers[of], m.Revision)
		}
	}
}

func (k *known) order(stream string, seq uint64, h header) {
	if h.prev >= seq {
		k.fail(&Damage{Stream: stream, From: seq, To: h.prev, What: "messages that were here before are gone, and others stand in their place"})
	}
}

// outcome takes in a message of OUTCOMES.
func (k *known) outcome(r blockRecord) {
	kind, h, err := decodeHeader(r.data)
	k.fail(err)
	k.order(outcomesStream, r.seq, h)
	k.triggers = max(k.triggers, h.other)
	switch kind {
	case kindEpoch:
		e, err := decodeEpoch(r.seq, r.data)
		k.fail(err)
		k.epochs.add(e)
	case kindCheckpoint:
		k.part(r)
	case kindRecords:
		_, recs, err := decodeRecords(r.data)
		k.fail(err)
		for i := range recs {
			k.record(&recs[i])
		}
	}
}

func (k *known) record(r *Record) {
	k.position(r.Position)
	for _, p := range r.Positions {
		k.position(p)
	}
	if r.Kind == Held {
		k.heldTo = max(k.heldTo, r.Ref)
	}
}

func (k *known) position(p Position) {
	if p.Held() {
		k.heldTo = max(k.heldTo, p.Seq())
	} else {
		k.triggers = max(k.triggers, p.Seq())
	}
}

// part takes in a message of a checkpoint.
func (k *known) part(r blockRecord) {
	p, err := decodeCheckpointPart(r.data)
	if err != nil {
		k.fail(err)
		return
	}
	if p.number == 0 {
		k.assembly = assembly{want: r.seq}
	}
	if k.assembly.want == 0 || k.assembly.add(message{seq: r.seq, data: r.data}) != nil || !k.assembly.complete {
		return
	}
	cp, err := decodeCheckpoint(k.assembly.body)
	if err == nil && k.epochs.valid(k.assembly.header, k.assembly.first, 0) {
		f := k.assembly.found
		f.Checkpoint, k.newest = cp, &f
	}
	k.assembly = assembly{}
}

// checkpoint takes in what the newest checkpoint names.
func (k *known) checkpoint() {
	if k.newest == nil {
		return
	}
	k.triggers = max(k.triggers, k.newest.Cursor.Seq()-min(k.newest.Cursor.Seq(), 1))
	for i := range k.newest.Lanes {
		for _, refs := range [...][]Ref{k.newest.Lanes[i].Waiting, k.newest.Lanes[i].Dead} {
			for _, r := range refs {
				k.position(r.Position)
			}
		}
	}
	for _, o := range k.newest.Open {
		k.position(o.Position)
	}
}

// heldMessage takes in a message of HELD.
func (k *known) heldMessage(r blockRecord) {
	lane, triggers, err := decodeHeld(r.data)
	if err != nil {
		return // it counts as lost
	}
	for _, t := range triggers {
		k.held[r.seq] = append(k.held[r.seq], DeliveryKey{lane, t.Position})
	}
}

func (k *known) registryRecord(r blockRecord) {
	key, ok := strings.CutPrefix(r.subject, "$KV."+registryBucket+".")
	if !ok {
		return
	}
	n := named{seq: r.seq}
	if json.Unmarshal(r.data, &n) == nil {
		k.names[key] = n
	}
}

// registryKeys returns the keys of the records that stand in what was cut out, as far as their heads can be read.
func registryKeys(data []byte) (keys []string) {
	prefix := []byte("$KV." + registryBucket + ".")
	for i := 2; i < len(data); i++ {
		n := int(binary.LittleEndian.Uint16(data[i-2:]))
		if bytes.HasPrefix(data[i:], prefix) && n > len(prefix) && i+n <= len(data) {
			keys = append(keys, string(data[i+len(prefix):i+n]))
		}
	}
	return keys
}

// registry makes sure that no record is missing, or is an older one than it should be: what it said cannot be
// found out. What was cut out may be older ones alone.
func (k *known) registry(s *salvage) error {
	lost := func(key string) error {
		return fmt.Errorf("%w: the registry's record %s is lost: restore the directory from a backup", ErrBeyondRepair, key)
	}
	if s == nil {
		return lost("of every tenant and subscription")
	}
	for _, c := range s.cut {
		keys := registryKeys(c.data)
		if len(keys) == 0 && !c.end {
			return lost("of an unknown tenant or subscription")
		}
		for _, key := range keys {
			if k.names[key].seq <= c.after && !c.end {
				return lost(key)
			}
		}
	}
	revisions := make(map[string]uint64)
	count := make(map[string]uint32)
	for key, n := range k.names {
		kind, _, _ := strings.Cut(key, ".")
		count[kind]++
		revisions[kind+" "+n.ID] = n.seq
	}
	for of, revision := range k.markers {
		if revisions[of] < revision {
			return lost(of)
		}
	}
	for kind, n := range count {
		for i := range n {
			if _, ok := k.names[recordKey(kind, i)]; !ok {
				return lost(recordKey(kind, i))
			}
		}
	}
	return nil
}
