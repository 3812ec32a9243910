package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
)

// Keys are API keys. Only their SHA-256 is held: keys are long and random, so a
// plain hash neither gives one away nor lets one be found by timing. The zero
// Keys holds none. Safe for concurrent use once Header is set.
type Keys struct {
	Header string // that carries the key; "": Authorization, as Bearer

	table atomic.Pointer[map[[sha256.Size]byte]Identity]
}

// maxKey bounds what is hashed, in bytes.
const maxKey = 512

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

// Set replaces all keys, or none if one of them is wrong: then it returns which.
func (k *Keys) Set(entries []Entry) (at int, err error) {
	table := make(map[[sha256.Size]byte]Identity, len(entries))
	for i, e := range entries {
		raw, err := hex.DecodeString(e.SHA256)
		if err != nil || len(raw) != sha256.Size {
			return i, errors.New("sha256 must be 64 hexadecimal digits")
		}
		if !isTenant(e.Tenant) {
			return i, errors.New("a key must name a tenant: UTF-8, without control characters, and without blanks at the ends")
		}
		sum := [sha256.Size]byte(raw)
		if _, twice := table[sum]; twice {
			return i, errors.New("a key must stand once")
		}
		table[sum] = e.Identity
	}
	k.table.Store(&table)
	return 0, nil
}

// Resolve looks the request's key up. In Authorization a token that looks like a
// JWT is left to another Source.
func (k *Keys) Resolve(r *http.Request) (Identity, error) {
	key, err := k.presented(r)
	if err != nil {
		return Identity{}, err
	}
	table := k.table.Load()
	if table == nil {
		return Identity{}, ErrBroken
	}
	id, ok := (*table)[sha256.Sum256([]byte(key))]
	if !ok {
		return Identity{}, ErrBroken
	}
	return id, nil
}

func (k *Keys) presented(r *http.Request) (string, error) {
	if k.Header == "" {
		token, err := bearer(r)
		if err == nil && looksSigned(token) {
			return "", ErrNone
		}
		return token, err
	}
	lines := r.Header.Values(k.Header)
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
