package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/httpadmit"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// Bounds of the hand-over of posts to the log.
const (
	handOver  = 64               // posts at once between their last byte and their answer
	handWait  = 10 * time.Second // longest wait for a place there
	handQueue = 4096             // posts of one tenant that wait
	handBytes = 32 << 20         // of their payloads; one alone may be larger
	handAll   = 65536            // posts that wait
	maxMeters = 100_000          // tenants whose rate is counted at once
)

// door is what a post passes before the log. A tenant's own posts go by the rate of its tier. All go, with
// the body read, through a bounded hand-over in which tenants take turns: else a flood for one tenant fills
// the queue before the log, and the processor, for everybody.
type door struct {
	origin time.Time
	meters *admit.Local
	slots  *httpadmit.Slots
	gate   atomic.Pointer[admit.Gate]

	mu    sync.Mutex
	bytes map[string]int // of payloads here, by whose turn it is
}

// carry makes room for n bytes of one who waits, or reports that there is none.
func (d *door) carry(who string, n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes[who] > 0 && d.bytes[who]+n > handBytes {
		return false
	}
	d.bytes[who] += n
	return true
}

// leave gives the room back.
func (d *door) leave(who string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes[who] -= n; d.bytes[who] == 0 {
		delete(d.bytes, who)
	}
}

func newDoor() *door {
	return &door{origin: time.Now(), meters: admit.NewLocal(maxMeters), bytes: map[string]int{},
		slots: httpadmit.NewSlots(fair.SlotLimits{Slots: handOver, Queue: handQueue, Waiters: handAll})}
}

// gateOf makes the gate of the tiers; the meters go on under it, and what was used stays used.
func gateOf(tiers map[string]fanout.Tier) (*admit.Gate, error) {
	own := admit.Policy{Name: "inbound", Key: []admit.Part{admit.ByTenant}, Tiers: map[string]*admit.Spec{}, Percent: 100}
	c := admit.Config{Policies: []admit.Policy{own}}
	for _, name := range slices.Sorted(maps.Keys(tiers)) {
		t := tiers[name]
		c.Tiers = append(c.Tiers, admit.Tier{Name: name, Share: max(t.Inbound.Share, 1), Weight: max(t.Weight, 1)})
		rate, err := limit.ParseContract(t.Inbound.Rate, t.Inbound.Burst)
		switch {
		case err != nil:
			return nil, fmt.Errorf("tiers.%s.inbound: %w", name, err)
		case rate.IsUnlimited():
			own.Tiers[name] = nil
		case rate.IsPaused():
			own.Tiers[name] = &admit.Spec{}
		default:
			own.Tiers[name] = new(admit.Bucket(rate))
		}
	}
	gate, _, err := admit.NewGate(c)
	return gate, err
}

// rate takes n triggers from what the caller's tier lets a tenant post; all of them or none.
func (s *Server) rate(c *caller, n int) error {
	if c.role != tenant || n == 0 {
		return nil
	}
	d, of := s.door, s.tierOf(c.of)
	plan := d.gate.Load().Plan(&admit.Request{Tenant: c.of, Tier: of, Route: admit.DefaultRoute})
	for i := range plan.Local {
		plan.Local[i].Cost = int64(n)
	}
	a := d.meters.Take(time.Since(d.origin), plan.Local)
	if len(plan.Local) == 0 || a.Allowed {
		return nil
	}
	return overRate(of, &plan.Local[0].Spec, a.Checks[0], n)
}

func overRate(tier string, spec *admit.Spec, said limit.Decision, n int) *problem {
	if int64(n) > spec.Most() {
		return refuse(forbidden, "body", fmt.Sprintf("must hold at most %d triggers: the tier %s lets a tenant post no more at once", spec.Most(), tier))
	}
	p := &problem{code: overInbound, retryIn: max(said.RetryIn, time.Second)}
	p.detail = fmt.Sprintf("the policy inbound of the tier %s: %d in %v, %d at once; nothing was stored", tier, spec.Limit, spec.Window, spec.Burst)
	return p
}

// tierOf is the tier of a tenant, or default.
func (s *Server) tierOf(id string) string {
	if t, ok := s.registry.Tenant(id); ok && t.Tier != "" {
		return t.Tier
	}
	return "default"
}

// inTurn stores so many bytes when it is the turn of the first trigger: of the tenant that it is for, or else of the
// key that it came with.
func (s *Server) inTurn(r *http.Request, t *journal.Trigger, bytes int, store func() error) error {
	claim := fair.Claim{Tenant: "key " + t.Producer, Share: 1, Weight: 1}
	if len(t.Audience.Tenants) == 1 {
		claim.Tenant = t.Audience.Tenants[0]
		if tier, ok := s.door.gate.Load().Tier(s.tierOf(claim.Tenant)); ok {
			claim.Share, claim.Weight = tier.Share, tier.Weight
		}
	}
	if !s.door.carry(claim.Tenant, bytes) {
		return crowded(httpadmit.ErrQueueFull)
	}
	defer s.door.leave(claim.Tenant, bytes)
	release, err := s.door.slots.Acquire(r.Context(), claim, handWait)
	if err != nil {
		return crowded(err)
	}
	defer release()
	return store()
}

// crowded says that a post found no place. Nothing was stored.
func crowded(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &problem{code: busy, detail: "too many posts wait for the log; nothing was stored", retryIn: time.Second, cause: err}
}
