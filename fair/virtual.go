package fair

// A virtual time is slot-seconds used over weight, a float64. Whoever is ready
// and has the least gets the next free slot; ties go to the least recently
// served. A float64 resolves 0.12 us after 1e9 slot-seconds per weight.

// FirstGuess is the slot time, in seconds, of what nobody has seen answer yet.
const FirstGuess = 0.020

// Guess returns the slot time in seconds to charge at a start: the lane's mean,
// if it never answered its tenant's, else the platform's, else FirstGuess. A
// mean of 0 or below says that there is none.
func Guess(lane, tenant, platform float64) float64 {
	switch {
	case lane > 0:
		return lane
	case tenant > 0:
		return tenant
	case platform > 0:
		return platform
	}
	return FirstGuess
}

// Charge returns the virtual time after a start that is expected to hold its
// slot for guess seconds. Charging at the start, not at the end, keeps one
// tenant from taking all free slots of one instant.
func Charge(virtual, guess float64, weight int) float64 {
	return virtual + guess/float64(weight)
}

// Correct returns the virtual time after the end of a start that was charged
// guess and held its slot for took seconds. Over both, took/weight is charged:
// an estimate that is wrong shifts service in time and never in sum. Between
// them a tenant is ahead or behind by at most |took - guess| / weight for each
// of its slots in flight.
func Correct(virtual, guess, took float64, weight int) float64 {
	return virtual + (took-guess)/float64(weight)
}

// Wake returns the virtual time of one that begins to wait: its own, but at
// least that of the one served last. Idle time earns nothing, so one that was
// away cannot take every slot until it has caught up; and one that is ahead
// cannot go to sleep to be forgiven.
func Wake(own, servedLast float64) float64 {
	if own < servedLast { // max of floats minds NaN and -0, which are not here
		return servedLast
	}
	return own
}
