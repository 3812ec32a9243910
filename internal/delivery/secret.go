package delivery

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Bytes of a signing secret, by Standard Webhooks 1.0.0.
const (
	MinSecret = 24
	MaxSecret = 64

	newSecret    = 32 // of one that NewSecret makes
	secretPrefix = "whsec_"
)

// ErrSecret says which rule of the text form of a signing secret is broken. Its text never
// contains the secret.
var ErrSecret = errors.New("signing secret")

// otherKinds are text forms that look like a signing secret and are not.
var otherKinds = []struct{ prefix, is string }{
	{"whsk_", "is a private key for v1a signatures, not a shared secret"},
	{"whpk_", "is a public key, which cannot sign"},
	{"hwsec_", `begins with "hwsec_", probably mistyped for "whsec_"`},
}

// ParseSecret reads the text form of a signing secret by Standard Webhooks 1.0.0: "whsec_" and the
// base64 (standard alphabet, padded) of 24 to 64 bytes. Errors are ErrSecret and name the rule.
func ParseSecret(text string) ([]byte, error) {
	if text == "" {
		return nil, fmt.Errorf("%w: is empty", ErrSecret)
	}
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, wrongKind(text)
	}
	if strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: contains a line break", ErrSecret)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: what follows %q is not padded standard base64", ErrSecret, secretPrefix)
	}
	return b, checkSecret(b)
}

func wrongKind(text string) error {
	for _, k := range otherKinds {
		if strings.HasPrefix(text, k.prefix) {
			return fmt.Errorf("%w: %s", ErrSecret, k.is)
		}
	}
	return fmt.Errorf("%w: must begin with %q", ErrSecret, secretPrefix)
}

func checkSecret(b []byte) error {
	if len(b) < MinSecret || len(b) > MaxSecret {
		return fmt.Errorf("%w: has %d bytes, must have %d to %d", ErrSecret, len(b), MinSecret, MaxSecret)
	}
	return nil
}

// FormatSecret returns the text form of a signing secret.
func FormatSecret(b []byte) string { return secretPrefix + base64.StdEncoding.EncodeToString(b) }

// NewSecret returns a signing secret of 32 random bytes.
func NewSecret() []byte {
	b := make([]byte, newSecret)
	rand.Read(b) //nolint:errcheck // never fails
	return b
}

// MaxImported is the greatest length in bytes of a secret that was made elsewhere.
const MaxImported = 512

// PublicPrefix begins the text form of the public half of a key pair.
const PublicPrefix = "whpk_"

const pairPrefix = "whsk_"

// SecretForms says which text forms ParseKey takes.
const SecretForms = "whsec_ and the base64 of 24 to 64 bytes; whsk_ and the base64 of an ed25519 key pair; " +
	"or, made elsewhere, text:, hex: or base64: and 1 to 512 bytes"

// ParseKey reads the text form of a key that signs: a signing secret (ParseSecret), a key pair for v1a
// (whsk_), or a secret of any length that was made elsewhere: "text:" and the key itself, or "hex:" or
// "base64:" and its encoding. pair says which it is. Errors are ErrSecret and name the rule.
func ParseKey(text string) (b []byte, pair bool, err error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case strings.HasPrefix(text, pairPrefix):
		b, err = parsePair(text[len(pairPrefix):])
		return b, true, err
	case kind == "text":
		b = []byte(rest)
	case kind == "hex":
		b, err = hex.DecodeString(rest)
	case kind == "base64":
		b, err = base64.StdEncoding.DecodeString(rest)
	default:
		b, err = ParseSecret(text)
		return b, false, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: what follows %q is not in that encoding", ErrSecret, kind+":")
	}
	if len(b) < 1 || len(b) > MaxImported {
		return nil, false, fmt.Errorf("%w: has %d bytes, must have 1 to %d", ErrSecret, len(b), MaxImported)
	}
	return b, false, nil
}

func parsePair(encoded string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(b) != ed25519.PrivateKeySize || strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: what follows %q is not padded standard base64 of %d bytes", ErrSecret, pairPrefix, ed25519.PrivateKeySize)
	}
	if !bytes.Equal(ed25519.NewKeyFromSeed(b[:ed25519.SeedSize]), b) {
		return nil, fmt.Errorf("%w: the two halves of the key pair do not belong together", ErrSecret)
	}
	return b, nil
}

// NewPair returns an ed25519 key pair for v1a signatures.
func NewPair() []byte {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) //nolint:errcheck // never fails
	return ed25519.NewKeyFromSeed(seed)
}

// FormatPublic returns the text form of the public half of a key pair, which a receiver verifies
// with; "" for what is no key pair.
func FormatPublic(pair []byte) string {
	if len(pair) != ed25519.PrivateKeySize {
		return ""
	}
	return PublicPrefix + base64.StdEncoding.EncodeToString(pair[ed25519.SeedSize:])
}
