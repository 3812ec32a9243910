package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	recordFormat = 1
	maxRecord    = 512 << 10 // bytes of a stored record
)

// record is a tenant or a subscription as it is stored. It never changes.
type record interface {
	key() string
	at(revision uint64) record // the same, with its KV revision
	marker() Marker            // announces this revision
	// settle gives the last version its position, and reports whether it had none.
	settle(p Position) (record, bool)
	unsettled() bool
	encode(*secretBox) ([]byte, error)
}

// tenantRecord is stored under tenant.NUMBER, so that a number is given out once.
type tenantRecord struct {
	Format int `json:"v"`
	Tenant
	revision uint64
}

func (t *tenantRecord) key() string    { return recordKey(kindTenant, t.Number) }
func (t *tenantRecord) marker() Marker { return Marker{kindTenant, t.ID, t.revision} }

func (t *tenantRecord) at(revision uint64) record {
	c := *t
	c.revision = revision
	return &c
}

func (t *tenantRecord) settle(p Position) (record, bool) {
	if !t.unsettled() {
		return t, false
	}
	c := *t
	c.Grants = slices.Clone(t.Grants)
	c.Grants[len(c.Grants)-1].From = p
	return &c, true
}

func (t *tenantRecord) encode(*secretBox) ([]byte, error) {
	c := *t
	c.Format = recordFormat
	return json.Marshal(&c)
}

// subscriptionRecord is stored under subscription.LANE.
type subscriptionRecord struct {
	Format int `json:"v"`
	Subscription
	Sealed sealed `json:"sealed"` // private; once read, the id of its key alone
}

// private is what of a subscription is stored encrypted.
type private struct {
	URL      string    `json:"url"`
	Secrets  [][]byte  `json:"secrets,omitempty"`
	Requests *Requests `json:"requests,omitempty"` // nil is the default
}

func (s *subscriptionRecord) key() string    { return recordKey(kindSubscription, s.Lane) }
func (s *subscriptionRecord) marker() Marker { return Marker{kindSubscription, s.ID, s.Revision} }

func (s *subscriptionRecord) at(revision uint64) record {
	c := *s
	c.Revision = revision
	return &c
}

func (s *subscriptionRecord) settle(p Position) (record, bool) {
	if !s.unsettled() {
		return s, false
	}
	c := *s
	c.Versions = slices.Clone(s.Versions)
	c.Versions[len(c.Versions)-1].From = p
	return &c, true
}

func (s *subscriptionRecord) encode(box *secretBox) ([]byte, error) {
	p := private{URL: s.URL, Secrets: s.Secrets}
	if !s.Requests.IsZero() {
		p.Requests = &s.Requests
	}
	plain, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	c := *s
	c.Format, c.URL, c.Sealed = recordFormat, "", box.seal(s.ID, plain)
	return json.Marshal(&c)
}

func (s *subscriptionRecord) unseal(box *secretBox) error {
	plain, err := box.open(s.ID, s.Sealed)
	if err != nil {
		return err
	}
	var p private
	if err := json.Unmarshal(plain, &p); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, s.ID, err)
	}
	s.URL, s.Secrets, s.Sealed = p.URL, p.Secrets, sealed{Key: s.Sealed.Key}
	if p.Requests != nil {
		s.Requests = *p.Requests
	}
	return nil
}

func recordKey(kind string, n uint32) string { return kind + "." + strconv.FormatUint(uint64(n), 10) }

// decodeRecord reads what encode wrote and was stored as revision.
func decodeRecord(box *secretBox, key string, value []byte, revision uint64) (record, error) {
	kind, _, _ := strings.Cut(key, ".")
	var rec record
	var format *int
	switch kind {
	case kindTenant:
		t := &tenantRecord{revision: revision}
		rec, format = t, &t.Format
	case kindSubscription:
		s := &subscriptionRecord{}
		rec, format = s, &s.Format
	default:
		return nil, fmt.Errorf("%w: unknown kind of record %q", ErrDamaged, key)
	}
	if err := json.Unmarshal(value, rec); err != nil {
		return nil, fmt.Errorf("%w: record %s: %w", ErrDamaged, key, err)
	}
	if *format != recordFormat {
		return nil, fmt.Errorf("journal: record %s has format %d, this release reads %d", key, *format, recordFormat)
	}
	if rec.key() != key {
		return nil, fmt.Errorf("%w: record %s names itself %s", ErrDamaged, key, rec.key())
	}
	if s, ok := rec.(*subscriptionRecord); ok {
		s.Revision = revision
		return s, s.unseal(box)
	}
	return rec, nil
}

// load reads the bucket into memory, on all processors: decoding is most of the time. It is called
// before the registry is shared.
func (r *Registry) load(ctx context.Context) error {
	if err := entries(ctx, r.kv, runtime.GOMAXPROCS(0), r.adopt); err != nil {
		return err
	}
	return r.checkLoaded()
}

func (r *Registry) adopt(e jetstream.KeyValueEntry) error {
	if e.Operation() != jetstream.KeyValuePut {
		return fmt.Errorf("%w: record %s was removed", ErrDamaged, e.Key())
	}
	rec, err := decodeRecord(r.box, e.Key(), e.Value(), e.Revision())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.unsettled() {
		r.unfinished[e.Key()] = struct{}{}
	}
	r.showLocked(e.Key(), rec)
	return nil
}

// checkLoaded makes sure that numbers are dense: a missing record is damage.
func (r *Registry) checkLoaded() error {
	if i := slices.Index(r.tenants, nil); i >= 0 {
		return fmt.Errorf("%w: record %s is missing", ErrDamaged, recordKey(kindTenant, uint32(i)))
	}
	if i := slices.Index(r.subscriptions, nil); i >= 0 {
		return fmt.Errorf("%w: record %s is missing", ErrDamaged, recordKey(kindSubscription, uint32(i)))
	}
	return nil
}

// showLocked makes rec what reads return.
func (r *Registry) showLocked(key string, rec record) {
	switch v := rec.(type) {
	case *tenantRecord:
		r.tenants = place(r.tenants, v.Number, v)
		r.tenantByID[v.ID] = v
		r.revision = max(r.revision, v.revision)
	case *subscriptionRecord:
		r.subscriptions = place(r.subscriptions, v.Lane, v)
		r.byID[v.ID] = v
		r.nameLocked(v)
		r.revision = max(r.revision, v.Revision)
	}
	delete(r.pending, key)
}

// subscriptionName is a name: they are the tenant's own.
type subscriptionName struct{ tenant, name string }

// nameLocked makes v what its name stands for, or frees the name.
func (r *Registry) nameLocked(v *subscriptionRecord) {
	name := subscriptionName{v.Tenant, v.Name}
	switch {
	case v.Name == "":
	case !v.Deleted:
		r.byName[name] = v.ID
	case r.byName[name] == v.ID:
		delete(r.byName, name)
	}
}

// place sets s[i], growing s.
func place[T any](s []*T, i uint32, v *T) []*T {
	for uint32(len(s)) <= i {
		s = append(s, nil)
	}
	s[i] = v
	return s
}
