// Package fairlane delivers every trigger (webhook) to every subscriber and lets
// no tenant slow another down.
//
// The library is the pure core, which decides and never waits:
//
//   - limit: token buckets, exact in integers
//   - fair: max-min shares, Jain's index, virtual-time order
//   - retry: backoff, slow schedule, retry budget
//   - breaker: the circuit breaker of one lane
//   - engine: lanes and tenants, where the policies meet
//
// The service (cmd/fairlane) drives the same engine on the real clock, over a
// durable journal. The import rules between these packages are a test:
// house_test.go.
package fairlane
