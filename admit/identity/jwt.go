package identity

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/golang-jwt/jwt/v5"
)

// Tokens are JWTs in Authorization, as Bearer. The key decides the algorithm,
// never the token: a token that names another than its key's is broken, and so
// is one without an expiry. Safe for concurrent use.
type Tokens struct {
	claims  Claims
	parser  *jwt.Parser
	keys    atomic.Pointer[KeySet]
	unknown func() // told that a token named a key that is not held; does not wait
}

// Claims say where a token holds what, and what it must hold.
type Claims struct {
	Tenant   string // claim that names the tenant; "" is "tenant"
	User     string // "" is "sub"
	Tier     string // "": the token names no tier
	Issuer   string // what "iss" must be; "": not looked at
	Audience string // what "aud" must hold; "": not looked at
}

// NewTokens reads tokens. unknown, which may be nil, is called when a token names
// a key that is not held, so that keys can be fetched anew; it must not wait.
func NewTokens(c Claims, unknown func()) *Tokens {
	if c.Tenant == "" {
		c.Tenant = "tenant"
	}
	if c.User == "" {
		c.User = "sub"
	}
	options := []jwt.ParserOption{jwt.WithValidMethods(algorithms), jwt.WithExpirationRequired()}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	t := &Tokens{claims: c, parser: jwt.NewParser(options...), unknown: unknown}
	t.keys.Store(&KeySet{})
	return t
}

// SetKeys replaces the keys.
func (t *Tokens) SetKeys(k *KeySet) { t.keys.Store(k) }

// Keys returns the keys that are held.
func (t *Tokens) Keys() *KeySet { return t.keys.Load() }

// Resolve verifies the request's token.
func (t *Tokens) Resolve(r *http.Request) (Identity, error) {
	raw, err := bearer(r)
	switch {
	case err != nil:
		return Identity{}, err
	case !looksSigned(raw):
		return Identity{}, ErrNone
	}
	claims := jwt.MapClaims{}
	if _, err := t.parser.ParseWithClaims(raw, claims, t.key); err != nil {
		return Identity{}, ErrBroken // what exactly is wrong is nobody's business
	}
	id := Identity{Tenant: text(claims, t.claims.Tenant), User: text(claims, t.claims.User)}
	if t.claims.Tier != "" {
		id.Tier = text(claims, t.claims.Tier)
	}
	if id.Tenant == "" {
		return Identity{}, ErrBroken
	}
	return id, nil
}

var errKey = errors.New("identity: no such key")

// key returns the key of a token's "kid", if it is for the token's algorithm.
func (t *Tokens) key(token *jwt.Token) (any, error) {
	kid, _ := token.Header["kid"].(string)
	k, ok := t.keys.Load().find(kid)
	if !ok {
		if t.unknown != nil {
			t.unknown()
		}
		return nil, errKey
	}
	if k.algorithm != token.Method.Alg() {
		return nil, errKey
	}
	return k.public, nil
}

// maxName bounds what a token may say of whose it is, in bytes: it becomes a key.
const maxName = 256

func text(claims jwt.MapClaims, name string) string {
	s, _ := claims[name].(string)
	if len(s) > maxName {
		return ""
	}
	return s
}
