package journal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	secretKeyBytes = 32
	secretKeyFile  = "secret.key"
)

// ErrSecretKey says that the key which stored secrets are encrypted with is wrong or missing.
var ErrSecretKey = errors.New("journal: secret key")

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: the runtime ends the process instead
	return b
}

// secretBox encrypts what must not lie on disk in clear, with AES-256-GCM and a random nonce.
// Immutable, safe for concurrent use.
type secretBox struct {
	seals string // id of the key that seals
	aeads map[string]cipher.AEAD
}

// sealed is an encrypted value and the id of its key.
type sealed struct {
	Key  string `json:"key"`
	Data []byte `json:"data"` // nonce, ciphertext, tag
}

// newSecretBox seals with key, which has 32 bytes. With a nil key it seals with the one kept in dir
// (file secret.key, mode 0600, made on first use). What that file's key sealed stays readable after
// a key has been configured, and so does what the previous keys sealed.
func newSecretBox(dir string, key []byte, previous ...[]byte) (*secretBox, error) {
	kept, err := loadSecretKey(dir)
	if err != nil {
		return nil, err
	}
	if key == nil && kept == nil {
		if kept, err = makeSecretKey(dir); err != nil {
			return nil, err
		}
	}
	b := &secretBox{aeads: make(map[string]cipher.AEAD)}
	for _, k := range append(slices.Clone(previous), kept, key) { // the last one seals
		if k == nil {
			continue
		}
		if err := b.add(k); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *secretBox) add(key []byte) error {
	if len(key) != secretKeyBytes {
		return fmt.Errorf("%w: has %d bytes, must have %d", ErrSecretKey, len(key), secretKeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return err
	}
	b.seals = secretKeyID(key)
	b.aeads[b.seals] = aead
	return nil
}

// secretKeyID names a key and tells nothing about it.
func secretKeyID(key []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("fairlane secret key id"))
	return hex.EncodeToString(m.Sum(nil)[:4])
}

// seal encrypts plain for the record named by owner: it opens for no other.
func (b *secretBox) seal(owner string, plain []byte) sealed {
	return sealed{Key: b.seals, Data: b.aeads[b.seals].Seal(nil, nil, plain, []byte(owner))}
}

// open decrypts what seal returned for the same owner. Errors are ErrSecretKey.
func (b *secretBox) open(owner string, s sealed) ([]byte, error) {
	aead, ok := b.aeads[s.Key]
	if !ok {
		return nil, fmt.Errorf("%w: %s was encrypted with key %q, which is neither data.secret_key, nor one of data.previous_secret_keys, nor %s of the data directory (now %q)",
			ErrSecretKey, owner, s.Key, secretKeyFile, b.seals)
	}
	plain, err := aead.Open(nil, nil, s.Data, []byte(owner))
	if err != nil {
		return nil, fmt.Errorf("%w: %s does not decrypt with key %q: damaged or moved", ErrSecretKey, owner, s.Key)
	}
	return plain, nil
}

// loadSecretKey returns the key kept in dir, nil when there is none.
func loadSecretKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, secretKeyFile)
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecretKey, err)
	}
	if st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%w: %s is open to every user (mode %04o): chmod 600", ErrSecretKey, path, st.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecretKey, err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != secretKeyBytes {
		return nil, fmt.Errorf("%w: %s does not hold %d bytes in base64", ErrSecretKey, path, secretKeyBytes)
	}
	return key, nil
}

// makeSecretKey keeps a new random key in dir. It is durable before anything is sealed with it.
func makeSecretKey(dir string) ([]byte, error) {
	key := randomBytes(secretKeyBytes)
	text := base64.StdEncoding.EncodeToString(key) + "\n"
	if err := writeDurable(filepath.Join(dir, secretKeyFile), []byte(text)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecretKey, err)
	}
	return key, nil
}

// writeDurable replaces the file at path: after a crash it holds the old bytes or the new ones. Its owner alone may read it.
func writeDurable(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
