// Package sim runs the engine in virtual time: arrivals, endpoints, and a driver that does what
// the service's own does. A policy that looks good here is the code that will run.
//
// Nothing waits and no clock is read. An event queue hands out the smallest instant, then the
// order of its making; at one instant attempts end before anything arrives. One seed gives one
// result, whatever the machine; and all policies of one population see the same arrivals, since
// every source draws from a stream of its own.
//
//	arrivals   Process: when the n-th comes (constant, Poisson, burst, sine, on/off, trace)
//	driver     Offer, Finish, Next, Waiting, Tick, as internal/fanout calls them
//	endpoint   how long an answer takes, and which
//	figures    by group and by tenant, and over time
//
// What the service has and this has not: disk, sockets and the time they take.
package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Setup is one run: a platform, a population, a policy. Run does not change it.
type Setup struct {
	Seed    uint64
	Engine  engine.Config // Rand nil means one of the seed
	Groups  int           // figures are kept by group: 0 to Groups-1
	Tenants []Tenant
	Lanes   []Lane
	Gate    *Gate // in front of all lanes; nil for none

	Until   time.Duration // arrivals end
	Drain   time.Duration // then what waits may go on for so long
	Measure Span          // figures of a span count what was first offered in it; zero: until Until
	Bin     time.Duration // of the series over time; 0 means 1s

	Watch    func(Step)               // told every verdict and grant, in order; may be nil
	Progress func(time.Duration) bool // told the instant now and then, and reports whether to go on; may be nil
}

// Span is from an instant, included, to another, excluded.
type Span struct{ From, To time.Duration }

// Has reports whether the instant is within.
func (s Span) Has(at time.Duration) bool { return at >= s.From && at < s.To }

// Tenant is one customer. Its id is its place in Setup.Tenants.
type Tenant struct {
	Group  int
	Weight int // 0 means 1
}

// Lane is one subscription. Its id is its place in Setup.Lanes.
type Lane struct {
	Tenant   engine.TenantID
	Host     engine.HostID
	Profile  engine.Profile
	Arrivals []Process
	Endpoint Endpoint
	Server   *Server // shared by the lanes that name it; nil: unlimited capacity
	Gate     *Gate   // its contract, outside of the engine; nil for none
	Pooled   bool    // its retries are paid from one budget of all such lanes, outside of the engine
}

// Step is what was decided at an instant.
type Step struct {
	At      time.Duration
	Lane    engine.LaneID
	Call    Call
	Kind    engine.Kind
	Reason  engine.Reason
	Until   time.Duration // the verdict's instant
	Attempt uint32
}

// Call is what was asked.
type Call uint8

const (
	Offered Call = iota + 1 // Offer
	Ended                   // Finish
	Granted                 // Next
)

// ErrSetup wraps every error about a Setup. ErrStopped is Run's when Progress said so.
var (
	ErrSetup   = errors.New("sim: setup")
	ErrStopped = errors.New("sim: stopped")
)

func (s *Setup) check() error {
	for i, t := range s.Tenants {
		if t.Group < 0 || t.Group >= s.Groups {
			return fmt.Errorf("%w: tenant %d: group must be below %d, is %d", ErrSetup, i, s.Groups, t.Group)
		}
	}
	for i := range s.Lanes {
		if int(s.Lanes[i].Tenant) >= len(s.Tenants) {
			return fmt.Errorf("%w: lane %d: there is no tenant %d", ErrSetup, i, s.Lanes[i].Tenant)
		}
	}
	switch {
	case s.Until <= 0:
		return fmt.Errorf("%w: until: must be above 0, is %v", ErrSetup, s.Until)
	case s.Drain < 0 || s.Bin < 0:
		return fmt.Errorf("%w: drain, bin: must be 0 or more", ErrSetup)
	case s.Measure.To < s.Measure.From:
		return fmt.Errorf("%w: measure: must not end before it begins", ErrSetup)
	}
	return nil
}

// stream is a random source of its own for each purpose and index.
func stream(seed uint64, purpose, index int) *rand.Rand {
	return rand.New(rand.NewPCG(seed^uint64(purpose)<<56, uint64(index)*0x9e3779b97f4a7c15+1))
}

const (
	forArrivals = iota + 1
	forAnswers
	forEngine
)

// Run runs to the end: until nothing arrives any more and nothing is left to do, or Drain is over.
func Run(s *Setup) (*Figures, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	d, err := newDriver(s)
	if err != nil {
		return nil, err
	}
	if !d.run() {
		return nil, ErrStopped
	}
	return d.figures(), nil
}
