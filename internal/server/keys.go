package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Access is what the API asks of the keys and of the record of acts; *journal.Access is one.
type Access interface {
	Keys() []journal.Key
	Key(id string) (journal.Key, bool)
	Find(digest [32]byte, now time.Time) (journal.Key, bool)
	Change(ctx context.Context, id string, edit func(journal.Key) (journal.Key, error)) (journal.Key, error)
	Audit(context.Context, journal.Act) error
	Acts(ctx context.Context, before uint64, limit int) ([]journal.Act, error)
}

// Bounds of a key.
const (
	maxKeyTenants  = 1000
	liveSecrets    = 2 // a rotation retires all but the newest before it
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 30 * 24 * time.Hour
)

// keyView is a key as the API shows it. The secret is shown once: when it is made.
type keyView struct {
	ID        string       `json:"id"`
	Name      string       `json:"name,omitempty"`
	Role      string       `json:"role" enum:"admin,producer,tenant"`
	Tenants   []string     `json:"tenants,omitempty"` // none of a producer's: all
	Broadcast bool         `json:"broadcast,omitempty"`
	Secrets   []secretView `json:"secrets"` // newest first
	Created   time.Time    `json:"created"`
	Revoked   *time.Time   `json:"revoked,omitempty"`
	Secret    string       `json:"secret,omitempty"`
}

// secretView says since when a secret is good, and until when.
type secretView struct {
	Created time.Time  `json:"created"`
	Until   *time.Time `json:"until,omitempty"`
}

// keyIn is what creation of a key reads.
type keyIn struct {
	ID        string   `json:"id"`
	Name      string   `json:"name,omitempty"`
	Role      string   `json:"role" enum:"admin,producer,tenant"`
	Tenants   []string `json:"tenants,omitempty"`
	Broadcast bool     `json:"broadcast,omitempty"`
}

// overlapIn is what a rotation reads.
type overlapIn struct {
	Overlap string `json:"overlap,omitempty"`
}

func viewKey(k *journal.Key) keyView {
	v := keyView{ID: k.ID, Name: k.Name, Role: k.Role, Tenants: k.Tenants, Broadcast: k.Broadcast, Created: k.Created, Secrets: []secretView{}}
	for _, d := range k.Secrets {
		if !d.Until.IsZero() && time.Now().After(d.Until) {
			continue
		}
		v.Secrets = append(v.Secrets, secretView{d.Created, timeOrNil(d.Until)})
	}
	v.Revoked = timeOrNil(k.Revoked)
	return v
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// newSecret makes a secret of a key, and what of it is stored.
func newSecret(now time.Time) (string, journal.Digest) {
	secret := "flk_" + rand.Text()
	sum := journal.DigestOf(secret)
	return secret, journal.Digest{SHA256: sum[:], Created: now}
}

func (s *Server) listKeys(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(q, s.access.Keys(),
		func(k *journal.Key) uint64 { return k.Number },
		func(*journal.Key) bool { return true },
		viewKey))
}

func (s *Server) getKey(w http.ResponseWriter, r *http.Request) error {
	k, ok := s.access.Key(r.PathValue("id"))
	if !ok {
		return &problem{code: notFound, detail: nothingThere}
	}
	return reply(w, http.StatusOK, viewKey(&k))
}

// createKey is POST /v1/keys. The id is new; asked again it is refused, so that a repeat makes no second
// key: rotate the first for a new secret.
func (s *Server) createKey(w http.ResponseWriter, r *http.Request) error {
	var k journal.Key
	if err := s.readKey(w, r, &k); err != nil {
		return err
	}
	stored, secret, err := makeKey(r.Context(), s.access, k)
	if err != nil {
		return err
	}
	v := viewKey(&stored)
	v.Secret = secret
	w.Header().Set("Location", "/v1/keys/"+stored.ID)
	return reply(w, http.StatusCreated, v)
}

// makeKey stores a key with a new id, and a secret.
func makeKey(ctx context.Context, access Access, k journal.Key) (journal.Key, string, error) {
	secret, digest := newSecret(now())
	stored, err := access.Change(ctx, k.ID, func(old journal.Key) (journal.Key, error) {
		if old.Role != "" {
			return old, refuse(conflict, "id", "exists or was used before; ids are never given again; rotate a key for a new secret")
		}
		k.Created, k.Secrets = digest.Created, []journal.Digest{digest}
		return k, nil
	})
	return stored, secret, err
}

