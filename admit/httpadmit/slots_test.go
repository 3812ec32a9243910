package httpadmit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

const ms = time.Millisecond

func after(d time.Duration) { <-time.After(d) }

func work(t *testing.T, s *Slots, tenant string, took time.Duration) {
	release, err := s.Acquire(t.Context(), fair.Claim{Tenant: tenant, Share: 6, Weight: 1}, time.Hour)
	if err != nil {
		t.Error(err)
		return
	}
	after(took)
	release()
}

// 10,000 goroutines of 1,000 tenants wait for ten slots: all are served, ten at
// once, each tenant as soon as every other, and nobody is woken in vain.
func TestTenThousandWaitersAreServedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(fair.SlotLimits{Slots: 10, Queue: 100, Waiters: 20_000})
		var running, most int
		var mu sync.Mutex
		last := map[string]time.Duration{}
		served := map[string]int{}
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 10_000 {
			tenant := fmt.Sprint(i % 1000)
			wg.Go(func() {
				release, err := s.Acquire(t.Context(), fair.Claim{Tenant: tenant, Share: 2, Weight: 1}, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				after(20 * ms)
				mu.Lock()
				running--
				served[tenant]++
				if served[tenant] == 5 {
					last[tenant] = time.Since(began)
				}
				mu.Unlock()
				release()
			})
		}
		wg.Wait()
		var halves []time.Duration
		for _, d := range last {
			halves = append(halves, d)
		}
		if lo, hi := slices.Min(halves), slices.Max(halves); hi-lo > 3*time.Second {
			t.Errorf("the fifth of a tenant was served between %v and %v", lo, hi)
		}
		if most != 10 || time.Since(began) != 20*time.Second {
			t.Errorf("%d at once, done after %v", most, time.Since(began))
		}
		if r, w := s.Load(); r+w+len(s.waiters) != 0 {
			t.Errorf("%d run, %d wait, %d are remembered", r, w, len(s.waiters))
		}
	})
}

// A waiter whose client has gone leaves at once, wakes nobody, and is never
// granted; one that goes in the instant of its grant hands the slot on.
// Field case 91.
// Limiter case L78.
func TestACancelledWaiterLeavesAndTheNextIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(fair.SlotLimits{Slots: 1, Queue: 2000, Waiters: 2000})
		hold, err := s.Acquire(t.Context(), fair.Claim{Tenant: "a", Share: 1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		var left atomic.Int64
		for range 1000 {
			go func() {
				release, err := s.Acquire(gone, fair.Claim{Tenant: "a", Share: 1}, time.Hour)
				if errors.Is(err, context.Canceled) {
					left.Add(1)
				} else if err == nil {
					release() // granted in the instant in which it went
					left.Add(1)
				}
			}()
		}
		served := make(chan bool, 1)
		synctest.Wait()
		go func() {
			release, err := s.Acquire(t.Context(), fair.Claim{Tenant: "a", Share: 1}, time.Hour)
			if err == nil {
				release()
			}
			served <- err == nil
		}()
		synctest.Wait()
		cancel()
		hold()
		if !<-served {
			t.Error("the one that stayed was not served")
		}
		synctest.Wait()
		if r, w := s.Load(); left.Load() != 1000 || r+w+len(s.waiters) != 0 {
			t.Errorf("%d left, %d run, %d wait", left.Load(), r, w)
		}
		if _, err := s.Acquire(gone, fair.Claim{Tenant: "a", Share: 1}, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended gets a slot: %v", err)
		}
	})
}

// Waiting has a bound and a deadline, and each refusal says which.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(fair.SlotLimits{Slots: 1, Queue: 1, Waiters: 2})
		hold, _ := s.Acquire(t.Context(), fair.Claim{Tenant: "a", Share: 1}, 0)
		results := make(chan error, 2)
		for _, tenant := range []string{"a", "b"} {
			go func() {
				_, err := s.Acquire(t.Context(), fair.Claim{Tenant: tenant, Share: 1}, time.Second)
				results <- err
			}()
			synctest.Wait()
		}
		for tenant, want := range map[string]error{"a": ErrQueueFull, "c": ErrAllFull, "jailed": ErrSuspended} {
			share := 1
			if tenant == "jailed" {
				share = 0
			}
			if _, err := s.Acquire(t.Context(), fair.Claim{Tenant: tenant, Share: share}, time.Second); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", tenant, err, want)
			}
		}
		began := time.Now()
		for range 2 {
			if err := <-results; !errors.Is(err, ErrWaited) {
				t.Errorf("%v, want %v", err, ErrWaited)
			}
		}
		if time.Since(began) != time.Second {
			t.Errorf("waited %v", time.Since(began))
		}
		hold()
		hold() // twice does nothing
		if r, w := s.Load(); r+w != 0 {
			t.Errorf("%d run, %d wait", r, w)
		}
	})
}

// After a stall in which thousands of clients gave up, those that still wait get
// the slots at once: nobody is served who has gone, also where what a client has
// left after waiting is less than a request takes.
// Field case 90.
func TestGoodputReturnsAfterAStall(t *testing.T) {
	for _, c := range []struct{ service, patience time.Duration }{
		{20 * ms, 5 * time.Second},
		{300 * ms, 1200 * ms}, // first in, first out would serve everybody too late
	} {
		t.Run(c.service.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { goodputAfterAStall(t, c.service, c.patience) })
		})
	}
}

func goodputAfterAStall(t *testing.T, service, patience time.Duration) {
	const slots, clients, stall = 10, 900, 30 * time.Second
	s := NewSlots(fair.SlotLimits{Slots: slots, Queue: 50, Waiters: 1000})
	healthy := time.Now().Add(stall)
	end := healthy.Add(10 * time.Second)
	var good, wasted atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		tenant := fmt.Sprint(i % 30)
		wg.Go(func() {
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				release, err := s.Acquire(ctx, fair.Claim{Tenant: tenant, Share: 2, Weight: 1}, time.Second)
				if err != nil {
					after(time.Duration(100+i%100) * ms) // they come back at once
					cancel()
					continue
				}
				if ctx.Err() != nil {
					wasted.Add(1)
				}
				after(max(service, time.Until(healthy))) // nothing moves before
				if ctx.Err() == nil && time.Now().After(healthy.Add(2*time.Second)) {
					good.Add(1)
				}
				release()
				cancel()
			}
		})
	}
	wg.Wait()
	if most := int64(slots * 8 * time.Second / service); good.Load() < most*9/10 {
		t.Errorf("%d served in time within 8 s, of %d that the slots can", good.Load(), most)
	}
	if wasted.Load() > 0 {
		t.Errorf("%d were served whose client had gone", wasted.Load())
	}
}

// Whatever its end, each acquire gives its slot back once.
func TestMemoryAndGoroutinesReturn(t *testing.T) {
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(fair.SlotLimits{Slots: 2, Queue: 100, Waiters: 100})
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() { work(t, s, fmt.Sprint(i%3), 5*ms) })
		}
		wg.Wait()
	})
	if n := runtime.NumGoroutine(); n > before+2 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}
