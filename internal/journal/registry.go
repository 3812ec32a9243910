package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Errors of the registry's writes. A *FieldError is one of bad input.
var (
	ErrGone  = errors.New("journal: id was used before")
	ErrInUse = errors.New("journal: tenant still has subscriptions")
)

const (
	registryBucket = "REGISTRY"

	kindTenant       = "tenant" // Marker.Kind, and the first part of the key in the bucket
	kindSubscription = "subscription"

	// registryPatience bounds a write that has begun: it goes on when its caller has gone.
	registryPatience = 5 * time.Second
)

// Registry holds tenants and subscriptions in a KV bucket, loaded whole at Open. Reads are
// from memory and return copies. Writes are serialised. Safe for concurrent use.
//
// A write stores the record, appends a marker to TRIGGERS and, where what is matched changes,
// stores the record again with the marker's position. One that ends with ErrUnavailable is in
// doubt: the next write, or the next Open, completes whatever of it was stored.
type Registry struct {
	kv   jetstream.KeyValue
	box  *secretBox
	mark func(context.Context, Marker) (Position, error)

	turn chan struct{} // one token: its holder writes

	// Of the writer: keys of records that are stored, or may be, and have not been shown.
	unfinished map[string]struct{}

	mu            sync.RWMutex
	tenants       []*tenantRecord // by number; what is pointed to never changes
	subscriptions []*subscriptionRecord
	tenantByID    map[string]*tenantRecord
	byID          map[string]*subscriptionRecord
	byName        map[subscriptionName]string // id of the live one
	pending       map[string]record           // by key: stored, its marker perhaps not
	revision      uint64
	floor         Position
}

var registryConfig = jetstream.KeyValueConfig{Bucket: registryBucket, Storage: jetstream.FileStorage, History: 1, MaxValueSize: 2 * maxRecord}

// openRegistry loads the bucket, and completes the changes that a
// crash has cut off between the record and its marker; mark appends a marker to TRIGGERS and returns
// when it is durable.
func openRegistry(ctx context.Context, kv jetstream.KeyValue, box *secretBox, mark func(context.Context, Marker) (Position, error)) (*Registry, error) {
	r := &Registry{
		kv: kv, box: box, mark: mark, turn: make(chan struct{}, 1),
		unfinished: make(map[string]struct{}), pending: make(map[string]record),
		tenantByID: make(map[string]*tenantRecord), byID: make(map[string]*subscriptionRecord),
		byName: make(map[subscriptionName]string),
	}
	if err := r.load(ctx); err != nil {
		return nil, fmt.Errorf("journal: registry: %w", err)
	}
	leave, err := r.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("journal: registry: %w", err)
	}
	leave()
	return r, nil
}

// Tenants returns all tenants by number, tombstones included.
func (r *Registry) Tenants() []Tenant {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Tenant, len(r.tenants))
	for i, t := range r.tenants {
		out[i] = t.clone()
	}
	return out
}

// Tenant returns the tenant with that id, a tombstone included, and reports whether there is one.
func (r *Registry) Tenant(id string) (Tenant, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t, ok := r.tenantByID[id]
	if !ok {
		return Tenant{}, false
	}
	return t.clone(), true
}

// Subscriptions returns all subscriptions by lane, tombstones included.
func (r *Registry) Subscriptions() []Subscription {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Subscription, len(r.subscriptions))
	for i, s := range r.subscriptions {
		out[i] = s.clone()
	}
	return out
}

// Subscription returns the subscription with that id, a tombstone included, and reports whether
// there is one.
func (r *Registry) Subscription(id string) (Subscription, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s, ok := r.byID[id]
	if !ok {
		return Subscription{}, false
	}
	return s.clone(), true
}

// Named returns the subscription of that name, and reports whether the tenant has one that is not deleted.
func (r *Registry) Named(tenant, name string) (Subscription, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s, ok := r.byID[r.byName[subscriptionName{tenant, name}]]
	if !ok || name == "" {
		return Subscription{}, false
	}
	return s.clone(), true
}

// Revision grows with every change.
func (r *Registry) Revision() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.revision
}

// Reached puts the change that m announces into force at p, m's position. Whoever reads TRIGGERS
// calls it before matching what stands behind m: the writer, which waits for the same marker, may
// come later. A marker of an older change does nothing.
func (r *Registry) Reached(m Marker, p Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, rec := range r.pending {
		if rec.marker() == m {
			settled, _ := rec.settle(p)
			r.showLocked(key, settled)
			return
		}
	}
}

// setFloor lets versions that matched only below floor be forgotten, at the subscription's next change.
func (r *Registry) setFloor(floor Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor = max(r.floor, floor)
}
