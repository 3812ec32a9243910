package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// Keys are API keys. Only their SHA-256 is held: keys are long and random, so a
// plain hash neither gives one away nor lets one be found by timing. Safe for
// concurrent use.
type Keys struct {
	header string
	table  atomic.Pointer[map[[sha256.Size]byte]Identity]
}

// maxKey bounds what is hashed, in bytes.
const maxKey = 512

// NewKeys reads keys from a header; "" is Authorization, as Bearer.
func NewKeys(header string) *Keys {
	k := &Keys{header: header}
	k.table.Store(&map[[sha256.Size]byte]Identity{})
	return k
}

// Entry is a key as it is kept: the hash in hexadecimal, and whose it is.
type Entry struct {
	SHA256 string
	Identity
}

// Hash returns what Entry.SHA256 holds for a key.
func Hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Set replaces all keys, or none if one of them is wrong.
func (k *Keys) Set(entries []Entry) error {
	table := make(map[[sha256.Size]byte]Identity, len(entries))
	for i, e := range entries {
		raw, err := hex.DecodeString(e.SHA256)
		if err != nil || len(raw) != sha256.Size {
			return fmt.Errorf("identity: key %d: sha256 must be 64 hexadecimal digits", i+1)
		}
		if e.Tenant == "" {
			return fmt.Errorf("identity: key %d: must name a tenant", i+1)
		}
		sum := [sha256.Size]byte(raw)
		if _, twice := table[sum]; twice {
			return fmt.Errorf("identity: key %d: stands twice", i+1)
		}
		table[sum] = e.Identity
	}
	k.table.Store(&table)
	return nil
}

// Resolve looks the request's key up. In Authorization a token that looks like a
// JWT is left to another Source.
func (k *Keys) Resolve(r *http.Request) (Identity, error) {
	key, err := k.presented(r)
	if err != nil {
		return Identity{}, err
	}
	id, ok := (*k.table.Load())[sha256.Sum256([]byte(key))]
	if !ok {
		return Identity{}, ErrBroken
	}
	return id, nil
}

func (k *Keys) presented(r *http.Request) (string, error) {
	if k.header == "" {
		token, err := bearer(r)
		if err == nil && looksSigned(token) {
			return "", ErrNone
		}
		return token, err
	}
	lines := r.Header.Values(k.header)
	switch {
	case len(lines) == 0:
		return "", ErrNone
	case len(lines) > 1 || lines[0] == "" || len(lines[0]) > maxKey:
		return "", ErrBroken
	}
	return lines[0], nil
}

// bearer returns the token of the one Authorization line.
func bearer(r *http.Request) (string, error) {
	lines := r.Header.Values("Authorization")
	if len(lines) == 0 {
		return "", ErrNone
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", ErrBroken
	}
	token = strings.TrimSpace(token)
	if token == "" || len(token) > maxToken {
		return "", ErrBroken
	}
	return token, nil
}

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// looksSigned reports whether a token has the three parts of a JWT.
func looksSigned(token string) bool { return strings.Count(token, ".") == 2 }
