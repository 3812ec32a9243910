package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

var secret = bytes.Repeat([]byte("k"), 32)

// stack is journal, fan-out and sender in this process, without the HTTP API. The tenant
// "t0" has one subscription, and so on.
type stack struct {
	dir       string
	journal   *journal.Journal
	sender    delivery.Sender
	fanout    *fanout.Fanout
	delivered atomic.Int64
	ended     chan struct{} // takes a token for each delivery, if somebody waits for it
	failed    atomic.Int64  // attempts without a 2xx
}

// openStack starts a stack on an empty directory.
func (b *bench) openStack() (s *stack, err error) {
	s = &stack{ended: make(chan struct{}, 1<<16)}
	if s.dir, err = os.MkdirTemp(b.dir, "stack-"); err != nil {
		return nil, err
	}
	if s.journal, err = journal.Open(b.ctx, journal.Options{Dir: s.dir, MaxBytes: 16 << 30}); err != nil {
		return nil, err
	}
	s.sender = delivery.New(delivery.Options{Allow: loopback})
	s.fanout, err = fanout.Start(b.ctx, fanout.Options{
		Journal: s.journal, Sender: s.sender, Engine: engine.Config{HostLimit: -1},
		Tiers:   map[string]fanout.Tier{"default": {Name: "default", Subscriptions: 1 << 20}},
		Observe: fanout.Observer{Attempt: s.attempted},
	})
	return s, err
}

