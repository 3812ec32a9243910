package delivery

import (
	"crypto/rand"
	"encoding/base64"
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
