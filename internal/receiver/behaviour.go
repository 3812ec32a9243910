package receiver

import (
	"fmt"
	"strings"
	"time"
)

// Reply is how one request is answered. The zero Reply is no answer: the request
// stays open until the client leaves.
type Reply struct {
	Status     int           // HTTP status; 0: never answered
	Delay      time.Duration // waited before the first byte of the answer
	RetryAfter time.Duration // Retry-After, rounded up to whole seconds; 0: no such header
	Trickle    time.Duration // > 0: the body comes one byte at a time, this far apart, until the client leaves
	Close      bool          // the connection is closed without an answer; Status is ignored
}

// Accepts reports whether the reply is a 2xx.
func (r Reply) Accepts() bool { return !r.Close && r.Status >= 200 && r.Status <= 299 }

// Behaviour decides the answer to the n-th request (from 1), which arrived at the
// instant at, measured from the receiver's start. It may keep state: a Receiver
// calls it for one request at a time, in order of arrival. It must not block.
type Behaviour func(n int, at time.Duration) Reply

// OK answers every request with 200, after delay.
func OK(delay time.Duration) Behaviour {
	return func(int, time.Duration) Reply { return Reply{Status: 200, Delay: delay} }
}

// BlackHole accepts every request and never answers.
func BlackHole() Behaviour {
	return func(int, time.Duration) Reply { return Reply{} }
}

// Failing answers every request with status.
func Failing(status int) Behaviour {
	return func(int, time.Duration) Reply { return Reply{Status: status} }
}

// EveryNth answers every n-th request with status, the others with 200. With a 5xx
// it is a flaky endpoint; with 422 a picky one, which calls every n-th message wrong.
func EveryNth(every, status int) Behaviour {
	return func(n int, _ time.Duration) Reply {
		if n%every == 0 {
			return Reply{Status: status}
		}
		return Reply{Status: 200}
	}
}

// Throttling answers at most perSecond requests with 200 in any second (the window
// that ends now, its left edge excluded) and the others with 429 and retryAfter.
// Refused requests do not count against the rate. perSecond is at least 1.
func Throttling(perSecond int, retryAfter time.Duration) Behaviour {
	if perSecond < 1 {
		panic("receiver: Throttling: perSecond must be at least 1")
	}
	var oldest int // index of the oldest of the last perSecond accepted
	accepted := make([]time.Duration, 0, perSecond)
	return func(_ int, at time.Duration) Reply {
		if len(accepted) < perSecond {
			accepted = append(accepted, at)
			return Reply{Status: 200}
		}
		if at-accepted[oldest] < time.Second {
			return Reply{Status: 429, RetryAfter: retryAfter}
		}
		accepted[oldest] = at
		oldest = (oldest + 1) % perSecond
		return Reply{Status: 200}
	}
}

// Recovering answers with 503 in [from, to) and with 200 otherwise.
func Recovering(from, to time.Duration) Behaviour {
	return func(_ int, at time.Duration) Reply {
		if at >= from && at < to {
			return Reply{Status: 503}
		}
		return Reply{Status: 200}
	}
}

// Trickling answers 200 at once and then sends its body one byte each interval,
// until the client leaves.
func Trickling(interval time.Duration) Behaviour {
	return func(int, time.Duration) Reply { return Reply{Status: 200, Trickle: interval} }
}

// Closing reads every request and closes the connection without an answer.
func Closing() Behaviour {
	return func(int, time.Duration) Reply { return Reply{Close: true} }
}

// modes are the behaviours that have a name on the command line.
var modes = []struct {
	name, help string
	make       func() Behaviour
}{
	{"ok", "200 at once", func() Behaviour { return OK(0) }},
	{"slow", "200 after 800 ms", func() Behaviour { return OK(800 * time.Millisecond) }},
	{"black-hole", "accepts, never answers", BlackHole},
	{"fail", "500 to everything", func() Behaviour { return Failing(500) }},
	{"flaky", "503 to every tenth", func() Behaviour { return EveryNth(10, 503) }},
	{"throttle", "429 with Retry-After 1 above 20/s", func() Behaviour { return Throttling(20, time.Second) }},
	{"picky", "422 to every tenth", func() Behaviour { return EveryNth(10, 422) }},
	{"trickle", "200, then one byte a second", func() Behaviour { return Trickling(time.Second) }},
	{"close", "closes the connection without an answer", Closing},
}

// Mode returns the behaviour of that name, or an error that lists the names.
func Mode(name string) (Behaviour, error) {
	for _, m := range modes {
		if m.name == name {
			return m.make(), nil
		}
	}
	return nil, fmt.Errorf("unknown mode %q: one of %s", name, strings.Join(ModeNames(), ", "))
}

// ModeNames lists the names that Mode knows.
func ModeNames() []string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = m.name
	}
	return names
}

// ModeHelp describes every mode in one line each, for a command's help text.
func ModeHelp() string {
	var b strings.Builder
	for _, m := range modes {
		fmt.Fprintf(&b, "  %-11s %s\n", m.name, m.help)
	}
	return b.String()
}
