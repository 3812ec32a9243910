package httpadmit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/limit"
)

// Reasons of refusals, the last part of a problem's type and a metric's label.
const (
	RateLimited   = "rate-limited"       // 429: a limit of the caller's
	Queued        = "too-many-at-once"   // 429: the caller's share of the slots, and its queue
	Suspended     = "suspended"          // 403: a limit or share of 0
	TooCostly     = "cost-exceeds-limit" // 403: it can never pass
	Unauthorized  = "unauthorized"       // 401
	Ambiguous     = "ambiguous-path"     // 400: which route it is depends on who reads it
	OtherTenant   = "other-tenant"       // 403: the request names another tenant than its credential
	NoTier        = "no-tier"            // 403: the tenant has none
	Busy          = "busy"               // 503: a limit, or the slots, of the whole service
	StoreAway     = "store-away"         // 503: the shared store is, and the policy is closed then
	ClientGone    = "client-gone"        // nobody reads the answer
	statusGone    = 499                  // as proxies log it
	leastRetry    = 1                    // s
	quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	lessCapacity  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Problem is a refusal (RFC 9457). It names no other tenant and no secret.
type Problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Reason   string   `json:"reason"`
	Policy   string   `json:"policy,omitempty"`
	Tier     string   `json:"tier,omitempty"`
	Kind     string   `json:"kind,omitempty"` // rate, quota or concurrency
	Violated []string `json:"violated-policies,omitempty"`
	Retry    int64    `json:"retry_after,omitempty"` // s

	retryIn time.Duration // > 0: Retry-After
}

func newProblem(status int, reason, title string) *Problem {
	return &Problem{Type: "urn:fairlane:problem:" + reason, Title: title, Status: status, Reason: reason}
}

// write answers with the problem; extra seconds go on top of Retry-After.
func (p *Problem) write(w http.ResponseWriter, extra int64) {
	h := w.Header()
	if p.retryIn > 0 {
		p.Retry = max(leastRetry, seconds(p.retryIn)) + extra
		h.Set("Retry-After", integer(p.Retry))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic("httpadmit: unreachable: a problem is plain data")
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	w.Write(body)
}

func problemCredential(err error) *Problem {
	if errors.Is(err, identity.ErrMismatch) {
		return newProblem(http.StatusForbidden, OtherTenant, "The request names another tenant than its credential")
	}
	return newProblem(http.StatusUnauthorized, Unauthorized, "No valid credential was presented")
}

func problemPath() *Problem {
	return newProblem(http.StatusBadRequest, Ambiguous, "The path is another route's by how it is read: send it without dot segments, backslashes, parameters and #, and / as itself")
}

func problemNoTier() *Problem {
	return newProblem(http.StatusForbidden, NoTier, "The tenant has no tier")
}

// problemGone is for a client that has gone, or for a store that refuses a check,
// which is a fault of ours.
func problemGone(err error) *Problem {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return newProblem(statusGone, ClientGone, "The client has gone")
	}
	return newProblem(http.StatusServiceUnavailable, StoreAway, "The shared store refused the check")
}

// problemDenied tells of the strictest limit.
func problemDenied(v *admit.Verdict, tier string) *Problem {
	hit, ok := v.Limit()
	if !ok {
		panic("httpadmit: unreachable: what denies is a limit")
	}
	p := problemOf(hit)
	p.Policy, p.Tier, p.Kind = hit.Policy, tier, kind(&hit.Spec)
	for i := range v.Limits {
		if !v.Limits[i].Decision.Allowed {
			p.Violated = append(p.Violated, v.Limits[i].Policy)
		}
	}
	return p
}

func problemOf(hit *admit.Hit) *Problem {
	switch hit.Decision.Reason {
	case limit.Paused:
		return newProblem(http.StatusForbidden, Suspended, "The limit is 0")
	case limit.Never:
		p := newProblem(http.StatusForbidden, TooCostly, "The request costs more than the limit ever lets through")
		p.Detail = fmt.Sprintf("it costs %d, the limit is %s", hit.Cost, describe(&hit.Spec))
		return p
	}
	p := newProblem(http.StatusTooManyRequests, RateLimited, "Request cannot be satisfied as assigned quota has been exceeded")
	p.Type = quotaExceeded
	p.Detail = "the limit is " + describe(&hit.Spec)
	if hit.Capacity {
		p = newProblem(http.StatusServiceUnavailable, Busy, "Request cannot be satisfied due to temporary server capacity constraints")
		p.Type = lessCapacity
	}
	if hit.Closed {
		p = newProblem(http.StatusServiceUnavailable, StoreAway, "The store of quotas cannot be asked")
		p.Type = lessCapacity
	}
	p.retryIn = max(hit.Decision.RetryIn, 1)
	return p
}

// problemSlots tells of concurrency. A tenant that runs on its share is told of
// its share, another of the service.
func problemSlots(err error, tier *admit.Tier, running int) *Problem {
	var p *Problem
	switch {
	case errors.Is(err, ErrSuspended):
		p = newProblem(http.StatusForbidden, Suspended, "The share of slots is 0")
	case errors.Is(err, ErrQueueFull), errors.Is(err, ErrWaited) && running >= tier.Share:
		p = newProblem(http.StatusTooManyRequests, Queued, "As many requests are in progress and waiting as the share lets through")
		p.Type, p.retryIn = quotaExceeded, time.Second
		p.Detail = fmt.Sprintf("the share is %d at once", tier.Share)
	case errors.Is(err, ErrAllFull), errors.Is(err, ErrWaited):
		p = newProblem(http.StatusServiceUnavailable, Busy, "Request cannot be satisfied due to temporary server capacity constraints")
		p.Type, p.retryIn = lessCapacity, time.Second
	default:
		p = newProblem(statusGone, ClientGone, "The client has gone")
	}
	p.Policy, p.Tier, p.Kind = SlotsPolicy, tier.Name, "concurrency"
	if p.retryIn > 0 {
		p.Violated = []string{SlotsPolicy}
	}
	return p
}

// SlotsPolicy is the name under which concurrency is refused.
const SlotsPolicy = "slots"

func kind(s *admit.Spec) string {
	if s.Algorithm == admit.TokenBucket {
		return "rate"
	}
	return "quota"
}

// describe says a limit in words: "2/s, bursts to 10", "1000 per 24h0m0s".
func describe(s *admit.Spec) string {
	if r, err := s.Rate(); err == nil && s.Algorithm == admit.TokenBucket {
		return fmt.Sprintf("%s, bursts to %d", r.String(), s.Burst)
	}
	return fmt.Sprintf("%d per %s", s.Limit, s.Window)
}
