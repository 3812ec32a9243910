package engine

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
	"github.com/fairlane-dev/fairlane/retry"
)

// Ids are dense: the registry gives them out from 0 and never again.
type (
	LaneID   uint32
	TenantID uint32
	HostID   uint32
)

// Delivery is one trigger for one lane, as the driver offers it.
type Delivery struct {
	Lane    LaneID
	Attempt uint32        // attempts made before this one: 0 is fresh
	Cost    uint32        // tokens; 0 means 1
	Born    time.Duration // instant of acceptance (may be negative after a restart); the horizon counts from it
	Behind  bool          // order: something before it waits or is in flight, so it parks
}

// Kind is what becomes of a delivery.
type Kind uint8

const (
	Send Kind = iota + 1 // start the attempt now, with Verdict.Ticket
	Park                 // it waits; the driver puts it into the lane's backlog and states it by Waiting
	Hold                 // simulator only: waits inside a slot
	Bury                 // dead: waits for a person
	Drop                 // dropped by the lane's choice; with reason Deleted: cancelled, its lane was removed
	Done                 // delivered
)

// Reason says why a delivery is parked, buried or dropped. The names are stable: they are
// metric labels, API values and, as numbers, part of the journal's format: append only.
type Reason uint8

const (
	None       Reason = iota
	ByPause           // lane, tenant or subscription paused by a person or disabled (410)
	ByEndpoint        // the endpoint asked for a pause (429, 503 with Retry-After)
	ByBreaker         // breaker open or its probe is out
	ByRate            // contract bucket
	ByCap             // lane's concurrency cap (or ramp)
	ByHost            // host's concurrency
	BySlots           // tenant's or platform's slots
	ByBudget          // no retry budget
	ByOrder           // behind what already waits
	ByRetry           // backoff after a failed attempt
	ByGone            // 410
	ByShutdown        // outcome unknown: cut at shutdown or crash
	ByLocal           // our own fault: no descriptor, address guard, payload unreadable
	Rejected          // the endpoint says that the message is wrong
	Expired           // horizon passed
	OverQuota         // tenant's backlog quota
	Exhausted         // attempt limit reached
	TooCostly         // cost above the burst: can never pass
	Deleted           // lane removed
)

var reasonNames = [...]string{
	"none", "pause", "endpoint", "breaker", "rate", "cap", "host", "slots", "budget", "order",
	"retry", "gone", "shutdown", "local", "rejected", "expired", "over-quota", "exhausted",
	"too-costly", "deleted",
}

// String returns the reason's stable name: "none", "pause", "endpoint", ...
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// Verdict is the answer to Offer and Finish. At is, for Park, the latest instant of
// all time-bound reasons (0 when only an event will free it). Due is true when At
// is the delivery's own due time (retry, Retry-After), to be stored with it.
type Verdict struct {
	Kind      Kind
	Reason    Reason
	Due       bool
	At        time.Duration
	Attempt   uint32 // Park, Bury: attempts made, as the backlog entry must remember
	Ticket    Ticket // Send only
	Limit     int64  // tenant-facing: the burst, -1 for no rate
	Remaining int64  // Send: whole tokens left, -1 without a rate
	Flush     bool   // Finish: the lane's breaker just closed; treat its retries as due now, in order, and state it by Waiting
}

// Grant lets the head of a lane's backlog go. The driver pops the head it stated by
// Waiting, sends it with Ticket, and calls Waiting again.
type Grant struct {
	Lane      LaneID
	Ticket    Ticket
	Limit     int64
	Remaining int64
}

// Ticket is what an attempt in flight owns. Opaque to drivers except Lane, Attempt, Probe.
type Ticket struct {
	Lane        LaneID
	LaneGen     uint32
	Host        HostID
	Attempt     uint32 // attempts made before this one
	Cost        uint32
	Group       GroupID
	Born        time.Duration
	Started     time.Duration
	Charged     float32 // slot seconds charged to virtual time at start
	BreakerGen  uint16
	BucketEpoch uint16
	Flags       TicketFlags
}

