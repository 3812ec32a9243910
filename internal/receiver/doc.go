// Package receiver is the other side of a delivery: real HTTP endpoints on
// loopback that answer well, slowly, badly or not at all, and that count what
// reaches them.
//
// Tests, the demo and the sink command use them. What a receiver counts does not
// depend on the sender in any way: it knows only the requests it got, when they
// came, how it answered and when the client went away. So its figures can be
// held against the sender's own account.
//
// Three parts, usable apart:
//
//   - a Behaviour decides the answer to the n-th request: a plain function of the
//     number and the instant, without I/O or clock;
//   - a Book counts: deliveries, duplicates, requests in flight, arrivals above a
//     contract, latencies. It reads no clock either;
//   - a Receiver listens, carries out what its Behaviour decides, and keeps a Book.
package receiver
