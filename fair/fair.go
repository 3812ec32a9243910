// Package fair shares capacity: weighted max-min shares, Jain's index and the
// virtual-time order in which those who wait get slots.
//
// # Two rules with one answer
//
// Slots are lent one at a time, by virtual time (see Charge): no round, no
// table, nothing to oscillate. Where every tenant waits, or has what it wants,
// the slot time that this gives is the weighted max-min share, which Sharer
// computes in one pass from measured demand. The first decides; the second
// explains it on pages and is what the tests hold the first against.
//
// # The bound
//
// Over any span in which two tenants both wait all the time, what they used in
// slot-seconds per weight differs by no more than the longest slot time, over
// the smaller weight, times the slots that the two hold at most. This is
// start-time fair queueing, whose bound is one packet of each (Goyal, Vin, Cheng,
// SIGCOMM 1996, theorem 1), with many servers, so one of each for every slot,
// and with an estimate in place of a length that only the end will tell.
//
// Nothing here reads a clock, allocates in steady state, or is safe for
// concurrent use, Jain and the functions of virtual time excepted: they are pure.
package fair
