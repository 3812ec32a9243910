package fanout

import (
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// TraceParent and TraceState are the attributes of a trigger that hold its W3C trace context.
const (
	TraceParent = "traceparent"
	TraceState  = "tracestate"
)

// Attempting is an attempt whose request is about to be made.
type Attempting struct {
	Subscription, Tenant    string
	Number                  uint32 // 1 is the first
	Trigger                 *journal.Trigger
	TraceParent, TraceState string // the trigger's; "" is none
}

// ValidTraceParent reports whether s is a traceparent of version 00 (W3C Trace Context).
func ValidTraceParent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	return hex(s[3:35]) && hex(s[36:52]) && hex(s[53:]) && !zero(s[3:35]) && !zero(s[36:52])
}

func hex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zero(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}

// trace gives the request its trace context: that of the attempt's span where there are spans, else the trigger's own.
func (f *Fanout) trace(a *attempt, r *delivery.Request) {
	var parent, state string
	for i := range a.trigger.Attributes {
		switch at := &a.trigger.Attributes[i]; at.Name {
		case TraceParent:
			parent = at.Value
		case TraceState:
			state = at.Value
		}
	}
	if !ValidTraceParent(parent) {
		parent, state = "", ""
	}
	if f.opts.Trace != nil {
		parent, state, a.traced = f.opts.Trace(Attempting{
			Subscription: a.lane.subID, Tenant: a.lane.tenant.name, Number: a.number(), Trigger: a.trigger,
			TraceParent: parent, TraceState: state,
		})
	}
	r.TraceParent, r.TraceState = parent, state
}
