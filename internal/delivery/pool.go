package delivery

import (
	"strings"
	"sync"
	"time"
)

// pool keeps idle connections by endpoint, the latest used first, and counts
// the open ones. Its size follows the endpoints in use, not the subscriptions.
// Safe for concurrent use; no connection is closed under the lock.
type pool struct {
	maxHost, maxIdle, maxOpen int

	mu     sync.Mutex
	hosts  map[endpoint]*hostConns
	idle   int
	open   int // over all hosts
	closed bool
}

type hostConns struct {
	key  endpoint
	idle []*conn
	open int // idle, in use, and being dialled
}

func newPool(maxHost, maxIdle, maxOpen int) *pool {
	return &pool{maxHost: maxHost, maxIdle: maxIdle, maxOpen: maxOpen, hosts: make(map[endpoint]*hostConns)}
}

var errHostFull = &errStage{reason: ReasonLocal, detail: "all connections to the host are in use", local: true}

// get returns an idle connection, or nil and the right to open one, which ends
// with release, drop or put.
func (p *pool) get(e endpoint) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[e]
	if (h == nil || len(h.idle) == 0) && p.open >= p.maxOpen {
		return nil, errExhausted
	}
	if h == nil {
		// The strings are parts of a URL, which is a credential: let it go.
		e.host, e.port = strings.Clone(e.host), strings.Clone(e.port)
		h = &hostConns{key: e}
		p.hosts[e] = h
	}
	if n := len(h.idle); n > 0 {
		cn := h.idle[n-1]
		h.idle[n-1] = nil
		h.idle = h.idle[:n-1]
		p.idle--
		return cn, nil
	}
	if h.open >= p.maxHost {
		return nil, errHostFull
	}
	h.open++
	p.open++
	return nil, nil
}

// put takes a connection back, or closes it if there are enough.
func (p *pool) put(cn *conn) {
	if !p.keep(cn) {
		p.drop(cn)
	}
}

func (p *pool) keep(cn *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.idle >= p.maxIdle {
		return false
	}
	h := p.hosts[cn.endpoint]
	h.idle = append(h.idle, cn)
	p.idle++
	return true
}

// drop closes a connection that is not in the pool.
func (p *pool) drop(cn *conn) {
	cn.Close()
	p.release(cn.endpoint)
}

// release gives back the right to one connection.
func (p *pool) release(e endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[e]
	h.open--
	p.open--
	if h.open == 0 {
		delete(p.hosts, e)
	}
}

// expire closes what has been idle for too long at now.
func (p *pool) expire(now time.Time) {
	p.closeWhere(func(cn *conn) bool { return !now.Before(cn.expires) })
}

// closeIdle closes all idle connections, to free descriptors, and returns how many there were.
func (p *pool) closeIdle() int { return p.closeWhere(func(*conn) bool { return true }) }

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closeIdle()
}

func (p *pool) closeWhere(old func(*conn) bool) int {
	list := p.take(old)
	for _, cn := range list {
		p.drop(cn)
	}
	return len(list)
}

func (p *pool) take(old func(*conn) bool) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*conn
	for _, h := range p.hosts {
		kept := h.idle[:0]
		for _, cn := range h.idle {
			if old(cn) {
				out = append(out, cn)
			} else {
				kept = append(kept, cn)
			}
		}
		clear(h.idle[len(kept):])
		h.idle = kept
	}
	p.idle -= len(out)
	return out
}