func (s *stack) attempted(a fanout.Attempted) {
	if a.Verdict != engine.Done {
		s.failed.Add(1)
		return
	}
	s.delivered.Add(1)
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

func (s *stack) close() error {
	ctx, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	err := s.fanout.Stop(ctx)
	s.sender.Close()
	return errors.Join(err, s.journal.Close(ctx), os.RemoveAll(s.dir))
}

// tenant makes a tenant with n subscriptions to url.
func (s *stack) tenant(ctx context.Context, id, url string, n int) error {
	if _, err := s.fanout.PutTenant(ctx, journal.Tenant{ID: id}); err != nil {
		return err
	}
	for range n {
		_, err := s.fanout.PutSubscription(ctx, journal.Subscription{
			Tenant: id, URL: url, Secrets: [][]byte{secret}, Versions: []journal.Version{{Topics: []string{"bench.event"}, Active: true}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func trigger(tenant string, payload []byte) *journal.Trigger {
	return &journal.Trigger{
		Audience: journal.Audience{Tenants: []string{tenant}}, Topic: "bench.event", ContentType: "application/json",
		Producer: "bench", Accepted: time.Now(), Payload: payload,
	}
}

// each runs do for 0 to n-1 on so many goroutines, and returns the first error.
func each(n, goroutines int, do func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	var first atomic.Pointer[error]
	for range goroutines {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && first.Load() == nil; i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

// concurrency is how many requests the bare loop has in flight, and how many triggers of ours
// are on their way at once, from append to answer.
const concurrency = 128

// perCPUSecond compares what a CPU second of this process delivers: appended to the journal,
// read, decided, signed, sent and recorded; and posted by a bare loop.
func (b *bench) perCPUSecond() (figures []figure, err error) {
	endpoint, err := b.spawn(roleSink, setup{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, endpoint.kill()) }()
	s, err := b.openStack()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	const tenants = 64
	for i := range tenants {
		if err := s.tenant(b.ctx, fmt.Sprint("t", i), endpoint.addr+"hook", 1); err != nil {
			return nil, err
		}
	}
	n := pick(b, 40_000, 4_000)
	bare := newBare(endpoint.addr + "hook")
	defer bare.close()
	body := payload(0)
	rates, err := b.interleave(
		perSecond(n, func() error { return s.deliver(b.ctx, n, tenants, body) }),
		perSecond(n, func() error { return each(n, concurrency, func(i int) error { return bare.post(b.ctx, i, body) }) }),
	)
	if err != nil {
		return nil, err
	}
	ratio := rates[0].over(rates[1])
	return []figure{
		many("deliveries per CPU second", rates[0], "", nil).
			note("900 bytes, %d tenants, %d at once on both sides; failed attempts: %d", tenants, concurrency, s.failed.Load()),
		many("posts per CPU second of the bare loop", rates[1], "", nil),
		many("ratio, first bar", ratio, "x", atLeast(0.8)),
		many("ratio, second bar", ratio, "x", atLeast(1.5)),
	}, nil
}

// perSecond is how many of n operations one CPU second of this process does.
func perSecond(n int, f func() error) func() (float64, error) {
	return func() (float64, error) {
		begin := cpu()
		err := f()
		return float64(n) / (cpu() - begin).Seconds(), err
	}
}

// deliver appends n triggers, of which at most concurrency are not delivered at any time, and
// returns when all are.
func (s *stack) deliver(ctx context.Context, n, tenants int, body []byte) error {
	room := make(chan struct{}, concurrency) // writers put a token, each delivery takes one
	var collect sync.WaitGroup
	collect.Go(func() {
		for range n {
			select {
			case <-s.ended:
				<-room
			case <-ctx.Done():
				return
			}
		}
	})
	err := each(n, concurrency, func(i int) error {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := s.journal.Append(ctx, trigger(fmt.Sprint("t", i%tenants), body))
		return err
	})
	if err == nil {
		collect.Wait()
	}
	return err
}

// bare is a loop around net/http: the least that a sender built on it can cost. It is handed
// its signature.
type bare struct {
	url       string
	client    *http.Client
	stamp     string
	signature string
}

func newBare(url string) *bare {
	now := time.Now().Unix()
	return &bare{
		url: url, stamp: strconv.FormatInt(now, 10),
		signature: string(delivery.AppendSignature(nil, "msg_1", now, payload(0), [][]byte{secret})),
		client: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: concurrency, DisableCompression: true},
			Timeout:   15 * time.Second,
		},
	}
}

func (b *bare) close() { b.client.CloseIdleConnections() }

// post sends what a delivery sends.
func (b *bare) post(ctx context.Context, i int, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	id := fmt.Sprintf("trg_%026d", i)
	req.Header = http.Header{
		"User-Agent": {"Fairlane/dev"}, "Accept-Encoding": {"identity"}, "Content-Type": {"application/json"},
		"webhook-id": {id}, "webhook-timestamp": {b.stamp}, "webhook-signature": {b.signature},
		"Idempotency-Key": {`"` + id + `"`}, "X-Attempt": {"1"},
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// allocation measures the sender alone, and the whole path: what each delivery of a trigger
// allocates beyond the first, so that the payload, which is held once, is not in it.
func (b *bench) allocation() (figures []figure, err error) {
	endpoint, err := b.spawn(roleSink, setup{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, endpoint.kill()) }()
	s, err := b.openStack()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools, here more often the larger the payload
	wide := pick(b, 400, 200)
	if err := errors.Join(s.tenant(b.ctx, "narrow", endpoint.addr, 1), s.tenant(b.ctx, "wide", endpoint.addr, wide)); err != nil {
		return nil, err
	}
	var sender [2]series
	var path [2]float64
	for i, bytes := range []int{1 << 10, 1 << 20} {
		body := make([]byte, bytes)
		if sender[i], err = b.sendAllocates(endpoint.addr, body); err != nil {
			return nil, err
		}
		if path[i], err = b.pathAllocates(s, wide, body); err != nil {
			return nil, err
		}
	}
	return []figure{
		many("sender, 1 KiB", sender[0], "bytes", nil),
		many("sender, 1 MiB", sender[1], "bytes", nil),
		one("sender, what the MiB adds", sender[1].median()-sender[0].median(), "bytes", atMost(1024)).note("the bar is that it does not depend on the payload; a thousandth is noise"),
		one("whole path, 1 KiB", path[0], "bytes", nil),
		one("whole path, 1 MiB", path[1], "bytes", nil).note("of each delivery beyond a trigger's first: fan-out of %d against 1", wide),
		one("whole path, what the MiB adds", path[1]-path[0], "bytes", atMost(1024)),
	}, nil
}

func (b *bench) sendAllocates(url string, body []byte) (all series, err error) {
	client := delivery.New(delivery.Options{Allow: loopback})
	defer client.Close()
	send := func(int) error {
		o := client.Send(b.ctx, &delivery.Request{
			ID: "msg_1", URL: url, ContentType: "application/json", Payload: body, Secrets: [][]byte{secret}, Attempt: 1, Limit: -1,
		})
		if o.Result.Kind != engine.OK {
			return errors.New(o.Reason + ": " + o.Detail)
		}
		return nil
	}
	n := pick(b, 1_000, 100)
	for i := range rounds + 1 {
		before := allocated()
		if err := each(n, 1, send); err != nil {
			return nil, err
		}
		if i > 0 { // the first makes the connection and the buffers
			all = append(all, (allocated()-before)/float64(n))
		}
	}
	return all, nil
}

// pathAllocates takes the least of several triggers on both sides: the log's own buffers come
// and go by the megabyte.
func (b *bench) pathAllocates(s *stack, wide int, body []byte) (float64, error) {
	narrow, broad := math.Inf(1), math.Inf(1)
	for range pick(b, 24, 8) {
		one, err := s.fan(b.ctx, "narrow", 1, body)
		if err != nil {
			return 0, err
		}
		all, err := s.fan(b.ctx, "wide", wide, body)
		if err != nil {
			return 0, err
		}
		narrow, broad = min(narrow, one), min(broad, all)
	}
	return (broad - narrow) / float64(wide-1), nil
}

// fan delivers one trigger and returns what was allocated until its outcomes were durable.
func (s *stack) fan(ctx context.Context, tenant string, width int, body []byte) (float64, error) {
	before, due := allocated(), s.delivered.Load()+int64(width)
	if _, err := s.journal.Append(ctx, trigger(tenant, body)); err != nil {
		return 0, err
	}
	for s.delivered.Load() < due {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
	err := s.journal.WaitFlushed(ctx, s.journal.Record())
	return allocated() - before, err
}

// registryMemory is the growth of the heap by subscriptions in journal and fan-out.
func (b *bench) registryMemory() (figures []figure, err error) {
	s, err := b.openStack()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := pick(b, 2_048, 512)
	const tenants = 16
	add := func(from int) error {
		for i := range tenants {
			if err := s.tenant(b.ctx, fmt.Sprint("t", from+i), fmt.Sprintf("http://tenant-%d.example/hook", i), n/tenants); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(0); err != nil { // what grows in steps has its first ones
		return nil, err
	}
	before := heap()
	if err := add(tenants); err != nil {
		return nil, err
	}
	grown := (heap() - before) / float64(n)
	return []figure{one("heap per subscription, all of it", grown, "bytes", nil).
		note("registry, index, the engine's lane and the log's own index of %d subscriptions of %d tenants; URL of 28 bytes, one topic, one secret", n, tenants)}, nil
}
