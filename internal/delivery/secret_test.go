package delivery

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestSecretTextForm(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct{ name, text, rule string }{
		{"published vector", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", ""},
		{"24 bytes", "whsec_" + b64(make([]byte, 24)), ""},
		{"64 bytes", "whsec_" + b64(make([]byte, 64)), ""},
		{"23 bytes", "whsec_" + b64(make([]byte, 23)), "has 23 bytes, must have 24 to 64"},
		{"65 bytes", "whsec_" + b64(make([]byte, 65)), "has 65 bytes, must have 24 to 64"},
		{"empty", "", "is empty"},
		{"nothing behind the prefix", "whsec_", "has 0 bytes"},
		{"private key", "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==", "private key"},
		{"public key", "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", "public key"},
		{"mistyped", "hwsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "mistyped"},
		{"no prefix", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `must begin with "whsec_"`},
		{"upper case prefix", "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with"},
		{"space before", " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with"},
		{"space behind", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw ", "not padded standard base64"},
		{"line break", "whsec_MfKQ9r8GKYqr\nTwjUPD8ILPZIo2LaLaSw", "line break"},
		{"URL alphabet", "whsec_" + strings.Repeat("-_-_", 10), "not padded standard base64"},
		{"unpadded", "whsec_" + strings.TrimRight(b64(make([]byte, 32)), "="), "not padded standard base64"},
	} {
		b, err := ParseSecret(c.text)
		if c.rule == "" {
			if err != nil || FormatSecret(b) != c.text {
				t.Errorf("%s: %q, %v", c.name, FormatSecret(b), err)
			}
			continue
		}
		if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: %v, want the rule %q", c.name, err, c.rule)
		}
		if _, value, _ := strings.Cut(c.text, "_"); len(value) > 8 && strings.Contains(err.Error(), value[:8]) {
			t.Errorf("%s: the error repeats the secret: %v", c.name, err)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	for _, s := range []string{"", "whsec_", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsk_AA==", "whsec_AB=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseSecret(text)
		if err == nil && (FormatSecret(b) != text || len(b) < 24 || len(b) > 64) {
			t.Fatalf("%q accepted as %d bytes, formatted %q", text, len(b), FormatSecret(b))
		}
	})
}

func TestNewSecretsAreValidAndDiffer(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if bytes.Equal(a, b) || checkSecret(a) != nil {
		t.Fatalf("%x, %x", a, b)
	}
}
