package httpadmit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// Errors of Slots.Acquire.
var (
	ErrSuspended = errors.New("httpadmit: the tenant's share of slots is 0")
	ErrQueueFull = errors.New("httpadmit: the tenant has as many requests waiting as it may")
	ErrAllFull   = errors.New("httpadmit: as many requests wait as may")
	ErrWaited    = errors.New("httpadmit: no slot fell free in time")
)

// Slots is fair.Slots with goroutines that wait. Safe for concurrent use.
//
// A waiting goroutine costs a channel and a timer of its own. A release looks at
// no waiter but the one it wakes.
type Slots struct {
	origin time.Time // instants are since then, on the monotonic clock

	mu      sync.Mutex
	slots   *fair.Slots
	waiters map[fair.SlotTicket]chan bool // told once: whether it was granted
}

type wake struct {
	to      chan bool
	granted bool
}

// NewSlots returns slots that nobody holds.
func NewSlots(l fair.SlotLimits) *Slots {
	return &Slots{origin: time.Now(), slots: fair.NewSlots(l), waiters: map[fair.SlotTicket]chan bool{}}
}

func (s *Slots) now() time.Duration { return time.Since(s.origin) }

// SetLimits replaces the limits; see fair.Slots.
func (s *Slots) SetLimits(l fair.SlotLimits) {
	s.do(func(time.Duration) { s.slots.SetLimits(l) })
}

// Load returns how many slots are held and how many requests wait.
func (s *Slots) Load() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.Running(), s.slots.Waiting()
}

// Tenant returns how many slots a tenant holds and how many of its requests wait.
func (s *Slots) Tenant(name string) (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.Tenant(name)
}

// Acquire takes a slot for the claim's tenant and waits for one for at most so
// long, and no longer than the context lasts. Call release exactly once when the
// slot is free again; to call it twice does nothing. With an error there is
// nothing to release. claim.Until is not looked at.
func (s *Slots) Acquire(ctx context.Context, claim fair.Claim, most time.Duration) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var ticket fair.SlotTicket
	var answer fair.Answer
	told := make(chan bool, 1)
	s.do(func(now time.Duration) {
		claim.Until = now + most
		ticket, answer = s.slots.Request(now, claim)
		if answer == fair.Wait {
			s.waiters[ticket] = told
		}
	})
	release = func() { s.do(func(now time.Duration) { s.slots.Release(now, ticket) }) }
	switch answer {
	case fair.Run:
		return release, nil
	case fair.Wait:
		if err := s.wait(ctx, ticket, told, most); err != nil {
			return nil, err
		}
		return release, nil
	}
	return nil, refusals[answer]
}

var refusals = map[fair.Answer]error{
	fair.Suspended: ErrSuspended,
	fair.QueueFull: ErrQueueFull,
	fair.AllFull:   ErrAllFull,
	fair.WouldWait: ErrWaited,
}

// wait returns nil when the ticket was granted.
func (s *Slots) wait(ctx context.Context, ticket fair.SlotTicket, told <-chan bool, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	var granted bool
	select {
	case granted = <-told:
	case <-ctx.Done():
		s.do(func(now time.Duration) { // it may have been granted meanwhile: the next one gets it
			delete(s.waiters, ticket)
			s.slots.Cancel(now, ticket)
		})
		return ctx.Err()
	case <-timer.C:
		s.do(func(time.Duration) {}) // whose time is over is told
		granted = <-told
	}
	if !granted {
		return ErrWaited
	}
	return nil
}

// do changes the slots and tells those whom it concerns, outside the lock.
func (s *Slots) do(change func(now time.Duration)) {
	s.mu.Lock()
	now := s.now()
	change(now)
	woken := s.settleLocked(now)
	s.mu.Unlock()
	for _, w := range woken {
		w.to <- w.granted // has room for one, and is told once
	}
}

// settleLocked ends and grants what is due.
func (s *Slots) settleLocked(now time.Duration) (woken []wake) {
	for t, ok := s.slots.Expire(now); ok; t, ok = s.slots.Expire(now) {
		woken = s.tellLocked(woken, t, false)
	}
	for t, ok := s.slots.Next(now); ok; t, ok = s.slots.Next(now) {
		woken = s.tellLocked(woken, t, true)
	}
	return woken
}

func (s *Slots) tellLocked(woken []wake, t fair.SlotTicket, granted bool) []wake {
	to := s.waiters[t]
	delete(s.waiters, t)
	return append(woken, wake{to, granted})
}