type TicketFlags uint8

const (
	FlagProbe TicketFlags = 1 << iota
	FlagRetryOwn
	FlagRetryReserve
	FlagBacklog // came from Next
	FlagSlow    // the lane was not quick at the start
)

// Result is how an attempt ended.
type Result struct {
	Kind       ResultKind
	RetryAfter time.Duration // Throttled: 0 means the endpoint did not say
	Denied     bool          // 401, 403, 404: twenty in a row open the breaker
	Refused    bool          // 429, 403 or connection refused: a sign for the host limit
	Answered   bool          // Later: a 4xx answer (neither way for the breaker); false for 3xx (a failure)
}

type ResultKind uint8

const (
	NotSent   ResultKind = iota + 1 // no byte left: everything is given back exactly
	OK                              // 2xx
	RejectedR                       // message refused for good
	Later                           // slow schedule only (3xx, other 4xx)
	Failed                          // 5xx, transport error, timeout: both scales
	Throttled                       // 429, or 503 with Retry-After: not counted as an attempt
	Gone                            // 410
	Unknown                         // cut at shutdown: gives back the slot only
)

// Backlog is what the driver states of a lane's waiting deliveries. Head is the next one to go. Where order keeps
// deliveries back, Count is without those behind one in flight.
type Backlog struct {
	Count       uint32
	HeadDue     time.Duration // its own due time, or the instant at which it was parked
	HeadBorn    time.Duration
	HeadAttempt uint32
	HeadCost    uint32
}

// Order of slots. The service offers only Fair.
type Order uint8

const (
	Fair    Order = iota // tenants by virtual time, lanes within
	Arrival              // first come, first served: head's due instant, no reservation, no nominal
)

// Config is the platform. The zero value of each field is its default.
type Config struct {
	Slots int // 0 means 1200
	Order Order
	Rand  retry.Rand // required

	HostLimit int           // requests in flight to one host; 0 means max(64, slots/4); -1 none
	Origin    time.Duration // the first instant; an earlier one is taken as it
}

// Profile is what lanes share by value; the engine interns equal ones.
type Profile struct {
	Rate        limit.Rate
	Cap         int // 0 is none: paused; the driver resolves defaults. -1 switches the cap off (demo, simulator)
	Breaker     breaker.Config
	Schedule    retry.Schedule
	Budget      retry.Budget
	NoBudget    bool
	Horizon     time.Duration // 0 means 72h
	MaxAttempts uint32        // 0 means none but the horizon
	Drop        bool          // deny action: drop instead of defer (own limits only: rate, cap)
	Timeout     time.Duration // whole request; 0 means 15s
	Group       GroupID       // lanes of one group share bucket and cap, and are given equal Rate and Cap; 0 is none
}

// LaneSpec describes a lane for Apply. Zero counters for a new one.
type LaneSpec struct {
	Lane    LaneID
	Tenant  TenantID
	Host    HostID
	Profile Profile
	Paused  bool
}

// Change is one of the Change types below. Apply never refills a bucket.
type Change interface{ change() }

type (
	// PutTenant adds or edits a tenant. Weight 1..1000; 0 means 1.
	PutTenant struct {
		Tenant    TenantID
		Weight    int
		Suspended bool
	}
	// RemoveTenant forgets it; its lanes must be gone.
	RemoveTenant struct{ Tenant TenantID }
	// PutLane adds or edits. NewURL resets the breaker.
	PutLane struct {
		LaneSpec
		NewURL bool
	}
	// PauseLane stops or resumes sends. Resuming ramps.
	PauseLane struct {
		Lane   LaneID
		Paused bool
	}
	// RemoveLane: tickets of it become stale; what waits moves to cancelled; returns by Snapshot only.
	RemoveLane struct{ Lane LaneID }
	// RestoreLane sets what a checkpoint kept, after PutLane and before the first Offer.
	RestoreLane struct {
		Lane     LaneID
		Counters Counters
		Tokens   int64 // whole tokens left

		// PausedUntil is the latest due time of what waits ByEndpoint: the endpoint's own pause.
		PausedUntil time.Duration
	}
	// SetSlots changes the platform's capacity.
	SetSlots struct{ Slots int }
)

