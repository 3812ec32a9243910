package httpadmit

import (
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/limit"
)

// Answers say how limits are told to callers. The zero value tells none.
type Answers struct {
	// Draft names the Internet-Draft (draft-ietf-httpapi-ratelimit-headers) whose fields
	// are sent: one of Drafts, or "" for none.
	Draft string
	// Older sends RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset (seconds from
	// now) of the strictest limit, as drafts up to 06 had them.
	Older bool
	// Spread adds up to so many whole seconds, at random, to Retry-After.
	Spread time.Duration
}

// Drafts are the versions whose fields can be sent. They have one syntax. A later
// one is added when its syntax has been checked, not before.
var Drafts = []string{"draft-08", "draft-09", "draft-10", "draft-11"}

// maxInteger is the largest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// limits writes the fields about the caller's own limits. What is the whole
// service's is not the caller's business.
func (a *Answers) limits(h http.Header, v *admit.Verdict) {
	if a.Draft != "" {
		var policies, states []string
		for i := range v.Limits {
			if hit := &v.Limits[i]; !hit.Capacity && hit.Spec.Limit > 0 {
				policies = append(policies, policyItem(hit))
				states = append(states, stateItem(hit))
			}
		}
		if policies != nil {
			h.Set("RateLimit-Policy", strings.Join(policies, ", "))
			h.Set("RateLimit", strings.Join(states, ", "))
		}
	}
	if hit, ok := v.Limit(); ok && a.Older && !hit.Capacity {
		h.Set("RateLimit-Limit", integer(quota(&hit.Spec)))
		h.Set("RateLimit-Remaining", integer(hit.Decision.Remaining))
		h.Set("RateLimit-Reset", integer(seconds(hit.Decision.ResetIn)))
	}
}

// policyItem is one member of RateLimit-Policy: "name";q=10;w=5.
func policyItem(h *admit.Hit) string {
	return fmt.Sprintf("%q;q=%s;w=%s", h.Policy, integer(quota(&h.Spec)), integer(max(1, window(&h.Spec))))
}

// stateItem is one member of RateLimit: "name";r=9;t=1.
func stateItem(h *admit.Hit) string {
	s := fmt.Sprintf("%q;r=%s", h.Policy, integer(h.Decision.Remaining))
	if t := more(h); t > 0 {
		s += ";t=" + integer(seconds(t))
	}
	return s
}

// quota is what a full limit lets through.
func quota(s *admit.Spec) int64 { return s.Most() }

// window is the seconds in which the quota comes back: of a bucket those in which
// it fills.
func window(s *admit.Spec) int64 {
	if s.Algorithm != admit.TokenBucket {
		return seconds(s.Window)
	}
	if s.Limit == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(s.Burst), uint64(s.Window))
	q, rest := bits.Div64(hi, lo, uint64(s.Limit)*uint64(time.Second))
	if rest > 0 {
		q++
	}
	return int64(min(q, maxInteger))
}

// more is how long until there is more than now.
func more(h *admit.Hit) time.Duration {
	d := &h.Decision
	switch {
	case d.Remaining >= quota(&h.Spec):
		return 0 // it is full
	case d.Reason == limit.Later:
		return d.RetryIn
	case h.Spec.Algorithm == admit.TokenBucket && h.Spec.Limit > 0:
		n := time.Duration(h.Spec.Limit)
		return min(d.ResetIn, (h.Spec.Window+n-1)/n)
	}
	return d.ResetIn
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// integer writes a number as a field may hold it.
func integer(n int64) string { return strconv.FormatInt(min(max(n, 0), maxInteger), 10) }
