// Package demo shows on this machine, within a minute, what the service is for: it
// runs the same healthy load three times, alone, beside eight troublesome neighbours,
// and beside them with the protections off, and compares.
//
// It starts the real service in this process on an embedded journal in a temporary
// directory, posts triggers over its HTTP API, and counts at real HTTP endpoints on
// loopback. What was delivered, how often, how many at once and how fast is counted
// by the endpoints; what waits, is dead or in flight comes from the service's own
// account. The two are held against each other. Nothing is left behind.
//
//	scenario.go   the tenants and the settings: what is run
//	generate.go   the triggers: when, for whom, with which bytes
//	post.go       open-loop posting at the scheduled instants
//	service.go    the service, as the demo drives it
//	phase.go      one phase from an empty directory to its account
//	report.go     the arithmetic of the report, and its JSON
//	text.go       what a person reads
//	demo.go       the three phases in order
package demo
