package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// PutTenant creates (Number and Created are given) or edits a tenant, or deletes it when t.Deleted. Of t.Grants
// only the topics of the last one are taken; none leaves them as they are, and grants nothing to a new tenant.
// It returns when the change is durable, with the position from which on it is in force.
//
// Deleting again is no error: a delete in doubt is repeated.
//
// Errors: *FieldError for bad input, ErrGone for the id of a deleted tenant, ErrInUse for deleting
// one that has subscriptions, ErrNotFound for deleting an unknown one, ErrUnavailable in doubt.
func (r *Registry) PutTenant(ctx context.Context, t Tenant) (Tenant, Position, error) {
	leave, err := r.enter(ctx)
	if err != nil {
		return Tenant{}, 0, err
	}
	defer leave()
	next, revision, err := r.nextTenant(t)
	if err != nil {
		return Tenant{}, 0, err
	}
	p, err := r.write(ctx, &tenantRecord{Tenant: next}, revision)
	if err != nil {
		return Tenant{}, 0, err
	}
	shown, _ := r.Tenant(next.ID)
	return shown, p, nil
}

// PutSubscription creates (ID "": ID, Lane, Created are given) or edits a subscription, or deletes
// it when s.Deleted. A change of topics and a delete add a Version that is in force from the returned
// position on. It returns when the change is durable.
//
// Of s.Versions only topics and match of the last one are taken; none leaves them as they are. Secrets nil
// leaves those as they are. Errors are those of PutTenant; ErrNotFound also names a tenant or
// a subscription that does not exist.
func (r *Registry) PutSubscription(ctx context.Context, s Subscription) (Subscription, Position, error) {
	leave, err := r.enter(ctx)
	if err != nil {
		return Subscription{}, 0, err
	}
	defer leave()
	next, err := r.nextSubscription(s)
	if err != nil {
		return Subscription{}, 0, err
	}
	p, err := r.write(ctx, &subscriptionRecord{Subscription: next}, next.Revision)
	if err != nil {
		return Subscription{}, 0, err
	}
	shown, _ := r.Subscription(next.ID)
	return shown, p, nil
}

// CheckTenant returns what PutTenant would refuse of t. It stores nothing.
func (r *Registry) CheckTenant(t Tenant) error {
	next, _, err := r.nextTenant(t)
	if err != nil {
		return err
	}
	_, err = r.encoded(&tenantRecord{Tenant: next})
	return err
}

// CheckSubscription returns what PutSubscription would refuse of s, but for a tenant that does not exist yet. It
// stores nothing.
func (r *Registry) CheckSubscription(s Subscription) error {
	next, err := r.expected(s)
	if err != nil {
		return err
	}
	_, err = r.encoded(&subscriptionRecord{Subscription: next})
	return err
}

func (r *Registry) expected(s Subscription) (Subscription, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if s.ID == "" {
		return r.createdLocked(s)
	}
	return r.changedLocked(s)
}

// encoded is rec as it is stored.
func (r *Registry) encoded(rec record) ([]byte, error) {
	value, err := rec.encode(r.box)
	if err == nil && len(value) > maxRecord {
		err = &FieldError{"record", fmt.Sprintf("is %d bytes with its history, may be %d", len(value), maxRecord)}
	}
	return value, err
}

// enter waits for the writer's turn and completes what earlier writes have left in doubt.
func (r *Registry) enter(ctx context.Context) (leave func(), err error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = func() { <-r.turn }
	for key := range r.unfinished {
		if err := r.finish(ctx, key); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// finish looks up what is stored under key and announces it, unless it is in force already.
func (r *Registry) finish(ctx context.Context, key string) error {
	e, err := r.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		delete(r.unfinished, key)
		return nil
	}
	if err != nil {
		return inDoubt(err)
	}
	rec, err := decodeRecord(r.box, key, e.Value(), e.Revision())
	if err != nil {
		return err
	}
	if r.shows(rec) {
		delete(r.unfinished, key)
		return nil
	}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registryPatience)
	defer cancel()
	_, err = r.announce(wctx, rec)
	return err
}

// shows reports whether reads return rec, with all its positions.
func (r *Registry) shows(rec record) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch v := rec.(type) {
	case *tenantRecord:
		t := r.tenantByID[v.ID]
		return t != nil && t.revision == v.revision && !v.unsettled()
	case *subscriptionRecord:
		s := r.byID[v.ID]
		return s != nil && s.Revision == v.Revision && !v.unsettled()
	}
	return false
}

