package demo

import (
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/receiver"
	"github.com/fairlane-dev/fairlane/retry"
)

// Settings of the service in the demo. They are small so that everything that takes
// minutes in production (a breaker's interval, the slow schedule) happens in seconds.
const (
	slots     = 48
	laneCap   = 16
	timeout   = 2 * time.Second
	openFor   = time.Second
	openAtMax = 4 * time.Second
)

// slow is the retry schedule behind the quick attempts.
var slow = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}

// tenant is one customer of the demo: what it offers and how its endpoint behaves.
type tenant struct {
	name   string
	about  string
	rate   int // triggers offered per second
	answer func() receiver.Behaviour

	contract int   // deliveries per second the endpoint allows; 0: no contract
	burst    int64 // with a contract

	outage [2]time.Duration // 503 in this interval of the phase; zero: none
}

// steady is the tenant whose latency is compared; failing the one whose retries are.
const (
	steady  = "steady"
	failing = "failing"
)

// tenants of the demo, the healthy one first.
var tenants = []tenant{
	{name: steady, about: "answers in 20 ms", rate: 100,
		answer: func() receiver.Behaviour { return receiver.OK(20 * time.Millisecond) }},
	{name: "slow", about: "answers in 800 ms", rate: 15,
		answer: func() receiver.Behaviour { return receiver.OK(800 * time.Millisecond) }},
	{name: "blackhole", about: "accepts, never answers", rate: 30, answer: receiver.BlackHole},
	{name: failing, about: "500 to everything", rate: 50,
		answer: func() receiver.Behaviour { return receiver.Failing(500) }},
	{name: "flaky", about: "503 to every tenth", rate: 50,
		answer: func() receiver.Behaviour { return receiver.EveryNth(10, 503) }},
	{name: "recovering", about: "503 from second 3 to 6", rate: 50,
		answer: func() receiver.Behaviour { return receiver.OK(0) },
		outage: [2]time.Duration{3 * time.Second, 6 * time.Second}},
	{name: "throttling", about: "429 above 20/s", rate: 50,
		answer: func() receiver.Behaviour { return receiver.Throttling(20, time.Second) }},
	{name: "picky", about: "422 to every tenth", rate: 50,
		answer: func() receiver.Behaviour { return receiver.EveryNth(10, 422) }},
	{name: "noisy", about: "contract 20/s, burst 40", rate: 400,
		answer:   func() receiver.Behaviour { return receiver.OK(0) },
		contract: 20, burst: 40},
}

// phase is one of the three runs.
type phase struct {
	name      string
	tenants   []tenant
	protected bool
	drained   bool // no send starts after it, and the account waits until none is in flight
}

func phases(all []tenant) []phase {
	return []phase{
		{name: "alone", tenants: all[:1], protected: true, drained: true},
		{name: "with neighbours", tenants: all, protected: true, drained: true},
		{name: "with neighbours, protections off", tenants: all},
	}
}

// settings are the service's for one phase.
type settings struct {
	engine  engine.Config
	profile engine.Profile
	cap     int // of every subscription
}

// settingsOf returns the settings of a phase. Without protections there is no cap, no
// breaker, no retry budget and no fair order: first come, first served, as in a plain
// queue with workers. Contracts stay, for they protect the endpoints.
func settingsOf(protected bool) settings {
	s := settings{
		engine: engine.Config{Slots: slots},
		profile: engine.Profile{
			Timeout:  timeout,
			Schedule: retry.Schedule{Slow: slow},
			Breaker: breaker.Config{
				Consecutive: 5, Open: openFor, OpenMax: openAtMax, ProbeExpiry: timeout,
			},
		},
		cap: laneCap,
	}
	if !protected {
		s.engine.Order, s.engine.HostLimit = engine.Arrival, -1
		s.profile.Breaker.Off, s.profile.NoBudget = true, true
		s.cap = slots // more are never in flight: no cap
	}
	return s
}
