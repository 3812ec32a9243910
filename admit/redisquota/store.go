package redisquota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
)

// Config of a Store. Only URL has no default.
type Config struct {
	// URL is redis://[user:password@]host:port[/db], rediss:// for TLS; further addresses of a
	// cluster as ?addr=host:port.
	URL string
	// Prefix begins every key; "" is "fairlane". Services that share a Redis and not their
	// quotas have different ones.
	Prefix string
	// Deadline of a decision, 1 ms or more; 0 is 25 ms.
	Deadline time.Duration
	// Replicas is how many processes share the quotas: under admit.AwayLocal each admits
	// limit/Replicas. 0 is 1.
	Replicas int64
	// PerTenant puts the keys of each tenant into a hash slot of its own, so that a cluster
	// spreads them. Then all checks of a decision must begin with the same key part, the
	// tenant; none can be global. Off, one slot has all the keys.
	PerTenant bool
	// LocalKeys bounds the counters of each policy kept here while the store is away; 0 is 100,000.
	LocalKeys int
	// Rand spreads the breaker's intervals; nil is one seeded by the process.
	Rand *rand.Rand
}

func (c *Config) fill() error {
	if c.Prefix == "" {
		c.Prefix = "fairlane"
	}
	if c.Deadline == 0 {
		c.Deadline = 25 * time.Millisecond
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.LocalKeys == 0 {
		c.LocalKeys = 100_000
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	var bad []error
	refuse := func(is bool, field, rule string) {
		if is {
			bad = append(bad, fmt.Errorf("redisquota: %s must be %s", field, rule))
		}
	}
	refuse(strings.ContainsAny(c.Prefix, "{}"), "prefix", "without braces")
	refuse(c.Deadline < time.Millisecond, "deadline", "1ms or more")
	refuse(c.Replicas < 1, "replicas", "1 or more")
	refuse(c.LocalKeys < 1, "local keys", "1 or more")
	return errors.Join(bad...)
}

// Store decides in Redis. It is safe for concurrent use.
type Store struct {
	config  Config
	option  rueidis.ClientOption
	began   time.Time
	origin  time.Duration // of the local share's clock, a whole number of Months from 1970
	local   *admit.Local
	breaker breaker.Config
	clock   func() int64 // us; tests only: nil is the server's
	calls   sync.WaitGroup
	counts  counts
	outside atomic.Bool // the server tells the time only outside a script

	connecting sync.Mutex // held only by calls, which nobody waits for beyond the deadline
	client     rueidis.Client

	mu     sync.Mutex
	state  breaker.State
	closed bool
}

// Open returns a store. It does not wait for the server: until that answers, the store is away.
func Open(c Config) (*Store, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	option, err := rueidis.ParseURL(c.URL)
	if err != nil {
		return nil, errors.New("redisquota: url must be redis://[user:password@]host:port[/db] or rediss://") // err may hold the password
	}
	option.DisableRetry = true // a second try of a decision might count it twice
	option.DisableCache = true
	option.ConnWriteTimeout = answerWithin
	option.Dialer.Timeout = time.Second
	now := time.Now()
	return &Store{
		config: c, option: option, began: now, origin: time.Duration(now.UnixNano()) - 600*admit.Month,
		local: admit.NewLocal(c.LocalKeys),
		breaker: breaker.Config{
			Open: 250 * time.Millisecond, OpenMax: 2 * time.Second, ProbeExpiry: c.Deadline,
		},
	}, nil
}

// answerWithin is how long a late answer is awaited before its connection is given up.
const answerWithin = 5 * time.Second

// Close ends the connections and waits for the calls in the background. Decisions after it are
// away.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.connecting.Lock()
	if s.client != nil {
		s.client.Close()
	}
	s.connecting.Unlock()
	s.calls.Wait()
}

// Take decides and, if all checks pass, records. An error is a wrong check, or the end of ctx;
// the state of the store is never one: see Answer.Away.
func (s *Store) Take(ctx context.Context, checks []admit.Check) (admit.Answer, error) {
	return s.decide(ctx, opTake, checks)
}

// Peek decides as Take would and records nothing.
func (s *Store) Peek(ctx context.Context, checks []admit.Check) (admit.Answer, error) {
	return s.decide(ctx, opPeek, checks)
}

func (s *Store) validate(checks []admit.Check) error {
	if err := admit.Validate(checks); err != nil {
		return err
	}
	if !s.config.PerTenant {
		return nil
	}
	for i := range checks {
		if c := &checks[i]; len(c.Key) == 0 || c.Key[0] != checks[0].Key[0] {
			return fmt.Errorf("redisquota: policy %q: its key must begin with the decision's tenant: the store keeps each tenant in a slot of its own", c.Policy)
		}
	}
	return nil
}

func (s *Store) decide(ctx context.Context, op string, checks []admit.Check) (admit.Answer, error) {
	if err := s.validate(checks); err != nil {
		return admit.Answer{}, err
	}
	out := admit.Answer{Checks: make([]limit.Decision, len(checks))}
	r := s.encode(op, checks, nil)
	if len(r.keys) == 0 {
		out.Allowed = len(checks) == 0
		decode(checks, nil, []int64{1}, &out)
		return out, nil
	}
	s.counts.asked.Add(1)
	permit, ok := s.ask()
	if !ok {
		return s.away(op, checks), nil
	}
	c := s.call(checks, r, permit)
	if c.wait(ctx, s.config.Deadline) && decode(checks, r.which, c.reply, &out) {
		return out, nil
	}
	if ctx.Err() != nil { // nobody is there to be let through
		c.abandon(false)
		return admit.Answer{}, ctx.Err()
	}
	out = s.away(op, checks)
	c.abandon(out.Allowed)
	return out, nil
}

// Refund gives back what one Take recorded, as far as it still counts: units that have left
// their window or bucket stay gone. a is that Take's answer. Call it at most once for it. An
// error says that it is not known to be given back.
func (s *Store) Refund(ctx context.Context, checks []admit.Check, a admit.Answer) error {
	switch {
	case !a.Allowed:
		return nil
	case a.Away:
		s.refundLocal(checks, a)
		return nil
	}
	if err := s.validate(checks); err != nil {
		return err
	}
	r := s.encode(opRefund, checks, a.Checks)
	permit, ok := s.ask()
	if !ok {
		return ErrAway
	}
	c := s.call(checks, r, permit)
	if c.wait(ctx, s.config.Deadline) {
		return nil
	}
	c.abandon(true)
	if err := c.cause(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return nil
}

// ErrAway is the error of a refund that the store did not confirm.
var ErrAway = errors.New("redisquota: the store is away")

// Usage reports what a fixed window's counter holds now: its limit less what remains. It is for
// reports and tests; ErrAway if the store does not answer.
func (s *Store) Usage(ctx context.Context, c admit.Check) (int64, error) {
	a, err := s.Peek(ctx, []admit.Check{c})
	switch {
	case err != nil:
		return 0, err
	case a.Away:
		return 0, ErrAway
	}
	left := a.Checks[0].Remaining
	if a.Allowed {
		left += c.Cost // Peek answers as Take would
	}
	return c.Spec.Limit - left, nil
}
