// Package delivery sends one signed request to one endpoint and says what came of it.
//
// One Send is at most one request: nothing here, and nothing below it, repeats
// one. No redirect is followed, no proxy of the environment is used, no
// response is inflated. Which addresses may be reached is decided by Guard on
// the address that is dialled, after the name was resolved. What an answer
// means is the table that Table returns.
package delivery

import (
	"context"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/envelope"
)

// Request is one attempt. Payload is shared and must not be changed, neither by
// the sender nor, while Send runs, by the caller.
type Request struct {
	ID          string // webhook-id, Idempotency-Key; letters, digits, "_" and "-", at most 256
	URL         string // sent as configured, without its fragment
	ContentType string // the payload's own; "" sends no such header
	Payload     []byte
	Secrets     [][]byte      // every one signs; none is NotSent. With a Shape its keys sign instead
	Attempt     int           // X-Attempt, from 1
	Timeout     time.Duration // the whole attempt, connecting included; 0 means 15s
	Limit       int64         // RateLimit-Limit; negative: no such headers
	Remaining   int64
	Window      time.Duration     // in which Limit accrues; 0 is not known
	TraceParent string            // W3C Trace Context; "" sends no such header
	TraceState  string            //
	Schema      string            // Fairlane-Schema; "" sends no such header
	Shape       *Shape            // nil: Standard Webhooks with Secrets, and nothing else
	Event       *envelope.Event   // needed where Shape.WantsEvent
	Outcomes    map[string]string // overrides of the outcome table, see CheckOutcomes

	// Start, if set, is asked once, when the connection stands and before the
	// first byte is written. False ends the attempt as NotSent: the lane was
	// paused or removed meanwhile.
	Start func() bool
}

// Outcome is how it ended.
type Outcome struct {
	Result     engine.Result
	Status     int           // 0 when there was no answer
	Took       time.Duration // from the first byte to the headers of the answer; 0 when there was no answer
	Sent       bool          // bytes of the request may have reached the endpoint
	Incomplete bool          // the answer's body ended early, or was cut by our bounds; changes nothing else
	Reason     string        // one of the constants below
	Detail     string        // short, without the URL's path, query or credentials
	Snippet    []byte        // start of the answer's body, at most 1 KiB, opaque
}

// Reasons of an Outcome: a closed set, fit for a metric's label. For a failure
// the reason names the stage.
const (
	ReasonStatus   = "status"   // the endpoint answered, Status decides
	ReasonTimeout  = "timeout"  // connected, and no answer in time
	ReasonDial     = "dial"     // no connection
	ReasonDNS      = "dns"      // no address for the name
	ReasonTLS      = "tls"      // no verified TLS connection
	ReasonReset    = "reset"    // the connection ended without an answer
	ReasonProtocol = "protocol" // what came is not an HTTP/1 answer, or its head is too long
	ReasonGuard    = "guard"    // the address is not allowed
	ReasonLocal    = "local"    // our own fault: descriptors, ports, the resolver, the egress proxy
	ReasonConfig   = "config"   // the subscription's settings cannot be used; a person must change them
	ReasonCut      = "cut"      // the context ended, or Start said no
)

// Sender sends one attempt. Send returns when the slot may be freed, at the
// latest when the request's timeout or ctx ends. Safe for concurrent use; Close
// comes after the last Send has returned.
type Sender interface {
	Send(ctx context.Context, r *Request) Outcome
	Close()
}
