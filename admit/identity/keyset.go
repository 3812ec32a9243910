package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// algorithms are those of keys that verify and cannot sign: no shared secrets.
var algorithms = []string{"RS256", "ES256", "ES384", "EdDSA"}

// KeySet holds the public keys that tokens are verified by. Immutable.
type KeySet struct {
	byID map[string]publicKey
}

type publicKey struct {
	algorithm string
	public    any
}

// Len returns the number of keys.
func (s *KeySet) Len() int { return len(s.byID) }

// find returns the key of an id; a set of one key needs none.
func (s *KeySet) find(kid string) (publicKey, bool) {
	if kid == "" && len(s.byID) == 1 {
		for _, k := range s.byID {
			return k, true
		}
	}
	k, ok := s.byID[kid]
	return k, ok
}

// ParseKeys reads a JWKS (RFC 7517: RSA, EC P-256 and P-384, Ed25519) or PEM
// public keys. Keys of other kinds in a JWKS are left out; none at all is an
// error, and so is a JWKS with a private key in it.
func ParseKeys(data []byte) (*KeySet, error) {
	set := &KeySet{byID: map[string]publicKey{}}
	if block, _ := pem.Decode(data); block != nil {
		return set, set.pem(data)
	}
	var document struct{ Keys []jwk }
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, errors.New("identity: keys must be a JWKS or PEM public keys")
	}
	for _, k := range document.Keys {
		if k.D != "" || k.K != "" {
			return nil, errors.New("identity: a key set must hold public keys only")
		}
		key, ok, err := k.key()
		if err != nil {
			return nil, fmt.Errorf("identity: key %q: %w", k.Kid, err)
		}
		if ok && (k.Use == "" || k.Use == "sig") {
			set.byID[k.Kid] = key
		}
	}
	if len(set.byID) == 0 {
		return nil, errors.New("identity: there is no key for RS256, ES256, ES384 or EdDSA")
	}
	return set, nil
}

// pem reads public keys; the first has the id "", further ones "2", "3", ...
func (s *KeySet) pem(data []byte) error {
	for n := 1; ; n++ {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return errors.New("identity: PEM must hold public keys (BEGIN PUBLIC KEY)")
		}
		key, ok := keyOf(public)
		if !ok {
			return errors.New("identity: a key must be RSA of 2048 bits or more, P-256, P-384 or Ed25519")
		}
		id := ""
		if n > 1 {
			id = fmt.Sprint(n)
		}
		s.byID[id] = key
	}
}

// keyOf gives a key the one algorithm it is used with.
func keyOf(public any) (publicKey, bool) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return publicKey{"RS256", k}, k.N.BitLen() >= 2048
	case ed25519.PublicKey:
		return publicKey{"EdDSA", k}, true
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return publicKey{"ES256", k}, true
		case elliptic.P384():
			return publicKey{"ES384", k}, true
		}
	}
	return publicKey{}, false
}

type jwk struct {
	Kty, Kid, Use, Crv string
	N, E, X, Y         string
	D, K               string
}

// key returns the key, or false for a kind that is not used here.
func (j *jwk) key() (publicKey, bool, error) {
	var public any
	var err error
	switch {
	case j.Kty == "RSA":
		public, err = j.rsa()
	case j.Kty == "EC" && j.Crv == "P-256":
		public, err = j.ec(elliptic.P256())
	case j.Kty == "EC" && j.Crv == "P-384":
		public, err = j.ec(elliptic.P384())
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		public, err = j.ed25519()
	default:
		return publicKey{}, false, nil
	}
	if err != nil {
		return publicKey{}, false, err
	}
	k, ok := keyOf(public)
	if !ok {
		return publicKey{}, false, errors.New("is too short")
	}
	return k, true, nil
}

func (j *jwk) rsa() (any, error) {
	n, err := number(j.N)
	if err != nil {
		return nil, err
	}
	e, err := number(j.E)
	if err != nil || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
		return nil, errors.New("has no valid exponent")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (j *jwk) ec(curve elliptic.Curve) (any, error) {
	size := (curve.Params().BitSize + 7) / 8
	x, err := base64.RawURLEncoding.DecodeString(j.X)
	if err != nil || len(x) != size {
		return nil, errors.New("has no valid x")
	}
	y, err := base64.RawURLEncoding.DecodeString(j.Y)
	if err != nil || len(y) != size {
		return nil, errors.New("has no valid y")
	}
	return ecdsa.ParseUncompressedPublicKey(curve, append(append([]byte{4}, x...), y...))
}

func (j *jwk) ed25519() (any, error) {
	x, err := base64.RawURLEncoding.DecodeString(j.X)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, errors.New("has no valid x")
	}
	return ed25519.PublicKey(x), nil
}

func number(s string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || len(b) > 2048 {
		return nil, errors.New("has a number that is not base64url")
	}
	return new(big.Int).SetBytes(b), nil
}