// write stores rec over revision (0: it is new), announces and shows it.
func (r *Registry) write(ctx context.Context, rec record, revision uint64) (Position, error) {
	value, err := r.encoded(rec)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registryPatience)
	defer cancel()
	stored, err := r.store(ctx, rec, value, revision)
	if err != nil {
		return 0, err
	}
	return r.announce(ctx, stored)
}

// announce appends rec's marker, stores its position where rec needs one, and shows rec.
func (r *Registry) announce(ctx context.Context, rec record) (Position, error) {
	r.mu.Lock()
	r.pending[rec.key()] = rec
	r.mu.Unlock()

	p, err := r.mark(ctx, rec.marker())
	if err != nil {
		return 0, inDoubt(err)
	}
	if settled, changed := rec.settle(p); changed {
		if rec, err = r.storeAgain(ctx, settled); err != nil {
			return 0, err
		}
	}
	r.mu.Lock()
	r.showLocked(rec.key(), rec)
	r.mu.Unlock()
	delete(r.unfinished, rec.key())
	return p, nil
}

func (r *Registry) storeAgain(ctx context.Context, rec record) (record, error) {
	value, err := rec.encode(r.box)
	if err != nil {
		return nil, err
	}
	return r.store(ctx, rec, value, rec.marker().Revision)
}

// store writes value, which is rec encoded, over revision and returns rec with the new one.
func (r *Registry) store(ctx context.Context, rec record, value []byte, revision uint64) (record, error) {
	r.unfinished[rec.key()] = struct{}{}
	var err error
	if revision == 0 {
		revision, err = r.kv.Create(ctx, rec.key(), value)
	} else {
		revision, err = r.kv.Update(ctx, rec.key(), value, revision)
	}
	if err != nil {
		return nil, inDoubt(err)
	}
	return rec.at(revision), nil
}

func inDoubt(err error) error { return fmt.Errorf("%w: registry: %w", ErrUnavailable, err) }

// nextTenant returns what t makes of the tenant, and the revision that it replaces.
func (r *Registry) nextTenant(t Tenant) (Tenant, uint64, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	now, ok := r.tenantByID[t.ID]
	switch {
	case t.Deleted:
		return r.deletedTenantLocked(now, t.ID)
	case ok && now.Deleted:
		return Tenant{}, 0, fmt.Errorf("%w: tenant %q", ErrGone, t.ID)
	}
	if err := checkTenant(&t); err != nil {
		return Tenant{}, 0, err
	}
	next := t.clone()
	if ok {
		next.Number, next.Created, next.Grants = now.Number, now.Created, r.grantsLocked(now, &t)
		return next, now.revision, nil
	}
	granted, _ := t.Granted()
	next.Number, next.Created, next.Grants = uint32(len(r.tenants)), createdNow(), []Grant{{Topics: slices.Clone(granted)}}
	return next, 0, nil
}

// grantsLocked returns the grants that still can matter, with those of t behind if they differ.
func (r *Registry) grantsLocked(now *tenantRecord, t *Tenant) []Grant {
	gs := now.clone().Grants
	for len(gs) > 1 && gs[1].From <= r.floor {
		gs = gs[1:]
	}
	granted, asked := t.Granted()
	if was, known := now.Granted(); asked && (!known || !slices.Equal(granted, was)) {
		gs = append(gs, Grant{Topics: slices.Clone(granted)})
	}
	return gs
}

func (r *Registry) deletedTenantLocked(now *tenantRecord, id string) (Tenant, uint64, error) {
	if now == nil {
		return Tenant{}, 0, fmt.Errorf("%w: tenant %q", ErrNotFound, id)
	}
	for _, s := range r.subscriptions {
		if s.Tenant == id && !s.Deleted {
			return Tenant{}, 0, fmt.Errorf("%w: %q has %s", ErrInUse, id, s.ID)
		}
	}
	next := now.clone()
	next.Deleted = true
	return next, now.revision, nil
}

// nextSubscription returns what s makes of the subscription; its Revision is the one that it replaces.
func (r *Registry) nextSubscription(s Subscription) (Subscription, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if s.ID == "" {
		if t, ok := r.tenantByID[s.Tenant]; !ok || t.Deleted {
			return Subscription{}, fmt.Errorf("%w: tenant %q", ErrNotFound, s.Tenant)
		}
		return r.createdLocked(s)
	}
	return r.changedLocked(s)
}

