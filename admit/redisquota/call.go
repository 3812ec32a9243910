package redisquota

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/limit"
)

// call is one script on its way. Its caller waits up to the deadline; what comes later is for
// the background, which learns by abandon what became of the caller.
type call struct {
	store  *Store
	checks []admit.Check
	req    request
	permit breaker.Permit

	reply []int64
	err   error
	done  chan struct{} // closed by the background when reply and err are there
	left  chan bool     // by the caller that did not wait: whether its request was let through

	settled atomic.Bool // one side has it: the caller in time, or the background
}

func (s *Store) call(checks []admit.Check, r request, p breaker.Permit) *call {
	c := &call{store: s, checks: checks, req: r, permit: p, done: make(chan struct{}), left: make(chan bool, 1)}
	go c.run()
	return c
}

// wait reports whether the answer came in time, and is one.
func (c *call) wait(ctx context.Context, deadline time.Duration) bool {
	t := time.NewTimer(deadline)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	case <-ctx.Done():
	}
	if !c.settled.CompareAndSwap(false, true) { // the background was first
		<-c.done
		return c.err == nil
	}
	if ctx.Err() != nil {
		c.store.cancelled(c.permit) // which says nothing about the store
		return false
	}
	c.store.failed(c.permit)
	c.store.counts.late.Add(1)
	return false
}

// cause is why a wait was in vain.
func (c *call) cause(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	default:
		return cmp.Or(ctx.Err(), context.DeadlineExceeded)
	}
}

// abandon tells the background what became of a caller whose wait was in vain.
func (c *call) abandon(letThrough bool) { c.left <- letThrough }

func (c *call) run() {
	defer c.store.calls.Done()
	c.reply, c.err = c.store.exec(&c.req)
	inTime := c.settled.CompareAndSwap(false, true)
	close(c.done)
	if inTime {
		c.store.learn(c.permit, c.err)
		if c.err != nil && inDoubt(c.err) {
			c.store.counts.doubt.Add(1)
		}
		return
	}
	c.late(<-c.left)
}

// late settles a decision whose caller has gone: what was recorded for a refused request is
// given back.
func (c *call) late(letThrough bool) {
	s := c.store
	switch {
	case c.err != nil && inDoubt(c.err):
		s.counts.doubt.Add(1)
	case c.err != nil || c.req.args[0] != opTake || c.reply[0] != 1:
	case letThrough:
		s.counts.kept.Add(1)
	default:
		a := admit.Answer{Checks: make([]limit.Decision, len(c.checks))}
		decode(c.checks, c.req.which, c.reply, &a)
		back := s.encode(opRefund, c.checks, a.Checks)
		if _, err := s.exec(&back); err != nil {
			s.counts.doubt.Add(1)
			return
		}
		s.counts.returned.Add(1)
	}
}

// exec asks the server: one round trip, two where it tells the time only outside a script.
func (s *Store) exec(r *request) ([]int64, error) {
	client, err := s.connect()
	if err != nil {
		return nil, err
	}
	script := takeScript
	if r.args[0] == opRefund {
		script = refundScript
	}
	for {
		if r.args[1], err = s.instant(client); err != nil {
			return nil, &unsent{err}
		}
		reply, err := script.Exec(context.Background(), client, r.keys, r.args).AsIntSlice()
		if err == nil && len(reply) == 1 && reply[0] < 0 {
			s.outside.Store(true)
			continue
		}
		return reply, err
	}
}

// instant is the script's: "" lets it ask the server.
func (s *Store) instant(client rueidis.Client) (string, error) {
	switch {
	case s.clock != nil:
		return strconv.FormatInt(s.clock(), 10), nil
	case !s.outside.Load():
		return "", nil
	}
	t, err := client.Do(context.Background(), client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return "", err
	}
	if len(t) != 2 {
		return "", errors.New("redisquota: TIME has no two numbers")
	}
	return strconv.FormatInt(t[0]*1_000_000+t[1], 10), nil
}

// connect returns the client, made when first needed; it reconnects by itself.
func (s *Store) connect() (rueidis.Client, error) {
	s.connecting.Lock()
	defer s.connecting.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, &unsent{rueidis.ErrClosing}
	}
	if s.client != nil {
		return s.client, nil
	}
	client, err := rueidis.NewClient(s.option)
	if err != nil {
		return nil, &unsent{err}
	}
	s.client = client
	return client, nil
}

// unsent is the error of a decision that never left.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// inDoubt reports whether a call that ended so may have been recorded: it was sent, and the
// server said nothing. What the server answers with an error is not recorded.
func inDoubt(err error) bool {
	var u *unsent
	var op *net.OpError
	if errors.As(err, &u) || errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	_, answered := rueidis.IsRedisErr(err)
	return !answered
}

// ours reports whether the server is well and the trouble is with one key.
func ours(err error) bool {
	e, answered := rueidis.IsRedisErr(err)
	return answered && strings.Contains(e.Error(), "FAIRLANE")
}
