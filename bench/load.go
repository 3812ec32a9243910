package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	payloadSize = 900
	seqStart    = len(`{"seq":"`)
	seqEnd      = seqStart + 12
)

// payload is a body of 900 bytes that begins with its number.
func payload(seq int64) []byte {
	b := fmt.Appendf(make([]byte, 0, payloadSize), `{"seq":"%012d","pad":"`, seq)
	for len(b) < payloadSize-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// tracker hands out the numbers of triggers and finds the load that each belongs to.
type tracker struct {
	mu    sync.Mutex
	loads atomic.Pointer[[]*load]
	next  int64
}

// arrive counts a request whose body begins with body.
func (t *tracker) arrive(body []byte) {
	if len(body) < seqEnd {
		return
	}
	seq, err := strconv.ParseInt(string(body[seqStart:seqEnd]), 10, 64)
	if err != nil {
		return
	}
	for _, l := range *t.loads.Load() {
		if i := seq - l.base; i >= 0 && i < int64(len(l.shots)) {
			l.arrive(&l.shots[i])
			return
		}
	}
}

func (t *tracker) add(l *load) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.base = t.next
	t.next += int64(len(l.shots))
	var all []*load
	if old := t.loads.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = append(all, l)
	t.loads.Store(&all)
}

// stream is what one tenant is offered.
type stream struct {
	tenant string
	rate   float64 // triggers per second; 0: all of them at once
}

// shot is one trigger: when it is to be posted, and what became of it.
type shot struct {
	due      time.Duration
	tenant   string
	posted   atomic.Int64 // instant, ns after the load's start; 0: not yet
	acked    atomic.Int64
	arrived  atomic.Int64 // the first request
	last     atomic.Int64 // and the last
	requests atomic.Int32 // that arrived
}

// load posts triggers at their instants whatever becomes of those before (open loop) and
// keeps an account of each.
type load struct {
	base    int64
	start   time.Time
	shots   []shot
	workers int // connections; more posts than that do not wait for their answer at once

	api      string // host:port
	refused  atomic.Int64
	arrivals atomic.Int64
	failure  atomic.Pointer[error] // the first
}

// newLoad plans n triggers in all. Those of a stream come at a random point of each
// interval of 1/rate: their number is exact and their spacing no comb.
func newLoad(t *tracker, api string, length time.Duration, streams ...stream) *load {
	l := &load{workers: 256, api: api}
	type plan struct {
		due    time.Duration
		tenant string
	}
	var plans []plan
	rnd := rand.New(rand.NewPCG(1, uint64(len(streams))))
	for _, s := range streams {
		interval := float64(time.Second) / s.rate
		for i := range int(length.Seconds() * s.rate) {
			plans = append(plans, plan{time.Duration((float64(i) + rnd.Float64()) * interval), s.tenant})
		}
	}
	slices.SortFunc(plans, func(a, b plan) int { return int(a.due - b.due) })
	l.shots = make([]shot, len(plans))
	for i, p := range plans {
		l.shots[i].due, l.shots[i].tenant = p.due, p.tenant
	}
	t.add(l)
	return l
}

// atOnce plans n triggers of a tenant, all due at the start.
func atOnce(t *tracker, api string, n int, tenants ...string) *load {
	l := &load{workers: 256, api: api, shots: make([]shot, n)}
	for i := range l.shots {
		l.shots[i].tenant = tenants[i%len(tenants)]
	}
	t.add(l)
	return l
}

func (l *load) elapsed() time.Duration { return time.Since(l.start) }

func (l *load) arrive(s *shot) {
	now := int64(l.elapsed())
	if s.requests.Add(1) == 1 {
		s.arrived.Store(now)
	}
	s.last.Store(now)
	l.arrivals.Add(1)
}

// run posts everything and returns when the last was answered, or ctx has ended.
func (l *load) run(ctx context.Context) {
	queue := make(chan int, len(l.shots)) // the pacer writes, workers read
	var workers sync.WaitGroup
	l.start = time.Now()
	for range min(l.workers, len(l.shots)) {
		workers.Go(func() {
			p := &poster{load: l}
			defer p.close()
			for i := range queue {
				p.post(ctx, i)
			}
		})
	}
	for i := range l.shots {
		if wait := l.shots[i].due - l.elapsed(); wait > 0 {
			sleep(ctx, wait)
		}
		if ctx.Err() != nil {
			break
		}
		queue <- i
	}
	close(queue)
	workers.Wait()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await waits until every acknowledged trigger has arrived, at most for limit.
func (l *load) await(ctx context.Context, limit time.Duration) {
	end := time.Now().Add(limit)
	for l.missing() > 0 && time.Now().Before(end) && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
	}
}

func (l *load) missing() (n int) {
	for i := range l.shots {
		if s := &l.shots[i]; s.acked.Load() > 0 && s.requests.Load() == 0 {
			n++
		}
	}
	return n
}

// duplicates counts the requests beyond the first of each trigger.
func (l *load) duplicates() (n int) {
	for i := range l.shots {
		n += max(int(l.shots[i].requests.Load())-1, 0)
	}
	return n
}

// latencies of the triggers of the tenants whose name begins with prefix, ascending: from the
// instant at which each was due to be posted to its arrival. What has not arrived, or was
// refused, counts with its age.
func (l *load) latencies(prefix string) []time.Duration {
	now := l.elapsed()
	var all []time.Duration
	for i := range l.shots {
		s := &l.shots[i]
		if !strings.HasPrefix(s.tenant, prefix) {
			continue
		}
		at := now
		if s.requests.Load() > 0 {
			at = time.Duration(s.arrived.Load())
		}
		all = append(all, at-s.due)
	}
	slices.Sort(all)
	return all
}

// late counts posts that began more than 20 ms behind their instant: the generator was not
// given the machine.
func (l *load) late() (n int) {
	for i := range l.shots {
		if s := &l.shots[i]; time.Duration(s.posted.Load())-s.due > 20*time.Millisecond {
			n++
		}
	}
	return n
}

// lateness is a note on it.
func (l *load) lateness() string {
	return fmt.Sprintf("%d of %d posts began over 20 ms late", l.late(), len(l.shots))
}

// err is the first refusal, if there was any.
func (l *load) err() error {
	if e := l.failure.Load(); e != nil {
		return fmt.Errorf("%d posts were not accepted; the first: %w", l.refused.Load(), *e)
	}
	return nil
}

// poster is one connection of a load: HTTP/1.1, written by hand so that it costs little.
type poster struct {
	load *load
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func (p *poster) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

func (p *poster) post(ctx context.Context, i int) {
	s := &p.load.shots[i]
	s.posted.Store(int64(p.load.elapsed()))
	err := p.send(ctx, s.tenant, payload(p.load.base+int64(i)))
	if err == nil {
		s.acked.Store(int64(p.load.elapsed()))
		return
	}
	p.close()
	p.load.refused.Add(1)
	p.load.failure.CompareAndSwap(nil, &err)
}

// send posts one trigger and returns when it was accepted, or why not. It never repeats.
func (p *poster) send(ctx context.Context, tenant string, body []byte) error {
	if p.conn == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.load.api)
		if err != nil {
			return err
		}
		p.conn, p.in = conn, bufio.NewReader(conn)
	}
	if err := p.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	p.out = fmt.Appendf(p.out[:0], "POST /v1/triggers/bench.event HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Fairlane-Tenant: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", adminKey, tenant, len(body))
	p.out = append(p.out, body...)
	if _, err := p.conn.Write(p.out); err != nil {
		return err
	}
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}
