// Package admit decides which requests of which tenant get in.
//
// A Gate holds policies: each says what it counts by (its key), how much may
// pass (fixed, or by the tenant's tier), what a request costs (by route), and
// whether it is enforced or only observed. One decision checks all policies that
// concern a request; it records in all of them or in none, and answers with the
// strictest. Counters are in this process (Local) or in a store that several
// processes share (package redisquota).
//
//	plan := gate.Plan(&request)                 // which limits concern it
//	answer := local.Decide(now, plan.Local)     // all or nothing
//	... the shared store decides plan.Shared; if it denies, local.Refund
//	verdict := gate.Verdict(&plan, answers...)  // what the caller is told
//
// Package httpadmit does this for HTTP. Concurrency (a tenant's share of the
// slots) is not a policy of this kind: see fair.Slots.
//
// # Rules
//
//   - A key is made of facts: the tenant and the user of a verified credential, the
//     route that the operator's table gives, the client's address behind the
//     operator's own proxies. Nothing that a caller may invent chooses a counter.
//   - A cost is the operator's, by route. A cost above every burst can never pass
//     and is refused when the policies are loaded; above this tenant's burst it is
//     answered "never", not "later".
//   - A denial records nothing, anywhere.
//   - An observed policy never changes an answer nor the state of an enforced one.
//   - A tier that changes gives its limits to the next request; what was used
//     stays used.
//   - State is bounded for each policy, and to be forgotten grants nothing.
//
// Nothing here reads a clock, does I/O or blocks. Gate is immutable and safe for
// concurrent use, and so is Local.
package admit
