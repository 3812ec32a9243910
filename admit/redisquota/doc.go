// Package redisquota counts the limits of a decision in Redis, for all replicas of a service
// together.
//
// One decision is one script and one round trip: all of its limits, of whatever algorithms and
// windows, are checked in the server's own time, and recorded only if all pass. A denial records
// nothing. See take.lua for the arithmetic, which is that of package limit in microseconds.
//
// # When the store is away
//
// A call that has no answer within the deadline (25 ms) leaves its decision to the checks' Away:
// closed, local share or open. After five such calls in a row a breaker opens and the store is
// not asked for a while, so that a dead store costs nothing.
//
// # A decision in doubt
//
// A call that missed its deadline may have been recorded. Its answer is still awaited in the
// background: if the decision was recorded although the caller was refused, it is given back; if
// the caller was let through, it stays recorded, once. Only where the connection ended between
// request and answer nobody can know: Stats.Doubt counts these. The store may then have counted a
// request that was refused; it never lacks one that it admitted.
package redisquota