// changedLocked returns what s makes of the subscription of its id.
func (r *Registry) changedLocked(s Subscription) (Subscription, error) {
	if err := checkSubscriptionID(s.ID); err != nil {
		return Subscription{}, err
	}
	now, ok := r.byID[s.ID]
	switch {
	case !ok:
		return Subscription{}, fmt.Errorf("%w: subscription %s", ErrNotFound, s.ID)
	case s.Deleted:
		return r.deletedLocked(now), nil
	case now.Deleted:
		return Subscription{}, fmt.Errorf("%w: subscription %s", ErrGone, s.ID)
	case s.Tenant != "" && s.Tenant != now.Tenant:
		return Subscription{}, &FieldError{"tenant", "cannot be changed"}
	case s.Name != now.Name && now.Name != "":
		return Subscription{}, &FieldError{"name", "cannot be changed"}
	case s.Order != now.Order:
		return Subscription{}, &FieldError{"order", "cannot be changed: make another subscription"}
	case s.Group != now.Group:
		return Subscription{}, &FieldError{"lane", "cannot be changed: make another subscription"}
	}
	return r.editedLocked(now, s)
}

func (r *Registry) createdLocked(s Subscription) (Subscription, error) {
	next := s.clone()
	next.SetMatching(slices.Clone(s.Topics()), maps.Clone(s.Match()))
	if err := firstError(checkSubscription(&next), r.checkNameLocked(&next)); err != nil {
		return Subscription{}, err
	}
	next.Lane, next.Created, next.Revision, next.Deleted = uint32(len(r.subscriptions)), createdNow(), 0, false
	if s.Creation != nil {
		next.ID = SubscriptionID(s.Creation.Key)
		if r.byID[next.ID] != nil {
			return Subscription{}, fmt.Errorf("%w: subscription %s", ErrGone, next.ID)
		}
	}
	for next.ID == "" || r.byID[next.ID] != nil {
		next.ID = newSubscriptionID()
	}
	return next, nil
}

func (r *Registry) editedLocked(now *subscriptionRecord, s Subscription) (Subscription, error) {
	next := s.clone()
	next.Lane, next.Tenant, next.Created, next.Revision = now.Lane, now.Tenant, now.Created, now.Revision
	if s.Secrets == nil {
		next.Secrets = cloneEach(now.Secrets)
	}
	next.Versions = r.versionsLocked(now)
	if len(s.Versions) > 0 && (!slices.Equal(s.Topics(), now.Topics()) || !maps.Equal(s.Match(), now.Match())) {
		next.Versions = append(next.Versions, Version{Topics: slices.Clone(s.Topics()), Match: maps.Clone(s.Match()), Active: true})
	}
	return next, firstError(checkSubscription(&next), r.checkNameLocked(&next))
}

// checkNameLocked refuses a name that another subscription of the tenant has.
func (r *Registry) checkNameLocked(s *Subscription) error {
	if id := r.byName[subscriptionName{s.Tenant, s.Name}]; s.Name != "" && id != "" && id != s.ID {
		return &FieldError{"name", "is that of " + id}
	}
	return nil
}

// deletedLocked leaves a tombstone: what it matched, without secrets.
func (r *Registry) deletedLocked(now *subscriptionRecord) Subscription {
	next := now.clone()
	if now.Deleted {
		return next
	}
	next.Deleted, next.Secrets, next.Requests = true, nil, Requests{}
	next.Versions = append(r.versionsLocked(now), Version{Topics: slices.Clone(now.Topics())})
	return next
}

// versionsLocked returns the versions that still can match something.
func (r *Registry) versionsLocked(now *subscriptionRecord) []Version {
	c := now.clone()
	vs := c.Versions
	for len(vs) > 1 && vs[1].From <= r.floor {
		vs = vs[1:]
	}
	return vs
}

func createdNow() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

const (
	subscriptionIDPrefix = "sub_"
	subscriptionIDDigits = 20
	base32Lower          = "abcdefghijklmnopqrstuvwxyz234567"
)

// newSubscriptionID returns "sub_" and 100 random bits.
func newSubscriptionID() string { return randomID(subscriptionIDPrefix) }

func randomID(prefix string) string {
	b := make([]byte, subscriptionIDDigits)
	rand.Read(b) // never fails
	return idOf(prefix, b)
}

// idOf makes an id of random bytes, five bits of each.
func idOf(prefix string, random []byte) string {
	b := slices.Clone(random)
	for i := range b {
		b[i] = base32Lower[b[i]%32]
	}
	return prefix + string(b)
}
