// Package journal keeps durable state on JetStream: triggers, outcomes, held
// deliveries and the registry. Nothing acknowledged is lost.
package journal

import (
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Position is where a trigger stands in the log: message sequence * 256 + index in its pack.
type Position uint64

// Seq and Index take a position apart.
func (p Position) Seq() uint64 { return uint64(p&^heldBit) >> 8 }
func (p Position) Index() int  { return int(p & 0xff) }

// Audience says whom a trigger is for.
type Audience struct {
	Broadcast bool
	Tenants   []string
}

// Trigger is one accepted event. Payload is shared by all lanes and never changed.
type Trigger struct {
	Position    Position // set when appended or read
	ID          string   // stable id (webhook-id): set when appended or read
	Accepted    time.Time
	Audience    Audience
	Topic       string
	ContentType string
	Attributes  []Attribute // CloudEvents and others; usually none
	Producer    string      // producer's immutable id
	Key         string      // idempotency key; "" is none
	Fingerprint [32]byte    // with a key: SHA-256 over method, path, audience, topic, content type, body
	Payload     []byte
}

// Attribute is one name and value.
type Attribute struct{ Name, Value string }

// Entry is one item of a pack: a trigger, or a marker of a registry change that takes
// effect at this position.
type Entry struct {
	Position Position
	Trigger  *Trigger // nil for a marker, or for a repeat that is void
	Marker   *Marker

	voided *Trigger // what a void entry says
}

// Marker says that a registry record has a new version from this position on.
type Marker struct {
	Kind     string // "tenant", "subscription"
	ID       string
	Revision uint64
}

// Pack is one message of TRIGGERS.
type Pack struct {
	Seq     uint64
	At      time.Time // the server's timestamp
	Bytes   int
	Entries []Entry

	header header
	repeat bool // of an earlier pack, as a whole
}

// Kind of an outcome record.
type Kind uint8

const (
	Delivered     Kind = iota + 1
	Failed             // an attempt failed; it waits for Due
	Parked             // it waits by our decision
	Dead               // waits for a person
	Cancelled          //
	Dropped            //
	Claimed            // an attempt of a delivery with a record is about to start
	LaneCancelled      // everything of the lane up to Position is cancelled (N waiting ones)
	Held               // moved to HELD message Ref (N deliveries)
	Revived            // dead -> parked by a replay
	Resent             // a deliberate resend: offered again
	Purged             // dead -> cancelled
)

var kindNames = [...]string{
	"", "delivered", "failed", "parked", "dead", "cancelled", "dropped", "claimed", "lane-cancelled", "held", "revived", "resent", "purged",
}

// String returns the kind's stable name: "delivered", "failed", "parked", ...; "" if there is none.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return ""
}

// Record is one change of the state of a delivery (Lane, Position). The state of a
// delivery is its last valid record.
type Record struct {
	Kind      Kind
	Partition uint8 // PartitionOf(tenant)
	Lane      engine.LaneID
	Position  Position
	Attempt   uint32 // attempts made, this one included
	Reason    engine.Reason
	Status    uint16        // HTTP status of the attempt; 0 none
	Took      time.Duration // of the attempt
	At        time.Time     // wall, ms
	Due       time.Time     // Failed, Parked with a due time of its own; zero is none
	N         uint32        // LaneCancelled, Held: how many; Dead, Revived, Claimed, Purged of HELD: so many from Position on
	Ref       uint64        // Held: sequence in HELD; Revived: number of the replay; of a delivery in HELD: its position in TRIGGERS, where known
	Positions []Position    // Held: the names they had before; 0 in the place of one that did not move. Revived, Claimed, Purged: all that it is about
	Detail    string        // short diagnosis, at most 256 bytes; no URL, no payload
}

// Ref is one waiting or dead delivery, by reference.
type Ref struct {
	Position Position
	Stamp    int64  // wall ms: due time when Due, else when it was parked (or died)
	Attempt  uint32 // attempts made
	Reason   engine.Reason
	Due      bool   // Stamp is a due time of its own
	Run      uint16 // above 1: so many of HELD, at Position, Position + 1, ..., never attempted
}

// LaneState is one lane in a checkpoint.
type LaneState struct {
	Lane     engine.LaneID
	Counters engine.Counters
	Tokens   int64 // whole tokens left; after a crash the driver starts empty
	Waiting  []Ref // in order
	Dead     []Ref
}

// Open is an attempt that was in flight at the checkpoint.
type OpenAttempt struct {
	Lane     engine.LaneID
	Position Position
	Attempt  uint32 // attempts made before it
}

// Checkpoint is the whole delivery state at one instant. Cursor is the first position
// not yet decided.
type Checkpoint struct {
	Cursor   Position
	Clean    bool // written by a graceful stop: nothing in flight
	At       time.Time
	Registry uint64 // registry revision
	Lanes    []LaneState
	Open     []OpenAttempt
	Past     []PastOf   // of deliveries that live again: waiting, dead or open
	Jobs     []JobCount // of replays that have not ended

	decided []DeliveryKey // at or beyond Cursor, from before a crash: filled in by the journal
}

// State is what Open recovers: the newest complete checkpoint with the records behind it folded in.
type State struct {
	Checkpoint // Open: attempts whose outcome is unknown, to be parked as attempt + 1
	// Decided holds deliveries at or beyond Cursor that have a record already: the reader
	// must not offer them again. Dropped once the reader has passed Last.
	Decided map[DeliveryKey]struct{}
	Last    Position // the highest position in Decided
	Crashed bool     // the last process did not stop cleanly
	Epoch   uint64   // this process's
}

// DeliveryKey names a delivery.
type DeliveryKey struct {
	Lane     engine.LaneID
	Position Position
}

// heldBit marks the position of a delivery that has been moved to HELD: its name from then on, in
// records, references and Load. Its sequence and index are those in HELD.
const heldBit Position = 1 << 62

// HeldPosition is the name of the i-th delivery of message seq of HELD.
func HeldPosition(seq uint64, i int) Position { return heldBit | position(seq, i) }

// Held reports whether p names a delivery in HELD, and Unheld is its place there.
func (p Position) Held() bool       { return p&heldBit != 0 }
func (p Position) Unheld() Position { return p &^ heldBit }
