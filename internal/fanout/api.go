// Package fanout reads triggers in log order, matches subscriptions, and drives
// the engine on the real clock.
//
// One lock guards the engine, the lanes' backlogs and the index of
// subscriptions. Nothing is sent, loaded, flushed or waited for under it.
//
//	reader    one goroutine: packs in log order -> Offer          (read.go)
//	clock     one goroutine: Tick, due heads, late records        (clock.go)
//	attempts  one goroutine each: claim, load, send, Finish       (send.go)
package fanout

import (
	"log/slog"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Tier is a set of defaults for the subscriptions of the tenants in it.
type Tier struct {
	Name    string
	Weight  int    // 0 means 1
	Rate    string // "100/s", "unlimited"; "" means unlimited
	Burst   int64  // 0 means one second of the rate, at least 1
	Cap     int    // 0 means 16; -1 is none (demo, tests)
	Backlog int64  // bytes a tenant may have parked and dead; 0 means 2 GiB
	CapAuto CapAuto
	Inbound Inbound

	Subscriptions int // that a tenant may have; 0 means 1,000
}

// Inbound is what a tenant of a tier may post. The fan-out does not look at it.
type Inbound struct {
	Rate  string // of triggers, with the tenant's own keys; "" means unlimited
	Burst int64  // 0 means one second of the rate, at least 1
	Share int    // of the posts that are handed to the log at once; 0 means 1
}

// What a tier has where it says nothing.
const (
	DefaultCap     = 16
	DefaultBacklog = 2 << 30

	DefaultSubscriptions = 1000
)

// Options of Start.
type Options struct {
	Journal *journal.Journal
	Sender  delivery.Sender
	Logger  *slog.Logger    // nil means none
	Engine  engine.Config   // Slots, Order, HostLimit; Rand and Origin are set by Start
	Profile engine.Profile  // defaults of every lane: breaker, schedule, budget, horizon, timeout
	Tiers   map[string]Tier // "default" is used where a tenant's tier is missing
	Observe Observer

	// Trace, if set, begins the span of an attempt, and returns the W3C context to send and what ends the span.
	Trace func(Attempting) (parent, state string, end func(Attempted))

	Envelopes map[string]*envelope.Envelope // the operator's, by name

	MaxWaiting      int           // references to waiting deliveries; 0 means 1,000,000: the reader stops there
	CheckpointEvery time.Duration // 0 means 30s
	KeepDead        time.Duration // dead letters older than it are purged; 0 means 30 days

	decide func(engine.Config) decider // tests only; nil means the engine
}

// Observer is told what happens, outside of every lock. Any field may be nil.
type Observer struct {
	Attempt func(Attempted)
}

// Attempted is one attempt that ended.
type Attempted struct {
	Subscription  string
	Tenant        string
	Number        uint32 // 1 is the first
	Outcome       delivery.Outcome
	SinceAccepted time.Duration
	Waited        time.Duration    // from parked, or due, to granted; 0 for one that was sent at once
	Trigger       *journal.Trigger // nil: it could not be read
	Took          time.Duration    // from granted to settled
	Verdict       engine.Kind
	Reason        engine.Reason
}

// LaneStatus is a lane as the API shows it.
type LaneStatus struct {
	engine.LaneView
	Subscription string
	TenantID     string
	HostName     string // scheme://host:port
	Rate         string
	Burst        int64
	Now          time.Duration // the instant of this view, on the axis of Probe and Until
	Stopped      int           // queues of an ordered lane that wait behind a dead letter
}

// TenantStatus is the account of a tenant: the sum over its lanes, removed ones included.
type TenantStatus struct {
	engine.TenantView
	TenantID string
	Lanes    int
	Counters engine.Counters
	Bytes    int64 // parked and dead, estimated
	Quota    int64
}

// Stats is the platform as the API and the metrics show it.
type Stats struct {
	engine.Stats
	Lanes          int
	Waiting        int // references held to what waits
	Dead           int // and to what is dead
	Cursor         journal.Position
	OldestEligible time.Duration // age of the oldest delivery that could go now
	Saturated      int           // lanes above 80 % of their cap
	Open           int           // lanes whose breaker is not closed
	Disabled       int           // by 410
	LeastServed    float64       // the least served/entitled of a tenant in the last round; 1 when none is entitled
	Ends           []End         // what deliveries came to, since the process started
	RejectionGap   int64         // denials less what was parked, buried or dropped for them: 0
	Near           int           // waiting deliveries in the last tenth of the horizon
}