func (PutTenant) change()    {}
func (RemoveTenant) change() {}
func (PutLane) change()      {}
func (PauseLane) change()    {}
func (RemoveLane) change()   {}
func (RestoreLane) change()  {}
func (SetSlots) change()     {}

// Moved says what Settle does to waiting or dead deliveries in the account.
type Moved uint8

const (
	ToExpired   Moved = iota + 1 // parked -> dead
	ToCancelled                  // parked -> cancelled
	ToRevived                    // dead -> parked (replay); ramps if nothing was parked
	ToResent                     // offered + 1, parked + 1 (a deliberate resend)
	ToPurged                     // dead -> cancelled
	ToBuried                     // parked -> dead for another reason than age (over quota, too costly)
	ToReplayed                   // dead -> parked, by a driver that paces and ramps what it revives itself
)

// Counters is the account of one lane: Offered = Delivered + Parked + Dead + InFlight + Cancelled + Dropped,
// each counted where it happens.
type Counters struct {
	Offered, Delivered, Dead, Cancelled, Dropped uint64
	Parked, InFlight                             uint64
}

// Balanced reports whether the account adds up.
func (c Counters) Balanced() bool {
	return c.Offered == c.Delivered+c.Parked+c.Dead+c.InFlight+c.Cancelled+c.Dropped
}

// Plus returns the sum of two accounts.
func (c Counters) Plus(o Counters) Counters {
	return Counters{
		Offered: c.Offered + o.Offered, Delivered: c.Delivered + o.Delivered, Dead: c.Dead + o.Dead,
		Cancelled: c.Cancelled + o.Cancelled, Dropped: c.Dropped + o.Dropped,
		Parked: c.Parked + o.Parked, InFlight: c.InFlight + o.InFlight,
	}
}

// Minus returns c without a part of it.
func (c Counters) Minus(o Counters) Counters {
	return Counters{
		Offered: c.Offered - o.Offered, Delivered: c.Delivered - o.Delivered, Dead: c.Dead - o.Dead,
		Cancelled: c.Cancelled - o.Cancelled, Dropped: c.Dropped - o.Dropped,
		Parked: c.Parked - o.Parked, InFlight: c.InFlight - o.InFlight,
	}
}

// LaneView is one lane, as plain data.
type LaneView struct {
	Lane      LaneID
	Tenant    TenantID
	Host      HostID
	Counters  Counters
	Waiting   Backlog
	Cap       int
	Tokens    int64
	Paused    bool
	Disabled  bool // 410
	Removed   bool
	PausedFor time.Duration // what is left of the endpoint's own pause
	Breaker   breaker.Phase
	Probe     time.Duration // instant of the next probe when open
	ByDenial  bool          // opened by 401, 403, 404 in a row
	Ramp      int           // 0 when off
	Offered   float64       // deliveries offered per second
	Budget    float64       // what is left of the lane's retry budget, 0..1
	Failing   float64       // failures of all calls, decayed by the half-life, 0..1
	MeanSlot  time.Duration
	P99       time.Duration // of successes
	Blocked   Reason        // why the head does not go now
	Until     time.Duration
}

// TenantView is one tenant of the last measuring round.
type TenantView struct {
	Tenant   TenantID
	Weight   int
	InFlight int
	Nominal  int
	Share    float64 // max-min share, slots
	Demand   float64 // slots
	Served   float64 // served/entitled of the last round; NaN when not entitled
	Short    bool    // below 0.97
}

// Stats is the platform at an instant.
type Stats struct {
	Slots, InFlight int
	Counters        Counters // sum over all lanes, removed ones included
	Jain            float64  // served/entitled, last round
	ShortChanged    int
	Entitled        int        // tenants in the index
	Reserve         float64    // platform's retry reserve, 0..1
	Denials         [32]uint64 // denials by Reason
}
