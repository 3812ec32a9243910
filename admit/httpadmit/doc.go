// Package httpadmit puts a gate (package admit) before HTTP.
//
// A Door is a middleware for net/http, a check endpoint for proxies that ask
// before they forward, and a source of figures. A request goes through
//
//  1. identity: whose it is, by its credential alone;
//  2. the rate policies, all or none of which record it;
//  3. a slot: its tenant's share first, then the slots of all. What waits too
//     long, or finds the queue full, is refused, and its rates are given back;
//  4. the handler, with the identity in the request's context.
//
// The slot is given back exactly once: when the handler has returned or panicked,
// or, of a connection that it took over, when that is closed. A client that does
// not send its body, or read its answer, is cut after Settings.Stall without progress.
package httpadmit
