package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSealedOpensForItsOwnerAlone(t *testing.T) {
	box := mustBox(t, t.TempDir(), bytes.Repeat([]byte{7}, 32))
	s := box.seal("sub_a", []byte("hidden"))
	if got, err := box.open("sub_a", s); err != nil || string(got) != "hidden" {
		t.Fatalf("%q, %v", got, err)
	}
	if bytes.Contains(s.Data, []byte("hidden")) {
		t.Fatal("stored in clear")
	}
	if _, err := box.open("sub_b", s); !errors.Is(err, ErrSecretKey) {
		t.Errorf("moved to another record: %v", err)
	}
	for i := range s.Data {
		s.Data[i] ^= 1
		if _, err := box.open("sub_a", s); !errors.Is(err, ErrSecretKey) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		s.Data[i] ^= 1
	}
	if again := box.seal("sub_a", []byte("hidden")); bytes.Equal(again.Data, s.Data) {
		t.Error("a nonce was used twice")
	}
}

func TestKeptKeyIsPrivateAndStays(t *testing.T) {
	dir := t.TempDir()
	s := mustBox(t, dir, nil).seal("x", []byte("hidden"))
	path := filepath.Join(dir, secretKeyFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st, err)
	}
	if got, err := mustBox(t, dir, nil).open("x", s); err != nil || string(got) != "hidden" {
		t.Fatalf("after reopening: %q, %v", got, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := newSecretBox(dir, nil); !errors.Is(err, ErrSecretKey) || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("readable by all: %v", err)
	}
}

// A key that is configured later seals from then on; what the kept one sealed stays readable.
func TestConfiguredKeyTakesOverFromTheKeptOne(t *testing.T) {
	dir, key := t.TempDir(), bytes.Repeat([]byte{9}, 32)
	kept := mustBox(t, dir, nil)
	old := kept.seal("x", []byte("old"))
	both := mustBox(t, dir, key)
	if got, err := both.open("x", old); err != nil || string(got) != "old" {
		t.Fatalf("%q, %v", got, err)
	}
	s := both.seal("x", []byte("new"))
	if s.Key == old.Key {
		t.Error("sealed with the kept key")
	}
	if _, err := kept.open("x", s); !errors.Is(err, ErrSecretKey) || !strings.Contains(err.Error(), s.Key) {
		t.Errorf("without the configured key: %v", err)
	}
}

func TestBadSecretKeysAreRefused(t *testing.T) {
	for _, n := range []int{0, 16, 31, 33} {
		if _, err := newSecretBox(t.TempDir(), make([]byte, n)); !errors.Is(err, ErrSecretKey) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, text := range []string{"", "AAAA", "not base64", strings.Repeat("A", 200)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, secretKeyFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newSecretBox(dir, nil); !errors.Is(err, ErrSecretKey) {
			t.Errorf("file %q: %v", text, err)
		}
	}
}

func TestConfiguredKeyNeedsNoFile(t *testing.T) {
	dir := t.TempDir()
	mustBox(t, dir, make([]byte, 32))
	if _, err := os.Stat(filepath.Join(dir, secretKeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func mustBox(t *testing.T, dir string, key []byte) *secretBox {
	t.Helper()
	b, err := newSecretBox(dir, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
