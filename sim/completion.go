package sim

import (
	"time"
)

// CompletionSetup is an experiment with fan-outs: each trigger goes to one endpoint of every
// latency in All, and is complete when the last has answered.
type CompletionSetup struct {
	Seed     uint64
	Triggers int
	All      []Latency
}

// Completions are the times of an experiment with fan-outs, of whole triggers and of single
// deliveries.
type Completions struct{ All, Single Histogram }

// RunCompletions draws every answer once. Whoever waits for all waits for the maximum, whose
// distribution is F(t)^n for n alike.
func RunCompletions(s *CompletionSetup) *Completions {
	c := &Completions{}
	rnd := stream(s.Seed, forAnswers, 0)
	for range s.Triggers {
		var last time.Duration
		for _, latency := range s.All {
			took := latency(rnd)
			c.Single.Add(took)
			last = max(last, took)
		}
		c.All.Add(last)
	}
	return c
}
