package redisquota

import (
	"crypto/sha256"
	_ "embed" // the scripts
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/limit"
)

//go:embed take.lua
var takeSource string

//go:embed refund.lua
var refundSource string

var takeScript, refundScript = rueidis.NewLuaScript(takeSource), rueidis.NewLuaScript(refundSource)

// The kinds of call.
const (
	opTake   = "take"
	opPeek   = "peek"
	opRefund = "refund"
)

// request is the script's input for some checks of a decision: which[i] is the check of key i.
type request struct {
	which []int
	keys  []string
	args  []string
}

// encode leaves out paused checks: they have no state. epochs are those of the decision that a
// refund gives back, else nil.
func (s *Store) encode(op string, checks []admit.Check, epochs []limit.Decision) request {
	r := request{args: make([]string, 0, 2+len(checks)), keys: make([]string, 0, len(checks))}
	r.args = append(r.args, op, "")
	for i := range checks {
		c := &checks[i]
		if c.Spec.Limit == 0 {
			r.args[0] = orPeek(op)
			continue
		}
		var epoch uint16
		if epochs != nil {
			epoch = epochs[i].Epoch
		}
		r.which = append(r.which, i)
		r.keys = append(r.keys, s.key(c))
		r.args = append(r.args, packed(c, epoch))
	}
	return r
}

// orPeek is what becomes of a call with a paused check, which denies: nothing may be taken.
func orPeek(op string) string {
	if op == opTake {
		return opPeek
	}
	return op
}

// packed is what the scripts get of a check: eleven integers of eight bytes.
func packed(c *admit.Check, epoch uint16) string {
	s := &c.Spec
	n := [11]int64{0, c.Cost, int64(epoch)}
	if s.Algorithm == admit.TokenBucket {
		bucket(s, c.Cost, n[3:])
	} else {
		n[0] = 1
		slots, slot := int64(1), s.Window.Microseconds()
		if s.Algorithm == admit.SlidingWindow {
			slots, slot = admit.SlidingParts+1, (slot+admit.SlidingParts-1)/admit.SlidingParts
		}
		n[3], n[4], n[5] = s.Limit, slot, slots
	}
	b := make([]byte, 0, 8*len(n))
	for _, x := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return string(b)
}

// bucket fills in the contract, in us and 1/k us. A cost above the burst has no span.
func bucket(s *admit.Spec, cost int64, n []int64) {
	rate, err := s.Rate()
	if err != nil {
		panic("redisquota: unreachable: checks are validated: " + err.Error())
	}
	tokens, per, burst := rate.Contract()
	k := 1000 * tokens
	n[0], n[1], n[2], n[3] = k, int64(per)/k, int64(per)%k, burst
	n[4], n[5] = span(min(cost, burst), int64(per), k)
	n[6], n[7] = span(burst, int64(per), k)
}

// span is u*per/k, whole and remainder. limit.Rate has checked that it is in range.
func span(u, per, k int64) (int64, int64) {
	hi, lo := bits.Mul64(uint64(u), uint64(per))
	q, r := bits.Div64(hi, lo, uint64(k))
	return int64(q), int64(r)
}

// maxKey is the longest name of a counter that is written out; a longer one is hashed.
const maxKey = 200

// key is prefix:{tag}:name. What is in the braces decides the slot of a cluster; it is the same
// for all keys of a decision.
func (s *Store) key(c *admit.Check) string {
	b := append(make([]byte, 0, 128), s.tag(c)...)
	from := len(b)
	b = c.AppendKey(b)
	if len(b)-from > maxKey {
		sum := sha256.Sum256(b[from:])
		b = append(b[:from], '#')
		b = hex.AppendEncode(b, sum[:])
	}
	return string(b)
}

func (s *Store) tag(c *admit.Check) []byte {
	b := append(make([]byte, 0, 128), s.config.Prefix...)
	if !s.config.PerTenant {
		return append(b, ":{q}:"...)
	}
	sum := sha256.Sum256([]byte(c.Key[0])) // a part may hold braces
	b = append(b, ":{"...)
	b = hex.AppendEncode(b, sum[:8])
	return append(b, "}:"...)
}

// decode puts the script's answer into decisions, one for each check.
func decode(checks []admit.Check, which []int, reply []int64, out *admit.Answer) bool {
	if len(reply) != 1+6*len(which) {
		return false
	}
	out.Allowed = len(which) == len(checks) && reply[0] == 1
	for i := range checks {
		out.Checks[i] = limit.Decision{Reason: limit.Paused}
	}
	for k, i := range which {
		f := reply[1+6*k : 7+6*k]
		d := limit.Decision{Allowed: f[0] == 1, Reason: reason(f[0], f[1]), Epoch: uint16(f[2]), Remaining: f[3], RetryIn: micros(f[4]), ResetIn: micros(f[5])}
		if !d.Allowed {
			d.Epoch = 0
		}
		if d.Allowed && reply[0] == 1 && !out.Allowed { // a paused check denies, which the script did not see
			d.Remaining += checks[i].Cost
		}
		out.Checks[i] = d
	}
	return true
}

func reason(allowed, never int64) limit.Reason {
	switch {
	case allowed == 1:
		return limit.Passed
	case never == 1:
		return limit.Never
	}
	return limit.Later
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
