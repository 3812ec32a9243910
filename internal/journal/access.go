package journal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Roles of a key.
const (
	RoleAdmin    = "admin"
	RoleProducer = "producer"
	RoleTenant   = "tenant"
)

// Key lets whoever has its secret call the API. The secret itself is kept nowhere. ID is chosen by the
// caller, immutable and never given again: the ids of keyed triggers are made of it.
type Key struct {
	ID        string    `json:"id"`
	Number    uint64    `json:"number"`         // increasing, given at creation
	Name      string    `json:"name,omitempty"` // a label
	Role      string    `json:"role"`
	Tenants   []string  `json:"tenants,omitempty"`   // producer: whom it may post for, none is all; tenant: the one
	Broadcast bool      `json:"broadcast,omitempty"` // producer: may post for all at once
	Secrets   []Digest  `json:"secrets"`             // newest first
	Created   time.Time `json:"created"`
	Revoked   time.Time `json:"revoked,omitzero"` // zero: it is not
}

// Digest stands for a secret.
type Digest struct {
	SHA256  []byte    `json:"sha256"`
	Created time.Time `json:"created"`
	Until   time.Time `json:"until,omitzero"` // by the wall clock; zero is for ever
}

// DigestOf is how a secret is stored: it has 128 random bits or more, so one round is enough.
func DigestOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// Accepts reports whether the secret with that digest opens anything at now.
func (k *Key) Accepts(digest [sha256.Size]byte, now time.Time) bool {
	return k.Revoked.IsZero() && slices.ContainsFunc(k.Secrets, func(d Digest) bool {
		return string(d.SHA256) == string(digest[:]) && (d.Until.IsZero() || now.Before(d.Until))
	})
}

const (
	keyBucket = "KEYS"
	// KeyIDRule says what a key's id must be.
	KeyIDRule = "must be 1 to 64 letters, digits, _ and -, beginning with a letter or digit, and not admin"
	// configuredKey is the id of the key that the configuration names.
	configuredKey = "admin"
)

// ValidKeyID reports whether id may be a key's.
func ValidKeyID(id string) bool { return keyIDForm.MatchString(id) && id != configuredKey }

var keyIDForm = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\z`)

// Access holds the keys and the record of what administrators did, in a bucket and a stream of their own:
// a release that knows neither still opens the directory. Keys are read from memory. Safe for
// concurrent use.
type Access struct {
	kv      jetstream.KeyValue
	link    *link
	writing sync.Mutex // one change at a time, over its write

	mu       sync.RWMutex
	byID     map[string]Key
	byDigest map[[sha256.Size]byte]string
}

// openAccess creates what is missing, and loads the keys.
func openAccess(ctx context.Context, l *link) (*Access, error) {
	kv, err := l.bucket(ctx, jetstream.KeyValueConfig{Bucket: keyBucket, Storage: jetstream.FileStorage, History: 1})
	if err == nil {
		audit := auditConfig
		audit.Replicas = l.replicas
		err = l.openStream(ctx, audit)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: keys: %w", err)
	}
	r := &Access{kv: kv, link: l, byID: map[string]Key{}, byDigest: map[[sha256.Size]byte]string{}}
	return r, r.load(ctx)
}

// OpenAccess opens keys and audit of a data directory that no process serves, and nothing else of it;
// finish closes it again. Errors are those of Open.
func OpenAccess(ctx context.Context, o Options) (r *Access, finish func(), err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, nil, err
	}
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return nil, nil, err
	}
	l, err := openLink(o)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	finish = func() { l.close(); unlock() }
	if l.cluster != nil { // the lease is not renewed: this is short
		h, err := l.acquire(ctx, randomWriter(), o.tune.lease)
		if err != nil {
			finish()
			return nil, nil, err
		}
		finish = func() { h.release(); l.close(); unlock() }
	}
	if r, err = openAccess(ctx, l); err == nil {
		err = l.names.syncAll()
	}
	if err != nil {
		finish()
		return nil, nil, err
	}
	return r, finish, nil
}

func (r *Access) load(ctx context.Context) error {
	err := entries(ctx, r.kv, 1, func(e jetstream.KeyValueEntry) error {
		k, err := decodeKey(e)
		if err == nil {
			r.show(k)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("journal: keys: %w", err)
	}
	return nil
}

func decodeKey(e jetstream.KeyValueEntry) (k Key, err error) {
	if err = json.Unmarshal(e.Value(), &k); err != nil || k.ID != e.Key() {
		return k, fmt.Errorf("%w: key %s: %w", ErrDamaged, e.Key(), err)
	}
	return k, nil
}

// show makes k what reads return. A digest that k no longer has finds it still, and is not accepted.
func (r *Access) show(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[k.ID] = k
	for _, d := range k.Secrets {
		r.byDigest[[sha256.Size]byte(d.SHA256)] = k.ID
	}
}

// Keys returns all by number, revoked ones included.
func (r *Access) Keys() []Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.byID), func(a, b Key) int { return cmp.Compare(a.Number, b.Number) })
}

// Admin reports whether there is an administrator's key that is not revoked.
func (r *Access) Admin() bool {
	return slices.ContainsFunc(r.Keys(), func(k Key) bool { return k.Role == RoleAdmin && k.Revoked.IsZero() })
}

// Key returns the one with that id, revoked or not, and reports whether there is one.
func (r *Access) Key(id string) (Key, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.byID[id]
	return k, ok
}

// Find returns the key that accepts the secret with that digest at now.
func (r *Access) Find(digest [sha256.Size]byte, now time.Time) (Key, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.byID[r.byDigest[digest]]
	return k, ok && k.Accepts(digest, now)
}

// Change stores what edit makes of the key, which is the zero Key with its id while there is none, and
// returns it when it is durable and in force. edit may refuse, and the error is returned. After
// ErrUnavailable it is in doubt; the next Change begins with what is stored.
func (r *Access) Change(ctx context.Context, id string, edit func(Key) (Key, error)) (Key, error) {
	if !ValidKeyID(id) {
		return Key{}, &FieldError{"id", KeyIDRule}
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	now, revision, err := r.stored(ctx, id)
	if err != nil {
		return Key{}, err
	}
	next, err := edit(now)
	if err != nil {
		return Key{}, err
	}
	if next.ID, next.Number = id, now.Number; revision == 0 {
		next.Number = uint64(len(r.byID)) + 1
	}
	value, err := json.Marshal(next)
	if err != nil {
		return Key{}, err
	}
	if revision == 0 {
		_, err = r.kv.Create(ctx, id, value)
	} else {
		_, err = r.kv.Update(ctx, id, value, revision)
	}
	if err == nil {
		err = r.link.names.sync()
	}
	if err != nil {
		return Key{}, fmt.Errorf("%w: keys: %w", ErrUnavailable, err)
	}
	r.show(next)
	return next, nil
}

// stored reads what the bucket has.
func (r *Access) stored(ctx context.Context, id string) (Key, uint64, error) {
	e, err := r.kv.Get(ctx, id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Key{ID: id}, 0, nil
	}
	if err != nil {
		return Key{}, 0, fmt.Errorf("%w: keys: %w", ErrUnavailable, err)
	}
	k, err := decodeKey(e)
	if err == nil {
		r.show(k)
	}
	return k, e.Revision(), err
}