// NewAdminKey makes an administrator's key in a data directory that no process serves, and keeps a
// record of that.
func NewAdminKey(ctx context.Context, access Access, id, name string) (k journal.Key, secret string, err error) {
	k, secret, err = makeKey(ctx, access, journal.Key{ID: id, Name: name, Role: journal.RoleAdmin})
	if err == nil {
		err = access.Audit(ctx, journal.Act{At: now(), Key: "(data directory)", Method: http.MethodPost, Path: "/v1/keys/" + id, Fields: []string{"id", "role"}, Status: http.StatusCreated})
	}
	return k, secret, err
}

func (s *Server) readKey(w http.ResponseWriter, r *http.Request, k *journal.Key) error {
	o, err := s.readObject(w, r, false)
	if err != nil {
		return err
	}
	o.read("id", nil, parseText(&k.ID, journal.KeyIDRule, journal.ValidKeyID))
	o.read("name", nil, parseText(&k.Name, "text of at most 256 bytes without control characters", validName))
	o.read("role", nil, parseText(&k.Role, "admin, producer or tenant", func(v string) bool {
		return slices.ContainsFunc(roleNames, func(n roleName) bool { return n.name == v })
	}))
	o.read("tenants", nil, s.parseTenants(&k.Tenants))
	o.read("broadcast", nil, parseBool(&k.Broadcast))
	o.require("id", "role")
	switch {
	case k.Role == journal.RoleTenant && len(k.Tenants) != 1:
		o.bad("tenants", "must name the one tenant whose key it is")
	case k.Role == journal.RoleAdmin && len(k.Tenants) > 0:
		o.bad("tenants", "must be absent: an administrator has all")
	case k.Role != journal.RoleProducer && k.Broadcast:
		o.bad("broadcast", "is a producer's right")
	}
	return o.err()
}

// parseTenants reads a list of tenants that exist.
func (s *Server) parseTenants(to *[]string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		list, is := texts(raw)
		if !is || len(list) == 0 || len(list) > maxKeyTenants {
			return "a list of 1 to 1000 tenants' ids"
		}
		for _, id := range list {
			if t, ok := s.registry.Tenant(id); !ok || t.Deleted {
				return "ids of tenants that exist"
			}
		}
		slices.Sort(list)
		*to = slices.Compact(list)
		return ""
	}
}

// rotateKey is POST /v1/keys/{id}/rotate: a new secret, and the newest before it for as long as overlap says.
func (s *Server) rotateKey(w http.ResponseWriter, r *http.Request) error {
	overlap, err := s.readOverlap(w, r)
	if err != nil {
		return err
	}
	secret, digest := newSecret(now())
	k, err := s.changeKey(r, func(k *journal.Key) error {
		if !k.Revoked.IsZero() {
			return refuse(conflict, "id", "is of a revoked key")
		}
		k.Secrets = slices.Clone(k.Secrets[:min(len(k.Secrets), liveSecrets-1)])
		if end := digest.Created.Add(overlap); k.Secrets[0].Until.IsZero() || k.Secrets[0].Until.After(end) {
			k.Secrets[0].Until = end
		}
		k.Secrets = slices.Insert(k.Secrets, 0, digest)
		return nil
	})
	if err != nil {
		return err
	}
	v := viewKey(&k)
	v.Secret = secret
	return reply(w, http.StatusOK, v)
}

// readOverlap reads the object of a rotation, which may be left out.
func (s *Server) readOverlap(w http.ResponseWriter, r *http.Request) (time.Duration, error) {
	overlap := defaultOverlap
	if r.ContentLength == 0 {
		return overlap, nil
	}
	o, err := s.readObject(w, r, false)
	if err != nil {
		return 0, err
	}
	o.read("overlap", nil, parseOverlap(&overlap))
	return overlap, o.err()
}

func parseOverlap(to *time.Duration) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		text, is := text(raw)
		d, err := config.ParseDuration(text)
		if !is || err != nil || d < 0 || d > maxOverlap {
			return `a duration with a unit, from "0s" to "30d"`
		}
		*to = d
		return ""
	}
}

// revokeKey is DELETE /v1/keys/{id}: it opens nothing from now on. Revoking again is no error.
func (s *Server) revokeKey(w http.ResponseWriter, r *http.Request) error {
	_, err := s.changeKey(r, func(k *journal.Key) error {
		if k.Revoked.IsZero() {
			k.Revoked = now()
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// changeKey edits the key of the path.
func (s *Server) changeKey(r *http.Request, edit func(*journal.Key) error) (journal.Key, error) {
	id := r.PathValue("id")
	if _, ok := s.access.Key(id); !ok {
		return journal.Key{}, &problem{code: notFound, detail: nothingThere}
	}
	return s.access.Change(r.Context(), id, func(k journal.Key) (journal.Key, error) {
		err := edit(&k)
		return k, err
	})
}

// now is the wall clock, as records show it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
